//! Loops and branches.

use pgemm_ir::{BinaryOp, CompareOp, Constant, Kernel, Op, Space, Type};

use crate::support::{Ops, weak};

/// Nested loops. The back edge of the outer loop swaps two carried values.
pub fn for_loops() -> Kernel {
    let mut k = Ops::new("for_loops", 1);
    let out = k.param("out", Type::U64);
    let n = k.param("n", Type::U32);
    let (zero, one, two, eight) = (k.u32(0), k.u32(1), k.u32(2), k.u32(8));
    let u = Type::U32;
    let body = k.block(&[u, u, u, u], |k, outer| {
        let inner = k.block(&[u, u], |k, inner| {
            vec![k.one(Op::Binary(BinaryOp::Add), &[inner[1], outer[0]], u)]
        });
        let sum = k.control(Op::For, &[zero, eight, two, outer[3]], &[u], vec![inner]);
        vec![outer[2], outer[1], sum[0]]
    });
    let results = k.control(Op::For, &[zero, n, one, zero, n, one], &[u, u, u], vec![body]);
    k.run(Op::Store(weak(Space::Global, u, 2)), &[out, results[0], results[1]]);
    k.run(Op::Store(weak(Space::Global, u, 1)), &[out, results[2]]);
    k.finish()
}

pub fn while_loop() -> Kernel {
    let mut k = Ops::new("while_loop", 1);
    let out = k.param("out", Type::U64);
    let n = k.param("n", Type::U32);
    let zero = k.u32(0);
    let u = Type::U32;
    let condition = k.block(&[u, u], |k, carried| {
        vec![k.one(Op::Compare(CompareOp::Lt), &[carried[0], n], Type::Bool)]
    });
    let body = k.block(&[u, u], |k, carried| {
        let three = k.u32(3);
        let next = k.one(Op::Binary(BinaryOp::Add), &[carried[0], three], u);
        // The second value takes the old value of the first, so it must move first.
        vec![next, carried[0]]
    });
    let results = k.control(Op::While, &[zero, zero], &[u, u], vec![condition, body]);
    k.run(Op::Store(weak(Space::Global, u, 2)), &[out, results[0], results[1]]);
    k.finish()
}

pub fn branches() -> Kernel {
    let mut k = Ops::new("branches", 1);
    let out = k.param("out", Type::U64);
    let n = k.param("n", Type::U32);
    let four = k.u32(4);
    let less = k.one(Op::Compare(CompareOp::Lt), &[n, four], Type::Bool);
    let store = weak(Space::Global, Type::U32, 1);
    let empty = |k: &mut Ops| k.block(&[], |_, _| vec![]);
    let full = |k: &mut Ops| {
        k.block(&[], |k, _| {
            k.run(Op::Store(store), &[out, n]);
            vec![]
        })
    };
    let blocks = vec![full(&mut k), empty(&mut k)];
    k.control(Op::If, &[less], &[], blocks);
    let blocks = vec![empty(&mut k), full(&mut k)];
    k.control(Op::If, &[less], &[], blocks);
    let then = k.block(&[], |_, _| vec![four, less]);
    let otherwise = k.block(&[], |k, _| {
        let no = k.constant(Constant::Bool(false));
        vec![n, no]
    });
    let results = k.control(Op::If, &[less], &[Type::U32, Type::Bool], vec![then, otherwise]);
    let chosen = k.one(Op::Select, &[results[1], results[0], four], Type::U32);
    k.run(Op::Store(store), &[out, chosen]);
    k.finish()
}
