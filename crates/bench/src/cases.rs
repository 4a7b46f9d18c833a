//! Random products: types, majors, strides, addresses, extents, scalars and knobs of one follow
//! from a seed, so that one that fails can be computed again by itself (`pgemm run --case SEED`).

mod draw;
mod run;

use std::fmt;
use std::str::FromStr;

use persistent_gemm::Comparison;
use pgemm_ir::Element;
use pgemm_plan::{Batch, Config, Major, OperandLayout, Plan, Precision, Problem};
use rand::SeedableRng;
use rand::rngs::StdRng;

use draw::Draw;

/// The size of a random case. The same seed gives different cases for different sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseSize {
    /// A few tiles: for the emulator.
    Small,
    /// Up to some hundred tiles: for a device.
    Large,
}

impl CaseSize {
    /// The name that users type.
    pub const fn name(self) -> &'static str {
        match self {
            CaseSize::Small => "small",
            CaseSize::Large => "large",
        }
    }

    /// Largest m and n, and largest k.
    const fn limits(self) -> (usize, usize) {
        match self {
            CaseSize::Small => (200, 300),
            CaseSize::Large => (1100, 1500),
        }
    }
}

/// The values of the matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    /// Samples of N(0, 1), or integers of the whole range of an 8-bit type.
    Random,
    /// Integers so small that every sum is exact in the accumulators.
    Integers,
}

/// A product that a seed describes.
#[derive(Clone, Debug)]
pub struct Case {
    /// The seed.
    pub seed: u64,
    /// The size that the case was drawn for.
    pub size: CaseSize,
    /// Types and knobs.
    pub config: Config,
    /// Extents, layouts and scalars.
    pub problem: Problem,
    /// Elements between the start of an allocation and the first one of A, B, C, D and the bias.
    pub offsets: [usize; 5],
    /// Whether C is D.
    pub in_place: bool,
    fill: Fill,
}

/// The outcome of a case.
#[derive(Debug)]
pub struct CaseOutcome {
    /// The plan. `None` on the CPU, and if D is empty.
    pub plan: Option<Plan>,
    /// The comparison of D with the reference, for each product of a batch.
    pub comparisons: Vec<Comparison>,
    /// Whether all bytes of D's allocation that are no elements of D are as they were.
    pub untouched: bool,
}

impl CaseOutcome {
    /// Whether D is correct and nothing else was written.
    pub fn passed(&self) -> bool {
        self.untouched && self.comparisons.iter().all(|comparison| comparison.passed)
    }

    /// The comparison of a product that is wrong, or else of that with the largest error; None of
    /// an empty batch.
    pub fn worst(&self) -> Option<&Comparison> {
        let ratio = |comparison: &Comparison| match &comparison.worst {
            _ if !comparison.passed => f64::INFINITY,
            worst => worst.as_ref().map_or(0.0, |element| element.ratio),
        };
        self.comparisons.iter().max_by(|one, other| ratio(one).total_cmp(&ratio(other)))
    }
}

/// Up to this k, sums of products of 8-bit floats stay below 2^13 and are exact, including C.
const EXACT_DEPTH_8: usize = 900;

/// The same limit for sums in f16, which are exact below 2^11.
const EXACT_DEPTH_16: usize = 220;

/// A name that is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown size of cases '{text}': use small or large")]
pub struct UnknownCaseSize {
    /// The text.
    pub text: String,
}

impl FromStr for CaseSize {
    type Err = UnknownCaseSize;

    fn from_str(text: &str) -> std::result::Result<Self, UnknownCaseSize> {
        [CaseSize::Small, CaseSize::Large]
            .into_iter()
            .find(|size| size.name() == text)
            .ok_or_else(|| UnknownCaseSize { text: text.to_owned() })
    }
}

impl Case {
    /// The case of a seed.
    pub fn new(seed: u64, size: CaseSize) -> Case {
        let mut draw = Draw(StdRng::seed_from_u64(seed));
        let (types, precision) = draw.types();
        let [a, b, output] = types;
        let fill = if draw.one_in(3) { Fill::Integers } else { Fill::Random };
        let [m, n, k] = draw.extents(size);
        let k = match (fill, a) {
            (Fill::Integers, _) if a.is_float8() => k.min(EXACT_DEPTH_8),
            (Fill::Integers, _) if precision == Some(Precision::F16) => k.min(EXACT_DEPTH_16),
            _ => k,
        };
        let integers = output == Element::S32 || fill == Fill::Integers;
        let (alpha, beta) = draw.scalars(integers, output);
        // With this factor, most sums of full-range bytes are in the range of s8.
        let scaled = matches!(a, Element::S8 | Element::U8) && !integers;
        let alpha = if scaled { alpha / 4096.0 } else { alpha };

        let mut problem = Problem::new(m, n, k, *draw.of(&[Major::K, Major::M]), Major::K);
        let b_major = *draw.of(&[Major::K, Major::N]);
        problem.b = Problem::new(m, n, k, Major::K, b_major).b;
        let mut problem = problem.with_d_major(*draw.of(&[Major::N, Major::N, Major::M]));
        let line = problem.d_layout().line_length();
        let c = draw.operand(OperandLayout::new(problem.d_major, line.max(1)), output, false);
        let d = draw.line(line, output);
        let in_place = beta != 0.0 && draw.one_in(3);
        problem.a = draw.operand(problem.a, a, true);
        problem.b = draw.operand(problem.b, b, true);
        problem.c_leading_dimension = if in_place { d } else { c.leading_dimension };
        problem.d_leading_dimension = d;
        problem.alpha = alpha;
        problem.beta = beta;
        let problem = draw.batch(problem, in_place);
        let offsets = draw.offsets(in_place);
        let mut types = Config::new(a).with_b_dtype(b).with_output(output);
        types.precision = precision;
        let config = draw.knobs(types);
        let config = config.with_epilogue(draw.epilogue(output, fill));
        let [of_a, of_b, of_c, of_d] = offsets;
        let offsets = [of_a, of_b, of_c, of_d, draw.below(4)];
        Case { seed, size, config, problem, offsets, in_place, fill }
    }
}

impl fmt::Display for Case {
    /// The case in one line, with its types and layouts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { config, problem, offsets, .. } = self;
        let Problem { m, n, k, alpha, beta, .. } = problem;
        let [a, b] = config.operands();
        write!(
            f,
            "case {} ({}): {m}x{n}x{k}, {a} x {b} -> {}",
            self.seed,
            self.size.name(),
            config.output_dtype()
        )?;
        if let Some(precision) = config.precision {
            write!(f, ", {precision}")?;
        }
        write!(f, ", alpha {alpha}, beta {beta}")?;
        if !config.epilogue.is_none() {
            write!(f, ", {} (bias from {})", config.epilogue, offsets[4])?;
        }
        let Batch { count, a, b, c, d } = problem.batch;
        if count != 1 {
            write!(f, ", batch of {count}, A every {a}, B every {b}, C every {c}, D every {d}")?;
        }
        for (name, operand, off) in [("A", problem.a, offsets[0]), ("B", problem.b, offsets[1])] {
            let OperandLayout { major, leading_dimension, step } = operand;
            write!(
                f,
                "; {name} along {} every {leading_dimension} step {step} from {off}",
                major_name(major)
            )?;
        }
        let (c, d) = (problem.c_leading_dimension, problem.d_leading_dimension);
        let place = if self.in_place {
            "C is D".to_owned()
        } else {
            format!("C every {c} from {}", offsets[2])
        };
        write!(
            f,
            "; D along {} every {d} from {}, {place}",
            major_name(problem.d_major),
            offsets[3]
        )?;
        if let Some(split) = config.split {
            write!(f, "; {split}")?;
        }
        if let Some(swapped) = config.swapped {
            write!(f, "; {}", if swapped { "swapped" } else { "not swapped" })?;
        }
        if config.unordered {
            f.write_str("; unordered")?;
        }
        Ok(())
    }
}

fn major_name(major: Major) -> &'static str {
    match major {
        Major::K => "k",
        Major::M => "m",
        Major::N => "n",
    }
}
