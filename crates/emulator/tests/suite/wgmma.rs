//! wgmma: operand layouts, accumulators, fences and waits.

mod products;
mod rules;

use pgemm_ir::{
    ASource, AccId, Access, BinaryOp, Element, Op, OperandMajor, Space, Special, Type, ValueId,
    Wgmma,
};

use crate::kernel::{Writer, access};

const ROWS: u32 = 64;
const COLUMNS: u32 = 32;
const DEPTH: u32 = 16;

fn instruction(acc: AccId, a_source: ASource, b_major: OperandMajor) -> Op {
    let (a, b) = (Element::Bf16, Element::Bf16);
    Op::Wgmma(Wgmma { acc, n: COLUMNS, a, b, a_source, b_major })
}

/// Stores register `index` of every thread to `output[index * 128 + thread]`.
fn put_out(w: &mut Writer, acc: AccId, output: ValueId, registers: u32) {
    put_out_as(w, Type::F32, acc, output, registers);
}

fn put_out_as(w: &mut Writer, ty: Type, acc: AccId, output: ValueId, registers: u32) {
    let thread = w.special(Special::Thread);
    for index in 0..registers {
        let value = w.op(Op::AccGet(acc, index), &[], ty);
        let first = w.u32(index * 128);
        let at = w.binary(BinaryOp::Add, first, thread);
        let four = w.u32(4);
        let bytes = w.binary(BinaryOp::Mul, at, four);
        let bytes = w.op(Op::Convert(Type::U64), &[bytes], Type::U64);
        let address = w.binary(BinaryOp::Add, output, bytes);
        w.run(Op::Store(Access { ty, ..access(Space::Global) }), &[address, value]);
    }
}
