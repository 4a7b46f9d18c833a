//! mbarriers, named barriers, the cluster barrier, `setmaxnreg`, and how CTAs end.

use pgemm_emulator::{Memory, Options, ReportKind, Schedule};
use pgemm_ir::{BinaryOp, KernelBuilder, Occupancy, Op, RegisterChange, Special, Type, ValueId};

use crate::kernel::{Writer, assert_same_fault, fails, passes, run_with};

fn arrive(w: &mut Writer, barrier: ValueId) {
    w.run(Op::MbarrierArrive, &[barrier]);
}

/// In each of three rounds warp 0 writes and arrives at a barrier. Warp 1 waits for it (or does
/// not), reads, and hands the memory back through a second barrier.
fn ring(waits: bool, hands_back: bool) -> pgemm_ir::Kernel {
    let mut w = Writer::new(1);
    let data = w.data("data", 128);
    let [full, empty] = [(); 2].map(|()| w.mbarrier());
    w.ready_mbarrier(full, 32);
    w.ready_mbarrier(empty, 32);
    let [zero, one, three] = [0, 1, 3].map(|value| w.u32(value));
    let (lane, four) = (w.special(Special::Lane), w.u32(4));
    let bytes = w.binary(BinaryOp::Mul, lane, four);
    let word = w.offset(data, bytes);
    w.in_warp(0, |w| {
        w.for_each([zero, three, one], &[one], |w, round, parity| {
            if hands_back {
                w.run(Op::MbarrierWait, &[empty, parity[0]]);
            }
            w.at("write").store(word, round);
            arrive(w, full);
            vec![w.binary(BinaryOp::Xor, parity[0], one)]
        });
    });
    w.in_warp(1, |w| {
        w.for_each([zero, three, one], &[zero], |w, _, parity| {
            if waits {
                w.run(Op::MbarrierWait, &[full, parity[0]]);
            }
            w.at("read").load(word);
            arrive(w, empty);
            vec![w.binary(BinaryOp::Xor, parity[0], one)]
        });
    });
    w.finish()
}

#[test]
fn a_ring_orders_writers_and_readers() {
    passes(&ring(true, true), 1, |_| (vec![], ()), |_, ()| ());
}

#[test]
fn a_reader_that_does_not_wait_races() {
    let kernel = ring(false, true);
    for seed in 0..20 {
        let options = Options { schedule: Schedule::seeded(seed), ..Options::default() };
        let report = run_with(&kernel, 1, vec![], &mut Memory::new(), options).unwrap_err();
        // Under some schedules the reader comes first, before the memory was ever written.
        assert!(
            matches!(report.kind, ReportKind::Race | ReportKind::UninitialisedRead),
            "{report}"
        );
    }
}

#[test]
fn a_writer_that_does_not_wait_races_whatever_the_schedule() {
    let kernel = ring(true, false);
    for seed in 0..20 {
        let options = Options { schedule: Schedule::seeded(seed), ..Options::default() };
        match run_with(&kernel, 1, vec![], &mut Memory::new(), options) {
            Ok(_) => panic!("seed {seed}: nothing was found"),
            // A fast writer can let two phases pass, so that the reader waits for ever.
            Err(report) => {
                assert!(matches!(report.kind, ReportKind::Race | ReportKind::Deadlock), "{report}")
            }
        }
    }
}

#[test]
fn reports_replay() {
    let kernel = ring(false, true);
    let options = Options { schedule: Schedule::seeded(5), ..Options::default() };
    let first = run_with(&kernel, 1, vec![], &mut Memory::new(), options).unwrap_err();
    let options = Options { schedule: first.schedule.clone(), ..Options::default() };
    let again = run_with(&kernel, 1, vec![], &mut Memory::new(), options).unwrap_err();
    assert_same_fault(&first, &again);
}

#[test]
fn uninitialised_mbarriers_cannot_be_used() {
    let mut w = Writer::new(1);
    let barrier = w.mbarrier();
    w.at("wait").wait(barrier, 0);
    fails(&w.finish(), ReportKind::MbarrierMisuse, &["wait"]);
}

#[test]
fn mbarrier_initialisation_must_be_ordered_before_its_use() {
    let mut w = Writer::new(1);
    let barrier = w.mbarrier();
    let flag = w.data("flag", 16);
    w.in_thread(0, |w| w.at("init").run(Op::MbarrierInit { count: 1 }, &[barrier]));
    // The weak flag orders nothing. It only makes thread 32 come later under every schedule.
    let (id, value) = (w.u32(1), w.u32(1));
    w.in_warp(0, |w| w.run(Op::BarrierArrive { threads: 64 }, &[id]));
    w.in_warp(1, |w| {
        w.run(Op::BarrierSync { threads: 64 }, &[id]);
        w.in_thread(32, |w| w.store(flag, value));
        w.wait(barrier, 1);
    });
    w.in_warp(2, |w| w.at("wait").wait(barrier, 1));
    let kernel = w.finish();
    for seed in 0..20 {
        let options = Options { schedule: Schedule::seeded(seed), ..Options::default() };
        let report = run_with(&kernel, 1, vec![], &mut Memory::new(), options).unwrap_err();
        assert!(matches!(
            report.kind,
            ReportKind::MbarrierInitNotVisible | ReportKind::MbarrierMisuse
        ));
        assert_eq!(report.sites[0].location.scopes, ["wait"]);
    }
}

#[test]
fn mbarriers_are_initialised_once() {
    let mut w = Writer::new(1);
    let barrier = w.mbarrier();
    w.in_thread(0, |w| {
        w.at("first").run(Op::MbarrierInit { count: 1 }, &[barrier]);
        w.at("second").run(Op::MbarrierInit { count: 1 }, &[barrier]);
    });
    fails(&w.finish(), ReportKind::MbarrierMisuse, &["first", "second"]);
}

#[test]
fn mbarriers_take_no_more_arrivals_than_they_expect() {
    let mut w = Writer::new(1);
    let barrier = w.mbarrier();
    w.ready_mbarrier(barrier, 1);
    w.in_warp(1, |w| w.at("arrive").run(Op::MbarrierArrive, &[barrier]));
    fails(&w.finish(), ReportKind::MbarrierMisuse, &["arrive"]);
}

#[test]
fn mbarriers_are_not_data() {
    let mut w = Writer::new(1);
    let barrier = w.mbarrier();
    w.ready_mbarrier(barrier, 1);
    w.at("read").load(barrier);
    fails(&w.finish(), ReportKind::MbarrierMisuse, &["read"]);
}

#[test]
fn waiting_for_nobody_is_a_deadlock_that_names_the_barrier() {
    let mut w = Writer::new(1);
    let barrier = w.mbarrier();
    w.ready_mbarrier(barrier, 3);
    w.in_thread(0, |w| arrive(w, barrier));
    w.in_warp(2, |w| w.at("wait").wait(barrier, 0));
    let report = fails(&w.finish(), ReportKind::Deadlock, &["wait"]);
    assert!(report.sites[0].what.contains("'barrier' + 0"), "{report}");
    assert!(report.sites[0].what.contains("lacks 2 of 3 arrivals"), "{report}");
    assert_eq!(report.sites[0].actor.warp, 2);
    // The barrier is described once more by itself, since others may be busy that nobody waits for.
    let notes: Vec<&String> =
        report.notes.iter().filter(|note| note.starts_with("mbarrier at ")).collect();
    assert!(matches!(&notes[..], [note] if note.contains("2 of 3 arrivals")), "{report}");
}

#[test]
fn named_barriers_order_what_lies_before_and_after() {
    let kernel = |synchronised: bool| {
        let mut w = Writer::new(1);
        let data = w.data("data", 512);
        let own = w.own_word(data);
        let thread = w.special(Special::Thread);
        w.at("write").store(own, thread);
        if synchronised {
            w.sync();
        }
        let last = w.u32(508);
        let last = w.binary(BinaryOp::Sub, last, thread);
        let mask = w.u32(!3);
        let other = w.binary(BinaryOp::And, last, mask);
        let other = w.offset(data, other);
        w.at("read").load(other);
        w.finish()
    };
    passes(&kernel(true), 1, |_| (vec![], ()), |_, ()| ());
    let options = Options::default();
    let report = run_with(&kernel(false), 1, vec![], &mut Memory::new(), options).unwrap_err();
    assert!(matches!(report.kind, ReportKind::Race | ReportKind::UninitialisedRead), "{report}");
}

#[test]
fn named_barriers_agree_on_their_threads() {
    let mut w = Writer::new(1);
    let id = w.u32(3);
    w.in_warp(0, |w| w.at("a").run(Op::BarrierSync { threads: 64 }, &[id]));
    w.in_warp(1, |w| w.at("b").run(Op::BarrierSync { threads: 96 }, &[id]));
    let kernel = w.finish();
    let report = run_with(&kernel, 1, vec![], &mut Memory::new(), Options::default()).unwrap_err();
    assert_eq!(report.kind, ReportKind::NamedBarrierMisuse);
    assert_eq!(report.sites[0].location.scopes, ["b"]);

    let mut w = Writer::new(1);
    let id = w.u32(16);
    w.at("sync").run(Op::BarrierSync { threads: 128 }, &[id]);
    fails(&w.finish(), ReportKind::NamedBarrierMisuse, &["sync"]);

    let mut w = Writer::new(1);
    let id = w.u32(1);
    w.in_warp(0, |w| w.at("short").run(Op::BarrierSync { threads: 64 }, &[id]));
    let report = fails(&w.finish(), ReportKind::Deadlock, &["short"]);
    assert!(report.sites[0].what.contains("32 of 64 threads"), "{report}");
}

#[test]
fn a_warp_arrives_once_in_a_round() {
    let mut w = Writer::new(1);
    let id = w.u32(1);
    w.in_warp(0, |w| {
        w.run(Op::BarrierArrive { threads: 128 }, &[id]);
        w.at("again").run(Op::BarrierArrive { threads: 128 }, &[id]);
    });
    fails(&w.finish(), ReportKind::NamedBarrierMisuse, &["again"]);
}

/// Both CTAs of a cluster initialise a barrier, wait at the cluster barrier, and arrive at each
/// other's barrier.
fn neighbours(fenced: bool, relaxed: bool, stays: bool) -> pgemm_ir::Kernel {
    let mut w = Writer::new(1).cluster(2);
    let barrier = w.mbarrier();
    w.in_thread(0, |w| {
        w.at("init").run(Op::MbarrierInit { count: 1 }, &[barrier]);
        if fenced {
            w.run(Op::FenceMbarrierInit, &[]);
        }
    });
    w.run(Op::ClusterArrive { relaxed }, &[]);
    w.run(Op::ClusterWait, &[]);
    let (own, one) = (w.special(Special::CtaRank), w.u32(1));
    let other = w.binary(BinaryOp::Xor, own, one);
    let peer = w.op(Op::MapShared, &[barrier, other], Type::ClusterSmem);
    w.in_thread(0, |w| w.at("arrive").run(Op::MbarrierArriveCluster, &[peer]));
    if stays {
        w.wait(barrier, 0);
    }
    w.finish()
}

#[test]
fn clusters_meet_and_arrive_at_each_others_barriers() {
    for relaxed in [false, true] {
        passes(&neighbours(true, relaxed, true), 4, |_| (vec![], ()), |_, ()| ());
    }
}

#[test]
fn peers_need_a_fence_after_initialisation() {
    fails(&neighbours(false, false, true), ReportKind::MbarrierInitNotVisible, &["arrive", "init"]);
}

#[test]
fn a_relaxed_cluster_barrier_orders_no_data() {
    let mut w = Writer::new(1).cluster(2);
    let data = w.data("data", 16);
    let one = w.u32(1);
    w.in_thread(0, |w| w.at("write").store(data, one));
    w.run(Op::ClusterArrive { relaxed: true }, &[]);
    w.run(Op::ClusterWait, &[]);
    w.in_thread(32, |w| {
        w.at("read").load(data);
    });
    fails(&w.finish(), ReportKind::Race, &["read", "write"]);
}

#[test]
fn a_cta_must_not_exit_before_its_peers_last_arrival() {
    fails(&neighbours(true, true, false), ReportKind::ExitedPeer, &["arrive"]);
}

#[test]
fn the_cluster_barrier_is_arrived_at_once_and_then_waited_for() {
    let mut w = Writer::new(1).cluster(2);
    w.run(Op::ClusterArrive { relaxed: false }, &[]);
    w.at("again").run(Op::ClusterArrive { relaxed: false }, &[]);
    fails(&w.finish(), ReportKind::ClusterBarrierMisuse, &["again"]);

    let mut w = Writer::new(1).cluster(2);
    w.at("wait").run(Op::ClusterWait, &[]);
    fails(&w.finish(), ReportKind::ClusterBarrierMisuse, &["wait"]);

    let mut w = Writer::new(1).cluster(2);
    let four = w.u32(4);
    let barrier = w.mbarrier();
    let beyond = w.op(Op::MapShared, &[barrier, four], Type::ClusterSmem);
    w.at("beyond").run(Op::MbarrierArriveCluster, &[beyond]);
    fails(&w.finish(), ReportKind::OutOfBounds, &["beyond"]);
}

#[test]
fn exited_warps_do_not_hold_up_the_cluster_barrier() {
    let mut w = Writer::new(1).cluster(2);
    let warp = w.special(Special::Warp);
    let stays = w.is(warp, 2);
    w.when(stays, |w| {
        for _ in 0..3 {
            w.run(Op::ClusterArrive { relaxed: false }, &[]);
            w.run(Op::ClusterWait, &[]);
        }
    });
    passes(&w.finish(), 2, |_| (vec![], ()), |_, ()| ());
}

fn budgets(lower: u32, raise: u32) -> pgemm_ir::Kernel {
    let mut w = Writer::new(3);
    let group = w.special(Special::Warpgroup);
    let producer = w.is(group, 0);
    w.choose(
        producer,
        &[],
        |w| {
            w.at("lower")
                .run(Op::SetMaxRegisters { count: lower, change: RegisterChange::Decrease }, &[]);
            vec![]
        },
        |w| {
            w.at("raise")
                .run(Op::SetMaxRegisters { count: raise, change: RegisterChange::Increase }, &[]);
            vec![]
        },
    );
    w.finish()
}

#[test]
fn registers_come_from_those_who_gave_them_back() {
    passes(&budgets(40, 232), 1, |_| (vec![], ()), |_, ()| ());
    let report = fails(&budgets(40, 240), ReportKind::Deadlock, &["raise"]);
    assert!(report.sites[0].what.contains("waits for registers to have 240"), "{report}");
}

#[test]
fn ctas_that_share_an_sm_share_its_registers() {
    let pair = |load: u32, compute: u32| {
        let b = KernelBuilder::new("pair", 1);
        b.warp_roles(Occupancy::ctas(2), |roles| {
            roles.role("load", 1, load, |_| b.warp_sync());
            roles.role("compute", 2, compute, |_| b.warp_sync());
        });
        pgemm_ir::optimise(b.finish().unwrap()).unwrap()
    };
    passes(&pair(40, 96), 1, |_| (vec![], ()), |_, ()| ());
    // Three warpgroups start with 80 registers per thread, 240 in sum. 32 + 2 × 112 is more than
    // that, although half an SM has enough registers.
    let report =
        run_with(&pair(32, 112), 1, vec![], &mut Memory::new(), Options::default()).unwrap_err();
    assert_eq!(report.kind, ReportKind::Deadlock);
    assert!(report.sites[0].what.contains("waits for registers to have 112"), "{report}");
}

#[test]
fn register_counts_are_legal_and_agree() {
    fails(&budgets(44, 232), ReportKind::RegisterMisuse, &["lower"]);
    fails(&budgets(200, 200), ReportKind::RegisterMisuse, &["lower"]);

    let mut w = Writer::new(1);
    let warp = w.special(Special::Warp);
    let first = w.is(warp, 0);
    w.choose(
        first,
        &[],
        |w| {
            w.at("a").run(Op::SetMaxRegisters { count: 40, change: RegisterChange::Decrease }, &[]);
            vec![]
        },
        |w| {
            w.at("b").run(Op::SetMaxRegisters { count: 48, change: RegisterChange::Decrease }, &[]);
            vec![]
        },
    );
    fails(&w.finish(), ReportKind::WarpgroupMismatch, &["a", "b"]);
}
