//! Ordering through global memory, and between lanes and proxies.

use pgemm_emulator::{Checks, Memory, Options, Permission, ReportKind, Schedule};
use pgemm_ir::{
    Access, Argument, CompareOp, Element, Kernel, Op, Order, ProxyFence, Scope, Space, Special,
    SwizzleMode, Type, ty,
};

use crate::kernel::{
    Writer, access, fails, fails_with, matrix, ordered, passes, role, run_with, words,
};

/// CTA 0 writes data and raises a flag, CTA 1 polls the flag and reads.
fn message(write_flag: &[Op], read_flag: Access, after: Option<Op>) -> Kernel {
    let mut w = Writer::new(1);
    let [data, flag] = ["data", "flag"].map(|name| w.scalar(name, Type::U64));
    let output = w.scalar("output", Type::U64);
    let cta = w.special(Special::Cta);
    let (one, zero) = (w.u32(1), w.u32(0));
    let sender = w.is(cta, 0);
    let polled = w.bool(true);
    w.choose(
        sender,
        &[],
        |w| {
            w.in_thread(0, |w| {
                let value = w.u32(42);
                w.at("write").run(Op::Store(access(Space::Global)), &[data, value]);
                for op in write_flag {
                    match op {
                        Op::Store(_) => w.at("raise").run(op.clone(), &[flag, one]),
                        fence => w.run(fence.clone(), &[]),
                    }
                }
            });
            vec![]
        },
        |w| {
            w.in_thread(0, |w| {
                w.while_(
                    &[polled],
                    |_, carried| carried[0],
                    |w, _| {
                        let seen = w.at("poll").op(Op::Load(read_flag), &[flag], Type::U32);
                        vec![w.compare(CompareOp::Eq, seen, zero)]
                    },
                );
                if let Some(after) = after {
                    w.run(after, &[]);
                }
                let value = w.at("read").op(Op::Load(access(Space::Global)), &[data], Type::U32);
                w.run(Op::Store(access(Space::Global)), &[output, value]);
            });
            vec![]
        },
    );
    w.finish()
}

fn message_arguments(memory: &mut Memory) -> (Vec<Argument>, u64) {
    let zeros = [0u8; 4];
    let permission = pgemm_emulator::Permission::ReadWrite;
    let [data, flag, output] =
        ["data", "flag", "output"].map(|name| memory.upload(name, &zeros, permission));
    (vec![Argument::U64(data), Argument::U64(flag), Argument::U64(output)], output)
}

#[test]
fn release_and_acquire_pass_data_between_ctas() {
    let kernel = message(&[Op::Store(ordered(Order::Release))], ordered(Order::Acquire), None);
    passes(&kernel, 2, message_arguments, |memory, output| {
        assert_eq!(words(memory, output, 1), [42]);
    });
}

#[test]
fn fences_around_relaxed_accesses_do_the_same() {
    let fence = Op::Fence(Order::AcquireRelease, Scope::Gpu);
    let kernel = message(
        &[fence.clone(), Op::Store(ordered(Order::Relaxed))],
        ordered(Order::Relaxed),
        Some(fence),
    );
    passes(&kernel, 2, message_arguments, |_, _| ());
}

#[test]
fn relaxed_accesses_alone_order_nothing() {
    let kernel = message(&[Op::Store(ordered(Order::Relaxed))], ordered(Order::Acquire), None);
    let arguments = |memory: &mut Memory| message_arguments(memory).0;
    fails_with(&kernel, 2, arguments, ReportKind::Race, &["read", "write"]);

    let fence = Op::Fence(Order::AcquireRelease, Scope::Gpu);
    let kernel =
        message(&[fence, Op::Store(ordered(Order::Relaxed))], ordered(Order::Relaxed), None);
    fails_with(&kernel, 2, arguments, ReportKind::Race, &["read", "write"]);
}

#[test]
fn scopes_must_reach_the_other_side() {
    let narrow = Access { scope: Scope::Cta, ..ordered(Order::Release) };
    let kernel = message(&[Op::Store(narrow)], ordered(Order::Acquire), None);
    let arguments = |memory: &mut Memory| message_arguments(memory).0;
    fails_with(&kernel, 2, arguments, ReportKind::Race, &["read", "write"]);
}

/// Two CTAs of one cluster: the cluster's scope reaches from one to the other, the CTA's does not,
/// whichever side has it.
#[test]
fn only_the_scope_of_the_cluster_reaches_its_other_cta() {
    let arguments = |memory: &mut Memory| message_arguments(memory).0;
    let flags = |release: Scope, acquire: Scope| {
        let write = Access { scope: release, ..ordered(Order::Release) };
        let read = Access { scope: acquire, ..ordered(Order::Acquire) };
        let kernel = message(&[Op::Store(write)], read, None);
        Kernel { cluster: 2, ..kernel }
    };
    let wide = [Scope::Cluster, Scope::Gpu];
    for (release, acquire) in wide.iter().flat_map(|&own| wide.map(|other| (own, other))) {
        passes(&flags(release, acquire), 2, message_arguments, |_, _| ());
    }
    for scope in wide {
        for kernel in [flags(Scope::Cta, scope), flags(scope, Scope::Cta)] {
            fails_with(&kernel, 2, arguments, ReportKind::Race, &["read", "write"]);
        }
    }
    let fences = |scope| {
        let fence = Op::Fence(Order::AcquireRelease, scope);
        let relaxed = ordered(Order::Relaxed);
        let kernel = message(&[fence.clone(), Op::Store(relaxed)], relaxed, Some(fence));
        Kernel { cluster: 2, ..kernel }
    };
    passes(&fences(Scope::Cluster), 2, message_arguments, |_, _| ());
    fails_with(&fences(Scope::Cta), 2, arguments, ReportKind::Race, &["read", "write"]);
}

#[test]
fn weak_flags_race() {
    let kernel = message(&[Op::Store(ordered(Order::Weak))], ordered(Order::Acquire), None);
    let arguments = |memory: &mut Memory| message_arguments(memory).0;
    fails_with(&kernel, 2, arguments, ReportKind::Race, &["poll", "raise"]);
}

#[test]
fn ctas_must_not_write_the_same_place() {
    let mut w = Writer::new(1);
    let output = w.scalar("output", Type::U64);
    let one = w.u32(1);
    w.in_thread(0, |w| w.at("write").run(Op::Store(access(Space::Global)), &[output, one]));
    let arguments = |memory: &mut Memory| vec![Argument::U64(memory.allocate("output", 4))];
    fails_with(&w.finish(), 2, arguments, ReportKind::Race, &["write"]);
}

#[test]
fn lanes_must_not_write_different_values_to_one_place() {
    let mut w = Writer::new(1);
    let data = w.data("data", 16);
    let lane = w.special(Special::Lane);
    w.in_warp(0, |w| w.at("write").store(data, lane));
    fails(&w.finish(), ReportKind::Race, &["write"]);
}

#[test]
fn regions_that_share_bytes_must_not_be_used_at_once() {
    let kernel = |synchronised: bool| {
        let mut w = Writer::new(1);
        let kind = pgemm_ir::RegionKind::Data(Element::F32);
        let first = w.region_at("first", kind, 0, 128);
        let second = w.region_at("second", kind, 64, 128);
        let (four, value) = (w.u32(64), w.u32(1));
        let shared = w.offset(first, four);
        w.in_thread(0, |w| w.at("first").store(shared, value));
        if synchronised {
            w.sync();
        }
        w.in_thread(32, |w| w.at("second").store(second, value));
        w.finish()
    };
    passes(&kernel(true), 1, |_| (vec![], ()), |_, ()| ());
    let report = fails(&kernel(false), ReportKind::Race, &["first", "second"]);
    assert!(report.message.contains("'first' + 64, 'second' + 0"), "{report}");
}

/// All threads write shared memory, and thread 0 stores it with TMA.
fn staged(fence: &str, barrier: bool) -> Kernel {
    let mut w = Writer::new(1);
    let map = w.map("output", Element::F32, &[16, 8], SwizzleMode::None);
    let data = w.data("staging", 512);
    let own = w.own_word(data);
    let thread = w.special(Special::Thread);
    w.at("write").store(own, thread);
    let fence_op = || Op::FenceProxy(ProxyFence::SharedCta);
    match fence {
        "all" => w.run(fence_op(), &[]),
        "one lane" | "one lane after the others" => {
            if fence != "one lane" {
                w.run(Op::WarpSync, &[]);
            }
            let lane = w.special(Special::Lane);
            let first = w.is(lane, 0);
            w.when(first, |w| w.run(fence_op(), &[]));
        }
        _ => {}
    }
    if barrier {
        w.sync();
    }
    w.in_thread(0, |w| {
        if fence == "after the barrier" {
            w.run(fence_op(), &[]);
        }
        w.at("store").tma_store(map, data, [0, 0]);
        w.run(Op::BulkCommit, &[]);
        w.run(Op::BulkWait { pending: 0, read: true }, &[]);
    });
    w.finish()
}

fn output_matrix(memory: &mut Memory) -> (Vec<Argument>, u64) {
    let address = memory.allocate("output", 512);
    (vec![matrix(address, 16, 8, 64)], address)
}

#[test]
fn generic_writes_reach_tma_through_a_fence_and_a_barrier() {
    for fence in ["all", "after the barrier", "one lane after the others"] {
        passes(&staged(fence, true), 1, output_matrix, |memory, address| {
            assert_eq!(words(memory, address, 128), (0..128).collect::<Vec<_>>());
        });
    }
}

#[test]
fn without_a_fence_tma_does_not_see_generic_writes() {
    let arguments = |memory: &mut Memory| output_matrix(memory).0;
    for fence in ["none", "one lane"] {
        let kernel = staged(fence, true);
        let labels = ["store", "write"];
        fails_with(&kernel, 1, arguments, ReportKind::MissingProxyFence, &labels);
    }
}

#[test]
fn without_a_barrier_tma_races_with_other_warps() {
    for seed in 0..10 {
        let mut memory = Memory::new();
        let arguments = output_matrix(&mut memory).0;
        let options = Options { schedule: Schedule::seeded(seed), ..Options::default() };
        let report = run_with(&staged("all", false), 1, arguments, &mut memory, options);
        let report = report.unwrap_err();
        assert!(
            matches!(report.kind, ReportKind::Race | ReportKind::UninitialisedRead),
            "{report}"
        );
    }
}

/// A warp looks at a flag, and at once again. Another one raises it after many steps of its own.
/// Only where it does so between the two looks does the second one need its acquire.
#[test]
fn a_second_look_needs_its_acquire() {
    let kernel = |order| {
        role(|b| {
            let output = b.param::<ty::U64>("output");
            let (thread, flag) = (b.special(Special::Thread), output.byte_offset(4));
            b.if_(thread.eq(0), || {
                let [first, second] =
                    [(); 2].map(|()| b.load_ordered::<ty::U32>(flag, order, Scope::Gpu));
                b.if_(first.eq(0) & second.ne(0), || {
                    b.scope("reads", || b.load_global::<ty::U32, 1>(output));
                });
            });
            b.if_(thread.eq(32), || {
                b.scope("stores", || b.store_global(output, [thread]));
                for step in 2..40 {
                    let other = output.byte_offset(step * 4);
                    b.store_ordered(other, thread, Order::Relaxed, Scope::Gpu);
                }
                b.store_ordered(flag, thread, Order::Release, Scope::Gpu);
            });
        })
    };
    let run = |order, schedule| {
        let mut memory = Memory::new();
        let output = memory.upload("output", &[0; 160], Permission::ReadWrite);
        let options = Options { schedule, checks: Checks::all(), ..Options::default() };
        run_with(&kernel(order), 1, vec![Argument::U64(output)], &mut memory, options)
    };
    assert!(run(Order::Relaxed, Schedule::round_robin()).is_ok());
    for seed in 0..8 {
        let report = run(Order::Relaxed, Schedule::loads_early(seed)).unwrap_err();
        assert_eq!(report.kind, ReportKind::Race, "{report}");
        run(Order::Acquire, Schedule::loads_early(seed)).unwrap();
    }
}
