//! An evaluator for kernels of arithmetic, control flow and memory accesses. It works on bits and
//! wide integers, so that it shares no code with folding.

use crate::*;

/// The memory accesses of each of four warpgroups: the address and, for a store, the bits.
pub(super) fn behaviour(kernel: &Kernel) -> Vec<Vec<(u64, Option<u64>)>> {
    (0..4).map(|warpgroup| Evaluator::run(kernel, warpgroup)).collect()
}

/// Runs one thread of a kernel and collects its memory accesses.
struct Evaluator<'k> {
    kernel: &'k Kernel,
    values: Vec<u64>,
    warpgroup: u64,
    accesses: Vec<(u64, Option<u64>)>,
}

impl<'k> Evaluator<'k> {
    fn run(kernel: &'k Kernel, warpgroup: u64) -> Vec<(u64, Option<u64>)> {
        let values = vec![0; kernel.values.len()];
        let mut evaluator = Evaluator { kernel, values, warpgroup, accesses: vec![] };
        evaluator.block(&kernel.body, &[]);
        evaluator.accesses
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
            Op::Store(_) | Op::StoreElement(_) => {
                self.accesses.push((args[0], Some(args[1])));
                vec![]
            }
            // The loaded value depends on all accesses before. A pass that removes, moves or
            // merges loads thus changes the result.
            Op::LoadElement(_) => {
                self.accesses.push((args[0], None));
                let found = (args[0] as u16).wrapping_add(self.accesses.len() as u16);
                vec![u64::from(f32::from(found).to_bits())]
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

/// The number that the bits represent.
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
        BinaryOp::MulHigh => x.wrapping_mul(y) >> width,
        BinaryOp::Div => x.checked_div(y).unwrap_or(-1),
        BinaryOp::Rem => x.checked_rem(y).unwrap_or(x),
        BinaryOp::Min => x.min(y),
        BinaryOp::Max => x.max(y),
        BinaryOp::MaxNan => panic!("the generator makes none"),
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
