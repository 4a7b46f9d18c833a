//! `pgemm cubins compare`: kernels that were assembled in advance beside the same kernels from the
//! driver's JIT.

use persistent_gemm::driver::{Device, Stream};
use persistent_gemm::measure::{Contestant, GemmContestant, L2, Protocol};
use persistent_gemm::{Config, DeviceMatrix, Gemm, HostMatrix, Major, Operands, Problem};
use pgemm_bench::atlas::Population;
use pgemm_bench::{Bench, SHIPPED_TYPES, ShippedTypes, problem_name};

use crate::failure::Failure;
use crate::{Verdict, output};

/// Most operations of a problem, so that many problems take little time.
const MOST_OPERATIONS: u64 = 20_000_000_000;

#[derive(clap::Args)]
pub struct Args {
    /// Ordinal of the CUDA device.
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Problems whose results are compared bit by bit.
    #[arg(long, default_value_t = 200)]
    problems: usize,
    /// Problems whose times are compared.
    #[arg(long, default_value_t = 10)]
    pairs: usize,
    /// Rounds of each pair.
    #[arg(long, default_value_t = 40)]
    rounds: u32,
    /// Seed of the drawn problems.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the command.
///
/// # Errors
/// There is no device, or a product fails.
pub fn run(args: &Args) -> Result<Verdict, Failure> {
    let device = Device::new(args.device)?;
    let stream = Stream::new(&device)?;
    let mut cases = vec![];
    for (number, types) in SHIPPED_TYPES.iter().enumerate() {
        let seed = args.seed + number as u64;
        cases.push(Case::new(&device, types, seed, args.problems.div_ceil(SHIPPED_TYPES.len()))?);
    }
    let (mut compared, mut compiled, mut differing) = (0, 0, vec![]);
    let progress = output::progress(args.problems);
    for case in &cases {
        for problem in &case.problems {
            progress.inc(1);
            let Some(same) = case.has_same_bits(problem, &stream)? else {
                compiled += 1;
                continue;
            };
            compared += 1;
            if !same {
                differing.push(problem_name(problem, case.types.elements));
            }
        }
    }
    progress.finish_and_clear();
    let count = differing.len();
    output::text(&format!(
        "{compared} problems with kernels that were assembled in advance: {count} with other bits \
         than with the same kernels from the JIT. {compiled} problems have no such kernel.\n"
    ))?;
    differing.iter().for_each(output::note);
    let bench = Bench::new(&device)?;
    let protocol = Protocol {
        rounds: args.rounds,
        palindromes_per_round: 1,
        energy_rounds: 0,
        ..Protocol::default()
    };
    let mut table =
        output::table(["problem", "kernel", "ahead µs", "JIT µs", "JIT / ahead"], &["JIT / ahead"]);
    for index in 0..args.pairs {
        let case = &cases[index % cases.len()];
        let Some(problem) = case.problems.iter().rev().nth(index / cases.len()) else { continue };
        let operands = bench.operands_in(L2::Cold, problem, case.types.elements, 1)?;
        let mut ahead = GemmContestant::new(&case.ahead, &operands)?;
        let mut jit = GemmContestant::new(&case.jit, &operands)?;
        let outcome = bench.pair(&operands, &mut ahead, &mut jit, &protocol)?;
        let [peer, ours] = [outcome.peer, 1 - outcome.peer].map(|who| &outcome.contestants[who]);
        table.add_row([
            outcome.name.clone(),
            ahead.name().to_owned(),
            format!("{:.2}", ours.microseconds.median),
            format!("{:.2}", peer.microseconds.median),
            format!("{:.4}", ours.ratio.median),
        ]);
    }
    output::print(&table)?;
    Ok(if differing.is_empty() { Verdict::Fine } else { Verdict::Wrong })
}

/// Problems of some types, with both kinds of kernels.
struct Case {
    types: ShippedTypes,
    problems: Vec<Problem>,
    ahead: Gemm,
    jit: Gemm,
}

impl Case {
    fn new(
        device: &Device,
        types: &ShippedTypes,
        seed: u64,
        count: usize,
    ) -> Result<Case, Failure> {
        let majors = [(Major::K, Major::K), (Major::K, Major::N), (Major::M, Major::N)];
        let drawn = Population::Eights.problems(seed, 8 * count, types.elements, &majors)?;
        let is_small =
            |problem: &Problem| problem.operations().is_ok_and(|count| count <= MOST_OPERATIONS);
        let problems = drawn.into_iter().map(|drawn| drawn.problem).filter(is_small);
        let config: Config = types.config();
        Ok(Case {
            types: *types,
            problems: problems.take(count).collect(),
            ahead: Gemm::create(device, config.clone())?,
            jit: Gemm::compiling(device, config)?,
        })
    }

    /// Whether both kinds of kernels have the same result. `None` if the kernel of the problem was
    /// not assembled in advance.
    fn has_same_bits(&self, problem: &Problem, stream: &Stream) -> Result<Option<bool>, Failure> {
        let spec = self.ahead.prepare(problem)?.plan().spec;
        if !self.ahead.store().is_assembled(&spec) {
            return Ok(None);
        }
        let elements = self.types.elements;
        let stream = stream.as_ref();
        let operand = |layout, element, seed| -> Result<DeviceMatrix, Failure> {
            let mut matrix = HostMatrix::zeros(layout, element)?;
            matrix.fill_random(seed);
            Ok(DeviceMatrix::upload(&matrix, stream)?)
        };
        let a = operand(problem.a_layout(), elements.a, 1)?;
        let b = operand(problem.b_layout(), elements.b, 2)?;
        let result = |gemm: &Gemm| -> Result<HostMatrix, Failure> {
            let mut d = HostMatrix::zeros(problem.d_layout(), elements.d)?;
            d.poison();
            let mut d = DeviceMatrix::upload(&d, stream)?;
            gemm.run(problem, Operands::new(&a, &b), &mut d, &stream)?;
            Ok(d.download(stream)?)
        };
        Ok(Some(result(&self.ahead)?.bytes() == result(&self.jit)?.bytes()))
    }
}
