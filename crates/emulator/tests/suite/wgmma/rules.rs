//! The rules of wgmma: fences, waits, accumulators in flight, operands that stay as they are.

use pgemm_emulator::{Memory, Options, ReportKind, Schedule};
use pgemm_ir::{
    ASource, AccId, Argument, BinaryOp, DescriptorLayout, Element, Kernel, Op, OperandMajor,
    ProxyFence, Special, SwizzleMode, Type, ValueId, Wgmma,
};

use super::{COLUMNS, DEPTH, ROWS, instruction, put_out, put_out_as};
use crate::kernel::{Writer, fails, passes, run_with, words};

/// A kernel whose threads fill both operands (K-major, no swizzle) with ones and then run `body`.
fn with_ones(fence: bool, body: impl FnOnce(&mut Writer, AccId, [ValueId; 2])) -> Kernel {
    let mut w = Writer::new(1);
    let acc = w.accumulator(Type::F32, COLUMNS / 2);
    let places = [w.data("a", ROWS * DEPTH * 2), w.data("b", COLUMNS * DEPTH * 2)];
    let ones = w.u32(0x3f80_3f80);
    for (place, words) in [(places[0], ROWS * DEPTH / 2), (places[1], COLUMNS * DEPTH / 2)] {
        for first in (0..words).step_by(128) {
            let offset = w.u32(first * 4);
            let start = w.offset(place, offset);
            let own = w.own_word(start);
            w.at("fill").store(own, ones);
        }
    }
    if fence {
        w.run(Op::FenceProxy(ProxyFence::SharedCta), &[]);
    }
    w.sync();
    body(&mut w, acc, places);
    w.finish()
}

fn plain(rows: u32) -> DescriptorLayout {
    DescriptorLayout { swizzle: SwizzleMode::None, leading_bytes: rows * 16, stride_bytes: 128 }
}

fn issue(w: &mut Writer, acc: AccId, places: [ValueId; 2], accumulate: bool) {
    let da = w.descriptor(places[0], plain(ROWS));
    let db = w.descriptor(places[1], plain(COLUMNS));
    let accumulate = w.bool(accumulate);
    let op = instruction(acc, ASource::Shared(OperandMajor::K), OperandMajor::K);
    w.at("wgmma").run(op, &[da, db, accumulate]);
}

fn batch(w: &mut Writer, acc: AccId, places: [ValueId; 2], accumulate: bool) {
    w.run(Op::WgmmaFence, &[]);
    issue(w, acc, places, accumulate);
    w.run(Op::WgmmaCommit, &[]);
}

#[test]
fn batches_in_flight_may_share_accumulators() {
    let kernel = with_ones(true, |w, acc, places| {
        for accumulate in [false, true, true] {
            batch(w, acc, places, accumulate);
        }
        w.run(Op::WgmmaWait { pending: 1 }, &[]);
        w.run(Op::WgmmaWait { pending: 0 }, &[]);
        w.op(Op::AccGet(acc, 3), &[], Type::F32);
    });
    passes(&kernel, 1, |_| (vec![], ()), |_, ()| ());
}

#[test]
fn accumulators_are_read_after_the_wait_only() {
    for pending in [None, Some(1)] {
        let kernel = with_ones(true, |w, acc, places| {
            batch(w, acc, places, false);
            batch(w, acc, places, true);
            if let Some(pending) = pending {
                w.run(Op::WgmmaWait { pending }, &[]);
            }
            w.at("get").op(Op::AccGet(acc, 0), &[], Type::F32);
        });
        fails(&kernel, ReportKind::RegistersInFlight, &["get", "wgmma"]);
    }
}

#[test]
fn every_batch_starts_with_a_fence() {
    let kernel = with_ones(true, |w, acc, places| {
        issue(w, acc, places, false);
    });
    fails(&kernel, ReportKind::MissingWgmmaFence, &["wgmma"]);

    let kernel = with_ones(true, |w, acc, places| {
        batch(w, acc, places, false);
        w.run(Op::WgmmaWait { pending: 0 }, &[]);
        w.run(Op::WgmmaFence, &[]);
        w.at("get").op(Op::AccGet(acc, 0), &[], Type::F32);
        issue(w, acc, places, true);
    });
    fails(&kernel, ReportKind::MissingWgmmaFence, &["get", "wgmma"]);
}

#[test]
fn undefined_accumulators_are_neither_read_nor_added_to() {
    let kernel = with_ones(true, |w, acc, places| {
        batch(w, acc, places, true);
        w.run(Op::WgmmaWait { pending: 0 }, &[]);
    });
    fails(&kernel, ReportKind::UninitialisedAccumulator, &["wgmma"]);

    let kernel = with_ones(true, |w, acc, _| {
        w.at("get").op(Op::AccGet(acc, 0), &[], Type::F32);
    });
    fails(&kernel, ReportKind::UninitialisedAccumulator, &["get"]);
}

/// Writes `128 * index + thread` to register `index` of each thread.
fn set_all(w: &mut Writer, acc: AccId, registers: u32) {
    let thread = w.special(Special::Thread);
    for index in 0..registers {
        let first = w.u32(128 * index);
        let number = w.binary(BinaryOp::Add, first, thread);
        let value = w.op(Op::Convert(Type::F32), &[number], Type::F32);
        w.at("set").run(Op::AccSet(acc, index), &[value]);
    }
}

#[test]
fn batches_add_to_written_accumulators() {
    let kernel = with_ones(true, |w, acc, places| {
        let output = w.scalar("output", Type::U64);
        set_all(w, acc, COLUMNS / 2);
        batch(w, acc, places, true);
        w.run(Op::WgmmaWait { pending: 0 }, &[]);
        put_out(w, acc, output, COLUMNS / 2);
    });
    passes(
        &kernel,
        1,
        |memory| {
            let output = memory.allocate("output", (ROWS * COLUMNS * 4) as usize);
            (vec![Argument::U64(output)], output)
        },
        |memory, output| {
            let bytes = memory.read(output, (ROWS * COLUMNS * 4) as usize).unwrap();
            for (index, word) in bytes.chunks_exact(4).enumerate() {
                let found = f32::from_le_bytes(word.try_into().unwrap());
                assert_eq!(found, index as f32 + DEPTH as f32);
            }
        },
    );
}

#[test]
fn registers_of_two_sums_are_written_whole() {
    let mut w = Writer::new(1);
    let acc = w.accumulator(Type::B32, 4);
    let output = w.scalar("output", Type::U64);
    let thread = w.special(Special::Thread);
    let bits = w.op(Op::Bitcast(Type::B32), &[thread], Type::B32);
    (0..4).for_each(|index| w.run(Op::AccSet(acc, index), &[bits]));
    put_out_as(&mut w, Type::B32, acc, output, 4);
    passes(
        &w.finish(),
        1,
        |memory| {
            let output = memory.allocate("output", 4 * 128 * 4);
            (vec![Argument::U64(output)], output)
        },
        |memory, output| {
            let expected: Vec<u32> = (0..4 * 128).map(|index| index % 128).collect();
            assert_eq!(words(memory, output, 4 * 128), expected);
        },
    );
}

#[test]
fn accumulators_are_written_before_the_fence_and_after_the_wait() {
    let kernel = with_ones(true, |w, acc, places| {
        w.run(Op::WgmmaFence, &[]);
        set_all(w, acc, COLUMNS / 2);
        issue(w, acc, places, true);
    });
    fails(&kernel, ReportKind::MissingWgmmaFence, &["set", "wgmma"]);

    let kernel = with_ones(true, |w, acc, places| {
        batch(w, acc, places, false);
        set_all(w, acc, 1);
        w.run(Op::WgmmaWait { pending: 0 }, &[]);
    });
    fails(&kernel, ReportKind::RegistersInFlight, &["set", "wgmma"]);
}

#[test]
fn accumulators_are_written_in_full_before_they_are_added_to() {
    let kernel = with_ones(true, |w, acc, places| {
        set_all(w, acc, COLUMNS / 2 - 1);
        batch(w, acc, places, true);
        w.run(Op::WgmmaWait { pending: 0 }, &[]);
    });
    fails(&kernel, ReportKind::UninitialisedAccumulator, &["wgmma"]);

    let kernel = with_ones(true, |w, acc, _| {
        w.in_thread(5, |w| set_all(w, acc, 1));
        w.at("get").op(Op::AccGet(acc, 0), &[], Type::F32);
    });
    fails(&kernel, ReportKind::UninitialisedAccumulator, &["get"]);
}

/// A batch on two sets, then a batch on the second only. After a wait that leaves one batch in
/// flight the first set is idle.
#[test]
fn sets_in_flight_are_told_apart() {
    let kernel = |read_first: bool| {
        with_ones(true, |w, first, places| {
            let second = w.accumulator(Type::F32, COLUMNS / 2);
            w.run(Op::WgmmaFence, &[]);
            issue(w, first, places, false);
            issue(w, second, places, false);
            w.run(Op::WgmmaCommit, &[]);
            batch(w, second, places, true);
            w.run(Op::WgmmaWait { pending: 1 }, &[]);
            let read = if read_first { first } else { second };
            w.at("get").op(Op::AccGet(read, 0), &[], Type::F32);
            w.run(Op::WgmmaWait { pending: 0 }, &[]);
            w.op(Op::AccGet(second, 0), &[], Type::F32);
        })
    };
    passes(&kernel(true), 1, |_| (vec![], ()), |_, ()| ());
    fails(&kernel(false), ReportKind::RegistersInFlight, &["get", "wgmma"]);
}

#[test]
fn a_warp_does_not_end_before_its_wgmma() {
    let kernel = with_ones(true, |w, acc, places| batch(w, acc, places, false));
    fails(&kernel, ReportKind::RegistersInFlight, &["wgmma"]);
}

#[test]
fn generic_writes_need_a_proxy_fence() {
    let kernel = with_ones(false, |w, acc, places| {
        batch(w, acc, places, false);
        w.run(Op::WgmmaWait { pending: 0 }, &[]);
    });
    fails(&kernel, ReportKind::MissingProxyFence, &["fill", "wgmma"]);
}

#[test]
fn operands_are_not_overwritten_while_they_are_read() {
    let kernel = |waits: bool| {
        with_ones(true, |w, acc, places| {
            batch(w, acc, places, false);
            if waits {
                w.run(Op::WgmmaWait { pending: 0 }, &[]);
            }
            w.sync();
            let (own, zero) = (w.own_word(places[0]), w.u32(0));
            w.at("overwrite").store(own, zero);
            w.run(Op::WgmmaWait { pending: 0 }, &[]);
        })
    };
    passes(&kernel(true), 1, |_| (vec![], ()), |_, ()| ());
    for seed in 0..10 {
        let options = Options { schedule: Schedule::seeded(seed), ..Options::default() };
        let mut memory = Memory::new();
        let report = run_with(&kernel(false), 1, vec![], &mut memory, options).unwrap_err();
        // The conflict is found at the wgmma or at the store, whichever runs later.
        assert_eq!(report.kind, ReportKind::Race, "{report}");
    }
}

#[test]
fn descriptors_must_point_at_data() {
    let reach = |stride_bytes: u32| {
        with_ones(true, move |w, acc, places| {
            let layout = DescriptorLayout { stride_bytes, ..plain(ROWS) };
            let da = w.descriptor(places[0], layout);
            let db = w.descriptor(places[1], plain(COLUMNS));
            let no = w.bool(false);
            w.run(Op::WgmmaFence, &[]);
            let op = instruction(acc, ASource::Shared(OperandMajor::K), OperandMajor::K);
            w.at("wgmma").run(op, &[da, db, no]);
            w.run(Op::WgmmaCommit, &[]);
            w.run(Op::WgmmaWait { pending: 0 }, &[]);
        })
    };
    fails(&reach(8192), ReportKind::OutOfBounds, &["wgmma"]);
}

#[test]
fn all_warps_issue_the_same() {
    let kernel = with_ones(true, |w, acc, places| {
        let warp = w.special(Special::Warp);
        let bytes = w.u32(16);
        let odd = w.binary(BinaryOp::Mul, warp, bytes);
        let moved = w.offset(places[1], odd);
        batch(w, acc, [places[0], moved], false);
        w.run(Op::WgmmaWait { pending: 0 }, &[]);
    });
    fails(&kernel, ReportKind::WarpgroupMismatch, &["wgmma"]);

    let kernel = with_ones(true, |w, acc, places| {
        let warp = w.special(Special::Warp);
        let first = w.is(warp, 0);
        w.when(first, |w| {
            batch(w, acc, places, false);
            w.at("wait").run(Op::WgmmaWait { pending: 0 }, &[]);
        });
    });
    fails(&kernel, ReportKind::Deadlock, &["wait"]);
}

#[test]
fn instructions_that_do_not_exist_are_refused() {
    let kernel = with_ones(true, |w, acc, places| {
        let da = w.descriptor(places[0], plain(ROWS));
        let no = w.bool(false);
        let op = Op::Wgmma(Wgmma {
            acc,
            n: COLUMNS,
            a: Element::Bf16,
            b: Element::F16,
            a_source: ASource::Shared(OperandMajor::K),
            b_major: OperandMajor::K,
        });
        w.run(Op::WgmmaFence, &[]);
        w.at("wgmma").run(op, &[da, da, no]);
    });
    fails(&kernel, ReportKind::WgmmaMisuse, &["wgmma"]);
}

/// A comes from registers and is all ones. The fragments are made before or after the fence.
fn from_registers(fenced: bool, rewritten: bool) -> Kernel {
    with_ones(true, move |w, acc, places| {
        let thread = w.special(Special::Thread);
        let ones = w.u32(0x3f80_3f80);
        let zero = w.u32(0);
        let db = w.descriptor(places[1], plain(COLUMNS));
        let [no, one] = [w.bool(false), w.u32(1)];
        let two = w.u32(2);
        let trips = if rewritten { two } else { one };
        if !fenced {
            w.run(Op::WgmmaFence, &[]);
        }
        w.for_each([zero, trips, one], &[], |w, _, _| {
            let fragments: Vec<ValueId> = (0..4)
                .map(|_| {
                    let nothing = w.binary(BinaryOp::Mul, thread, zero);
                    let word = w.binary(BinaryOp::Add, ones, nothing);
                    w.at("fragment").op(Op::Bitcast(Type::B32), &[word], Type::B32)
                })
                .collect();
            if fenced {
                w.run(Op::WgmmaFence, &[]);
            }
            let op = instruction(acc, ASource::Registers, OperandMajor::K);
            w.at("wgmma").run(op, &[&fragments[..], &[db, no]].concat());
            w.run(Op::WgmmaCommit, &[]);
            vec![]
        });
        w.run(Op::WgmmaWait { pending: 0 }, &[]);
        w.op(Op::AccGet(acc, 0), &[], Type::F32);
    })
}

#[test]
fn fragments_are_fenced_and_left_alone() {
    passes(&from_registers(true, false), 1, |_| (vec![], ()), |_, ()| ());
    fails(&from_registers(false, false), ReportKind::MissingWgmmaFence, &["fragment", "wgmma"]);
    fails(&from_registers(true, true), ReportKind::RegistersInFlight, &["fragment", "wgmma"]);
}
