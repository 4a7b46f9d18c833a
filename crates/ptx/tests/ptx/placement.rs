//! Where values are kept: moves that are left out, and moves that must stay.

use pgemm_ir::{AccId, BinaryOp, CompareOp, Constant, Op, Space, Type, ValueId};
use pgemm_ptx::emit;

use crate::reader::assert_read;
use crate::support::{Ops, weak};

/// The instructions of a kernel, without declarations and labels.
#[track_caller]
fn instructions(k: Ops) -> Vec<String> {
    let kernel = k.finish();
    assert_read(&kernel, &kernel.name);
    let text = emit(&kernel).unwrap();
    let is_instruction = |line: &&str| line.starts_with('\t') && !line.starts_with("\t.");
    text.lines().filter(is_instruction).map(|line| line.trim().to_owned()).collect()
}

fn store(k: &mut Ops, address: ValueId, value: ValueId, ty: Type) {
    k.run(Op::Store(weak(Space::Global, ty, 1)), &[address, value]);
}

fn add(k: &mut Ops, a: ValueId, b: ValueId, ty: Type) -> ValueId {
    k.one(Op::Binary(BinaryOp::Add), &[a, b], ty)
}

fn get(k: &mut Ops, acc: AccId, index: u32) -> ValueId {
    k.one(Op::AccGet(acc, index), &[], Type::F32)
}

#[test]
fn sums_are_read_and_written_in_their_registers() {
    let mut k = Ops::new("in_place", 1);
    let acc = k.accumulator(Type::F32, 4);
    let (out, alpha) = (k.param("out", Type::U64), k.param("alpha", Type::F32));
    let before = get(&mut k, acc, 0);
    let after = add(&mut k, before, alpha, Type::F32);
    k.run(Op::AccSet(acc, 0), &[after]);
    let sum = get(&mut k, acc, 0);
    store(&mut k, out, sum, Type::F32);
    let code = instructions(k);
    assert!(code.contains(&"add.rn.f32 %a0_0, %a0_0, %f0;".to_owned()), "{code:#?}");
    assert!(code.contains(&"st.global.f32 [%rd0], %a0_0;".to_owned()), "{code:#?}");
}

#[test]
fn a_sum_that_is_overwritten_before_its_last_use_moves() {
    let mut k = Ops::new("overwritten", 1);
    let acc = k.accumulator(Type::F32, 4);
    let (out, alpha) = (k.param("out", Type::U64), k.param("alpha", Type::F32));
    let before = get(&mut k, acc, 0);
    let after = add(&mut k, before, alpha, Type::F32);
    k.run(Op::AccSet(acc, 0), &[after]);
    store(&mut k, out, before, Type::F32);
    let code = instructions(k);
    assert!(code.contains(&"mov.f32 %f1, %a0_0;".to_owned()), "{code:#?}");
    assert!(code.contains(&"add.rn.f32 %a0_0, %f1, %f0;".to_owned()), "{code:#?}");
    assert!(code.contains(&"st.global.f32 [%rd0], %f1;".to_owned()), "{code:#?}");
}

#[test]
fn a_sum_that_a_loop_reads_and_overwrites_moves() {
    let mut k = Ops::new("looped", 1);
    let acc = k.accumulator(Type::F32, 4);
    let (out, n) = (k.param("out", Type::U64), k.param("n", Type::U32));
    let first = get(&mut k, acc, 0);
    let (zero, one) = (k.u32(0), k.u32(1));
    let body = k.block(&[Type::U32], |k, _| {
        // In the second iteration the register holds something else.
        store(k, out, first, Type::F32);
        let two = k.constant(Constant::F32(2.0));
        k.run(Op::AccSet(acc, 0), &[two]);
        vec![]
    });
    k.control(Op::For, &[zero, n, one], &[], vec![body]);
    let code = instructions(k);
    assert!(code.contains(&"mov.f32 %f0, %a0_0;".to_owned()), "{code:#?}");
    assert!(code.contains(&"st.global.f32 [%rd0], %f0;".to_owned()), "{code:#?}");
}

#[test]
fn a_result_is_not_written_to_a_sum_that_is_read_later() {
    let mut k = Ops::new("late", 1);
    let acc = k.accumulator(Type::F32, 4);
    let (out, alpha) = (k.param("out", Type::U64), k.param("alpha", Type::F32));
    k.run(Op::AccSet(acc, 0), &[alpha]);
    let next = add(&mut k, alpha, alpha, Type::F32);
    let before = get(&mut k, acc, 0);
    k.run(Op::AccSet(acc, 0), &[next]);
    store(&mut k, out, before, Type::F32);
    let code = instructions(k);
    assert!(code.contains(&"add.rn.f32 %f1, %f0, %f0;".to_owned()), "{code:#?}");
    assert!(code.contains(&"mov.f32 %a0_0, %f1;".to_owned()), "{code:#?}");
}

#[test]
fn a_sum_that_is_used_behind_a_wait_moves() {
    let mut k = Ops::new("waited", 1);
    let acc = k.accumulator(Type::F32, 4);
    let (out, alpha) = (k.param("out", Type::U64), k.param("alpha", Type::F32));
    k.run(Op::AccSet(acc, 0), &[alpha]);
    let before = get(&mut k, acc, 0);
    k.run(Op::WgmmaWait { pending: 0 }, &[]);
    store(&mut k, out, before, Type::F32);
    let code = instructions(k);
    assert!(code.contains(&"mov.f32 %f1, %a0_0;".to_owned()), "{code:#?}");
    assert!(code.contains(&"st.global.f32 [%rd0], %f1;".to_owned()), "{code:#?}");
}

#[test]
fn a_result_is_not_written_to_a_sum_that_is_still_read() {
    let mut k = Ops::new("early", 1);
    let acc = k.accumulator(Type::F32, 4);
    let (out, alpha) = (k.param("out", Type::U64), k.param("alpha", Type::F32));
    let product = k.one(Op::Binary(BinaryOp::Mul), &[alpha, alpha], Type::F32);
    let before = get(&mut k, acc, 0);
    store(&mut k, out, before, Type::F32);
    k.run(Op::AccSet(acc, 0), &[product]);
    let code = instructions(k);
    let read = code.iter().position(|line| line == "st.global.f32 [%rd0], %a0_0;");
    let write = code.iter().position(|line| line == "mov.f32 %a0_0, %f1;");
    assert!(read.is_some() && read < write, "{code:#?}");
}

#[test]
fn constants_are_parts_of_addresses() {
    let mut k = Ops::new("addresses", 1);
    let out = k.param("out", Type::U64);
    let [four, eight] = [4, 8].map(|bytes| k.constant(Constant::U64(bytes)));
    let second = add(&mut k, out, four, Type::U64);
    let fourth = add(&mut k, second, eight, Type::U64);
    let one = k.u32(1);
    store(&mut k, second, one, Type::U32);
    store(&mut k, fourth, one, Type::U32);
    // An address that is also a value is computed.
    let fifth = add(&mut k, out, eight, Type::U64);
    store(&mut k, fifth, fifth, Type::U64);
    let code = instructions(k);
    assert_eq!(
        code[1..],
        [
            "st.global.b32 [%rd0+4], 1;",
            "st.global.b32 [%rd0+12], 1;",
            "add.u64 %rd1, %rd0, 8;",
            "st.global.b64 [%rd1], %rd1;",
            "ret;",
        ]
    );
}

#[test]
fn a_carried_address_advances_after_its_last_use() {
    let carried = |uses_late: bool| {
        let mut k = Ops::new("advance", 1);
        let (out, n) = (k.param("out", Type::U64), k.param("n", Type::U32));
        let (zero, one) = (k.u32(0), k.u32(1));
        let body = k.block(&[Type::U32, Type::U64], |k, params| {
            let [four, stride] = [4, 64].map(|bytes| k.constant(Constant::U64(bytes)));
            let element = add(k, params[1], four, Type::U64);
            if !uses_late {
                store(k, element, one, Type::U32);
            }
            let next = add(k, params[1], stride, Type::U64);
            if uses_late {
                store(k, element, one, Type::U32);
            }
            vec![next]
        });
        k.control(Op::For, &[zero, n, one, out], &[Type::U64], vec![body]);
        instructions(k)
    };
    let early = carried(false);
    assert!(early.contains(&"add.u64 %rd0, %rd0, 64;".to_owned()), "{early:#?}");
    let late = carried(true);
    let place = |line: &str| late.iter().position(|other| other == line);
    assert!(place("add.u64 %rd1, %rd0, 64;") < place("st.global.b32 [%rd0+4], 1;"), "{late:#?}");
    assert!(place("st.global.b32 [%rd0+4], 1;") < place("mov.b64 %rd0, %rd1;"), "{late:#?}");
}

#[test]
fn a_load_under_a_condition_has_a_predicate() {
    let mut k = Ops::new("guarded", 1);
    let (out, n) = (k.param("out", Type::U64), k.param("n", Type::U32));
    let zero = k.u32(0);
    let some = k.one(Op::Compare(CompareOp::Ne), &[n, zero], Type::Bool);
    let then = k.block(&[], |k, _| {
        let four = k.constant(Constant::U64(4));
        let address = add(k, out, four, Type::U64);
        vec![k.one(Op::Load(weak(Space::Global, Type::U32, 1)), &[address], Type::U32)]
    });
    let otherwise = k.block(&[], |k, _| vec![k.u32(7)]);
    let loaded = k.control(Op::If, &[some], &[Type::U32], vec![then, otherwise]);
    store(&mut k, out, loaded[0], Type::U32);
    let code = instructions(k);
    assert_eq!(
        code[2..],
        [
            "setp.ne.u32 %p0, %r0, 0;",
            "mov.b32 %r1, 7;",
            "@%p0 ld.global.b32 %r1, [%rd0+4];",
            "st.global.b32 [%rd0], %r1;",
            "ret;",
        ]
    );
}
