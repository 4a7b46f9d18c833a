//! Named barriers: their numbers and the warps that take part.

use pgemm_ir::{BuildError, Constant, Kernel, KernelBuilder, Occupancy, Op, optimise};

/// A kernel of a producer and two consumer warpgroups.
fn build(
    declare: impl for<'k> FnOnce(&'k KernelBuilder) -> [Box<dyn Fn() + 'k>; 2],
) -> Result<Kernel, BuildError> {
    let b = KernelBuilder::new("test", 1);
    let [producer, consumer] = declare(&b);
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("producer", 1, 128, |_| producer());
        roles.role("consumer", 2, 128, |_| consumer());
    });
    drop((producer, consumer));
    b.finish()
}

/// The number (if it is constant) and the threads of each use, in program order.
fn uses(kernel: &Kernel) -> Vec<(Option<u32>, u32)> {
    let mut constants = std::collections::HashMap::new();
    let mut uses = vec![];
    kernel.visit(&mut |inst| match inst.op {
        Op::Const(Constant::U32(value)) => {
            constants.insert(inst.results[0], value);
        }
        Op::BarrierSync { threads } | Op::BarrierArrive { threads } => {
            uses.push((constants.get(&inst.args[0]).copied(), threads));
        }
        _ => {}
    });
    uses
}

#[test]
fn numbers_are_allotted_and_the_cta_has_its_own() {
    let kernel = build(|b| {
        b.sync_cta();
        let pair = b.named_barriers("pair", 2, 8);
        let all = b.named_barrier("all", 12);
        let consumer = move || {
            pair.at(b.constant(1)).sync();
            all.sync();
        };
        [Box::new(move || all.arrive()), Box::new(consumer)]
    })
    .unwrap();
    let kernel = optimise(kernel).unwrap();
    assert_eq!(uses(&kernel), [(Some(0), 384), (Some(3), 384), (Some(2), 256), (Some(3), 384)]);
}

#[test]
fn barriers_are_for_warps_that_use_them() {
    let error = build(|b| {
        let both = b.named_barrier("both", 12);
        [Box::new(|| ()), Box::new(move || both.sync())]
    })
    .unwrap_err();
    let found = matches!(
        &error,
        BuildError::BarrierNeverCompletes { threads: 384, available: 256, roles, .. }
            if roles == "consumer"
    );
    assert!(found, "{error}");
    // A barrier that no role uses needs no warps.
    build(|b| {
        b.named_barriers("unused", 4, 12);
        [Box::new(|| ()), Box::new(|| ())]
    })
    .unwrap();
}

#[test]
fn a_cta_has_sixteen() {
    let declare = |count: u32| {
        build(|b| {
            b.named_barriers("first", 3, 4);
            b.named_barriers("second", count, 4);
            [Box::new(|| ()), Box::new(|| ())]
        })
    };
    declare(12).unwrap();
    let error = declare(13).unwrap_err();
    assert!(matches!(error, BuildError::TooManyBarriers { end: 17, .. }), "{error}");
}
