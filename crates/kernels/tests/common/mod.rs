//! Problems of integers. If a kernel sums in f32, the integers are small, so that every product and
//! sum is exact. D must then equal the reference bit for bit, in any order of summation. Kernels of
//! integers get large integers and factors, so that results wrap. Each term of an operand has its
//! own integers, and scales are powers of two. A bias has integers too. Activations are those that
//! map integers to integers.

use std::fmt;

use half::{bf16, f16};
use pgemm_emulator::{Emulator, Memory, Options, Permission, Report, SetupError, Statistics};
use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::{
    Activation, BiasAlong, Epilogue, GemmKernel, L2Policies, L2Policy, MatrixArgument, OutputMajor,
    Spec, Terms, Work,
};

/// The parameters of activations. They are integers, as all other numbers are.
const PARAMETERS: [f64; 2] = [-3.0, 12.0];

/// The place of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CPlace {
    /// C is not read. Beta is 0, and C has the bytes of D, which are all NaN.
    Unread,
    /// C has its own memory.
    Apart,
    /// C is D.
    InPlace,
}

/// The size of a problem, and the parameters of its launch.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub alpha: f32,
    pub beta: f32,
    pub c: CPlace,
    pub raster_rows: u32,
    pub clusters: u32,
    pub split: Split,
    pub batch: Batch,
    /// Elements by which the addresses and leading dimensions of C and D exceed whole 16-byte
    /// units.
    pub off: [usize; 2],
}

/// The split of tiles along k: which tiles are split, and among how many workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    pub tiles: u32,
    pub workers: u32,
    pub unordered: bool,
}

impl Split {
    pub const NONE: Split = Split { tiles: 0, workers: 0, unordered: false };
}

/// The products of a case. Each has its own matrices, or all share A, B or C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    pub count: u32,
    pub same: [bool; 3],
}

impl Batch {
    pub const ONE: Batch = Batch { count: 1, same: [false; 3] };

    /// Number of matrices in memory of A, B and C.
    fn matrices(&self) -> [usize; 3] {
        self.same.map(|same| if same { 1 } else { self.count as usize })
    }
}

impl Case {
    /// D = A·B of `tiles` cluster tiles along m and n and `k_tiles` stages along k. The last tile
    /// and stage along each dimension are partial. Along m and n they are so small that the last
    /// CTAs of a cluster have no work, but D has lines that TMA stores.
    pub fn ragged(spec: &Spec, tiles: [u32; 2], k_tiles: u32) -> Case {
        let cut = |tile: u32, tiles: u32| (tiles - 1) * tile + tile / 2 - (tile / 4).min(5);
        let m = cut(spec.tile.m * spec.cluster.m, tiles[0]);
        let n = cut(spec.tile.n * spec.cluster.n, tiles[1]);
        let unit = 16 / spec.output.bytes();
        let (m, n) = match spec.d_major {
            OutputMajor::N => (m, n.next_multiple_of(unit)),
            OutputMajor::M => (m.next_multiple_of(unit), n),
        };
        Case {
            m,
            n,
            k: cut(spec.tile.k, k_tiles),
            alpha: 1.0,
            beta: 0.0,
            c: CPlace::Unread,
            raster_rows: 2,
            clusters: 1,
            split: Split::NONE,
            batch: Batch::ONE,
            off: [0; 2],
        }
    }

    /// The same case with the first `tiles` tiles split among `workers` workers.
    pub fn split(self, tiles: u32, workers: u32, unordered: bool) -> Case {
        Case { split: Split { tiles, workers, unordered }, ..self }
    }

    /// The same case with `count` products. `same` says whether all of them share A, B or C.
    pub fn batch(self, count: u32, same: [bool; 3]) -> Case {
        Case { batch: Batch { count, same }, ..self }
    }

    /// The same case with factors that are powers of two, so that the result stays exact until it
    /// is rounded to D's type.
    pub fn scaled(self, alpha: f32, beta: f32, c: CPlace) -> Case {
        Case { alpha, beta, c, ..self }
    }
}

/// A case with its operands, and the D that a kernel has to produce.
pub struct Problem {
    case: Case,
    a: Operand,
    b: Operand,
    c: Operand,
    /// The expected content.
    d: Operand,
    /// The content before the run.
    before: Vec<u8>,
    /// The scales of D's rows and columns, for kernels that have them. They are ordered by the
    /// matrices of A and B.
    scales: [Vec<f32>; 2],
    /// The bias. As many NaNs come before it as its address has elements beyond whole 16-byte
    /// units.
    bias: Vec<u8>,
}

/// Padded matrices in the form in which they lie in memory.
struct Operand {
    bytes: Vec<u8>,
    /// Bytes before element (0, 0).
    guard: usize,
    leading_dimension: usize,
    /// Elements from one matrix to the next. It is 0 if there is one matrix.
    batch_stride: usize,
}

/// The failure of a run.
#[derive(Debug)]
pub enum Failure {
    Setup(SetupError),
    Report(Box<Report>),
    /// The first wrong byte of D is in this product, line and place. A line is a row, or a column
    /// if D is column-major. Places from the line's length on are padding.
    Wrong {
        product: i64,
        line: i64,
        place: usize,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Setup(error) => write!(f, "{error}"),
            Failure::Report(report) => write!(f, "{report}"),
            Failure::Wrong { product, line, place } => {
                write!(f, "D is wrong at {place} of line {line} of product {product}")
            }
        }
    }
}

impl Problem {
    /// Makes the operands in the types and majors of `spec`.
    pub fn new(spec: &Spec, case: Case) -> Problem {
        let (m, n, k) = (case.m as usize, case.n as usize, case.k as usize);
        let terms = spec.terms();
        let count = u64::from(terms.map_or(1, Terms::count));
        let matrices @ [a_count, b_count, c_count] = case.batch.matrices();
        let products_count = case.batch.count as usize;
        // The index of a product's matrix.
        let of = |which: usize, product: usize| product % matrices[which];
        // The lines of all matrices, one after the other.
        let operand = |seed, lines: usize, element| -> Vec<Vec<i32>> {
            let term = |term| values_of(element, integers(seed + 2 * term, lines * k, 4));
            (0..count).map(term).collect()
        };
        let (a, b) = (operand(1, a_count * m, spec.a), operand(2, b_count * n, spec.b));
        let products = terms.map_or(vec![(0, 0)], Terms::products);
        let c = integers(3, c_count * m * n, 8);
        let scale = |at: usize| if spec.scaled { [0.5, 4.0, 1.0][at % 3] } else { 1.0 };
        let scales = [a_count * m, b_count * n].map(|lines| (0..lines).map(scale).collect());
        let bias = match spec.epilogue.bias() {
            None => vec![],
            Some(BiasAlong::N) => integers(4, n, 8),
            Some(BiasAlong::M) => integers(4, m, 8),
        };
        let bias_at = |row: usize, column: usize| match spec.epilogue.bias() {
            None => 0,
            Some(BiasAlong::N) => bias[column],
            Some(BiasAlong::M) => bias[row],
        };
        let alpha = alpha_of(spec, &case);
        let reads_c = case.beta != 0.0;
        assert_eq!(reads_c, case.c != CPlace::Unread);
        let result = |at: usize, row: usize, column: usize| {
            let (a_row, b_column) = (of(0, at) * m + row, of(1, at) * n + column);
            let product = |&(of_a, of_b): &(u32, u32)| -> i32 {
                let (a, b) = (&a[of_a as usize][a_row * k..], &b[of_b as usize][b_column * k..]);
                a[..k].iter().zip(b).map(|(a, b)| a * b).sum()
            };
            let product: i32 = products.iter().map(product).sum();
            let c = c[(of(2, at) * m + row) * n + column];
            if spec.output == Element::S32 {
                let [alpha, beta] = [case.alpha, case.beta].map(integer_factor);
                return alpha.wrapping_mul(product).wrapping_add(beta.wrapping_mul(c)).into();
            }
            let added = if reads_c { case.beta * c as f32 } else { 0.0 };
            let scaled = alpha * product as f32 * (scale(a_row) * scale(b_column));
            let result = match spec.epilogue.bias() {
                None => scaled + added,
                Some(_) => scaled + bias_at(row, column) as f32 + added,
            };
            match spec.epilogue.activation() {
                None => result.into(),
                Some(Activation::Relu) => {
                    if result > 0.0 {
                        result.into()
                    } else {
                        0.0
                    }
                }
                Some(other) => {
                    assert_eq!(other.error(Element::F32), [0.0; 2], "{other} is not exact");
                    other.reference(result.into(), &PARAMETERS)
                }
            }
        };
        let operand = |terms: &[Vec<i32>], element: Element, matrices, mn: usize, major| {
            let stored_k = spec.stored_k(case.k) as usize;
            // The number of elements along k after which the next term follows.
            let span = if count == 1 { stored_k.max(1) } else { 128 / element.bytes() as usize };
            let value = |matrix: usize, line: usize, i: usize| -> f64 {
                match major {
                    OperandMajor::K => {
                        let line = matrix * mn + line;
                        let (turn, place) = (i / span, i % span);
                        let at = turn / count as usize * span + place;
                        let values = &terms[turn % count as usize];
                        if at < k { values[line * k + at].into() } else { 0.0 }
                    }
                    OperandMajor::Mn => terms[0][(matrix * mn + i) * k + line].into(),
                }
            };
            match major {
                OperandMajor::K => Operand::new(element, matrices, [mn, stored_k], 0, value),
                OperandMajor::Mn => Operand::new(element, matrices, [k, mn], 0, value),
            }
        };
        let output = |count, off, value: &dyn Fn(usize, usize, usize) -> f64| match spec.d_major {
            OutputMajor::N => Operand::new(spec.output, count, [m, n], off, value),
            OutputMajor::M => {
                let value = |at, column, row| value(at, row, column);
                Operand::new(spec.output, count, [n, m], off, value)
            }
        };
        let [c_off, d_off] = case.off;
        let d = output(products_count, d_off, &result);
        let c = output(c_count, c_off, &|at, row, column| c[(at * m + row) * n + column].into());
        let before = match case.c {
            CPlace::InPlace => c.bytes.clone(),
            _ => vec![POISON; d.bytes.len()],
        };
        assert_eq!(before.len(), d.bytes.len());
        Problem {
            case,
            a: operand(&a, spec.a, a_count, m, spec.a_major),
            b: operand(&b, spec.b, b_count, n, spec.b_major),
            c,
            d,
            before,
            scales,
            bias: bias_bytes(spec, &bias, c_off),
        }
    }

    /// Runs `gemm` and compares all of D, its padding and the lines around it.
    pub fn run(&self, gemm: &GemmKernel, options: Options) -> Result<Statistics, Failure> {
        let case = &self.case;
        let mut memory = Memory::new();
        let mut upload = |name: &str, operand: &Operand| MatrixArgument {
            address: memory.upload(name, &operand.bytes, Permission::ReadOnly)
                + operand.guard as u64,
            leading_dimension: operand.leading_dimension as u64,
            batch_stride: operand.batch_stride as u64,
        };
        let (mut a, mut b) = (upload("A", &self.a), upload("B", &self.b));
        let c = upload("C", &self.c);
        if case.k == 0 {
            // `Work::k` explains why.
            a.address = memory.upload("zeros", &[0; 16], Permission::ReadOnly);
            b.address = a.address;
        }
        let d_start = memory.upload("D", &self.before, Permission::ReadWrite);
        let d = MatrixArgument {
            address: d_start + self.d.guard as u64,
            leading_dimension: self.d.leading_dimension as u64,
            batch_stride: self.d.batch_stride as u64,
        };
        let factors = [alpha_of(gemm.spec(), case), case.beta];
        let [alpha, beta] = factors.map(|factor| match gemm.spec().output {
            Element::S32 => integer_factor(factor).into(),
            _ => factor.into(),
        });
        let scales = gemm.spec().scaled;
        let mut work = Work {
            m: case.m,
            n: case.n,
            k: case.k,
            batch: case.batch.count,
            alpha,
            beta,
            a,
            b,
            c: if case.c == CPlace::Apart { c } else { d },
            d,
            raster_rows: case.raster_rows,
            clusters: case.clusters,
            split_tiles: case.split.tiles,
            workers: case.split.workers,
            unordered: case.split.unordered,
            l2: L2Policies { a: L2Policy::EvictFirst, ..L2Policies::default() },
            scales: scales.then_some(["scales of A", "scales of B"]).map(|names| {
                std::array::from_fn(|i| {
                    let bytes: Vec<u8> =
                        self.scales[i].iter().flat_map(|scale| scale.to_le_bytes()).collect();
                    memory.upload(names[i], &bytes, Permission::ReadOnly)
                })
            }),
            parameters: PARAMETERS,
            ..Work::default()
        };
        if gemm.spec().epilogue.bias().is_some() {
            let bias = memory.upload("the bias", &self.bias, Permission::ReadOnly);
            work.bias = bias + bias_offset(gemm.spec(), case.off[0]) as u64;
        }
        let workspace = gemm.workspace(&work);
        if workspace.bytes > 0 {
            let mut bytes = vec![POISON; workspace.bytes as usize];
            bytes[..workspace.zeroed as usize].fill(0);
            work.workspace = memory.upload("workspace", &bytes, Permission::ReadWrite);
        }
        let launch = gemm.bind(&work);
        // A workspace must also serve the next launches, in which its counters have other values.
        let launches = if workspace.bytes > 0 { 3 } else { 1 };
        let mut statistics = None;
        for again in 0..launches {
            if again > 0 {
                memory.write(d_start, &self.before).expect("D was allocated");
            }
            let emulator = Emulator::new(&gemm.kernel, &launch, &mut memory, options.clone())
                .map_err(Failure::Setup)?;
            statistics = Some(emulator.run().map_err(Failure::Report)?);
            self.compare(
                gemm,
                memory.read_raw(d_start, self.before.len()).expect("D was allocated"),
            )?;
        }
        Ok(statistics.expect("there is a launch"))
    }

    fn compare(&self, gemm: &GemmKernel, found: &[u8]) -> Result<(), Failure> {
        match found.iter().zip(&self.d.bytes).position(|(found, expected)| found != expected) {
            None => Ok(()),
            Some(byte) => {
                let element = (byte as i64 - self.d.guard as i64)
                    .div_euclid(gemm.spec().output.bytes().into());
                let apart = match self.d.batch_stride {
                    0 => self.d.bytes.len() as i64,
                    stride => stride as i64,
                };
                let (product, element) = (element.div_euclid(apart), element.rem_euclid(apart));
                let length = self.d.leading_dimension as i64;
                let (line, place) = (element / length, (element % length) as usize);
                Err(Failure::Wrong { product, line, place })
            }
        }
    }
}

/// A byte such that elements of such bytes are NaN in every floating-point type.
const POISON: u8 = 0xff;

impl Operand {
    /// `count` matrices of `lines` lines of `length` elements. There are NaNs behind each line, and
    /// at least one line of NaNs before the first matrix and after the last. Matrices begin `off`
    /// elements behind whole 16-byte units, and their lines are longer by as many elements.
    fn new(
        element: Element,
        count: usize,
        [lines, length]: [usize; 2],
        off: usize,
        value: impl Fn(usize, usize, usize) -> f64,
    ) -> Operand {
        let size = element.bytes() as usize;
        // Lines that TMA moves are multiples of 16 bytes. Here they have at least one chunk of
        // padding.
        let leading_dimension = (length * size / 16 + 2) * 16 / size + off;
        let line_bytes = leading_dimension * size;
        let guard = line_bytes.next_multiple_of(16) + off * size;
        // This is not a multiple of a line, so that no matrix seems to continue in the next one.
        let apart = (lines + 1) * line_bytes + 16;
        let mut bytes = vec![POISON; guard + (count - 1) * apart + (lines + 1) * line_bytes];
        for (matrix, line) in (0..count).flat_map(|at| (0..lines).map(move |line| (at, line))) {
            let start = guard + matrix * apart + line * line_bytes;
            for i in 0..length {
                let place = &mut bytes[start + i * size..][..size];
                write_element(place, element, value(matrix, line, i));
            }
        }
        let batch_stride = if count == 1 { 0 } else { apart / size };
        Operand { bytes, guard, leading_dimension, batch_stride }
    }
}

/// Bytes before a bias that is `off` elements beyond whole 16-byte units.
fn bias_offset(spec: &Spec, off: usize) -> usize {
    off * Epilogue::bias_type(spec.output).bytes() as usize
}

fn bias_bytes(spec: &Spec, bias: &[i32], off: usize) -> Vec<u8> {
    let element = Epilogue::bias_type(spec.output);
    let mut bytes = vec![POISON; bias_offset(spec, off)];
    for &value in bias {
        let start = bytes.len();
        bytes.resize(start + element.bytes() as usize, 0);
        write_element(&mut bytes[start..], element, value.into());
    }
    bytes
}

/// Writes the element nearest to `value`. For tf32 it writes a binary32 just below `value` in
/// magnitude, which is `value` after rounding.
fn write_element(place: &mut [u8], element: Element, value: f64) {
    let single = value as f32;
    match element {
        Element::Bf16 => place.copy_from_slice(&bf16::from_f32(single).to_le_bytes()),
        Element::F16 => place.copy_from_slice(&f16::from_f32(single).to_le_bytes()),
        Element::F32 => place.copy_from_slice(&single.to_le_bytes()),
        Element::Tf32 => {
            let below = if value == 0.0 { 0 } else { 0x800 };
            place.copy_from_slice(&(single.to_bits() - below).to_le_bytes());
        }
        Element::E4m3 => place[0] = float8(single, 3, -6, 448.0),
        Element::E5m2 => place[0] = float8(single, 2, -14, 57344.0),
        Element::S8 => place[0] = (single.round_ties_even() as i8).cast_unsigned(),
        Element::U8 => place[0] = value as u8,
        Element::S32 => place.copy_from_slice(&(value as i32).to_le_bytes()),
        Element::F64 => panic!("no kernel has f64 matrices"),
    }
}

/// The nearest 8-bit float with `fraction` bits of fraction, rounded to even. `least` is the
/// exponent of its smallest normal number, and `largest` is the number at which it saturates.
fn float8(value: f32, fraction: i32, least: i32, largest: f32) -> u8 {
    let magnitude = value.abs().min(largest);
    // All numbers, in the order of their bit patterns.
    let number = |bits: i32| match (bits >> fraction, bits & ((1 << fraction) - 1)) {
        (0, low) => low as f32 * 2f32.powi(least - fraction),
        (exponent, low) => {
            ((1 << fraction) + low) as f32 * 2f32.powi(exponent - 1 + least - fraction)
        }
    };
    let (mut below, mut above) = (0, 0x7f);
    while above - below > 1 {
        let middle = (below + above) / 2;
        if number(middle) <= magnitude { below = middle } else { above = middle }
    }
    let [down, up] = [magnitude - number(below), number(above) - magnitude];
    let nearest = if down < up || down == up && below % 2 == 0 { below } else { above };
    nearest as u8 | if value.is_sign_negative() { 0x80 } else { 0 }
}

/// The factor of A·B. Products of integers are large. If results are floats or 8-bit integers, they
/// are scaled so that some of them saturate.
fn alpha_of(spec: &Spec, case: &Case) -> f32 {
    let integers = matches!(spec.a, Element::S8 | Element::U8) && spec.output != Element::S32;
    case.alpha * if integers { 2f32.powi(-11) } else { 1.0 }
}

/// Operands made of integers of magnitude up to 4. Elements of 8-bit integers cover their whole
/// range. Elements of other types are exact.
fn values_of(element: Element, integers: Vec<i32>) -> Vec<i32> {
    let value = |integer: i32| match element {
        Element::S8 => integer * 31,
        Element::U8 => (integer + 4) * 31,
        _ => integer,
    };
    integers.into_iter().map(value).collect()
}

/// A factor for integers, made of a factor that is a multiple of a half. It is so large that
/// products wrap.
fn integer_factor(factor: f32) -> i32 {
    (factor * 2.0) as i32 * 0x1_0001
}

/// Pseudo-random integers from `-limit` to `limit`.
fn integers(seed: u64, count: usize, limit: u64) -> Vec<i32> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            // This is Knuth's MMIX generator. Its high bits are random enough.
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % (2 * limit + 1)) as i32 - limit as i32
        })
        .collect()
}
