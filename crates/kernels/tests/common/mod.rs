//! Problems of integers. If a kernel sums in f32, the integers are small, so that every product and
//! sum is exact. D must then equal the reference bit for bit, in any order of summation. Kernels of
//! integers get large integers and factors, so that results wrap. Each term of an operand has its
//! own integers, and scales are powers of two. A bias has integers too. Only results of activations
//! that do not map integers to integers are compared by the error bound of the activation.

mod case;
mod operand;

use std::fmt;

use pgemm_emulator::{Emulator, Memory, Options, Permission, Report, SetupError, Statistics};
use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::{
    Activation, BiasAlong, GemmKernel, L2Policies, L2Policy, Loader, MatrixArgument, OutputMajor,
    Side, Spec, Terms, Work,
};

pub use case::{CPlace, Case};
use operand::{
    Operand, POISON, alpha_of, bias_bytes, bias_offset, integer_factor, integers, read_element,
    values_of,
};

/// The parameters of activations. They are integers, as all other numbers are.
const PARAMETERS: [f64; 2] = [-3.0, 12.0];

/// A case with its operands and the D that a kernel has to produce.
pub struct Problem {
    case: Case,
    a: Operand,
    b: Operand,
    /// The other operand of the second product, in gated kernels.
    second: Option<Operand>,
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

/// What may go wrong in a run.
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
        let gated = spec.wgmma().and_then(|wgmma| wgmma.gated);
        let second = gated.map(|side| match side {
            Side::M => operand(5, a_count * m, spec.a),
            Side::N => operand(5, b_count * n, spec.b),
        });
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
            let product = |a: &[Vec<i32>], b: &[Vec<i32>]| -> i32 {
                let of_terms = |&(of_a, of_b): &(u32, u32)| -> i32 {
                    let a = &a[of_a as usize][a_row * k..];
                    let b = &b[of_b as usize][b_column * k..];
                    a[..k].iter().zip(b).map(|(a, b)| a * b).sum()
                };
                products.iter().map(of_terms).sum()
            };
            let other = match (gated, &second) {
                (Some(Side::M), Some(second)) => Some(product(second, &b)),
                (Some(Side::N), Some(second)) => Some(product(&a, second)),
                _ => None,
            };
            let product = product(&a, &b);
            let c = c[(of(2, at) * m + row) * n + column];
            if spec.output == Element::S32 {
                let [alpha, beta] = [case.alpha, case.beta].map(integer_factor);
                return alpha.wrapping_mul(product).wrapping_add(beta.wrapping_mul(c)).into();
            }
            let added = if reads_c { case.beta * c as f32 } else { 0.0 };
            let scaled = alpha * product as f32 * (scale(a_row) * scale(b_column));
            let activated = |result: f32| -> f64 {
                match spec.epilogue.activation() {
                    None => result.into(),
                    Some(Activation::Relu) => {
                        if result > 0.0 {
                            result.into()
                        } else {
                            0.0
                        }
                    }
                    Some(other) => other.reference(result.into(), &PARAMETERS),
                }
            };
            if let Some(other) = other {
                let product = activated(scaled) * f64::from(alpha * other as f32);
                // A product may be -0, which a sum with 0 is not.
                return if reads_c { product + f64::from(added) } else { product };
            }
            activated(match spec.epilogue.bias() {
                None => scaled + added,
                Some(_) => scaled + bias_at(row, column) as f32 + added,
            })
        };
        let operand = |terms: &[Vec<i32>], element: Element, matrices, mn: usize, major, loader| {
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
            let (lines, length) = match major {
                OperandMajor::K => (mn, stored_k),
                OperandMajor::Mn => (k, mn),
            };
            match loader {
                Loader::Tma => Operand::new(element, matrices, [lines, length], 0, value),
                Loader::Threads => {
                    let off = case.operands_off;
                    let operand = Operand::new(element, matrices, [lines, length], off, value);
                    operand.without_end([lines, length], element)
                }
            }
        };
        let output = |count, off, value: &dyn Fn(usize, usize, usize) -> f64| match spec.d_major {
            OutputMajor::N => Operand::new(spec.output, count, [m, n], off, value),
            OutputMajor::M => {
                let value = |at, column, row| value(at, row, column);
                Operand::new(spec.output, count, [n, m], off, value)
            }
        };
        let loaders = spec.wgmma().map_or([Loader::Tma; 2], |wgmma| wgmma.loaders);
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
            a: operand(&a, spec.a, a_count, m, spec.a_major, loaders[0]),
            b: operand(&b, spec.b, b_count, n, spec.b_major, loaders[1]),
            second: gated.zip(second).map(|(side, second)| match side {
                Side::M => operand(&second, spec.a, a_count, m, spec.a_major, loaders[0]),
                Side::N => operand(&second, spec.b, b_count, n, spec.b_major, loaders[1]),
            }),
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
        let second = self.second.as_ref().map(|operand| upload("the second operand", operand));
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
            second: second.unwrap_or_default(),
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

    /// Compares D and all bytes around it. Results of an activation may differ by the error of its
    /// code, and this error may change how a result is rounded.
    fn compare(&self, gemm: &GemmKernel, found: &[u8]) -> Result<(), Failure> {
        let output = gemm.spec().output;
        let size = output.bytes() as usize;
        let activation = gemm.spec().epilogue.activation();
        let [relative, absolute] =
            activation.map_or([0.0; 2], |activation| activation.error(output));
        let near = |byte: usize| {
            if relative == 0.0 && absolute == 0.0 {
                return false;
            }
            // D begins at a multiple of its elements' size.
            let start = byte / size * size;
            let at = |bytes: &[u8]| read_element(&bytes[start..start + size], output);
            let ((found, _), (expected, unit)) = (at(found), at(&self.d.bytes));
            (found - expected).abs() <= relative * expected.abs() + absolute + unit
        };
        let differ = |&byte: &usize| found[byte] != self.d.bytes[byte] && !near(byte);
        match (0..found.len()).find(differ) {
            None => Ok(()),
            Some(byte) => {
                let element = (byte as i64 - self.d.guard as i64).div_euclid(size as i64);
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
