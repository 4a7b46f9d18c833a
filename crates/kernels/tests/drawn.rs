//! Kernels drawn at random from all specs that [`Spec::validate`] allows, whether the catalogue has
//! them or not. Widths are any multiple of 8, clusters have up to eight CTAs, and rings are any
//! that fit. Every schedule, type and epilogue occurs. The test shows that the rule holds, and not
//! only the list. CI draws with a fresh seed in each run and prints it. `PGEMM_SEED` repeats a run.

#[path = "common/assemblers.rs"]
mod assemblers;
mod common;

use std::collections::BTreeSet;
use std::env;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use assemblers::assemblers;
use common::{CPlace, Case, Problem};
use pgemm_emulator::{Options, Schedule as Order};
use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::{
    Cluster, DirectSpec, DmmaSpec, EpilogueShape, FfmaSpec, Instruction, Loader, MainloopSpec,
    OutputMajor, PRODUCTS, Schedule, Signature, Spec, Summation, Terms, ThreadTile, Tile, Warps,
    WgmmaSpec, WorkSource,
};
use pgemm_kernels::{GemmKernel, Product};

/// The splitmix64 generator (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
/// Generators", 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `count`.
    fn below(&mut self, count: u32) -> u32 {
        (((self.next() >> 32) * u64::from(count)) >> 32) as u32
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }

    /// True once in `times`.
    fn once_in(&mut self, times: u32) -> bool {
        self.below(times) == 0
    }
}

/// Draws until a spec is legal. Its ring is any that fits.
fn draw(random: &mut Random, instruction: Instruction) -> Spec {
    loop {
        let products: Vec<&Product> =
            PRODUCTS.iter().filter(|product| product.instruction == instruction).collect();
        let product = random.one_of(&products);
        let mut spec = any(random, product);
        let most = spec.most_stages().min(16);
        if most < 2 {
            continue;
        }
        spec.stages = 2 + random.below(most - 1);
        if spec.validate().is_ok() {
            return spec;
        }
    }
}

fn any(random: &mut Random, product: &Product) -> Spec {
    let a = random.one_of(product.operands);
    let b = match product.operands {
        [_] => a,
        // 8-bit types can be combined in any pair.
        several => random.one_of(several),
    };
    let major = [OperandMajor::K, OperandMajor::Mn];
    let mut spec = Spec {
        a,
        b,
        output: random.one_of(product.outputs),
        a_major: random.one_of(&major),
        b_major: random.one_of(&major),
        d_major: random.one_of(&[OutputMajor::N, OutputMajor::M]),
        tile: Tile { m: 64 * (1 + random.below(4)), n: 8 * (1 + random.below(32)), k: 16 },
        stages: 2,
        cluster: Cluster::NONE,
        mainloop: MainloopSpec::Wgmma(WgmmaSpec::new(1, Schedule::Cooperative)),
        scaled: false,
        epilogue: EpilogueShape::NONE,
        source: WorkSource::Launch,
    };
    if random.once_in(4) {
        let texts = ["bias_n", "bias_m|relu", "relu", "bias_n|relu", "silu", "bias_n|gelu", "tanh"];
        let text = random.one_of(&texts);
        spec.epilogue = text.parse::<pgemm_kernels::Epilogue>().expect("it is legal").shape();
    }
    match product.instruction {
        Instruction::Wgmma => any_wgmma(random, &mut spec),
        Instruction::Dmma => {
            let [m, n] = [0; 2].map(|_| 1 << random.below(4));
            let depth = random.one_of(&[8, 16]);
            spec.mainloop = MainloopSpec::Dmma(DmmaSpec { warps: Warps { m, n }, depth });
            if random.once_in(2) {
                let [m, n] = [0; 2].map(|_| 1 << random.below(3));
                spec.cluster = Cluster { m, n };
            }
            spec.tile = Tile { n: 16 * (1 + random.below(16)), k: DmmaSpec::TILE_K, ..spec.tile };
        }
        Instruction::Ffma => {
            let [m, n] = [0; 2].map(|_| 1 << random.below(4));
            let [of_m, of_n] = [0; 2].map(|_| 4 * (1 + random.below(4)));
            let thread = ThreadTile { m: of_m, n: of_n };
            spec.mainloop = MainloopSpec::Ffma(FfmaSpec { thread, warps: Warps { m, n } });
            let [along_m, along_n] = random.one_of(&[[4, 8], [8, 4]]);
            let k = random.one_of(&[8, 16, 32]);
            spec.tile = Tile { m: m * of_m * along_m, n: n * of_n * along_n, k };
        }
    }
    spec
}

fn any_wgmma(random: &mut Random, spec: &mut Spec) {
    let span = 128 / spec.a.bytes();
    spec.tile.k = random.one_of(&[span / 2, span, span, 2 * span]);
    let [m, n] = [0; 2].map(|_| 1 << random.below(4));
    spec.cluster = if random.once_in(2) { Cluster::NONE } else { Cluster { m, n } };
    let (warpgroups, schedule) = match random.below(4) {
        0 => (2, Schedule::PingPong),
        warpgroups => (warpgroups, Schedule::Cooperative),
    };
    let mut wgmma = WgmmaSpec::new(warpgroups, schedule);
    match random.below(8) {
        0 => wgmma.summation = Summation::Promoted { interval: spec.tile.k },
        1 => wgmma.summation = Summation::F16,
        2 => wgmma.terms = Some(random.one_of(&Terms::ALL)),
        _ => {}
    }
    if random.once_in(6) {
        let (tma, threads) = (Loader::Tma, Loader::Threads);
        wgmma.loaders = random.one_of(&[[threads, tma], [tma, threads], [threads; 2]]);
    }
    spec.scaled = random.once_in(10);
    spec.mainloop = MainloopSpec::Wgmma(wgmma);
}

/// Draws until a direct kernel is legal.
fn draw_direct(random: &mut Random) -> Spec {
    let halves = PRODUCTS.iter().filter(|product| product.operands[0].bytes() == 2);
    let halves: Vec<&Product> = halves.collect();
    loop {
        let product = random.one_of(&halves);
        let widths = [0; 2].map(|_| random.one_of(&DirectSpec::WIDTHS));
        let spec = Spec {
            d_major: OutputMajor::N,
            tile: Tile {
                m: 16 * (1 + random.below(4)),
                n: 8 * (1 + random.below(8)),
                k: 16 * (1 + random.below(4)),
            },
            stages: 0,
            cluster: Cluster::NONE,
            mainloop: MainloopSpec::Direct(DirectSpec { widths }),
            scaled: false,
            ..any(random, product)
        };
        if spec.validate().is_ok() {
            return spec;
        }
    }
}

/// Draws direct kernels.
fn drawn_direct(seed: u64, count: usize) -> Vec<Spec> {
    let mut random = Random(seed);
    (0..count).map(|_| draw_direct(&mut random)).collect()
}

/// Draws different specs of one instruction.
fn drawn(seed: u64, instruction: Instruction, count: usize) -> Vec<Spec> {
    let mut random = Random(seed);
    let mut names = BTreeSet::new();
    while names.len() < count {
        names.insert(draw(&mut random, instruction).to_string());
    }
    names.iter().map(|name| name.parse().expect("a name parses back")).collect()
}

/// A problem with edges, a split and a C, which differ from spec to spec.
fn case(spec: &Spec, random: &mut Random) -> Case {
    let tiles = if spec.cluster.size() > 2 { [1, 1] } else { random.one_of(&[[2, 1], [1, 2]]) };
    let case = Case::ragged(spec, tiles, spec.stages + 1);
    let case = if random.once_in(4) { case.batch(2, [false, true, false]) } else { case };
    let case = match random.below(3) {
        0 => case,
        1 => case.scaled(-0.5, 2.0, CPlace::Apart),
        _ => case.scaled(2.0, 1.0, CPlace::InPlace),
    };
    let case = if random.once_in(5) { Case { off: [1, 1], ..case } } else { case };
    let case = Case { operands_off: random.below(8) as usize, ..case };
    if spec.is_direct() {
        return Case { clusters: 1 + random.below(3), ..case };
    }
    match random.below(3) {
        0 => case,
        1 => Case { clusters: 2, ..case.split(1, 2, false) },
        _ => Case { clusters: 3, ..case.split(tiles[0] * tiles[1], 3, true) },
    }
}

/// Runs a check of each spec on two threads. Fails with all errors.
fn check_all(seed: u64, specs: &[Spec], check: impl Fn(&Spec) -> Result<(), String> + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failures = vec![];
        while let Some(spec) = specs.get(next.fetch_add(1, Ordering::Relaxed)) {
            failures.extend(check(spec).err().map(|why| format!("{spec}: {why}")));
        }
        failures
    };
    let failures: Vec<String> = thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        threads.into_iter().flat_map(|thread| thread.join().expect("no check panics")).collect()
    });
    let (count, all) = (failures.len(), specs.len());
    assert!(failures.is_empty(), "seed {seed}: {count} of {all}:\n{}", failures.join("\n"));
}

fn emulate(seed: u64, specs: &[Spec]) {
    check_all(seed, specs, |spec| {
        let gemm = GemmKernel::build(spec).map_err(|error| error.to_string())?;
        if Signature::of(spec).as_ref() != Ok(&gemm.signature) {
            return Err("the signature is not that of the kernel".into());
        }
        let mut random = Random(seed ^ u64::from(spec.tile.n) << 32 ^ u64::from(spec.stages));
        let case = case(spec, &mut random);
        let schedule = match random.below(3) {
            0 => Order::seeded(seed),
            1 => Order::async_late(seed),
            _ => Order::async_early(seed),
        };
        let options = Options { schedule, ..Options::default() };
        let result = Problem::new(spec, case).run(&gemm, options);
        result.map(drop).map_err(|failure| format!("{case:?}: {failure}"))
    });
}

#[test]
fn drawn_kernels_are_right_in_the_emulator() {
    emulate(1, &drawn(1, Instruction::Wgmma, 8));
    emulate(1, &drawn_direct(1, 16));
}

/// The seed of a run of CI, and the number of kernels that it draws.
fn fresh() -> (u64, usize) {
    let number = |name: &str| env::var(name).ok().and_then(|value| value.parse().ok());
    let seed = number("PGEMM_SEED").expect("PGEMM_SEED has a number, the seed");
    (seed, number("PGEMM_DRAWN").unwrap_or(64) as usize)
}

#[test]
#[ignore = "with a fresh seed: run by .ci/run"]
fn freshly_drawn_kernels_are_right_in_the_emulator() {
    let (seed, count) = fresh();
    emulate(seed, &drawn(seed, Instruction::Wgmma, count));
    emulate(seed, &drawn_direct(seed, count / 4));
}

/// The tests of f64 and f32 have every kernel of these types.
#[test]
#[ignore = "with a fresh seed: run by .ci/run"]
fn kernels_that_are_shipped_are_right_in_the_emulator() {
    let (seed, _) = fresh();
    let specs = pgemm_cubins::list().filter_map(|(name, _)| name.parse::<Spec>().ok());
    let specs = specs.filter(|spec| spec.wgmma().is_some() || spec.is_direct());
    emulate(seed, &specs.collect::<Vec<_>>());
}

#[test]
#[ignore = "with a fresh seed: run by .ci/run"]
fn assemblers_take_freshly_drawn_kernels_without_spills() {
    let (seed, count) = fresh();
    let Some(newest) = assemblers().pop() else { return };
    let of_registers = [Instruction::Dmma, Instruction::Ffma];
    let of_registers = of_registers.into_iter().flat_map(|kind| drawn(seed, kind, count / 8));
    let others = of_registers.chain(drawn_direct(seed, count / 4));
    let specs: Vec<Spec> =
        drawn(seed, Instruction::Wgmma, count).into_iter().chain(others).collect();
    check_all(seed, &specs, |spec| {
        let gemm = GemmKernel::build(spec).map_err(|error| error.to_string())?;
        let ptx = pgemm_ptx::emit(&gemm.kernel).map_err(|error| error.to_string())?;
        let report = newest.assemble(&ptx).map_err(|error| error.to_string())?;
        if report.is_clean() { Ok(()) } else { Err(format!("{report:?}")) }
    });
}

#[test]
fn draws_reach_far_beyond_the_catalogue() {
    let specs = drawn(2, Instruction::Wgmma, 400);
    let catalogued: BTreeSet<String> =
        pgemm_kernels::catalogue::specs().map(|spec| spec.to_string()).collect();
    let new = specs.iter().filter(|spec| !catalogued.contains(&spec.to_string())).count();
    assert!(new > 350, "{new} of 400");
    let widths: BTreeSet<u32> = specs.iter().map(|spec| spec.tile.n).collect();
    assert!(widths.len() > 25, "{widths:?}");
    let clusters: BTreeSet<u32> = specs.iter().map(|spec| spec.cluster.size()).collect();
    assert_eq!(clusters, BTreeSet::from([1, 2, 4, 8]));
    let types: BTreeSet<Element> = specs.iter().map(|spec| spec.a).collect();
    assert_eq!(types.len(), 7);
}
