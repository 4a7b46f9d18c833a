//! The PTX of kernels of every kind, as a reader finds it that shares no code with the emitter.
//! Without a GPU and an assembler it finds a wrong modifier, operand, count or branch.

#[path = "../common/named.rs"]
mod named;
#[path = "../covering/set.rs"]
mod set;

use std::sync::LazyLock;

use pgemm_ir::Kernel;
use pgemm_kernels::{GemmKernel, RepackKernel, RepackSpec, empty_kernel};
use pgemm_ptx_reader::{Compared, compare, mutants};

/// The kernels and their PTX: the covering set, the kernels whose hashes are recorded (epilogues,
/// gated and resident kernels, products without wgmma, probes) and all that rearrange operands.
static KERNELS: LazyLock<Vec<(Kernel, String)>> = LazyLock::new(|| {
    let recorded = include_str!("../fixtures/generated.txt").lines();
    let recorded = recorded.filter_map(|line| line.split(' ').next()).map(named::kernel);
    let covering = set::covering_set().into_iter();
    let covering = covering.map(|spec| GemmKernel::build(&spec).unwrap().kernel);
    let repack = RepackSpec::all().map(|spec| RepackKernel::build(spec).unwrap().kernel);
    covering.chain(recorded).chain(repack).chain([empty_kernel().unwrap()]).map(with_ptx).collect()
});

fn with_ptx(kernel: Kernel) -> (Kernel, String) {
    let text = pgemm_ptx::emit(&kernel).unwrap();
    (kernel, text)
}

/// Fails where the PTX of a kernel does not say what its IR says.
fn read((kernel, text): &(Kernel, String)) -> Compared {
    compare(kernel, text).unwrap_or_else(|mismatch| panic!("{}: {mismatch}", kernel.name))
}

#[test]
fn the_ptx_of_every_kernel_says_what_its_ir_says() {
    let mut all = Compared::default();
    for compared in KERNELS.iter().map(read) {
        all.instructions += compared.instructions;
        all.steps += compared.steps;
    }
    let count = KERNELS.len();
    println!("{count} kernels: {} instructions, {} in order", all.instructions, all.steps);
    assert!(count > 300 && all.instructions > 500_000 && all.steps > 50_000, "{count} {all:?}");
}

#[test]
#[ignore = "it reads some 2500 kernels: run it by name"]
fn the_ptx_of_shipped_kernels_says_what_their_ir_says() {
    let mut count = 0;
    for (name, _) in pgemm_cubins::list() {
        read(&with_ptx(named::kernel(name)));
        count += 1;
    }
    assert!(count > 2000, "{count}");
}

/// There are 200 mutants of seed 1, or as many as `PGEMM_READER_MUTANTS` says of seed `PGEMM_SEED`.
/// Those that survive have no effect, which their lines alone do not show: what they write is not
/// read, on any path or on this one, or they read another register that holds the same value.
#[test]
fn changes_of_one_token_are_found() {
    let number = |name, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let count = number("PGEMM_READER_MUTANTS", 200);
    let mut random = mutants::Random(number("PGEMM_SEED", 1));
    let (mut judged, mut equivalent, mut survivors) = (0, 0, vec![]);
    while judged < count {
        let (kernel, text) = &KERNELS[random.below(KERNELS.len())];
        let Some(mutant) = mutants::mutate(text, &mut random) else { continue };
        if mutant.is_equivalent() {
            equivalent += 1;
            continue;
        }
        judged += 1;
        if compare(kernel, &mutant.text).is_ok() {
            let mutants::Mutant { line, before, after, .. } = mutant;
            survivors.push(format!("{}, line {line}: `{before}` became `{after}`", kernel.name));
        }
    }
    println!("{judged} mutants besides {equivalent} without an effect, survivors: {survivors:#?}");
    assert!(
        survivors.len() as u64 * 100 <= judged,
        "{} of {judged}: {survivors:#?}",
        survivors.len()
    );
}
