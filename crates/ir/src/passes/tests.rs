//! Passes keep the meaning of random kernels, and what each of them does is shown on small ones.

use proptest::prelude::*;

use super::{PassError, cse, dce, fold, legalise, optimise, renumber};
use crate::text::tests::Choices;
use crate::text::{TextOptions, parse, to_text};
use crate::*;

/// Runs one thread of a kernel and collects what it stores: address and bits. Written on bits and wide integers, so that
/// it shares nothing with folding.
struct Evaluator<'k> {
    kernel: &'k Kernel,
    values: Vec<u64>,
    warpgroup: u64,
    stores: Vec<(u64, u64)>,
}

impl<'k> Evaluator<'k> {
    fn run(kernel: &'k Kernel, warpgroup: u64) -> Vec<(u64, u64)> {
        let values = vec![0; kernel.values.len()];
        let mut evaluator = Evaluator { kernel, values, warpgroup, stores: vec![] };
        evaluator.block(&kernel.body, &[]);
        evaluator.stores
    }

    fn get(&self, value: ValueId) -> u64 {
        self.values[value.index()]
    }

    fn all(&self, values: &[ValueId]) -> Vec<u64> {
        values.iter().map(|&value| self.get(value)).collect()
    }

    fn set(&mut self, ids: &[ValueId], values: &[u64]) {
        assert_eq!(ids.len(), values.len());
        for (id, value) in ids.iter().zip(values) {
            self.values[id.index()] = *value;
        }
    }

    fn block(&mut self, block: &Block, params: &[u64]) -> Vec<u64> {
        self.set(&block.params, params);
        for inst in &block.insts {
            if inst.op == Op::Yield {
                return self.all(&inst.args);
            }
            let results = self.inst(inst);
            self.set(&inst.results, &results);
        }
        vec![]
    }

    fn inst(&mut self, inst: &Inst) -> Vec<u64> {
        let args = self.all(&inst.args);
        match &inst.op {
            Op::If => self.block(&inst.blocks[usize::from(args[0] == 0)], &[]),
            Op::For => {
                let (mut index, mut carried) = (args[0], args[3..].to_vec());
                while index < args[1] {
                    carried = self.block(&inst.blocks[0], &[&[index], &carried[..]].concat());
                    index += args[2];
                }
                carried
            }
            Op::While => {
                let mut carried = args;
                while self.block(&inst.blocks[0], &carried)[0] == 1 {
                    carried = self.block(&inst.blocks[1], &carried);
                }
                carried
            }
            Op::Roles(listed) => {
                for (id, block) in listed.iter().zip(&inst.blocks) {
                    let first = u64::from(self.kernel.first_warpgroup(*id));
                    let count = u64::from(self.kernel.roles[id.index()].warpgroups);
                    if (first..first + count).contains(&self.warpgroup) {
                        self.block(block, &[]);
                    }
                }
                vec![]
            }
            Op::Store(_) => {
                self.stores.push((args[0], args[1]));
                vec![]
            }
            Op::SetMaxRegisters { .. } => vec![],
            op => {
                let ty = inst.args.last().map_or(Type::U32, |arg| self.kernel.ty(*arg));
                vec![self.pure(op, inst, ty, &args)]
            }
        }
    }

    fn pure(&self, op: &Op, inst: &Inst, ty: Type, args: &[u64]) -> u64 {
        let f32 = |bits: u64| f32::from_bits(bits as u32);
        match op {
            Op::Const(constant) => constant.bits(),
            Op::Param(id) => 0x9e37_79b9 ^ u64::from(id.0),
            Op::Special(Special::Warpgroup) => self.warpgroup,
            Op::Special(_) => 77,
            Op::Unary(UnaryOp::Not) => !args[0] & mask(ty),
            Op::Unary(UnaryOp::Neg) if ty == Type::F32 => args[0] ^ 0x8000_0000,
            Op::Unary(UnaryOp::Neg) => args[0].wrapping_neg() & mask(ty),
            Op::Binary(op) => binary(*op, self.kernel.ty(inst.args[0]), args[0], args[1]),
            Op::Fma => u64::from(f32(args[0]).mul_add(f32(args[1]), f32(args[2])).to_bits()),
            Op::Compare(op) => {
                let order = match ty {
                    Type::F32 => f32(args[0]).partial_cmp(&f32(args[1])),
                    _ => Some(signed(ty, args[0]).cmp(&signed(ty, args[1]))),
                };
                let (less, equal) = (
                    order == Some(std::cmp::Ordering::Less),
                    order == Some(std::cmp::Ordering::Equal),
                );
                let greater = order == Some(std::cmp::Ordering::Greater);
                u64::from(match op {
                    CompareOp::Eq => equal,
                    CompareOp::Ne => !equal,
                    CompareOp::Lt => less,
                    CompareOp::Le => less || equal,
                    CompareOp::Gt => greater,
                    CompareOp::Ge => greater || equal,
                })
            }
            Op::Select => {
                if args[0] == 1 {
                    args[1]
                } else {
                    args[2]
                }
            }
            Op::Convert(Type::F32) => u64::from((signed(ty, args[0]) as f32).to_bits()),
            Op::Convert(to) => signed(ty, args[0]) as u64 & mask(*to),
            Op::Bitcast(_) => args[0],
            other => panic!("the generator makes no {other:?}"),
        }
    }
}

fn mask(ty: Type) -> u64 {
    match ty {
        Type::Bool => 1,
        Type::U64 => u64::MAX,
        _ => u64::from(u32::MAX),
    }
}

/// The number that the bits stand for.
fn signed(ty: Type, bits: u64) -> i128 {
    if ty == Type::S32 { i128::from(bits as u32 as i32) } else { i128::from(bits) }
}

fn binary(op: BinaryOp, ty: Type, a: u64, b: u64) -> u64 {
    if ty == Type::F32 {
        let (a, b) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
        let result = match op {
            BinaryOp::Add => a + b,
            BinaryOp::Sub => a - b,
            BinaryOp::Mul => a * b,
            BinaryOp::Div => a / b,
            BinaryOp::Min => a.min(b),
            BinaryOp::Max => a.max(b),
            other => panic!("the generator makes no {other:?} of floats"),
        };
        return result.to_bits().into();
    }
    let width = if ty == Type::U64 { 64 } else { 32 };
    let (x, y) = (signed(ty, a), signed(ty, b));
    let result = match op {
        BinaryOp::Add => x + y,
        BinaryOp::Sub => x - y,
        BinaryOp::Mul => x.wrapping_mul(y),
        BinaryOp::Div => x.checked_div(y).unwrap_or(-1),
        BinaryOp::Rem => x.checked_rem(y).unwrap_or(x),
        BinaryOp::Min => x.min(y),
        BinaryOp::Max => x.max(y),
        BinaryOp::And => x & y,
        BinaryOp::Or => x | y,
        BinaryOp::Xor => x ^ y,
        BinaryOp::Shl => {
            if b < width {
                x << b
            } else {
                0
            }
        }
        BinaryOp::Shr => {
            if b < width {
                x >> b
            } else {
                0
            }
        }
    };
    result as u64 & mask(ty)
}

/// Makes valid kernels of arithmetic, branches, loops and stores.
struct Generator {
    choices: Choices,
    values: Vec<Type>,
    /// Values that may be used here, innermost last.
    visible: Vec<ValueId>,
    budget: usize,
}

const TYPES: [Type; 5] = [Type::Bool, Type::U32, Type::S32, Type::U64, Type::F32];
const NUMBERS: [Type; 4] = [Type::U32, Type::S32, Type::U64, Type::F32];
const INTERESTING: [u32; 12] =
    [0, 1, 2, 3, 8, 31, 32, 33, 64, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];

impl Generator {
    fn kernel(choices: Vec<u32>) -> Kernel {
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

    /// Adds an instruction whose single result becomes visible.
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

    /// A value of a type: one that is there, or a new constant.
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
        use BinaryOp::{Add, And, Div, Max, Min, Mul, Or, Rem, Shl, Shr, Sub, Xor};

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
                // Runs once or not at all: the condition carries itself out.
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
                    let op = self.choices.of(&[Add, Sub, Mul, Div, Min, Max, Rem]);
                    let types = if op == Rem { &NUMBERS[..3] } else { &NUMBERS[..] };
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

fn behaviour(kernel: &Kernel) -> Vec<Vec<(u64, u64)>> {
    (0..4).map(|warpgroup| Evaluator::run(kernel, warpgroup)).collect()
}

proptest! {
    #[test]
    fn passes_keep_the_meaning(choices in prop::collection::vec(any::<u32>(), 20..500)) {
        let original = Generator::kernel(choices);
        let text = to_text(&original, TextOptions { locations: false });
        prop_assert!(verify(&original).is_ok(), "{text}");
        let expected = behaviour(&original);
        type Pass = (&'static str, fn(&mut Kernel));
        let passes: [Pass; 5] = [
            ("fold", fold),
            ("cse", cse),
            ("dce", dce),
            ("legalise", legalise),
            ("renumber", renumber),
        ];
        let mut chained = original.clone();
        for (name, pass) in passes {
            let mut alone = original.clone();
            pass(&mut alone);
            pass(&mut chained);
            for kernel in [&alone, &chained] {
                if let Err(error) = verify(kernel) {
                    prop_assert!(false, "{name}: {error}\n{text}");
                }
                prop_assert_eq!(&behaviour(kernel), &expected, "{}\n{}", name, text);
            }
        }
        let optimised = optimise(original).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&behaviour(&optimised), &expected, "optimise\n{}", text);
    }
}

/// A kernel of one role with a parameter `%0` and a store of the last value.
fn expression(body: &str, ty: &str, last: &str) -> Kernel {
    let text = format!(
        r#"kernel "test", cluster 1
param0 = "n": u32
param1 = "out": u64
role0 = "all": 1 warpgroups, 248 registers
{{
  %0: u32 = param[param0]
  %1: u64 = param[param1]
  {body}
  store.global.{ty}.weak.cta[vector=1] %1, {last}
}}
"#
    );
    parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The instructions of a kernel's text, without declarations.
fn listing(kernel: &Kernel) -> String {
    let text = to_text(kernel, TextOptions { locations: false });
    let start = text.find("\n{").map_or(0, |position| position + 1);
    text[start..].to_owned()
}

/// What the value is stored as after optimisation.
#[track_caller]
fn becomes(body: &str, ty: &str, last: &str, expected: &str) {
    let optimised = optimise(expression(body, ty, last)).unwrap();
    let lines: Vec<String> = listing(&optimised)
        .lines()
        .map(|line| line.trim().to_owned())
        .filter(|line| !matches!(line.as_str(), "{" | "}"))
        .filter(|line| !line.contains("param[") && !line.starts_with("store"))
        .collect();
    assert_eq!(lines.join("; "), expected);
}

#[test]
fn integers_fold_as_documented() {
    let folds = |op: &str, a: &str, b: &str, expected: &str| {
        let body =
            format!("%2: u32 = const.u32 {a}\n%3: u32 = const.u32 {b}\n%4: u32 = {op} %2, %3");
        becomes(&body, "u32", "%4", &format!("%1: u32 = const.u32 {expected}"));
    };
    folds("add", "4294967295", "2", "1");
    folds("sub", "1", "2", "4294967295");
    folds("mul", "65536", "65537", "65536");
    folds("div", "7", "0", "4294967295");
    folds("rem", "7", "0", "7");
    folds("shl", "7", "32", "0");
    folds("shr", "7", "40", "0");
    folds("min", "2147483648", "1", "1");
}

#[test]
fn nans_and_equal_zeros_are_left_to_the_hardware() {
    for (op, a, b) in [
        ("sub", 0x7f80_0000u32, 0x7f80_0000u32),
        ("min", 0x8000_0000, 0),
        ("max", 0x7fc0_0000, 0x3f80_0000),
    ] {
        let body =
            format!("%2: f32 = const.f32 {a}\n%3: f32 = const.f32 {b}\n%4: f32 = {op} %2, %3");
        let optimised = optimise(expression(&body, "f32", "%4")).unwrap();
        assert!(listing(&optimised).contains(op));
    }
}

#[test]
fn identities_leave_the_operand() {
    let zero = "%2: u32 = const.u32 0\n%3: u32 = const.u32 1\n%5: u32 = const.u32 4294967295\n";
    for body in [
        "add %0, %2",
        "add %2, %0",
        "sub %0, %2",
        "mul %0, %3",
        "mul %3, %0",
        "div %0, %3",
        "and %0, %5",
        "or %0, %2",
        "xor %2, %0",
        "shl %0, %2",
        "shr %0, %2",
        "min %0, %0",
    ] {
        becomes(&format!("{zero}%4: u32 = {body}"), "u32", "%4", "");
    }
    for body in ["mul %0, %2", "and %2, %0", "rem %0, %3", "sub %0, %0", "xor %0, %0", "shl %2, %0"]
    {
        becomes(&format!("{zero}%4: u32 = {body}"), "u32", "%4", "%1: u32 = const.u32 0");
    }
    becomes(&format!("{zero}%4: u32 = or %5, %0"), "u32", "%4", "%1: u32 = const.u32 4294967295");
    becomes(&format!("{zero}%4: bool = lt %3, %2\n%6: u32 = select %4, %2, %0"), "u32", "%6", "");
}

#[test]
fn powers_of_two_become_shifts_and_masks() {
    let by = |op: &str, constant: u32| format!("%2: u32 = const.u32 {constant}\n%3: u32 = {op}");
    becomes(&by("mul %2, %0", 64), "u32", "%3", "%2: u32 = const.u32 6; %3: u32 = shl %0, %2");
    becomes(&by("div %0, %2", 128), "u32", "%3", "%2: u32 = const.u32 7; %3: u32 = shr %0, %2");
    becomes(&by("rem %0, %2", 128), "u32", "%3", "%2: u32 = const.u32 127; %3: u32 = and %0, %2");
    becomes(&by("div %0, %2", 96), "u32", "%3", "%2: u32 = const.u32 96; %3: u32 = div %0, %2");
    let wide = |op: &str| format!("%2: u64 = const.u64 256\n%3: u64 = {op} %1, %2");
    becomes(&wide("rem"), "u64", "%3", "%1: u64 = const.u64 255; %2: u64 = and %0, %1");
    becomes(&wide("mul"), "u64", "%3", "%1: u32 = const.u32 8; %2: u64 = shl %0, %1");
}

#[test]
fn roles_become_a_chain_of_branches() {
    let text = r#"kernel "roles", cluster 1
role0 = "load": 1 warpgroups, 40 registers
role1 = "math": 2 warpgroups, 152 registers
role2 = "store": 1 warpgroups, 128 registers
{
  cluster_wait
  roles[role0, role1, role2] {
    wgmma_fence
    yield
  } {
    wgmma_commit
    yield
  } {
    bulk_commit
    yield
  }
  cluster_arrive
}
"#;
    let optimised = optimise(parse(text).unwrap()).unwrap();
    insta::assert_snapshot!(listing(&optimised));
}

#[test]
fn a_single_role_needs_no_branch_and_an_unlisted_one_gives_registers_back() {
    let one = r#"kernel "one", cluster 1
role0 = "all": 2 warpgroups, 128 registers
{
  roles[role0] {
    bulk_commit
    yield
  }
}
"#;
    let lowered = |text: &str| listing(&optimise(parse(text).unwrap()).unwrap());
    assert_eq!(lowered(one), "{\n  set_max_registers.decrease[count=128]\n  bulk_commit\n}\n");
    // 65536 / 256 = 256 registers, of which a thread can have 248 at entry.
    assert_eq!(lowered(&one.replace("128 reg", "248 reg")), "{\n  bulk_commit\n}\n");
    let unlisted = one
        .replace("2 warpgroups, 128", "1 warpgroups, 200")
        .replace("registers\n{", "registers\nrole1 = \"idle\": 1 warpgroups, 24 registers\n{");
    assert!(lowered(&unlisted).contains("} {\n    set_max_registers.decrease[count=24]\n"));
}

#[test]
fn effects_stay_where_they_are() {
    let body = "%2: bool = elect
        %3: bool = elect
        if %2 {
          %4: u32 = const.u32 9
          %5: u32 = add %4, %0
          yield
        } {
          yield
        }
        %6: u32, %7: u32 = load.global.u32.weak.cta[vector=2] %1";
    let optimised = optimise(expression(body, "u32", "%0")).unwrap();
    let text = listing(&optimised);
    assert_eq!(text.matches("elect").count(), 2);
    assert_eq!(text.matches("load").count(), 1);
    assert!(!text.contains("if") && !text.contains("add"), "{text}");
}

#[test]
fn expressions_are_shared_only_where_they_dominate() {
    let body = "%2: u32 = special.cta
        %3: bool = lt %2, %0
        %4: u32 = if %3 {
          %5: u32 = add %2, %0
          yield %5
        } {
          %6: u32 = add %0, %2
          %7: u32 = add %2, %0
          %8: u32 = xor %6, %7
          %9: u32 = sub %6, %2
          yield %9
        }
        %10: u32 = add %2, %0
        %11: u32 = xor %4, %10";
    let optimised = optimise(expression(body, "u32", "%11")).unwrap();
    assert_eq!(listing(&optimised).matches("add").count(), 3);
}

#[test]
fn register_fragments_are_not_merged() {
    let body = "%2: f32 = const.f32 0x3f800000
        %3: b32 = pack.bf16 %2, %2
        wgmma_fence
        wgmma.bf16.registers.bf16.k[acc0, n=8] %3, %3, %3, %3, %6, %7
        wgmma_commit
        %4: b32 = pack.bf16 %2, %2
        wgmma_wait[pending=0]";
    let text = listing(&expression("", "u32", "%0"));
    let text = text.replace(
        "store",
        &format!(
            "%5: smem = smem_address[region0]
         %6: desc = descriptor.b128[leading=0, stride=1024] %5
         %7: bool = const.bool true
         {body}
         store.global.b32.weak.cta[vector=1] %1, %4\nstore"
        ),
    );
    let header = "kernel \"k\", cluster 1
        param0 = \"n\": u32
        param1 = \"out\": u64
        role0 = \"all\": 1 warpgroups, 248 registers
        region0 = \"b\": bf16 offset 0, bytes 1024, align 1024
        acc0 = f32, 4 registers\n";
    let mut kernel = parse(&format!("{header}{text}")).unwrap();
    cse(&mut kernel);
    assert_eq!(listing(&kernel).matches("pack").count(), 2);
}

#[test]
fn locations_are_kept() {
    let kernel = expression("%2: u32 = const.u32 8\n%3: u32 = mul %0, %2", "u32", "%3");
    let locations = kernel.locations.clone();
    let optimised = optimise(kernel).unwrap();
    assert_eq!(optimised.locations, locations);
    let mut places = vec![];
    optimised.visit(&mut |inst| {
        places.push((inst.op.clone(), optimised.location(inst.loc).line));
    });
    assert!(places.contains(&(Op::Binary(BinaryOp::Shl), 9)), "{places:?}");
    assert!(places.contains(&(Op::Const(Constant::U32(3)), 9)), "{places:?}");
}

#[test]
fn invalid_kernels_are_refused() {
    let kernel = expression("mbarrier_arrive %0", "u32", "%0");
    let PassError::Invalid(error) = optimise(kernel).unwrap_err() else { panic!() };
    assert_eq!(error.violations.len(), 1);
}
