//! Queues of batches with several accumulator sets, and writes of accumulators.

use pgemm_ir::{
    BatchSource, BuildError, DescriptorLayout, Element, Kernel, KernelBuilder, MmaAtom, MmaQueue,
    Occupancy, Op, OperandMajor, RegionKind, Resident, SmemRequest, SwizzleMode, Type, Val,
    optimise, ty,
};

fn atom(n: u32, accumulator: Type) -> MmaAtom {
    let (a, b) = (Element::F16, Element::F16);
    let (a_major, b_major) = (OperandMajor::K, OperandMajor::K);
    MmaAtom { n, a, b, a_major, b_major, accumulator }
}

/// The source of a batch, by number.
#[derive(Debug, PartialEq)]
struct Stage(usize);

impl BatchSource for Stage {}

/// A kernel of one warpgroup whose body gets the descriptor of a tile.
fn build(
    body: impl for<'k> FnOnce(&'k KernelBuilder, Val<'k, ty::Descriptor>),
) -> Result<Kernel, BuildError> {
    let b = KernelBuilder::new("test", 1);
    let tile = b.region("tile", RegionKind::Data(Element::F16), SmemRequest::whole(8192, 1024));
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("all", 1, 168, |_| {
            let layout = DescriptorLayout {
                swizzle: SwizzleMode::B128,
                leading_bytes: 0,
                stride_bytes: 1024,
            };
            body(&b, b.descriptor(b.smem_address(tile), layout));
        });
    });
    b.finish()
}

fn waits(kernel: &Kernel) -> Vec<u32> {
    let mut waits = vec![];
    kernel.visit(&mut |inst| {
        if let Op::WgmmaWait { pending } = inst.op {
            waits.push(pending);
        }
    });
    waits
}

/// A · B0 and A · B1 in one batch, as in a gated pair.
#[test]
fn one_batch_writes_two_sets() {
    let kernel = build(|b, tile| {
        let mut queue = MmaQueue::new();
        let gate = queue.start(b.accumulators(atom(64, Type::F32), 1));
        let up = queue.start(b.accumulators(atom(32, Type::F32), 1));
        queue.issue(b, Stage(0), |batch| {
            batch.on(&gate).mma(0, tile, tile, false);
            batch.on(&up).mma(0, tile, tile, false);
        });
        let (gate, retired) = queue.finish(b, gate);
        let read: Vec<_> = retired.into_iter().map(|retired| retired.into_inner()).collect();
        assert_eq!(read, [Stage(0)]);
        // The wait covered both sets.
        let (up, retired) = queue.finish(b, up);
        assert!(retired.is_empty());
        let sum = gate.get::<ty::F32>(b, 0, 0) + up.get::<ty::F32>(b, 0, 0);
        assert!(sum.id().index() > 0);
    })
    .unwrap();
    assert_eq!(waits(&kernel), [0]);
    optimise(kernel).unwrap();
}

/// The epilogue of one set runs while the batches of the other are in flight.
#[test]
fn a_set_is_finished_while_another_runs() {
    let kernel = build(|b, tile| {
        let mut queue = MmaQueue::new();
        let first = queue.start(b.accumulators(atom(64, Type::F32), 1));
        let second = queue.start(b.accumulators(atom(32, Type::B32), 2));
        for stage in 0..3 {
            let on = |batch: &pgemm_ir::QueueBatch<'_, '_>| {
                if stage == 0 {
                    batch.on(&first).mma(0, tile, tile, false);
                } else {
                    batch.on(&second).mma(stage - 1, tile, tile, false);
                }
            };
            queue.issue(b, Stage(stage), on);
        }
        let (first, retired) = queue.finish(b, first);
        assert_eq!(
            retired.into_iter().map(|stage| stage.into_inner()).collect::<Vec<_>>(),
            [Stage(0)]
        );
        assert_eq!(queue.in_flight(), 2);
        first.get::<ty::F32>(b, 0, 5);
        let (second, retired) = queue.finish(b, second);
        assert_eq!(retired.len(), 2);
        second.get::<ty::F32>(b, 1, 5);
    })
    .unwrap();
    assert_eq!(waits(&kernel), [2, 0]);
    optimise(kernel).unwrap();
}

/// A loop alternates between two sets. Each is read while the batch of the other is in flight.
#[test]
fn queues_go_round_loops() {
    let kernel = build(|b, tile| {
        let mut queue = MmaQueue::new();
        let mut sets = [0, 1].map(|_| Some(queue.start(b.accumulators(atom(32, Type::F32), 1))));
        let sets = sets.each_mut().map(|set| set.take().unwrap());
        let [first, second] = sets;
        queue.issue(b, Resident, |batch| batch.on(&first).mma(0, tile, tile, false));
        let zero = b.constant(0.0);
        let (mut queue, first, second, sum) = b.for_carry(
            0,
            4,
            1,
            (queue, first, second, zero),
            |_, (mut queue, first, second, sum)| {
                queue.issue(b, Resident, |batch| batch.on(&second).mma(0, tile, tile, false));
                let (idle, retired) = queue.finish(b, first);
                assert_eq!(retired.len(), 1);
                let sum = sum + idle.get::<ty::F32>(b, 0, 0);
                let first = queue.start(idle);
                queue.issue(b, Resident, |batch| batch.on(&first).mma(0, tile, tile, false));
                let (idle, _) = queue.finish(b, second);
                let sum = sum + idle.get::<ty::F32>(b, 0, 0);
                let second = queue.start(idle);
                (queue, first, second, sum)
            },
        );
        let (first, _) = queue.finish(b, first);
        let _ = sum + first.get(b, 0, 0);
        assert!(queue.finish(b, second).1.is_empty());
    })
    .unwrap();
    assert_eq!(waits(&kernel), [1, 1, 0]);
    optimise(kernel).unwrap();
}

#[test]
fn loops_leave_queues_as_they_find_them() {
    let error = build(|b, tile| {
        let mut queue = MmaQueue::new();
        let set = queue.start(b.accumulators(atom(32, Type::F32), 1));
        let (mut queue, set) = b.for_carry(0, 4, 1, (queue, set), |_, (mut queue, set)| {
            queue.issue(b, Resident, |batch| batch.on(&set).mma(0, tile, tile, true));
            (queue, set)
        });
        queue.finish(b, set);
    })
    .unwrap_err();
    assert!(matches!(error, BuildError::CarriedChanged { .. }), "{error}");
    assert!(error.to_string().contains("accumulators.rs"), "{error}");
}

/// Only the batch that owns a source returns it. The batches that borrow it have retired before.
#[test]
fn batches_borrow_what_a_later_one_owns() {
    let kernel = build(|b, tile| {
        let mut pending = b.accumulators(atom(32, Type::F32), 1).start();
        for stage in 0..2 {
            let stage = Stage(stage);
            for _ in 0..2 {
                pending.issue_borrowing(b, &stage, |batch| batch.mma(0, tile, tile, stage.0 > 0));
            }
            pending.issue(b, stage, |batch| batch.mma(0, tile, tile, true));
        }
        let stages = |retired: Vec<pgemm_ir::Retired<Stage>>| -> Vec<usize> {
            retired.into_iter().map(|stage| stage.into_inner().0).collect()
        };
        assert_eq!(stages(pending.wait_until(b, 4)), []);
        assert_eq!(stages(pending.wait_until(b, 3)), [0]);
        assert_eq!(stages(pending.finish(b).1), [1]);
    })
    .unwrap();
    assert_eq!(waits(&kernel), [4, 3, 0]);
    optimise(kernel).unwrap();
}

#[test]
fn what_a_batch_owned_comes_back_in_parts() {
    build(|b, tile| {
        let mut pending = b.accumulators(atom(32, Type::F32), 1).start();
        let source = (vec![Stage(0), Stage(1)], Some(Stage(2)));
        pending.issue(b, source, |batch| batch.mma(0, tile, tile, false));
        let (_, retired) = pending.finish(b);
        for retired in retired {
            let (each, last) = retired.split();
            let mut stages: Vec<_> = each.into_each().map(|stage| stage.into_inner().0).collect();
            stages.extend(last.transpose().map(|stage| stage.into_inner().0));
            assert_eq!(stages, [0, 1, 2]);
        }
    })
    .unwrap();
}

#[test]
fn a_warpgroup_has_one_queue() {
    let error = build(|b, tile| {
        let [mut first, mut second] =
            [(); 2].map(|()| b.accumulators(atom(32, Type::F32), 1).start());
        first.issue(b, Resident, |batch| batch.mma(0, tile, tile, false));
        second.issue(b, Resident, |batch| batch.mma(0, tile, tile, false));
        first.finish(b);
        second.finish(b);
    })
    .unwrap_err();
    assert!(matches!(error, BuildError::SecondQueue { others: 1, .. }), "{error}");

    // Two queues may follow each other, and may be on the two sides of a branch or in two roles.
    let kernel = build(|b, tile| {
        let multiply = || {
            let mut pending = b.accumulators(atom(32, Type::F32), 1).start();
            pending.issue(b, Resident, |batch| batch.mma(0, tile, tile, false));
            pending
        };
        multiply().finish(b);
        let condition = b.special(pgemm_ir::Special::Cta).eq(0);
        // Both sides leave a batch in flight.
        b.if_else(condition, || drop(multiply().finish(b)), || drop(multiply().finish(b)));
        multiply().finish(b);
    });
    optimise(kernel.unwrap()).unwrap();
}

#[test]
fn queues_know_their_accumulators() {
    let error = build(|b, tile| {
        let (mut queue, mut other) = (MmaQueue::<Resident>::new(), MmaQueue::<Resident>::new());
        let set = other.start(b.accumulators(atom(32, Type::F32), 1));
        queue.issue(b, Resident, |batch| batch.on(&set).mma(0, tile, tile, false));
        queue.finish(b, set);
    })
    .unwrap_err();
    assert!(matches!(error, BuildError::ForeignAccumulators { .. }), "{error}");
}

#[test]
fn accumulators_are_written_before_batches_add_to_them() {
    let kernel = build(|b, tile| {
        let mut sums = b.accumulators(atom(32, Type::F32), 1);
        for index in 0..8 {
            sums.set::<ty::F32>(b, 0, index, b.constant(1.0));
        }
        for index in (8..16).step_by(2) {
            sums.set_pair(b, 0, index, [1.0, 2.0].map(|value| b.constant(value)));
        }
        let mut pairs = b.accumulators(atom(32, Type::B32), 1);
        for index in (0..16).step_by(2) {
            pairs.set_pair(b, 0, index, [1.0, 2.0].map(|value| b.constant(value)));
        }
        let mut queue = MmaQueue::new();
        let (sums, pairs) = (queue.start(sums), queue.start(pairs));
        queue.issue(b, Resident, |batch| {
            batch.on(&sums).mma(0, tile, tile, true);
            batch.on(&pairs).mma(0, tile, tile, true);
        });
        let (sums, _) = queue.finish(b, sums);
        let (pairs, _) = queue.finish(b, pairs);
        let _ = sums.get::<ty::F32>(b, 0, 3) + pairs.get(b, 0, 3);
    })
    .unwrap();
    let mut writes = vec![];
    kernel.visit(&mut |inst| {
        if let Op::AccSet(_, index) = inst.op {
            writes.push(index);
        }
    });
    assert!(writes.into_iter().eq((0..16).chain(0..8)));
    optimise(kernel).unwrap();

    let error = build(|b, _| {
        b.accumulators(atom(32, Type::B32), 1).set::<ty::F32>(b, 0, 1, b.constant(1.0));
    })
    .unwrap_err();
    assert!(matches!(error, BuildError::PackedAccumulators { .. }), "{error}");
}
