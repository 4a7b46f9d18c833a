//! TMA loads and stores.

use pgemm_emulator::{Memory, Options, Permission, ReportKind, Schedule, SetupError};
use pgemm_ir::{
    Argument, CompareOp, Element, Kernel, Launch, Op, Order, ProxyFence, Space, Special,
    SwizzleMode, Type, ValueId,
};

use crate::kernel::{Writer, access, fails_with, matrix, ordered, passes, run_with, words};

/// A 20 × 10 matrix of words with a row pitch of 96 bytes. Element (r, c) is 100 r + c.
fn input(memory: &mut Memory) -> Argument {
    let mut bytes = vec![0xee; 96 * 10];
    for row in 0..10u32 {
        for column in 0..20u32 {
            let at = (row * 96 + column * 4) as usize;
            bytes[at..at + 4].copy_from_slice(&(100 * row + column).to_le_bytes());
        }
    }
    let address = memory.upload("input", &bytes, Permission::ReadOnly);
    matrix(address, 20, 10, 96)
}

fn element(row: i32, column: i32) -> u32 {
    let inside = (0..10).contains(&row) && (0..20).contains(&column);
    if inside { (100 * row + column) as u32 } else { 0 }
}

/// Thread 0 loads the box at `at`. All threads wait for it and write it to the output.
fn loading(element: Element, extents: [u32; 2], swizzle: SwizzleMode, at: [i32; 2]) -> Kernel {
    let mut w = Writer::new(1);
    let map = w.map("input", element, &extents, swizzle);
    let output = w.scalar("output", Type::U64);
    let bytes = extents[0] * extents[1] * 4;
    assert_eq!(bytes, 512);
    let (data, barrier) = (w.data("data", bytes), w.mbarrier());
    w.ready_mbarrier(barrier, 1);
    w.in_thread(0, |w| {
        w.run(Op::MbarrierArriveExpect { bytes }, &[barrier]);
        w.at("load").tma_load(map, data, barrier, at.map(|at| at as u32));
    });
    w.wait(barrier, 0);
    let own = w.own_word(data);
    let value = w.load(own);
    w.output(output, value);
    w.finish()
}

#[test]
fn boxes_land_swizzled_and_zero_filled() {
    let cases = [
        ([16, 8], SwizzleMode::None),
        ([8, 16], SwizzleMode::B32),
        ([16, 8], SwizzleMode::B64),
        ([32, 4], SwizzleMode::B128),
    ];
    for (extents, swizzle) in cases {
        for at in [[0, 0], [4, 2], [-4, -2], [16, 7], [40, 0]] {
            let kernel = loading(Element::F32, extents, swizzle, at);
            passes(
                &kernel,
                1,
                |memory| {
                    let input = input(memory);
                    let output = memory.allocate("output", 512);
                    (vec![input, Argument::U64(output)], output)
                },
                |memory, output| {
                    let found = words(memory, output, 128);
                    for word in 0..128u32 {
                        let stored = (swizzle.apply(4 * word) / 4) as usize;
                        let (row, column) = (word / extents[0], word % extents[0]);
                        let expected = element(at[1] + row as i32, at[0] + column as i32);
                        assert_eq!(found[stored], expected, "{swizzle:?} {at:?} word {word}");
                    }
                },
            );
        }
    }
}

#[test]
fn maps_of_tf32_round_to_nearest_even_as_they_load() {
    let kernel = loading(Element::Tf32, [16, 8], SwizzleMode::None, [0, 0]);
    // tf32 has ten fraction bits. The last of them is 0x2000.
    let cases: [(u32, u32); 10] = [
        (0x3f80_0000, 0x3f80_0000),
        (0x3f80_0fff, 0x3f80_0000),
        (0x3f80_1000, 0x3f80_0000),
        (0x3f80_1001, 0x3f80_2000),
        (0x3f80_3000, 0x3f80_4000),
        (0xbf80_3000, 0xbf80_4000),
        (0x3fff_f000, 0x4000_0000),
        (0x7f7f_ffff, 0x7f80_0000),
        (0xff80_0000, 0xff80_0000),
        (0x7f80_0001, 0x7fc0_0000),
    ];
    passes(
        &kernel,
        1,
        |memory| {
            let words = cases.iter().map(|(word, _)| word).chain(&[0; 10]);
            let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
            let address = memory.upload("input", &bytes, Permission::ReadOnly);
            let output = memory.allocate("output", 512);
            (vec![matrix(address, 10, 1, 80), Argument::U64(output)], output)
        },
        |memory, output| {
            let found = words(memory, output, 128);
            let expected = cases.map(|(_, rounded)| rounded);
            assert_eq!(found[..10], expected);
            assert!(found[10..].iter().all(|&word| word == 0));
        },
    );
}

/// A kernel with one input map and one mbarrier of one arrival.
fn with_input(body: impl FnOnce(&mut Writer, ValueId, ValueId, ValueId)) -> Kernel {
    let mut w = Writer::new(1);
    let map = w.map("input", Element::F32, &[16, 8], SwizzleMode::None);
    let (data, barrier) = (w.data("data", 1024), w.mbarrier());
    w.ready_mbarrier(barrier, 1);
    body(&mut w, map, data, barrier);
    w.finish()
}

fn expect(w: &mut Writer, barrier: ValueId) {
    w.run(Op::MbarrierArriveExpect { bytes: 512 }, &[barrier]);
}

#[track_caller]
fn input_fails(kernel: &Kernel, kind: ReportKind, labels: &[&str]) {
    fails_with(kernel, 1, |memory| vec![input(memory)], kind, labels);
}

#[test]
fn a_box_cannot_be_read_before_it_is_waited_for() {
    let kernel = with_input(|w, map, data, barrier| {
        w.in_thread(0, |w| {
            expect(w, barrier);
            w.at("load").tma_load(map, data, barrier, [0, 0]);
        });
        w.sync();
        w.in_warp(1, |w| {
            w.at("read").load(data);
        });
        w.wait(barrier, 0);
    });
    for seed in 0..10 {
        let mut memory = Memory::new();
        let arguments = vec![input(&mut memory)];
        let options = Options { schedule: Schedule::seeded(seed), ..Options::default() };
        let report = run_with(&kernel, 1, arguments, &mut memory, options).unwrap_err();
        assert!(
            matches!(report.kind, ReportKind::Race | ReportKind::UninitialisedRead),
            "{report}"
        );
    }
}

#[test]
fn a_box_must_not_land_on_what_is_still_read() {
    let kernel = |waits: bool| {
        with_input(|w, map, data, barrier| {
            let zero = w.u32(0);
            w.in_thread(32, |w| w.store(data, zero));
            w.sync();
            w.in_warp(1, |w| {
                w.at("read").load(data);
            });
            if waits {
                w.sync();
            }
            w.in_thread(0, |w| {
                expect(w, barrier);
                w.run(Op::FenceProxy(ProxyFence::SharedCta), &[]);
                w.at("load").tma_load(map, data, barrier, [0, 0]);
            });
            w.wait(barrier, 0);
        })
    };
    passes(&kernel(true), 1, |memory| (vec![input(memory)], ()), |_, ()| ());
    input_fails(&kernel(false), ReportKind::Race, &["load", "read"]);
}

#[test]
fn a_load_that_nobody_waits_for_is_in_flight_at_exit() {
    let kernel = with_input(|w, map, data, barrier| {
        w.in_thread(0, |w| {
            expect(w, barrier);
            w.at("load").tma_load(map, data, barrier, [0, 0]);
        });
    });
    input_fails(&kernel, ReportKind::ExitWithTmaInFlight, &["load"]);
}

#[test]
fn bytes_that_were_not_announced_leave_the_phase_open() {
    let kernel = with_input(|w, map, data, barrier| {
        w.in_thread(0, |w| {
            w.run(Op::MbarrierArriveExpect { bytes: 256 }, &[barrier]);
            w.tma_load(map, data, barrier, [0, 0]);
        });
        w.at("wait").wait(barrier, 0);
    });
    input_fails(&kernel, ReportKind::Deadlock, &["wait"]);
}

#[test]
fn the_mbarrier_must_be_visible_to_the_async_proxy() {
    let mut w = Writer::new(1);
    let map = w.map("input", Element::F32, &[16, 8], SwizzleMode::None);
    let (data, barrier) = (w.data("data", 512), w.mbarrier());
    w.in_thread(0, |w| w.at("init").run(Op::MbarrierInit { count: 1 }, &[barrier]));
    w.sync();
    w.in_thread(0, |w| w.at("load").tma_load(map, data, barrier, [0, 0]));
    input_fails(&w.finish(), ReportKind::MbarrierInitNotVisible, &["init", "load"]);
}

#[test]
fn boxes_begin_at_units_of_a_line() {
    let from = |column: u32| {
        with_input(|w, map, data, barrier| {
            w.in_thread(0, |w| {
                expect(w, barrier);
                w.at("load").tma_load(map, data, barrier, [column, 0]);
            });
            w.wait(barrier, 0);
        })
    };
    passes(&from(4), 1, |memory| (vec![input(memory)], ()), |_, ()| ());
    for column in [1, 2, u32::MAX] {
        input_fails(&from(column), ReportKind::TmaMisuse, &["load"]);
    }
}

#[test]
fn boxes_are_aligned_and_inside_shared_memory() {
    for (offset, kind) in [(16, ReportKind::Misaligned), (640, ReportKind::OutOfBounds)] {
        let kernel = with_input(|w, map, data, barrier| {
            let offset = w.u32(offset);
            let data = w.offset(data, offset);
            w.in_thread(0, |w| w.at("load").tma_load(map, data, barrier, [0, 0]));
        });
        input_fails(&kernel, kind, &["load"]);
    }
}

#[test]
fn prefetches_have_the_rank_of_their_map() {
    let prefetch = |rank: u32| {
        with_input(|w, map, _, _| {
            let (thread, zero) = (w.special(Special::Thread), w.u32(0));
            w.in_thread(0, |w| {
                // The map is chosen by a branch, so only the emulator can check its rank.
                let first = w.is(thread, 0);
                let chosen = w.choose(first, &[Type::MapPtr], |_| vec![map], |_| vec![map]);
                let args = [&chosen[..], &[zero; 3][..rank as usize]].concat();
                w.at("prefetch").run(Op::TmaPrefetch { rank, im2col: false, policy: false }, &args);
            });
        })
    };
    passes(&prefetch(2), 1, |memory| (vec![input(memory)], ()), |_, ()| ());
    input_fails(&prefetch(3), ReportKind::TmaMisuse, &["prefetch"]);
}

#[test]
fn a_map_that_leaves_its_allocation_is_out_of_bounds() {
    let kernel = with_input(|w, map, data, barrier| {
        w.in_thread(0, |w| {
            expect(w, barrier);
            w.at("load").tma_load(map, data, barrier, [0, 4]);
        });
        w.wait(barrier, 0);
    });
    let arguments = |memory: &mut Memory| {
        let address = memory.upload("small", &[0; 96 * 5], Permission::ReadOnly);
        vec![matrix(address, 20, 10, 96)]
    };
    fails_with(&kernel, 1, arguments, ReportKind::OutOfBounds, &["load"]);
}

#[test]
fn maps_that_the_hardware_does_not_take_are_refused() {
    let kernel = with_input(|_, _, _, _| ());
    let mut memory = Memory::new();
    for argument in [matrix(8, 20, 10, 96), matrix(1 << 36, 20, 10, 80 + 4), matrix(16, 0, 1, 16)] {
        let launch = Launch { grid: [1, 1, 1], arguments: vec![argument] };
        let options = Options::default();
        let error = pgemm_emulator::Emulator::new(&kernel, &launch, &mut memory, options).err();
        assert!(matches!(error, Some(SetupError::TensorMap { .. })), "{error:?}");
    }
}

/// Rank 0 loads a box into both CTAs of its cluster.
fn multicast(mask: u32) -> Kernel {
    let mut w = Writer::new(1).cluster(2);
    let map = w.map("input", Element::F32, &[16, 8], SwizzleMode::None);
    let output = w.scalar("output", Type::U64);
    let (data, barrier) = (w.data("data", 512), w.mbarrier());
    w.in_thread(0, |w| {
        w.run(Op::MbarrierInit { count: 1 }, &[barrier]);
        w.run(Op::FenceMbarrierInit, &[]);
    });
    w.run(Op::ClusterArrive { relaxed: true }, &[]);
    w.run(Op::ClusterWait, &[]);
    w.in_thread(0, |w| {
        expect(w, barrier);
        w.in_rank(0, |w| {
            let [x, y, mask] = [0, 0, mask].map(|value| w.u32(value));
            let op = Op::TmaLoad { rank: 2, im2col: false, multicast: true, policy: false };
            w.at("load").run(op, &[map, data, barrier, x, y, mask]);
        });
    });
    w.at("wait").wait(barrier, 0);
    let own = w.own_word(data);
    let value = w.load(own);
    w.output(output, value);
    w.finish()
}

fn multicast_arguments(memory: &mut Memory) -> (Vec<Argument>, u64) {
    let input = input(memory);
    let output = memory.allocate("output", 4 * 256);
    (vec![input, Argument::U64(output)], output)
}

#[test]
fn multicast_boxes_land_in_every_cta_of_the_mask() {
    passes(&multicast(3), 2, multicast_arguments, |memory, output| {
        for (word, value) in words(memory, output, 256).into_iter().enumerate() {
            let word = word as i32 % 128;
            assert_eq!(value, element(word / 16, word % 16));
        }
    });
}

#[test]
fn multicast_masks_name_ctas_of_the_cluster() {
    let arguments = |memory: &mut Memory| multicast_arguments(memory).0;
    fails_with(&multicast(5), 2, arguments, ReportKind::TmaMisuse, &["load"]);
    // A CTA outside the mask waits for ever.
    fails_with(&multicast(1), 2, arguments, ReportKind::Deadlock, &["wait"]);
}

/// All threads write a box and thread 0 stores it at `at`. Then `after` runs in thread 0 and `all`
/// in all threads.
fn storing(at: [i32; 2], after: impl FnOnce(&mut Writer, ValueId)) -> Kernel {
    let mut w = Writer::new(1);
    let map = w.map("output", Element::F32, &[16, 8], SwizzleMode::B64);
    let data = w.data("data", 512);
    let own = w.own_word(data);
    let thread = w.special(Special::Thread);
    w.store(own, thread);
    w.run(Op::FenceProxy(ProxyFence::SharedCta), &[]);
    w.sync();
    w.in_thread(0, |w| {
        w.at("store").tma_store(map, data, at.map(|at| at as u32));
        w.run(Op::BulkCommit, &[]);
    });
    after(&mut w, data);
    w.finish()
}

fn wait_in(w: &mut Writer, thread: u32, read: bool) {
    w.in_thread(thread, |w| w.run(Op::BulkWait { pending: 0, read }, &[]));
}

fn output(memory: &mut Memory) -> (Vec<Argument>, u64) {
    let address = memory.allocate("output", 96 * 10);
    (vec![matrix(address, 20, 10, 96)], address)
}

#[test]
fn stores_leave_out_what_is_out_of_bounds() {
    for at in [[0, 0], [12, 5], [-4, -3], [-20, 0]] {
        let kernel = storing(at, |w, _| wait_in(w, 0, true));
        passes(&kernel, 1, output, |memory, address| {
            for row in 0..10i32 {
                for column in 0..20i32 {
                    let word = address + (row * 96 + column * 4) as u64;
                    let (r, c) = (row - at[1], column - at[0]);
                    let written = (0..8).contains(&r) && (0..16).contains(&c);
                    assert_eq!(memory.read(word, 4).is_ok(), written);
                    if written {
                        let stored = SwizzleMode::B64.apply((r * 64 + c * 4) as u32) / 4;
                        assert_eq!(words(memory, word, 1), [stored]);
                    }
                }
            }
        });
    }
}

#[track_caller]
fn store_fails(kernel: &Kernel, kind: ReportKind, labels: &[&str]) {
    fails_with(kernel, 1, |memory| output(memory).0, kind, labels);
}

#[test]
fn threads_wait_for_their_own_stores_before_they_end() {
    store_fails(&storing([0, 0], |_, _| ()), ReportKind::ExitWithTmaInFlight, &["store"]);
    let kernel = storing([0, 0], |w, _| wait_in(w, 1, true));
    store_fails(&kernel, ReportKind::ExitWithTmaInFlight, &["store"]);
}

#[test]
fn staging_is_not_reused_before_the_store_has_read_it() {
    let reuse = |waits: bool| {
        storing([0, 0], |w, data| {
            if waits {
                wait_in(w, 0, true);
            }
            w.sync();
            let (own, zero) = (w.own_word(data), w.u32(0));
            w.at("reuse").store(own, zero);
            wait_in(w, 0, true);
        })
    };
    passes(&reuse(true), 1, output, |_, _| ());
    for seed in 0..10 {
        let mut memory = Memory::new();
        let (arguments, _) = output(&mut memory);
        let options = Options { schedule: Schedule::seeded(seed), ..Options::default() };
        let report = run_with(&reuse(false), 1, arguments, &mut memory, options).unwrap_err();
        assert!(
            matches!(report.kind, ReportKind::Race | ReportKind::MissingProxyFence),
            "{report}"
        );
    }
}

#[test]
fn written_results_can_be_read_after_the_whole_wait_only() {
    let kernel = |read: bool| {
        let mut w = Writer::new(1);
        let map = w.map("output", Element::F32, &[16, 8], SwizzleMode::None);
        let pointer = w.scalar("pointer", Type::U64);
        let data = w.data("data", 512);
        let own = w.own_word(data);
        let thread = w.special(Special::Thread);
        w.store(own, thread);
        w.run(Op::FenceProxy(ProxyFence::SharedCta), &[]);
        w.sync();
        w.in_thread(0, |w| {
            w.at("store").tma_store(map, data, [0, 0]);
            w.run(Op::BulkCommit, &[]);
            w.run(Op::BulkWait { pending: 0, read }, &[]);
            w.at("read").op(Op::Load(access(Space::Global)), &[pointer], Type::U32);
        });
        w.finish()
    };
    let arguments = |memory: &mut Memory| {
        let address = memory.upload("output", &[0; 960], Permission::ReadWrite);
        vec![matrix(address, 20, 10, 96), Argument::U64(address)]
    };
    passes(&kernel(false), 1, |memory| (arguments(memory), ()), |_, ()| ());
    fails_with(&kernel(true), 1, arguments, ReportKind::Race, &["read", "store"]);
}

/// All threads read a box, and thread 0 loads the next one over it. On an H200 such a load overtook
/// the reads where only a barrier stood between.
fn refilled(fence: Option<ProxyFence>) -> Kernel {
    with_input(|w, map, data, barrier| {
        let own = w.own_word(data);
        for phase in 0..2 {
            w.in_thread(0, |w| {
                w.run(Op::MbarrierArriveExpect { bytes: 512 }, &[barrier]);
                w.at("load").tma_load(map, data, barrier, [0, 0]);
            });
            w.wait(barrier, phase);
            w.at("read").load(own);
            if let Some(fence) = fence {
                w.run(Op::FenceProxy(fence), &[]);
            }
            w.sync();
        }
    })
}

#[test]
fn a_load_over_what_was_read_needs_a_proxy_fence() {
    let arguments = |memory: &mut Memory| vec![input(memory)];
    let fenced = refilled(Some(ProxyFence::SharedCta));
    passes(&fenced, 1, |memory| (arguments(memory), ()), |_, ()| ());
    for fence in [None, Some(ProxyFence::Global)] {
        let labels = ["load", "read"];
        let report =
            fails_with(&refilled(fence), 1, arguments, ReportKind::MissingProxyFence, &labels);
        assert!(report.message.contains("was read through the generic proxy"), "{report}");
    }
}

/// CTA 0 stores a box with TMA and raises a flag. CTA 1 polls the flag and loads the box with TMA.
fn handed_on(fences: [Option<ProxyFence>; 2]) -> Kernel {
    let mut w = Writer::new(1);
    let map = w.map("box", Element::F32, &[16, 8], SwizzleMode::None);
    let flag = w.scalar("flag", Type::U64);
    let (data, barrier) = (w.data("data", 512), w.mbarrier());
    w.ready_mbarrier(barrier, 1);
    let own = w.own_word(data);
    let (thread, cta) = (w.special(Special::Thread), w.special(Special::Cta));
    let (zero, one, polled) = (w.u32(0), w.u32(1), w.bool(true));
    w.store(own, thread);
    w.run(Op::FenceProxy(ProxyFence::SharedCta), &[]);
    w.sync();
    let stores = w.is(cta, 0);
    w.in_thread(0, |w| {
        w.choose(
            stores,
            &[],
            |w| {
                w.at("store").tma_store(map, data, [0, 0]);
                w.run(Op::BulkCommit, &[]);
                w.run(Op::BulkWait { pending: 0, read: false }, &[]);
                if let Some(fence) = fences[0] {
                    w.run(Op::FenceProxy(fence), &[]);
                }
                w.run(Op::Store(ordered(Order::Release)), &[flag, one]);
                vec![]
            },
            |w| {
                w.while_(
                    &[polled],
                    |_, carried| carried[0],
                    |w, _| {
                        let seen = w.op(Op::Load(ordered(Order::Acquire)), &[flag], Type::U32);
                        vec![w.compare(CompareOp::Eq, seen, zero)]
                    },
                );
                if let Some(fence) = fences[1] {
                    w.run(Op::FenceProxy(fence), &[]);
                }
                expect(w, barrier);
                w.at("load").tma_load(map, data, barrier, [0, 0]);
                w.wait(barrier, 0);
                vec![]
            },
        );
    });
    w.finish()
}

#[test]
fn what_tma_of_another_cta_stored_needs_a_proxy_fence() {
    let arguments = |memory: &mut Memory| {
        let data = memory.upload("box", &[0; 512], Permission::ReadWrite);
        let flag = memory.upload("flag", &[0; 4], Permission::ReadWrite);
        vec![matrix(data, 16, 8, 64), Argument::U64(flag)]
    };
    let (global, shared) = (Some(ProxyFence::Global), Some(ProxyFence::SharedCta));
    for fences in [[global, None], [None, global]] {
        passes(&handed_on(fences), 2, |memory| (arguments(memory), ()), |_, ()| ());
    }
    for fences in [[None, None], [shared, shared]] {
        let kernel = handed_on(fences);
        let labels = ["load", "store"];
        let report = fails_with(&kernel, 2, arguments, ReportKind::MissingProxyFence, &labels);
        assert!(report.message.contains("async proxy of another CTA"), "{report}");
    }
}
