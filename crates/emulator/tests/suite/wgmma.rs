//! wgmma: operand layouts, accumulators, fences and waits.

use half::{bf16, f16};
use pgemm_emulator::{Memory, Options, Permission, ReportKind, Schedule};
use pgemm_ir::{
    ASource, AccId, Access, Accumulator, Argument, BinaryOp, DescriptorLayout, Element, Kernel, Op,
    OperandMajor, ProxyFence, Space, Special, SwizzleMode, Type, ValueId, Wgmma,
};

use crate::kernel::{Writer, access, fails, matrix, passes, run_with, words};

const ROWS: u32 = 64;
const COLUMNS: u32 = 32;
const DEPTH: u32 = 16;

fn a(row: u32, k: u32) -> f32 {
    ((row * 7 + k * 3) % 11) as f32 - 5.0
}

fn b(k: u32, column: u32) -> f32 {
    ((column * 5 + k * 2) % 9) as f32 - 4.0
}

/// An operand of `rows` along M or N in the layout of a major and a swizzle: the boxes to load
/// (the coordinates of their first elements) and the descriptor.
struct Operand {
    major: OperandMajor,
    box_extents: [u32; 2],
    boxes: Vec<[u32; 2]>,
    box_bytes: u32,
    swizzle: SwizzleMode,
    layout: DescriptorLayout,
}

fn operand(rows: u32, major: OperandMajor, swizzle: SwizzleMode) -> Operand {
    let span = swizzle.span_bytes().unwrap_or(16);
    let elements = span / 2;
    let (box_extents, extent) = match major {
        OperandMajor::K => ([elements.min(DEPTH), rows], DEPTH),
        OperandMajor::Mn => ([elements, DEPTH], rows),
    };
    let box_bytes = box_extents[0] * box_extents[1] * 2;
    let (leading_bytes, stride_bytes) = match (major, swizzle) {
        (OperandMajor::Mn, SwizzleMode::None) => (128, box_bytes),
        _ => (box_bytes, 8 * span),
    };
    Operand {
        major,
        box_extents,
        boxes: (0..extent).step_by(box_extents[0] as usize).map(|first| [first, 0]).collect(),
        box_bytes,
        swizzle,
        layout: DescriptorLayout { swizzle, leading_bytes, stride_bytes },
    }
}

fn upload(
    memory: &mut Memory,
    major: OperandMajor,
    rows: u32,
    get: impl Fn(u32, u32) -> f32,
) -> Argument {
    upload_as(memory, major, rows, |row, k| bf16::from_f32(get(row, k)).to_le_bytes())
}

fn upload_as(
    memory: &mut Memory,
    major: OperandMajor,
    rows: u32,
    get: impl Fn(u32, u32) -> [u8; 2],
) -> Argument {
    let (inner, outer) = match major {
        OperandMajor::K => (DEPTH, rows),
        OperandMajor::Mn => (rows, DEPTH),
    };
    let bytes: Vec<u8> = (0..outer)
        .flat_map(|o| (0..inner).map(move |i| (o, i)))
        .flat_map(|(o, i)| {
            let (row, k) = if major == OperandMajor::K { (o, i) } else { (i, o) };
            get(row, k)
        })
        .collect();
    let address = memory.upload("operand", &bytes, Permission::ReadOnly);
    matrix(address, u64::from(inner), u64::from(outer), u64::from(inner * 2))
}

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

/// The position of an element by the documentation of `AccGet`.
fn place(row: u32, column: u32) -> u32 {
    let thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
    let register = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
    register * 128 + thread
}

fn check_product(memory: &Memory, output: u64, times: f32) {
    let bytes = memory.read(output, (ROWS * COLUMNS * 4) as usize).unwrap();
    for row in 0..ROWS {
        for column in 0..COLUMNS {
            let at = place(row, column) as usize * 4;
            let found = f32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            let sum: f32 = (0..DEPTH).map(|k| a(row, k) * b(k, column)).sum();
            assert_eq!(found, sum * times, "({row}, {column})");
        }
    }
}

#[test]
fn every_operand_layout_gives_the_product() {
    let swizzles = [SwizzleMode::None, SwizzleMode::B32, SwizzleMode::B64, SwizzleMode::B128];
    let majors = [OperandMajor::K, OperandMajor::Mn];
    let mut layouts = Vec::new();
    for major in majors {
        for swizzle in swizzles {
            // A box of 16 columns along K has rows of only 32 bytes.
            let wide = matches!(swizzle, SwizzleMode::B64 | SwizzleMode::B128);
            // A span of 64 columns does not fit into rows of 32 bytes.
            let narrow = major == OperandMajor::Mn && swizzle == SwizzleMode::B128;
            if !(major == OperandMajor::K && wide) {
                layouts.push((major, swizzle, narrow));
            }
        }
    }
    for &(a_major, a_swizzle, _) in &layouts {
        for &(b_major, b_swizzle, narrow) in &layouts {
            if narrow {
                continue;
            }
            let of_a = operand(ROWS, a_major, a_swizzle);
            let of_b = operand(COLUMNS, b_major, b_swizzle);
            let mut w = Writer::new(1);
            let maps =
                [&of_a, &of_b].map(|o| w.map("operand", Element::Bf16, &o.box_extents, o.swizzle));
            let output = w.scalar("output", Type::U64);
            let acc = w.accumulator(Type::F32, COLUMNS / 2);
            let barrier = w.mbarrier();
            let places = [&of_a, &of_b].map(|o| {
                let bytes = o.box_bytes * o.boxes.len() as u32;
                (w.data("operand", bytes), bytes)
            });
            w.ready_mbarrier(barrier, 1);
            w.in_thread(0, |w| {
                let bytes = places[0].1 + places[1].1;
                w.run(Op::MbarrierArriveExpect { bytes }, &[barrier]);
                for (i, operand) in [&of_a, &of_b].into_iter().enumerate() {
                    for (n, &at) in operand.boxes.iter().enumerate() {
                        let offset = w.u32(n as u32 * operand.box_bytes);
                        let to = w.offset(places[i].0, offset);
                        w.tma_load(maps[i], to, barrier, at);
                    }
                }
            });
            w.wait(barrier, 0);
            let da = w.descriptor(places[0].0, of_a.layout);
            let db = w.descriptor(places[1].0, of_b.layout);
            let [no, yes] = [false, true].map(|value| w.bool(value));
            w.run(Op::WgmmaFence, &[]);
            for accumulate in [no, yes] {
                let op = instruction(acc, ASource::Shared(of_a.major), of_b.major);
                w.run(op, &[da, db, accumulate]);
            }
            w.run(Op::WgmmaCommit, &[]);
            w.run(Op::WgmmaWait { pending: 0 }, &[]);
            put_out(&mut w, acc, output, COLUMNS / 2);
            passes(
                &w.finish(),
                1,
                |memory| {
                    let a = upload(memory, of_a.major, ROWS, a);
                    let b = upload(memory, of_b.major, COLUMNS, |column, k| b(k, column));
                    let output = memory.allocate("output", (ROWS * COLUMNS * 4) as usize);
                    (vec![a, b, Argument::U64(output)], output)
                },
                |memory, output| check_product(memory, output, 2.0),
            );
        }
    }
}

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

#[test]
fn a_from_registers_gives_the_product() {
    let of_b = operand(COLUMNS, OperandMajor::Mn, SwizzleMode::B64);
    let mut w = Writer::new(1);
    let map = w.map("b", Element::Bf16, &of_b.box_extents, of_b.swizzle);
    let [input, output] = ["input", "output"].map(|name| w.scalar(name, Type::U64));
    let acc = w.accumulator(Type::F32, COLUMNS / 2);
    let (barrier, data) = (w.mbarrier(), w.data("b", of_b.box_bytes));
    w.ready_mbarrier(barrier, 1);
    w.in_thread(0, |w| {
        w.run(Op::MbarrierArriveExpect { bytes: of_b.box_bytes }, &[barrier]);
        w.tma_load(map, data, barrier, [0, 0]);
    });
    w.wait(barrier, 0);
    // Each thread's four registers are contiguous in the input.
    let (thread, sixteen) = (w.special(Special::Thread), w.u32(16));
    let bytes = w.binary(BinaryOp::Mul, thread, sixteen);
    let bytes = w.op(Op::Convert(Type::U64), &[bytes], Type::U64);
    let address = w.binary(BinaryOp::Add, input, bytes);
    let load = Access { ty: Type::B32, vector: 4, ..access(Space::Global) };
    let fragments = w.ops(Op::Load(load), &[address], &[Type::B32; 4]);
    let db = w.descriptor(data, of_b.layout);
    let no = w.bool(false);
    w.run(Op::WgmmaFence, &[]);
    let op = instruction(acc, ASource::Registers, OperandMajor::Mn);
    w.run(op, &[&fragments[..], &[db, no]].concat());
    w.run(Op::WgmmaCommit, &[]);
    w.run(Op::WgmmaWait { pending: 0 }, &[]);
    put_out(&mut w, acc, output, COLUMNS / 2);
    passes(
        &w.finish(),
        1,
        |memory| {
            // PTX ISA, "Register fragments for wgmma.mma_async.m64nNk16".
            let registers: Vec<u8> = (0..128u32)
                .flat_map(|thread| (0..4u32).map(move |register| (thread, register)))
                .flat_map(|(thread, register)| {
                    let row = thread / 32 * 16 + thread % 32 / 4 + register % 2 * 8;
                    let k = thread % 4 * 2 + register / 2 * 8;
                    [a(row, k), a(row, k + 1)].map(|value| bf16::from_f32(value).to_le_bytes())
                })
                .flatten()
                .collect();
            let input = memory.upload("a", &registers, Permission::ReadOnly);
            let b = upload(memory, OperandMajor::Mn, COLUMNS, |column, k| b(k, column));
            let output = memory.allocate("output", (ROWS * COLUMNS * 4) as usize);
            (vec![b, Argument::U64(input), Argument::U64(output)], output)
        },
        |memory, output| check_product(memory, output, 1.0),
    );
}

#[test]
fn sums_in_f16_are_two_in_a_register() {
    let (major, registers) = (OperandMajor::K, Accumulator::registers_for(Type::B32, COLUMNS));
    let operands = [ROWS, COLUMNS].map(|rows| operand(rows, major, SwizzleMode::B32));
    let mut w = Writer::new(1);
    let maps = operands.each_ref().map(|o| w.map("o", Element::F16, &o.box_extents, o.swizzle));
    let output = w.scalar("output", Type::U64);
    let acc = w.accumulator(Type::B32, registers);
    let barrier = w.mbarrier();
    let places = operands.each_ref().map(|o| w.data("operand", o.box_bytes));
    w.ready_mbarrier(barrier, 1);
    w.in_thread(0, |w| {
        let bytes = operands[0].box_bytes + operands[1].box_bytes;
        w.run(Op::MbarrierArriveExpect { bytes }, &[barrier]);
        for (map, place) in maps.into_iter().zip(places) {
            w.tma_load(map, place, barrier, [0, 0]);
        }
    });
    w.wait(barrier, 0);
    let [da, db] = [0, 1].map(|i| w.descriptor(places[i], operands[i].layout));
    let [no, yes] = [false, true].map(|value| w.bool(value));
    w.run(Op::WgmmaFence, &[]);
    for accumulate in [no, yes] {
        let (a, b) = (Element::F16, Element::F16);
        let a_source = ASource::Shared(major);
        let op = Wgmma { acc, n: COLUMNS, a, b, a_source, b_major: major };
        w.run(Op::Wgmma(op), &[da, db, accumulate]);
    }
    w.run(Op::WgmmaCommit, &[]);
    w.run(Op::WgmmaWait { pending: 0 }, &[]);
    put_out_as(&mut w, Type::B32, acc, output, registers);
    // The sums exceed 2048, so that f16 rounds them.
    let scaled = |value: f32| f16::from_f32(19.0 * value + 1.0);
    passes(
        &w.finish(),
        1,
        |memory| {
            let of_a = upload_as(memory, major, ROWS, |row, k| scaled(a(row, k)).to_le_bytes());
            let of_b =
                upload_as(memory, major, COLUMNS, |column, k| scaled(b(k, column)).to_le_bytes());
            let output = memory.allocate("output", (ROWS * COLUMNS * 2) as usize);
            (vec![of_a, of_b, Argument::U64(output)], output)
        },
        |memory, output| {
            let bytes = memory.read(output, (ROWS * COLUMNS * 2) as usize).unwrap();
            let mut rounded = 0;
            for (row, column) in (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |c| (row, c))) {
                let place = place(row, column);
                let (register, thread) = (place / 128, place % 128);
                let at = (register / 2 * 128 + thread) * 4 + register % 2 * 2;
                let found = f16::from_le_bytes(bytes[at as usize..][..2].try_into().unwrap());
                let products =
                    (0..DEPTH).map(|k| scaled(a(row, k)).to_f32() * scaled(b(k, column)).to_f32());
                let sum: f32 = products.sum();
                let once = f16::from_f32(sum).to_f32();
                assert_eq!(found, f16::from_f32(once + sum), "({row}, {column})");
                rounded += u32::from(once != sum);
            }
            assert!(rounded > ROWS * COLUMNS / 4, "{rounded}");
        },
    );
}
