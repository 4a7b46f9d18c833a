//! The kernels of single operations with one operation altered: another value of an attribute,
//! operands in another order, or a synchronisation that is missing or weaker. Their results must
//! change, or the emulator must report it.

use std::collections::BTreeMap;

use pgemm_conformance::synchronisation::{Change, faults};
use pgemm_conformance::{Case, cases};
use pgemm_emulator::{Emulator, Memory, Options, Permission, Schedule};
use pgemm_ir::{BinaryOp, CompareOp, Inst, Kernel, Op, Order, Scope, verify};

/// Alterations without an effect. f16 and bf16 that are not NaN are ordered alike, as sign and
/// magnitude. The only butterfly of floats exchanges lanes of groups of eight.
const EXPLAINED: [&str; 5] = [
    "BulkReduce { op: Max, element: Bf16, policy: false } of [U64, Smem, U32] became \
     BulkReduce { op: Max, element: F16, policy: false }",
    "BulkReduce { op: Max, element: F16, policy: false } of [U64, Smem, U32] became \
     BulkReduce { op: Max, element: Bf16, policy: false }",
    "BulkReduce { op: Min, element: Bf16, policy: false } of [U64, Smem, U32] became \
     BulkReduce { op: Min, element: F16, policy: false }",
    "BulkReduce { op: Min, element: F16, policy: false } of [U64, Smem, U32] became \
     BulkReduce { op: Min, element: Bf16, policy: false }",
    "Shuffle { shuffle: Xor, width: 32 } of [F32, U32] became \
     Shuffle { shuffle: Xor, width: 16 }",
];

/// What a kernel writes under a schedule. Fails with the emulator's report.
fn output(case: &Case, kernel: &Kernel, schedule: Schedule) -> Result<Vec<u8>, String> {
    let mut memory = Memory::new();
    let input = memory.upload("input", &case.input, Permission::ReadOnly);
    let output = memory.upload("output", &case.output, Permission::ReadWrite);
    let options = Options { schedule, max_steps: 1_000_000, ..Options::default() };
    let launch = case.launch(input, output);
    let emulator = Emulator::new(kernel, &launch, &mut memory, options);
    let emulator = emulator.map_err(|error| error.to_string())?;
    emulator.run().map_err(|report| report.to_string())?;
    Ok(memory.read(output, case.output.len()).unwrap().to_vec())
}

/// Whether an altered kernel is reported or gives other results.
fn is_noticed(case: &Case, expected: &[u8], kernel: &Kernel) -> bool {
    [Schedule::round_robin(), Schedule::async_late(1), Schedule::seeded(1)].into_iter().any(
        |schedule| match output(case, kernel, schedule) {
            Ok(found) => case.mismatch(&found, expected).is_some(),
            Err(_) => true,
        },
    )
}

/// The kernel with one instruction edited.
fn edited(kernel: &Kernel, place: usize, edit: impl Fn(&mut Inst)) -> Kernel {
    let mut kernel = kernel.clone();
    let mut at = 0;
    kernel.visit_blocks_mut(&mut |block| {
        for inst in &mut block.insts {
            if at == place {
                edit(inst);
            }
            at += 1;
        }
    });
    kernel
}

/// The operation with the weakest order and hints. Kernels of single operations do not communicate
/// between threads, so that neither changes their results.
fn without_order(op: &Op) -> Op {
    let mut op = op.clone();
    match &mut op {
        Op::Load(access) | Op::Store(access) => {
            (access.order, access.scope, access.once) = (Order::Weak, Scope::Cta, false);
        }
        Op::Atomic { order, scope, .. }
        | Op::CompareExchange { order, scope, .. }
        | Op::Fence(order, scope) => (*order, *scope) = (Order::Relaxed, Scope::Cta),
        Op::ClusterArrive { relaxed } => *relaxed = true,
        _ => {}
    }
    op
}

/// Whether the operands `at` and `at + 1` can be exchanged without an effect.
fn commutes(op: &Op, at: usize) -> bool {
    use BinaryOp::{Add, And, Max, MaxNan, Min, Mul, MulHigh, Or, Xor};

    match op {
        Op::Binary(op) => [Add, And, Max, MaxNan, Min, Mul, MulHigh, Or, Xor].contains(op),
        Op::Compare(op) => matches!(op, CompareOp::Eq | CompareOp::Ne),
        Op::Fma => at == 0,
        // By the tables of lop3, all operands alike; else the two that are multiplied, added or
        // subtracted before the sign is dropped.
        Op::Custom(custom) => match custom.name() {
            "lop3_96" | "lop3_e8" => true,
            "add_rz" | "dp4a" | "mul_wide" | "sad" => at == 0,
            _ => false,
        },
        _ => false,
    }
}

/// Altered kernels of a case, each with what was done.
fn altered(case: &Case) -> Vec<(String, Kernel)> {
    let kernel = &case.kernel;
    let mut all = vec![];
    // The places of instructions in the order in which blocks are visited.
    let mut insts = vec![];
    kernel.clone().visit_blocks_mut(&mut |block| insts.extend(block.insts.clone()));
    for (place, inst) in insts.iter().enumerate() {
        // The frame of every kernel.
        if matches!(inst.op, Op::Special(_) | Op::SetMaxRegisters { .. }) {
            continue;
        }
        let types: Vec<_> = inst.args.iter().map(|arg| kernel.ty(*arg)).collect();
        let (op, of) = (inst.op.name(), format!("{:?} of {types:?}", inst.op));
        for other in inst.op.altered() {
            if without_order(&other) == without_order(&inst.op) {
                continue;
            }
            let what = format!("{of} became {other:?}");
            all.push((what, edited(kernel, place, |inst| inst.op = other.clone())));
        }
        for at in 1..inst.args.len() {
            let same = inst.args[at - 1] == inst.args[at] || types[at - 1] != types[at];
            if same || op.is_empty() || commutes(&inst.op, at - 1) {
                continue;
            }
            let what = format!("{of} with operands {} and {at} exchanged", at - 1);
            all.push((what, edited(kernel, place, |inst| inst.args.swap(at - 1, at))));
        }
    }
    for fault in faults(kernel) {
        let same = matches!(&fault.change, Change::Replace(op)
            if without_order(op) == without_order(&fault.op));
        if !same {
            all.push((fault.to_string(), fault.plant(kernel)));
        }
    }
    all
}

#[test]
fn altered_operations_are_noticed() {
    // By alteration: whether a case has noticed it.
    let mut noticed: BTreeMap<String, bool> = BTreeMap::new();
    let mut refused = 0;
    for case in cases() {
        let expected = output(&case, &case.kernel, Schedule::round_robin()).unwrap();
        for (what, kernel) in altered(&case) {
            if noticed.get(&what) == Some(&true) {
                continue;
            }
            if verify(&kernel).is_err() {
                refused += 1;
                continue;
            }
            let found = is_noticed(&case, &expected, &kernel);
            noticed.insert(what, found);
        }
    }
    let survivors: Vec<&str> =
        noticed.iter().filter(|(_, noticed)| !**noticed).map(|(what, _)| what.as_str()).collect();
    println!("{} alterations, {refused} times refused, survivors: {survivors:#?}", noticed.len());
    assert!(noticed.len() > 1000, "{}", noticed.len());
    assert_eq!(survivors, EXPLAINED);
}
