//! Values and control flow.

use pgemm_emulator::{Checks, Memory, Options, ReportKind, Schedule, SetupError};
use pgemm_ir::{
    Argument, BinaryOp, CompareOp, Kernel, Launch, Op, RoleId, Space, Special, Type, UnaryOp,
};

use crate::kernel::{Writer, access, fails, fails_with, passes, run_with, words};

/// Runs a kernel whose only parameter is the output and compares each thread's word.
#[track_caller]
fn outputs(kernel: &Kernel, ctas: u32, expected: impl Fn(u32) -> u32) {
    let count = (ctas * kernel.threads()) as usize;
    passes(
        kernel,
        ctas,
        |memory| {
            let address = memory.allocate("output", 4 * count);
            (vec![Argument::U64(address)], address)
        },
        |memory, address| {
            let expected: Vec<u32> = (0..count as u32).map(&expected).collect();
            assert_eq!(words(memory, address, count), expected);
        },
    );
}

#[test]
fn divergent_branches_merge_their_values() {
    let mut w = Writer::new(1);
    let output = w.scalar("output", Type::U64);
    let thread = w.special(Special::Thread);
    let three = w.u32(3);
    let remainder = w.binary(BinaryOp::Rem, thread, three);
    let first = w.is(remainder, 0);
    let values = w.choose(
        first,
        &[Type::U32, Type::U32],
        |w| vec![w.u32(100), thread],
        |w| {
            let second = w.is(remainder, 1);
            w.choose(
                second,
                &[Type::U32, Type::U32],
                |w| vec![thread, w.u32(7)],
                |w| vec![w.u32(1), w.binary(BinaryOp::Add, thread, three)],
            )
        },
    );
    let sum = w.binary(BinaryOp::Mul, values[0], values[1]);
    w.output(output, sum);
    outputs(&w.finish(), 2, |i| match i % 128 {
        t if t % 3 == 0 => 100 * t,
        t if t % 3 == 1 => 7 * t,
        t => t + 3,
    });
}

#[test]
fn bytes_are_permuted_and_their_signs_repeated() {
    let mut w = Writer::new(1);
    let output = w.scalar("output", Type::U64);
    let thread = w.special(Special::Thread);
    let (low, high) = (w.u32(0x8002_0100), w.u32(0x0706_0504));
    // Each selector for the lowest result byte, plain and as its sign, with fixed other bytes.
    let sixteen = w.u32(16);
    let place = w.binary(BinaryOp::Rem, thread, sixteen);
    let selector = w.u32(0x0370);
    let selector = w.binary(BinaryOp::Or, selector, place);
    let permuted = w.op(Op::PermuteBytes, &[low, high, selector], Type::U32);
    w.output(output, permuted);
    let bytes = [0, 1, 2, 0x80, 4, 5, 6, 7];
    outputs(&w.finish(), 1, |i| {
        let byte = bytes[(i % 8) as usize];
        let sign = if byte == 0x80 { 0xff } else { 0 };
        0x0080_0700 | if i % 16 < 8 { byte } else { sign }
    });
}

#[test]
fn a_shuffle_gives_all_lanes_the_first_ones_value() {
    let mut w = Writer::new(1);
    let output = w.scalar("output", Type::U64);
    let (thread, three) = (w.special(Special::Thread), w.u32(3));
    let value = w.binary(BinaryOp::Mul, thread, three);
    let first = w.op(Op::ShuffleFirst, &[value], Type::U32);
    w.output(output, first);
    outputs(&w.finish(), 2, |i| i % 128 / 32 * 32 * 3);
}

#[test]
fn shuffles_and_warp_barriers_need_the_whole_warp() {
    for op in [Op::ShuffleFirst, Op::WarpReduce(BinaryOp::Add), Op::WarpSync] {
        let mut w = Writer::new(1);
        let value = w.u32(1);
        w.in_thread(0, |w| match op.clone() {
            Op::WarpSync => w.at("here").run(Op::WarpSync, &[]),
            op => {
                w.at("here").op(op, &[value], Type::U32);
            }
        });
        fails(&w.finish(), ReportKind::Divergence, &["here"]);
    }
}

#[test]
fn loops_with_different_trip_counts_keep_each_lane_its_result() {
    let mut w = Writer::new(1);
    let output = w.scalar("output", Type::U64);
    let lane = w.special(Special::Lane);
    let [zero, one] = [0, 1].map(|value| w.u32(value));
    // The loop carries a pair that is swapped in every iteration.
    let results = w.for_each([zero, lane, one], &[zero, one], |w, index, carried| {
        let next = w.binary(BinaryOp::Add, carried[0], index);
        vec![carried[1], next]
    });
    let sum = w.binary(BinaryOp::Mul, results[0], lane);
    let sum = w.binary(BinaryOp::Add, sum, results[1]);
    w.output(output, sum);
    outputs(&w.finish(), 1, |i| {
        let lane = i % 32;
        let (mut a, mut b) = (0, 1);
        for index in 0..lane {
            (a, b) = (b, a + index);
        }
        a * lane + b
    });
}

#[test]
fn while_loops_run_until_every_lane_is_done() {
    let mut w = Writer::new(1);
    let output = w.scalar("output", Type::U64);
    let thread = w.special(Special::Thread);
    let [zero, one, two] = [0, 1, 2].map(|value| w.u32(value));
    let start = w.binary(BinaryOp::Add, thread, one);
    // Counts the Collatz steps until 1.
    let results = w.while_(
        &[start, zero],
        |w, carried| w.compare(CompareOp::Ne, carried[0], one),
        |w, carried| {
            let odd = w.binary(BinaryOp::Rem, carried[0], two);
            let odd = w.is(odd, 1);
            let next = w.choose(
                odd,
                &[Type::U32],
                |w| {
                    let three = w.u32(3);
                    let tripled = w.binary(BinaryOp::Mul, carried[0], three);
                    vec![w.binary(BinaryOp::Add, tripled, one)]
                },
                |w| vec![w.binary(BinaryOp::Div, carried[0], two)],
            );
            vec![next[0], w.binary(BinaryOp::Add, carried[1], one)]
        },
    );
    w.output(output, results[1]);
    outputs(&w.finish(), 1, |i| {
        let (mut n, mut steps) = (i + 1, 0);
        while n != 1 {
            n = if n % 2 == 1 { 3 * n + 1 } else { n / 2 };
            steps += 1;
        }
        steps
    });
}

#[test]
fn nested_uniform_loops_keep_values_from_outside() {
    let mut w = Writer::new(1);
    let output = w.scalar("output", Type::U64);
    let thread = w.special(Special::Thread);
    let [zero, one, three, four] = [0, 1, 3, 4].map(|value| w.u32(value));
    let base = w.binary(BinaryOp::Mul, thread, four);
    let results = w.for_each([zero, three, one], &[thread], |w, outer, carried| {
        let from_outer = w.binary(BinaryOp::Add, base, outer);
        w.for_each([zero, four, one], carried, |w, inner, carried| {
            let sum = w.binary(BinaryOp::Add, carried[0], from_outer);
            vec![w.binary(BinaryOp::Xor, sum, inner)]
        })
    });
    let result = w.binary(BinaryOp::Add, results[0], base);
    w.output(output, result);
    outputs(&w.finish(), 1, |t| {
        let mut value = t;
        for outer in 0..3 {
            for inner in 0..4 {
                value = (value + 4 * t + outer) ^ inner;
            }
        }
        value + 4 * t
    });
}

#[test]
fn specials_name_the_place_in_the_grid() {
    let mut w = Writer::new(2).cluster(2);
    let output = w.scalar("output", Type::U64);
    let mut sum = w.u32(0);
    let specials = [
        Special::Warp,
        Special::Warpgroup,
        Special::CtaRank,
        Special::Cluster,
        Special::ClusterCount,
        Special::CtaCount,
        Special::Lane,
    ];
    for special in specials {
        let (ten, value) = (w.u32(10), w.special(special));
        let tens = w.binary(BinaryOp::Mul, sum, ten);
        sum = w.binary(BinaryOp::Add, tens, value);
    }
    w.output(output, sum);
    outputs(&w.finish(), 4, |i| {
        let (cta, thread) = (i / 256, i % 256);
        [thread / 32, thread / 128, cta % 2, cta / 2, 2, 4, thread % 32]
            .into_iter()
            .fold(0, |sum, value| sum * 10 + value)
    });
}

#[test]
fn exactly_one_thread_of_a_warp_is_elected() {
    let mut w = Writer::new(1);
    let output = w.scalar("output", Type::U64);
    let elected = w.op(Op::Elect, &[], Type::Bool);
    let [zero, one] = [0, 1].map(|value| w.u32(value));
    let value = w.op(Op::Select, &[elected, one, zero], Type::U32);
    w.output(output, value);
    outputs(&w.finish(), 1, |i| u32::from(i % 32 == 0));
}

#[test]
fn matrices_move_between_registers_and_shared_memory() {
    for transpose in [false, true] {
        let mut w = Writer::new(1);
        let output = w.scalar("output", Type::U64);
        let data = w.data("data", 4 * 4 * 128);
        let (lane, warp) = (w.special(Special::Lane), w.special(Special::Warp));
        let [row_bytes, warp_bytes] = [16, 512].map(|value| w.u32(value));
        let row = w.binary(BinaryOp::Mul, lane, row_bytes);
        let of_warp = w.binary(BinaryOp::Mul, warp, warp_bytes);
        let offset = w.binary(BinaryOp::Add, row, of_warp);
        let address = w.offset(data, offset);
        // Element (r, c) of matrix m is m * 64 + r * 8 + c. A register holds two elements.
        let pairs: Vec<_> = (0..4u32)
            .map(|matrix| {
                let [two, base] = [0x2_0002, matrix * 64 * 0x1_0001 + 0x1_0000].map(|v| w.u32(v));
                let index = w.binary(BinaryOp::Mul, lane, two);
                let pair = w.binary(BinaryOp::Add, index, base);
                w.op(Op::Bitcast(Type::B32), &[pair], Type::B32)
            })
            .collect();
        let args = [&[address], &pairs[..]].concat();
        w.run(Op::StoreMatrix { count: 4, transpose: false }, &args);
        w.run(Op::WarpSync, &[]);
        let op = Op::LoadMatrix { count: 4, transpose };
        let loaded = w.ops(op, &[address], &[Type::B32; 4]);
        let word = w.op(Op::Bitcast(Type::U32), &[loaded[2]], Type::U32);
        w.output(output, word);
        outputs(&w.finish(), 1, |i| {
            let (row, column) = (i % 32 / 4, i % 4 * 2);
            let element = |r: u32, c: u32| 128 + r * 8 + c;
            match transpose {
                false => element(row, column) | element(row, column + 1) << 16,
                true => element(column, row) | element(column + 1, row) << 16,
            }
        });
    }
}

#[test]
fn out_of_bounds_and_misaligned_accesses_name_the_line() {
    let mut w = Writer::new(1);
    let data = w.data("data", 64);
    let offset = w.u32(64);
    let beyond = w.offset(data, offset);
    w.at("beyond").load(beyond);
    let line = line!() - 1;
    let report = fails(&w.finish(), ReportKind::OutOfBounds, &["beyond"]);
    assert_eq!(report.sites[0].location.line, line);
    assert!(report.sites[0].location.file.ends_with("values.rs"));

    let mut w = Writer::new(1);
    let data = w.data("data", 64);
    let offset = w.u32(2);
    let odd = w.offset(data, offset);
    let value = w.u32(1);
    w.at("odd").store(odd, value);
    fails(&w.finish(), ReportKind::Misaligned, &["odd"]);

    let mut w = Writer::new(1);
    let output = w.scalar("output", Type::U64);
    let value = w.u32(1);
    w.at("unused").output(output, value);
    let kernel = w.finish();
    let args = |memory: &mut Memory| vec![Argument::U64(memory.allocate("small", 100))];
    fails_with(&kernel, 1, args, ReportKind::OutOfBounds, &[]);
}

#[test]
fn prefetches_stay_in_allocations() {
    for (offset, is_inside) in [(0, true), (96, true), (100, false)] {
        let mut w = Writer::new(1);
        let input = w.scalar("input", Type::U64);
        let offset = w.u32(offset);
        let offset = w.op(Op::Convert(Type::U64), &[offset], Type::U64);
        let address = w.op(Op::Binary(BinaryOp::Add), &[input, offset], Type::U64);
        w.at("prefetch").run(Op::PrefetchLine, &[address]);
        let kernel = w.finish();
        let args = |memory: &mut Memory| vec![Argument::U64(memory.allocate("small", 100))];
        match is_inside {
            true => passes(&kernel, 1, |memory| (args(memory), ()), |_, ()| ()),
            false => drop(fails_with(&kernel, 1, args, ReportKind::OutOfBounds, &["prefetch"])),
        }
    }
}

#[test]
fn memory_that_nobody_wrote_cannot_be_read() {
    let mut w = Writer::new(1);
    let data = w.data("data", 64);
    w.at("read").load(data);
    fails(&w.finish(), ReportKind::UninitialisedRead, &["read"]);

    let mut w = Writer::new(1);
    let input = w.scalar("input", Type::U64);
    w.at("read").op(Op::Load(access(Space::Global)), &[input], Type::U32);
    let args = |memory: &mut Memory| vec![Argument::U64(memory.allocate("input", 64))];
    fails_with(&w.finish(), 1, args, ReportKind::UninitialisedRead, &["read"]);
}

#[test]
fn inputs_cannot_be_written() {
    let mut w = Writer::new(1);
    let input = w.scalar("input", Type::U64);
    let one = w.u32(1);
    w.in_thread(0, |w| w.at("write").run(Op::Store(access(Space::Global)), &[input, one]));
    let args = |memory: &mut Memory| {
        let permission = pgemm_emulator::Permission::ReadOnly;
        vec![Argument::U64(memory.upload("input", &[0; 64], permission))]
    };
    fails_with(&w.finish(), 1, args, ReportKind::ReadOnlyWrite, &["write"]);
}

#[test]
fn operations_of_whole_warps_must_not_diverge() {
    let mut w = Writer::new(1);
    w.in_thread(0, |w| {
        w.at("elect").op(Op::Elect, &[], Type::Bool);
    });
    fails(&w.finish(), ReportKind::Divergence, &["elect"]);
}

#[test]
fn a_loop_without_end_is_a_livelock() {
    let mut w = Writer::new(1);
    let (yes, zero) = (w.bool(true), w.u32(0));
    w.while_(
        &[zero],
        |_, _| yes,
        |w, carried| vec![w.at("spin").op(Op::Unary(UnaryOp::Not), carried, Type::U32)],
    );
    let kernel = w.finish();
    let options = Options { max_steps: 10_000, ..Options::default() };
    let report = run_with(&kernel, 1, vec![], &mut Memory::new(), options).unwrap_err();
    assert_eq!(report.kind, ReportKind::Livelock);
}

#[test]
fn few_clusters_may_be_resident_at_once() {
    let mut w = Writer::new(1);
    let output = w.scalar("output", Type::U64);
    let cta = w.special(Special::Cta);
    w.output(output, cta);
    let kernel = w.finish();
    let mut memory = Memory::new();
    let address = memory.allocate("output", 4 * 128 * 10);
    let options = Options {
        schedule: Schedule::seeded(3),
        resident_clusters: Some(2),
        checks: Checks::none(),
        ..Options::default()
    };
    let arguments = vec![Argument::U64(address)];
    let statistics = run_with(&kernel, 10, arguments, &mut memory, options).unwrap();
    assert_eq!(statistics.resident_clusters, 2);
    let written = words(&memory, address, 1280);
    assert!(written.iter().enumerate().all(|(i, &cta)| cta == i as u32 / 128));
}

#[test]
fn launches_that_do_not_fit_the_kernel_are_refused() {
    let start = |kernel: &Kernel, grid, arguments, options| {
        let mut memory = Memory::new();
        let launch = Launch { grid, arguments };
        pgemm_emulator::Emulator::new(kernel, &launch, &mut memory, options).err()
    };
    let mut w = Writer::new(1).cluster(2);
    w.scalar("size", Type::U32);
    let kernel = w.finish();
    let new = |grid, arguments, options| start(&kernel, grid, arguments, options);
    let size = || vec![Argument::U32(1)];
    assert!(matches!(
        new([3, 1, 1], size(), Options::default()),
        Some(SetupError::Grid { cluster: 2, .. })
    ));
    assert!(matches!(
        new([2, 1, 1], vec![], Options::default()),
        Some(SetupError::ArgumentCount { arguments: 0, parameters: 1 })
    ));
    assert!(matches!(
        new([2, 1, 1], vec![Argument::U64(1)], Options::default()),
        Some(SetupError::ArgumentType { .. })
    ));
    assert!(matches!(
        new([2, 1, 1], size(), Options { resident_clusters: Some(0), ..Options::default() }),
        Some(SetupError::NoResidentCluster)
    ));

    let mut w = Writer::new(1);
    w.run(Op::Roles(vec![RoleId(0)]), &[]);
    assert!(matches!(
        start(&w.finish(), [1, 1, 1], vec![], Options::default()),
        Some(SetupError::NotLegalised { .. })
    ));

    let mut w = Writer::new(1);
    let barrier = w.mbarrier();
    w.run(Op::MbarrierWait, &[barrier]);
    assert!(matches!(
        start(&w.finish(), [1, 1, 1], vec![], Options::default()),
        Some(SetupError::Malformed(_))
    ));
}
