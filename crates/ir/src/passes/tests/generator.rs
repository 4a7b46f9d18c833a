//! Random kernels that the verifier accepts.

use crate::text::tests::Choices;
use crate::*;

/// Generates valid kernels of arithmetic, branches, loops, and loads and stores of elements.
pub(super) struct Generator {
    choices: Choices,
    values: Vec<Type>,
    /// The values in scope, innermost last.
    visible: Vec<ValueId>,
    budget: usize,
}

const TYPES: [Type; 5] = [Type::Bool, Type::U32, Type::S32, Type::U64, Type::F32];
const NUMBERS: [Type; 4] = [Type::U32, Type::S32, Type::U64, Type::F32];
const INTERESTING: [u32; 12] =
    [0, 1, 2, 3, 8, 31, 32, 33, 64, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];

impl Generator {
    pub(super) fn kernel(choices: Vec<u32>) -> Kernel {
        let visible = vec![];
        let mut generator =
            Generator { choices: Choices::new(choices), values: vec![], visible, budget: 60 };
        let mut insts = vec![];
        generator.insts(&mut insts, 0);
        if generator.choices.flag() {
            let blocks: Vec<Block> = (0..3).map(|_| generator.nested(1, &[])).collect();
            let ids = vec![RoleId(0), RoleId(2), RoleId(1)];
            insts.push(inst(Op::Roles(ids), vec![], vec![], blocks));
            generator.insts(&mut insts, 0);
        }
        let role =
            |name: &str, warpgroups, registers| Role { name: name.into(), warpgroups, registers };
        Kernel {
            name: "random".into(),
            params: ["a", "b"]
                .map(|name| Param { name: name.into(), kind: ParamKind::Scalar(Type::U32) })
                .into(),
            cluster: 1,
            ctas_per_sm: 1,
            roles: vec![role("load", 1, 40), role("math", 2, 152), role("store", 1, 128)],
            regions: vec![],
            accumulators: vec![],
            values: generator.values,
            body: Block { params: vec![], insts },
            locations: vec![Location {
                file: "random.rs".into(),
                line: 1,
                column: 1,
                scopes: vec![],
            }],
        }
    }

    fn define(&mut self, ty: Type) -> ValueId {
        self.values.push(ty);
        ValueId(self.values.len() as u32 - 1)
    }

    /// Adds an instruction with one result and brings the result into scope.
    fn push(&mut self, insts: &mut Vec<Inst>, op: Op, args: Vec<ValueId>, ty: Type) -> ValueId {
        let result = self.define(ty);
        insts.push(inst(op, args, vec![result], vec![]));
        self.visible.push(result);
        result
    }

    fn constant(&mut self, ty: Type) -> Constant {
        let bits =
            if self.choices.flag() { self.choices.of(&INTERESTING) } else { self.choices.any() };
        match ty {
            Type::Bool => Constant::Bool(bits % 2 == 1),
            Type::U32 => Constant::U32(bits),
            Type::S32 => Constant::S32(bits as i32),
            Type::U64 => Constant::U64(u64::from(bits) | u64::from(self.choices.any()) << 32),
            _ => Constant::F32(self.choices.of(&[0.0, -0.0, 1.0, 0.1, f32::MAX, f32::INFINITY])),
        }
    }

    /// A value of a type: one in scope, or a new constant.
    fn operand(&mut self, insts: &mut Vec<Inst>, ty: Type) -> ValueId {
        let fits = |value: &&ValueId| self.values[value.index()] == ty;
        let there: Vec<ValueId> = self.visible.iter().filter(fits).copied().collect();
        if there.is_empty() || self.choices.below(3) == 0 {
            let constant = self.constant(ty);
            self.push(insts, Op::Const(constant), vec![], ty)
        } else {
            self.choices.of(&there)
        }
    }

    fn insts(&mut self, insts: &mut Vec<Inst>, depth: usize) {
        for _ in 0..2 + self.choices.below(8) {
            if self.budget == 0 {
                return;
            }
            self.budget -= 1;
            self.one(insts, depth);
        }
    }

    fn nested(&mut self, depth: usize, yields: &[Type]) -> Block {
        let outer = self.visible.len();
        let mut insts = vec![];
        self.insts(&mut insts, depth);
        let args = yields.iter().map(|ty| self.operand(&mut insts, *ty)).collect();
        insts.push(inst(Op::Yield, args, vec![], vec![]));
        self.visible.truncate(outer);
        Block { params: vec![], insts }
    }

    fn one(&mut self, insts: &mut Vec<Inst>, depth: usize) {
        use BinaryOp::{Add, And, Div, Max, Min, Mul, MulHigh, Or, Rem, Shl, Shr, Sub, Xor};

        match self.choices.below(if depth < 3 { 16 } else { 13 }) {
            0 => {
                let id = ParamId(self.choices.below(2) as u32);
                self.push(insts, Op::Param(id), vec![], Type::U32);
            }
            1 => {
                let ty = self.choices.of(&TYPES);
                let value = self.operand(insts, if ty == Type::F32 { Type::U64 } else { ty });
                let ty = self.values[value.index()];
                self.push(insts, Op::Unary(UnaryOp::Not), vec![value], ty);
            }
            2 => {
                let ty = self.choices.of(&[Type::S32, Type::F32]);
                let value = self.operand(insts, ty);
                self.push(insts, Op::Unary(UnaryOp::Neg), vec![value], ty);
            }
            3 => {
                let args = (0..3).map(|_| self.operand(insts, Type::F32)).collect();
                self.push(insts, Op::Fma, args, Type::F32);
            }
            4 => {
                let ty = self.choices.of(&NUMBERS);
                let op = self.choices.of(&[
                    CompareOp::Eq,
                    CompareOp::Ne,
                    CompareOp::Lt,
                    CompareOp::Le,
                    CompareOp::Gt,
                    CompareOp::Ge,
                ]);
                let args = vec![self.operand(insts, ty), self.operand(insts, ty)];
                self.push(insts, Op::Compare(op), args, Type::Bool);
            }
            5 => {
                let ty = self.choices.of(&TYPES);
                let args = vec![
                    self.operand(insts, Type::Bool),
                    self.operand(insts, ty),
                    self.operand(insts, ty),
                ];
                self.push(insts, Op::Select, args, ty);
            }
            6 => {
                let (from, to) = self.choices.of(&[
                    (Type::U32, Type::U64),
                    (Type::S32, Type::U64),
                    (Type::U64, Type::U32),
                    (Type::U64, Type::S32),
                    (Type::U32, Type::F32),
                    (Type::S32, Type::F32),
                ]);
                let value = self.operand(insts, from);
                self.push(insts, Op::Convert(to), vec![value], to);
            }
            7 => {
                let words = [Type::U32, Type::S32, Type::F32];
                let (from, to) = (self.choices.of(&words), self.choices.of(&words));
                let value = self.operand(insts, from);
                self.push(insts, Op::Bitcast(to), vec![value], to);
            }
            8 => {
                let op = self.choices.of(&[Shl, Shr]);
                let ty = self.choices.of(&[Type::U32, Type::S32, Type::U64]);
                let args = vec![self.operand(insts, ty), self.operand(insts, Type::U32)];
                self.push(insts, Op::Binary(op), args, ty);
            }
            9 if self.choices.flag() => {
                let element = self.choices.of(&[Element::F32, Element::F16, Element::Bf16]);
                let address = self.operand(insts, Type::U64);
                if self.choices.flag() {
                    self.push(insts, Op::LoadElement(element), vec![address], Type::F32);
                } else {
                    let value = self.operand(insts, Type::F32);
                    let op = Op::StoreElement(element);
                    insts.push(inst(op, vec![address, value], vec![], vec![]));
                }
            }
            9 => {
                let ty = self.choices.of(&[Type::U32, Type::U64]);
                let address = self.operand(insts, Type::U64);
                let value = self.operand(insts, ty);
                let access = Access {
                    space: Space::Global,
                    ty,
                    vector: 1,
                    order: Order::Weak,
                    scope: Scope::Cta,
                    once: false,
                };
                insts.push(inst(Op::Store(access), vec![address, value], vec![], vec![]));
            }
            13 => {
                let condition = self.operand(insts, Type::Bool);
                let yields = [self.choices.of(&TYPES)];
                let blocks = vec![self.nested(depth + 1, &yields), self.nested(depth + 1, &yields)];
                let result = self.define(yields[0]);
                insts.push(inst(Op::If, vec![condition], vec![result], blocks));
                self.visible.push(result);
            }
            14 => self.counted(insts, depth),
            15 => {
                // The loop runs once or not at all.
                let start = self.operand(insts, Type::Bool);
                let [head, body] = [self.define(Type::Bool), self.define(Type::Bool)];
                let mut end = self.nested(depth + 1, &[]).insts;
                end.pop();
                let stop = self.define(Type::Bool);
                end.push(inst(Op::Const(Constant::Bool(false)), vec![], vec![stop], vec![]));
                end.push(inst(Op::Yield, vec![stop], vec![], vec![]));
                let test = inst(Op::Yield, vec![head], vec![], vec![]);
                let result = self.define(Type::Bool);
                let blocks = vec![
                    Block { params: vec![head], insts: vec![test] },
                    Block { params: vec![body], insts: end },
                ];
                insts.push(inst(Op::While, vec![start], vec![result], blocks));
                self.visible.push(result);
            }
            kind => {
                let (op, ty) = if kind == 10 {
                    let op = self.choices.of(&[And, Or, Xor]);
                    (op, self.choices.of(&[Type::Bool, Type::U32, Type::S32, Type::U64]))
                } else {
                    let op = self.choices.of(&[Add, Sub, Mul, MulHigh, Div, Min, Max, Rem]);
                    let types = match op {
                        MulHigh => &[Type::U32][..],
                        Rem => &NUMBERS[..3],
                        _ => &NUMBERS[..],
                    };
                    (op, self.choices.of(types))
                };
                let args = vec![self.operand(insts, ty), self.operand(insts, ty)];
                self.push(insts, Op::Binary(op), args, ty);
            }
        }
    }

    fn counted(&mut self, insts: &mut Vec<Inst>, depth: usize) {
        let bound = |c: &mut Choices| Constant::U32(c.below(4) as u32);
        let (begin, end) = (bound(&mut self.choices), bound(&mut self.choices));
        let begin = self.push(insts, Op::Const(begin), vec![], Type::U32);
        let end = self.push(insts, Op::Const(end), vec![], Type::U32);
        let step = self.push(insts, Op::Const(Constant::U32(1)), vec![], Type::U32);
        let ty = self.choices.of(&TYPES);
        let init = self.operand(insts, ty);
        let (index, carried) = (self.define(Type::U32), self.define(ty));
        let outer = self.visible.len();
        self.visible.extend([index, carried]);
        let mut body = self.nested(depth + 1, &[ty]);
        self.visible.truncate(outer);
        body.params = vec![index, carried];
        let result = self.define(ty);
        insts.push(inst(Op::For, vec![begin, end, step, init], vec![result], vec![body]));
        self.visible.push(result);
    }
}

fn inst(op: Op, args: Vec<ValueId>, results: Vec<ValueId>, blocks: Vec<Block>) -> Inst {
    Inst { op, args, results, blocks, loc: LocId(0) }
}
