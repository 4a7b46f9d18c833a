//! Random products: types, majors, strides, addresses, extents, scalars and knobs of one follow
//! from a seed, so that one that fails can be computed again by itself (`pgemm run --case SEED`).

use std::fmt;
use std::str::FromStr;

use persistent_gemm::host::{self, Allocations, Executor};
use persistent_gemm::{
    Accumulation, Comparison, ErrorModel, HostMatrix, Operands, Reference, Result,
};
use pgemm_ir::Element;
use pgemm_kernels::Epilogue;
use pgemm_plan::{
    Batch, Config, Major, MatrixLayout, OperandLayout, Plan, Precision, Problem, Split, types,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

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

/// Precisions of f32 products.
const PRECISIONS_32: [Precision; 5] =
    [Precision::Exact, Precision::Tf32x3, Precision::F16x3, Precision::Bf16x6, Precision::Bf16x9];

/// Largest integer operand.
const MAGNITUDE: u32 = 3;

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

    /// Computes the case and compares D with the reference, within the derived error bound, or
    /// exactly if sums are exact. D is filled with NaN first, unless it is C. The CPU backend gets
    /// matrices without gaps.
    ///
    /// # Errors
    /// The errors of [`multiply`](host::multiply), or of the reference.
    pub fn run(&self, executor: &Executor) -> Result<CaseOutcome> {
        let Case { config, problem, .. } = self;
        problem.validate()?;
        let [a, b] = config.operands();
        let output = config.output_dtype();
        let d_layout = problem.d_layout();
        let lines = (d_layout.lines(), d_layout.line_length());
        let result = |leading| OperandLayout::new(problem.d_major, leading);
        let batch = problem.batch;
        let a = self.stored(0, a, problem.a_lines(), (problem.a, batch.a))?;
        let b = self.stored(1, b, problem.b_lines(), (problem.b, batch.b))?;
        let c_place = (result(problem.c_leading_dimension), batch.c);
        let c = self.stored(2, output, lines, c_place)?;
        let d_place = (result(problem.d_leading_dimension), batch.d);
        let mut d = self.stored(3, output, lines, d_place)?;
        let length = config.epilogue.bias_length(problem.m, problem.n);
        let row = OperandLayout::new(Major::K, length.max(1));
        let bias = self.stored(4, config.bias_dtype(), (1, length), (row, 0))?;
        let adds_bias = config.epilogue.bias().is_some();
        let bias_copy = bias.copy(0, 1, length, Major::K)?;
        let bias_copy = Some(&bias_copy).filter(|_| adds_bias);
        match self.in_place {
            true => d.matrix.clone_from(&c.matrix),
            false => d.matrix.poison(),
        }

        let Problem { m, n, k, batch, .. } = *problem;
        let plain = Problem::new(m, n, k, Major::K, Major::N)
            .with_alpha(problem.alpha)
            .with_beta(problem.beta)
            .with_batch(batch.count);
        let copies = |stored: &Stored,
                      [rows, columns]: [usize; 2],
                      rows_along|
         -> Result<Vec<HostMatrix>> {
            (0..batch.count).map(|index| stored.copy(index, rows, columns, rows_along)).collect()
        };
        let (a_copies, b_copies) = (copies(&a, [m, k], Major::K)?, copies(&b, [k, n], Major::N)?);
        let c_copies = copies(&c, [m, n], Major::N)?;
        let reads_c = problem.beta != 0.0;
        let inputs =
            Operands::new(&a_copies, &b_copies).c(reads_c.then_some(&c_copies)).bias(bias_copy);

        let before = d.clone();
        let (plan, computed) = match executor {
            Executor::Cpu { .. } => {
                (None, Some(host::multiply(executor, config, &plain, inputs)?.d))
            }
            _ => {
                let allocations = Allocations {
                    a: a.matrix.bytes(),
                    b: b.matrix.bytes(),
                    c: (reads_c && !self.in_place).then(|| c.matrix.bytes()),
                    bias: adds_bias.then(|| bias.matrix.bytes()),
                    offsets: [&a, &b, &c, &d, &bias].map(Stored::offset_bytes),
                    d: d.matrix.bytes_mut(),
                };
                (host::multiply_allocations(executor, config, problem, allocations)?.plan, None)
            }
        };
        let untouched = d.gaps(batch.count, [m, n]) == before.gaps(batch.count, [m, n]);
        let computed = computed.map_or_else(|| copies(&d, [m, n], Major::N), Ok)?;
        let mut comparisons = vec![];
        for (index, d) in computed.iter().enumerate() {
            let Operands { a, b, c, .. } = inputs.of(index);
            let reference =
                Reference::with_epilogue(&plain.one(), (a, b, c), config.epilogue, bias_copy)?;
            comparisons.push(match self.fill {
                Fill::Integers if config.precision() == Precision::F16 => {
                    reference.compare_exact_f16(d)?
                }
                Fill::Integers => reference.compare_exact(d)?,
                Fill::Random => reference.compare(d, &self.model(plan.as_ref()))?,
            });
        }
        Ok(CaseOutcome { plan, comparisons, untouched })
    }

    /// Matrix number `index` in its allocation, whose gaps are filled with values too.
    fn stored(
        &self,
        index: usize,
        element: Element,
        lines: (usize, usize),
        (layout, batch_stride): (OperandLayout, usize),
    ) -> Result<Stored> {
        let offset = self.offsets[index];
        let last = |count: usize, apart: usize| (count.max(1) - 1) * apart;
        let span = last(lines.0, layout.leading_dimension) + last(lines.1, layout.step) + 1;
        let span = span + last(self.problem.batch.count, batch_stride);
        let mut matrix = HostMatrix::zeros(MatrixLayout::row_major(1, offset + span), element)?;
        let seed = self.seed.wrapping_mul(4).wrapping_add(index as u64);
        match self.fill {
            Fill::Random => matrix.fill_random(seed),
            Fill::Integers => matrix.fill_integers(seed, MAGNITUDE),
        }
        Ok(Stored { matrix, offset, batch_stride, layout })
    }

    /// The error model of the comparison. The signs of broadcast operands are not independent of
    /// each other.
    fn model(&self, plan: Option<&Plan>) -> ErrorModel {
        let broadcast =
            |operand: OperandLayout| operand.step == 0 || operand.leading_dimension == 0;
        let accumulation = match plan.map(|plan| Accumulation::of(&plan.spec)) {
            None => Accumulation::Nearest,
            Some(any) if broadcast(self.problem.a) || broadcast(self.problem.b) => any,
            Some(accumulation) => accumulation.of_random_signs(),
        };
        let [a, b] = self.config.operands();
        ErrorModel { accumulation, a, b }
    }
}

/// The place of a matrix in its allocation. The allocation is a matrix of a single line.
#[derive(Clone)]
struct Stored {
    matrix: HostMatrix,
    /// Elements before the first one.
    offset: usize,
    /// Elements from one matrix of a batch to the next.
    batch_stride: usize,
    layout: OperandLayout,
}

impl Stored {
    fn offset_bytes(&self) -> u64 {
        self.offset as u64 * u64::from(self.matrix.dtype().bytes())
    }

    /// If an element of a matrix of the batch is, in elements.
    fn place(&self, index: usize, line: usize, along: usize) -> usize {
        let first = self.offset + index * self.batch_stride;
        first + line * self.layout.leading_dimension + along * self.layout.step
    }

    /// A matrix without gaps, row-major. Its rows run along `rows_along`.
    fn copy(
        &self,
        index: usize,
        rows: usize,
        columns: usize,
        rows_along: Major,
    ) -> Result<HostMatrix> {
        let values = self.matrix.to_f64_vec();
        let layout = MatrixLayout::row_major(rows, columns);
        let mut copy = HostMatrix::zeros(layout, self.matrix.dtype())?;
        let by_rows = self.layout.major == rows_along;
        copy.fill_with(|row, column| {
            let (line, along) = if by_rows { (row, column) } else { (column, row) };
            values[self.place(index, line, along)]
        });
        Ok(copy)
    }

    /// All bytes of the allocation that are not elements of the `count` matrices D of a batch.
    fn gaps(&self, count: usize, [rows, columns]: [usize; 2]) -> Vec<u8> {
        let size = self.matrix.dtype().bytes() as usize;
        let (lines, length) = match self.layout.major {
            Major::M => (columns, rows),
            _ => (rows, columns),
        };
        let mut bytes = self.matrix.bytes().to_vec();
        for (index, line) in (0..count).flat_map(|index| (0..lines).map(move |line| (index, line)))
        {
            let first = self.place(index, line, 0) * size;
            bytes[first..first + length * size].fill(0);
        }
        bytes
    }
}

/// Draws the parts of a random case.
struct Draw(StdRng);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// Types of A, B and D.
    fn types(&mut self) -> ([Element; 3], Option<Precision>) {
        match self.below(8) {
            0 => ([Element::F64; 3], None),
            1 => ([Element::F32; 3], Some(*self.of(&PRECISIONS_32))),
            2..=4 => {
                let types = self.types_of(|a| a.bytes() == 2);
                let in_f16 = types[0] == Element::F16 && self.one_in(3);
                (types, in_f16.then_some(Precision::F16))
            }
            _ => {
                let precision = *self.of(&[None, Some(Precision::Fast)]);
                (self.types_of(|a| a == Element::Tf32 || a.bytes() == 1), precision)
            }
        }
    }

    /// Types that kernels multiply, of such an A.
    fn types_of(&mut self, of: impl Fn(Element) -> bool) -> [Element; 3] {
        let types: Vec<_> = types().filter(|[a, ..]| of(*a)).collect();
        *self.of(&types)
    }

    /// Mostly ragged, sometimes tiny, sometimes a whole number of tiles, sometimes deep, rarely
    /// nothing at all.
    fn extents(&mut self, size: CaseSize) -> [usize; 3] {
        let (most, deepest) = size.limits();
        let [m, n, k] = [most, most, deepest].map(|limit| match self.below(6) {
            0 => 1 + self.below(40),
            1 => 64 * (1 + self.below(limit / 64)),
            _ => 1 + self.below(limit),
        });
        match self.below(64) {
            0 => [0, n, k],
            1 => [m, 0, k],
            2 | 3 => [m, n, 0],
            4..=11 if size == CaseSize::Large => [m / 6 + 1, n / 6 + 1, 20 * k],
            4..=11 => [m / 6 + 1, n / 6 + 1, 5 * k],
            _ => [m, n, k],
        }
    }

    /// Draws alpha and beta. They are integers for integer products. Results beyond s32 wrap.
    fn scalars(&mut self, integers: bool, output: Element) -> (f64, f64) {
        let (alpha, beta) = match integers {
            false => *self.of(&[(1.0, 0.0), (0.5, 2.0), (-2.0, 0.3), (1.0, -1.0), (0.0, 0.5)]),
            true => *self.of(&[(1.0, 0.0), (3.0, 2.0), (-2.0, 1.0), (1.0, -1.0), (0.0, 1.0)]),
        };
        let wraps = output == Element::S32 && self.one_in(5);
        (if wraps { alpha * 300_000.0 } else { alpha }, beta)
    }

    /// Elements between lines: none, as many as make whole 16-byte units, or any.
    fn line(&mut self, length: usize, element: Element) -> usize {
        let unit = 16 / element.bytes() as usize;
        let length = length.max(1);
        match self.below(3) {
            0 => length,
            1 => length.next_multiple_of(unit) + unit * self.below(3),
            _ => length + self.below(6),
        }
    }

    /// Draws the layout of an input. `step` says whether its elements may have a step other than 1.
    fn operand(&mut self, tight: OperandLayout, element: Element, step: bool) -> OperandLayout {
        let line = self.line(tight.leading_dimension, element);
        match self.below(12) {
            0 => OperandLayout { leading_dimension: 0, ..tight },
            1 if step => OperandLayout { step: 0, leading_dimension: line, ..tight },
            2 if step => OperandLayout { step: 2, leading_dimension: 2 * line, ..tight },
            _ => OperandLayout { leading_dimension: line, ..tight },
        }
    }

    /// One in five is a batch, packed, with an operand or C for all, or with gaps between matrices
    /// that TMA reads or not.
    fn batch(&mut self, problem: Problem, in_place: bool) -> Problem {
        if !self.one_in(5) {
            return problem;
        }
        let count = if self.one_in(10) { 0 } else { 2 + self.below(3) };
        let batch = problem.with_batch(count);
        let Batch { a, b, c, d, .. } = batch.batch;
        let batch = match self.below(5) {
            0 => batch,
            1 => batch.with_b_batch_stride(0),
            2 => batch.with_a_batch_stride(0).with_c_batch_stride(0),
            3 => batch.with_a_batch_stride(a + 48).with_d_batch_stride(d + 16),
            _ => {
                let batch = batch.with_b_batch_stride(b + 1).with_c_batch_stride(c + 3);
                batch.with_d_batch_stride(d + 5)
            }
        };
        let d = batch.batch.d;
        if in_place { batch.with_c_batch_stride(d) } else { batch }
    }

    /// Draws the elements before A, B, C and D. Half of all cases have none.
    fn offsets(&mut self, in_place: bool) -> [usize; 4] {
        let aligned = self.one_in(2);
        let [a, b, c, d] = [18; 4].map(|most| if aligned { 0 } else { self.below(most) });
        [a, b, if in_place { d } else { c }, d]
    }

    /// Draws the epilogue. Half of all cases with float results have one. With integer values it
    /// keeps results integral.
    fn epilogue(&mut self, output: Element, fill: Fill) -> Epilogue {
        let texts: &[&str] = match fill {
            _ if matches!(output, Element::S32 | Element::S8) => &[],
            Fill::Integers => &["bias_n|relu", "bias_m", "relu"],
            Fill::Random => {
                &["bias_n|silu", "bias_n|gelu", "bias_m|gelu", "silu", "bias_n|relu", "bias_m"]
            }
        };
        match self.one_in(2) || texts.is_empty() {
            true => Epilogue::NONE,
            // All of these texts parse as epilogues.
            false => self.of(texts).parse().unwrap_or_default(),
        }
    }

    /// Half of them as the planner likes.
    fn knobs(&mut self, config: Config) -> Config {
        let unordered = self.one_in(4);
        let splits = self.of(&[Split::Whole, Split::StreamK, Split::SplitK(2), Split::SplitK(5)]);
        let split = Some(*splits).filter(|_| self.one_in(2));
        let swapped = Some(self.one_in(2)).filter(|_| self.one_in(4));
        // Operands of f64, and of f32 on CUDA cores, never are exchanged.
        let stays = match config.dtype {
            Element::F64 => true,
            Element::F32 => config.precision().terms().is_none(),
            _ => false,
        };
        let mut config = config;
        config.split = split;
        if stays { config } else { config.with_swapped(swapped).with_unordered(unordered) }
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
