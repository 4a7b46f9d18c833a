//! The PTX of the small kernels, as a reader finds it that shares no code with the emitter.

use pgemm_ir::Kernel;
use pgemm_ptx::{emit, emit_annotated};
use pgemm_ptx_reader::compare;
use pgemm_ptx_reader::mutants::Random;

use crate::kernels;

/// The PTX says what the kernel says.
#[track_caller]
pub fn assert_read(kernel: &Kernel, name: &str) {
    let text = emit(kernel).unwrap();
    if let Err(mismatch) = compare(kernel, &text) {
        panic!("{name}: {mismatch}\n{text}");
    }
}

#[test]
fn every_kernel_is_read_as_it_was_meant() {
    for kernel in kernels::all() {
        assert_read(&kernel, &kernel.name);
    }
}

#[test]
fn annotations_are_not_read() {
    let kernel = kernels::while_loop();
    let plain = compare(&kernel, &emit(&kernel).unwrap()).unwrap();
    assert_eq!(compare(&kernel, &emit_annotated(&kernel).unwrap()).unwrap(), plain);
}

/// Faults that an assembler accepts, or that it does not explain: a replacement in the PTX of a
/// kernel, and what the message says.
const FAULTS: [(&str, &str, &str, &[&str]); 20] = [
    // Modifiers.
    (
        "barriers",
        "fence.mbarrier_init.release.cluster",
        "fence.mbarrier_init.cluster",
        &["`fence_mbarrier_init`"],
    ),
    ("atomics", "atom.release.gpu", "atom.relaxed.gpu", &["expected atom.release.gpu"]),
    ("atomics", "atom.acquire.cluster", "atom.acquire.cta", &["expected atom.acquire.cluster"]),
    ("mini_gemm", "m64n64k16", "m64n72k16", &["`wgmma"]),
    // Operands.
    ("mini_gemm", "[smem+8192], [%rd3", "[smem], [%rd3", &["found operand 1, smem", "smem + 8192"]),
    ("mini_gemm", "%rd3, {%r13, 0}", "%rd3, {0, %r13}", &["coordinate 0"]),
    ("mini_gemm", "bar.sync 0, 128", "bar.sync 0, 96", &["found operand 2, 96, expected 128"]),
    ("mini_gemm", "], 16384;", "], 8192;", &["`mbarrier_arrive_expect`", "expected 16384"]),
    ("mini_gemm", "%r8, 0x40000040", "%r8, 0x80000040", &["1073741888"]),
    ("mini_gemm", "%a0_2,%a0_3", "%a0_3,%a0_2", &["accumulator register 2, %a0_3"]),
    ("mini_gemm", "%a0_1, %a0_0;", "%a0_0, %a0_1;", &["`store_matrix`"]),
    // Values that loops carry.
    ("mini_gemm", "xor.b32 %r11, %r11", "xor.b32 %r13, %r11", &["carried value"]),
    ("for_loops", "mov.b32 %r2, %r7", "mov.b32 %r2, %r1", &["carried#1 behind"]),
    ("for_loops", "mov.b32 %r2, %r0", "mov.b32 %r2, %r1", &["`store"]),
    ("for_loops", "add.u32 %r6, %r6, 2", "add.u32 %r6, %r6, 1", &["`for`", "predicate"]),
    // Branches.
    ("mini_gemm", "@!%p0 bra $end2", "@%p0 bra $end2", &["PTX line 84", "the end of the block"]),
    ("mini_gemm", "@!%p2 bra $wait3", "@%p2 bra $wait3", &["until the result"]),
    ("mini_gemm", "@%p4 bra $for1", "@%p4 bra $wait3", &["branch"]),
    // Around the code.
    ("mini_gemm", ".align 64 .b8 b_map", ".align 32 .b8 b_map", &[".align 64 .b8 b_map"]),
    ("mini_gemm", ".reqntid 128", ".reqntid 256", &["expected `.reqntid 128 , 1 , 1`"]),
];

#[test]
fn faults_are_found_and_named() {
    let kernels = kernels::all();
    for (name, from, to, parts) in FAULTS {
        let kernel = kernels.iter().find(|kernel| kernel.name == name).unwrap();
        let text = emit(kernel).unwrap();
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{name} has no {from}");
        let message = match compare(kernel, &changed) {
            Ok(_) => panic!("{name}, {to}: not found"),
            Err(mismatch) => mismatch.to_string(),
        };
        println!("{message}");
        for part in parts {
            assert!(message.contains(part), "{name}, {to}: {message}");
        }
    }
}

/// Any text is read or refused, without a panic.
#[test]
fn other_bytes_are_no_harm() {
    let mut random = Random(1);
    let kernels = kernels::all();
    let mut refused = 0;
    for _ in 0..5000 {
        let kernel = &kernels[random.below(kernels.len())];
        let mut text = emit(kernel).unwrap();
        for _ in 0..=random.below(3) {
            let (from, to) = (random.below(text.len()), random.below(text.len()));
            match random.below(3) {
                0 => text.replace_range(from..=from, &"@{}[];:.%$09- é"[..=random.below(13)]),
                1 => text.truncate(from.max(to)),
                _ => text.insert_str(to, &text[from..].chars().take(40).collect::<String>()),
            }
        }
        refused += usize::from(compare(kernel, &text).is_err());
    }
    assert!(refused > 4000, "{refused}");
}
