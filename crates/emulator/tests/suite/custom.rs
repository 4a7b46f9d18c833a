//! Instructions that their authors describe.

use pgemm_emulator::{Emulator, Memory, Options, ReportKind, SetupError};
use pgemm_ir::text::{TextOptions, parse, to_text};
use pgemm_ir::{Argument, Instruction, Kernel, KernelBuilder, Launch, Special, Threads, Val, ty};

use crate::kernel::{passes, role, words};

/// A kernel whose threads store a word each.
fn storing(
    body: impl for<'k> Fn(&'k KernelBuilder, Val<'k, ty::U32>) -> Val<'k, ty::U32>,
) -> Kernel {
    role(|b| {
        let output = b.param::<ty::U64>("output");
        let thread = b.special(Special::Thread);
        b.store_global(output.byte_offset(thread * 4), [body(b, thread)]);
    })
}

#[track_caller]
fn check(kernel: &Kernel, expected: impl Fn(u32) -> u32) {
    passes(
        kernel,
        1,
        |memory| {
            let output = memory.allocate("output", 4 * 128);
            (vec![Argument::U64(output)], output)
        },
        |memory, output| {
            let expected: Vec<u32> = (0..128).map(&expected).collect();
            assert_eq!(words(memory, output, 128), expected);
        },
    );
}

fn rotate() -> Instruction<(ty::U32, ty::U32), ty::U32> {
    Instruction::new("rotate", "shf.l.wrap.b32 $r0, $0, $0, $1")
        .emulated(|(value, by): (u32, u32)| value.rotate_left(by & 31))
}

/// The error of a launch that cannot start, or the report of one that fails.
fn failure(kernel: &Kernel) -> (Option<SetupError>, String, Option<ReportKind>) {
    let mut memory = Memory::new();
    let output = memory.allocate("output", 4 * 128);
    let launch = Launch { grid: [1, 1, 1], arguments: vec![Argument::U64(output)] };
    match Emulator::new(kernel, &launch, &mut memory, Options::default()) {
        Err(error) => (Some(error.clone()), error.to_string(), None),
        Ok(emulator) => {
            let report = emulator.run().expect_err("a fault");
            (None, report.to_string(), Some(report.kind))
        }
    }
}

#[test]
fn each_lane_has_its_own_operands() {
    let kernel = storing(|b, thread| b.instruction(&rotate(), (thread * 0x9e37_79b9, thread)));
    check(&kernel, |thread| thread.wrapping_mul(0x9e37_79b9).rotate_left(thread & 31));
}

#[test]
fn only_active_lanes_are_computed() {
    let odd = Instruction::<ty::U32, ty::U32>::new("odd", "own.b32 $r0, $0").emulated(|value| {
        assert_eq!(value % 2, 1, "an inactive lane");
        value * 3
    });
    let kernel = storing(|b, thread| {
        b.if_else((thread & 1).eq(1), || b.instruction(&odd, thread), || b.constant(7u32))
    });
    check(&kernel, |thread| if thread % 2 == 1 { thread * 3 } else { 7 });
}

#[test]
fn a_warp_has_the_operands_of_all_lanes() {
    let text = "match.all.sync.b32 $r0|$r1, $0, 0xffffffff";
    let all = Instruction::<ty::U32, (ty::U32, ty::Bool)>::new("match_all", text)
        .reads()
        .uniform_in(Threads::Warp)
        .emulated_by_warp(|lanes| {
            let same = lanes.iter().all(|value| *value == lanes[0]);
            [(if same { u32::MAX } else { 0 }, same); 32]
        });
    let kernel = storing(|b, thread| {
        // The third warp has different values.
        let (mask, same) = b.instruction(&all, (thread >> 5).eq(2).select(thread, 5u32));
        same.select(mask >> 4u32, mask)
    });
    check(&kernel, |thread| if thread / 32 == 2 { 0 } else { u32::MAX >> 4 });
}

#[test]
fn what_is_not_emulated_is_named() {
    let silent = Instruction::<ty::U32, ty::U32>::new("silent", "own.b32 $r0, $0");
    let kernel = storing(|b, thread| b.instruction(&silent, thread));
    let (error, message, _) = failure(&kernel);
    assert!(matches!(error, Some(SetupError::NoEmulation { name, .. }) if name == "silent"));
    let file = file!();
    assert!(
        message.starts_with(file) && message.contains("'silent' has no emulation"),
        "{message}"
    );
}

/// A text has no functions. The kernel is the same for all else.
#[test]
fn a_kernel_that_was_read_from_a_text_is_equal_and_not_emulated() {
    let kernel = storing(|b, thread| b.instruction(&rotate(), (thread, thread)));
    let text = to_text(&kernel, TextOptions::default());
    let line = "custom.rotate.pure[ptx=\"shf.l.wrap.b32 $r0, $0, $0, $1\", operands=\"u32 u32\", \
                results=\"u32\"]";
    assert!(text.contains(line), "{text}");
    let read = parse(&text).unwrap();
    assert_eq!(read, kernel);
    assert!(matches!(failure(&read).0, Some(SetupError::NoEmulation { .. })));
}

#[test]
fn results_that_are_not_uniform_are_reported() {
    let wrong = Instruction::<ty::U32, ty::U32>::new("wrong", "own.b32 $r0, $0")
        .reads()
        .uniform_in(Threads::Warp)
        .emulated(|value| value);
    let (_, message, kind) = failure(&storing(|b, thread| b.instruction(&wrong, thread)));
    assert_eq!(kind, Some(ReportKind::Divergence));
    assert!(message.contains("the results of 'wrong' differ between lanes"), "{message}");
}
