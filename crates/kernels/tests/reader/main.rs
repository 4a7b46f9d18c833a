//! The PTX of kernels of every kind, as a reader finds it that shares no code with the emitter.
//! With no GPU and no assembler it finds a wrong modifier, operand, count or branch.

#[path = "../common/named.rs"]
mod named;
#[path = "../covering/set.rs"]
mod set;

use std::sync::LazyLock;

use pgemm_ir::Kernel;
use pgemm_kernels::{GemmKernel, RepackKernel, RepackSpec, empty_kernel};
use pgemm_ptx_reader::compare;

/// The kernels and their PTX: the covering set, the kernels whose hashes are recorded (epilogues,
/// gated and resident kernels, products by threads, probes) and all that rearrange operands.
static KERNELS: LazyLock<Vec<(Kernel, String)>> = LazyLock::new(|| {
    let recorded = include_str!("../fixtures/generated.txt").lines();
    let recorded = recorded.filter_map(|line| line.split(' ').next()).map(named::kernel);
    let covering = set::covering_set().into_iter();
    let covering = covering.map(|spec| GemmKernel::build(&spec).unwrap().kernel);
    let repack = RepackSpec::all().map(|spec| RepackKernel::build(spec).unwrap().kernel);
    let all = covering.chain(recorded).chain(repack).chain([empty_kernel().unwrap()]);
    let with_ptx = |kernel| {
        let text = pgemm_ptx::emit(&kernel).unwrap();
        (kernel, text)
    };
    all.map(with_ptx).collect()
});

#[test]
fn the_ptx_of_every_kernel_says_what_its_ir_says() {
    let (mut instructions, mut steps) = (0, 0);
    for (kernel, text) in KERNELS.iter() {
        let compared =
            compare(kernel, text).unwrap_or_else(|mismatch| panic!("{}: {mismatch}", kernel.name));
        instructions += compared.instructions;
        steps += compared.steps;
    }
    println!("{} kernels, {instructions} instructions, {steps} in order", KERNELS.len());
    assert!(KERNELS.len() > 300 && instructions > 300_000, "{} {instructions}", KERNELS.len());
}
