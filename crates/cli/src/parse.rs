//! Arguments that several commands share: sizes, types, majors and knobs.

mod knobs;

use clap::Args;
use persistent_gemm::measure::Elements;
use persistent_gemm::{Choice, Config, Dtype, Major, Precision, Problem};
use pgemm_kernels::Spec;

pub use knobs::{KernelChoice, Knobs, schedule_name};

/// `MxNxK`, or one number for a cube.
pub fn problem(text: &str) -> Result<[usize; 3], String> {
    let expected = || format!("'{text}' is not a problem size: write MxNxK, 4096x4096x8192 say");
    let numbers: Vec<usize> =
        text.split('x').map(str::parse).collect::<Result<_, _>>().map_err(|_| expected())?;
    match numbers[..] {
        [size] => Ok([size; 3]),
        [m, n, k] => Ok([m, n, k]),
        _ => Err(expected()),
    }
}

/// Parses a part of a whole, from 0 up to but not including 1.
pub fn part(text: &str) -> Result<f64, String> {
    let part = text.parse().ok().filter(|part| (0.0..1.0).contains(part));
    part.ok_or_else(|| "give a number from 0 to below 1, such as 0.02 for 2 %".to_owned())
}

/// Parses a number of bytes, optionally followed by KiB, MiB or GiB.
pub fn bytes(text: &str) -> Result<u64, String> {
    let expected = || format!("'{text}' is no number of bytes: write 512MiB or 2GiB, say");
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("", 0)];
    let (number, shift) = units
        .into_iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))
        .ok_or_else(expected)?;
    let number: u64 = number.trim().parse().map_err(|_| expected())?;
    number.checked_mul(1 << shift).ok_or_else(expected)
}

/// A problem size, with an optional number of products of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub extents: [usize; 3],
    pub batch: Option<usize>,
}

/// `MxNxK`, or one number for a cube; with `*BATCH` behind it that many products.
pub fn size(text: &str) -> Result<Size, String> {
    let Some((extents, batch)) = text.split_once('*') else {
        return Ok(Size { extents: problem(text)?, batch: None });
    };
    let batch = batch
        .parse()
        .map_err(|_| format!("'{text}' is not a batch: write MxNxK*COUNT, 512x512x512*64 say"))?;
    Ok(Size { extents: problem(extents)?, batch: Some(batch) })
}

/// Extents, with the products of a batch behind them, as [`size`] reads them.
pub fn extents(problem: &Problem) -> String {
    let Problem { m, n, k, batch, .. } = problem;
    let batch = if batch.is_one() { String::new() } else { format!("*{}", batch.count) };
    format!("{m}x{n}x{k}{batch}")
}

/// The options of a command that say a problem's extents and types, written for a shell.
pub fn problem_options(problem: &Problem, elements: Elements) -> String {
    let Elements { a, b, d, precision, .. } = elements;
    let extents = extents(problem);
    // A star means something to shells.
    let extents = if extents.contains('*') { format!("'{extents}'") } else { extents };
    let mut options = format!("--problem {extents} --dtype {a}");
    let usual = self::elements(a, Some(b), None, None);
    for (option, name, needed) in [
        ("b-dtype", b.name(), a != b),
        ("output-dtype", d.name(), usual.d != d),
        ("precision", precision.name(), usual.precision != precision),
    ] {
        if needed {
            options += &format!(" --{option} {name}");
        }
    }
    options
}

/// The strides between the matrices of a batch.
#[derive(Args, Clone, Debug)]
pub struct Strides {
    /// Elements from one A of a batch to the next, or 0 if all products have the same one [default:
    /// no gaps].
    #[arg(long, value_name = "ELEMENTS", help_heading = "Batches")]
    batch_stride_a: Option<usize>,
    /// Elements from one B to the next, or 0 if all products have the same one.
    #[arg(long, value_name = "ELEMENTS", help_heading = "Batches")]
    batch_stride_b: Option<usize>,
    /// Elements from one C to the next, or 0 if all products have the same one.
    #[arg(long, value_name = "ELEMENTS", help_heading = "Batches")]
    batch_stride_c: Option<usize>,
    /// Elements from one D to the next.
    #[arg(long, value_name = "ELEMENTS", help_heading = "Batches")]
    batch_stride_d: Option<usize>,
}

impl Strides {
    /// A problem as a batch of `count` products; one product has no strides.
    pub fn batch(&self, problem: Problem, count: usize) -> Problem {
        let mut problem = problem.with_batch(count);
        if count > 1 {
            let batch = &mut problem.batch;
            batch.a = self.batch_stride_a.unwrap_or(batch.a);
            batch.b = self.batch_stride_b.unwrap_or(batch.b);
            batch.c = self.batch_stride_c.unwrap_or(batch.c);
            batch.d = self.batch_stride_d.unwrap_or(batch.d);
        }
        problem
    }
}

/// A dtype by name.
pub fn dtype(text: &str) -> Result<Dtype, String> {
    text.parse().map_err(|error: pgemm_ir::UnknownElement| error.to_string())
}

/// The types of a product. By default B has the type of A, and D and the precision have their
/// defaults for these operands.
pub fn elements(
    a: Dtype,
    b: Option<Dtype>,
    output: Option<Dtype>,
    precision: Option<Precision>,
) -> Elements {
    let mut config = Config::new(a).with_b_dtype(b.unwrap_or(a));
    config.precision = precision;
    Elements {
        a,
        b: config.b_dtype(),
        d: output.unwrap_or_else(|| config.output_dtype()),
        precision: config.precision(),
        epilogue: config.epilogue,
    }
}

/// The config for these types with every knob left to the planner.
pub fn config(Elements { a, b, d, precision, epilogue }: Elements) -> Config {
    let config = Config::new(a).with_b_dtype(b).with_output(d).with_precision(precision);
    config.with_epilogue(epilogue)
}

/// The types of a product in a few letters: `bf16 -> f32`, `e4m3*e5m2 -> bf16`.
pub fn types(config: &Config) -> String {
    let ([a, b], d) = (config.operands(), config.output_dtype());
    if a == b { format!("{a} -> {d}") } else { format!("{a}*{b} -> {d}") }
}

/// The requested precision, or that of the named kernel.
pub fn precision(requested: Option<Precision>, spec: Option<&Spec>) -> Option<Precision> {
    requested.or_else(|| spec.map(Precision::of))
}

/// The types of A and B of the problems that a named kernel computes.
pub fn operands_of(spec: &Spec) -> [Dtype; 2] {
    Choice::plain(*spec).operands()
}

/// The major of A.
pub fn a_major(text: &str) -> Result<Major, String> {
    match text {
        "k" => Ok(Major::K),
        "m" => Ok(Major::M),
        _ => Err(format!("'{text}' is not a major of A: k (row-major) or m (column-major)")),
    }
}

/// The major of B.
pub fn b_major(text: &str) -> Result<Major, String> {
    match text {
        "k" => Ok(Major::K),
        "n" => Ok(Major::N),
        _ => Err(format!("'{text}' is not a major of B: k (column-major) or n (row-major)")),
    }
}

/// The major of C and D.
pub fn d_major(text: &str) -> Result<Major, String> {
    match text {
        "n" => Ok(Major::N),
        "m" => Ok(Major::M),
        _ => Err(format!("'{text}' is not a major of D: n (row-major) or m (column-major)")),
    }
}

/// The layouts of a problem's matrices as a short text. A row-major D is not mentioned.
pub fn majors(problem: &Problem) -> String {
    let operands = format!("A {}-major, B {}-major", problem.a.major, problem.b.major);
    if problem.d_major == Major::M { format!("{operands}, D m-major") } else { operands }
}

/// Element types of the problems that are measured.
#[derive(Args, Clone, Debug)]
pub struct Types {
    /// Element type of A: bf16, f16, tf32, f32, e4m3, e5m2, s8, u8 or f64.
    #[arg(long, value_name = "TYPE", value_parser = dtype, default_value = "bf16")]
    dtype: Dtype,
    /// Element type of B [default: that of A].
    #[arg(long, value_name = "TYPE", value_parser = dtype)]
    b_dtype: Option<Dtype>,
    /// Element type of C and D [default: that of A and B; f32 for tf32, bf16 for e4m3 and e5m2, s32
    /// for s8 and u8].
    #[arg(long, value_name = "TYPE", value_parser = dtype)]
    output_dtype: Option<Dtype>,
    /// How 8-bit floats are added up: full, or fast (by the tensor core all along k); f16: full, or
    /// in f16; f32: exact, or split into terms for the tensor cores: tf32x3, f16x3, bf16x6 or
    /// bf16x9 [default: full].
    #[arg(long, value_name = "PRECISION")]
    precision: Option<Precision>,
}

impl Types {
    /// The types of A, B and D. Without a requested precision, the named kernel's is taken.
    pub fn elements(&self, spec: Option<&Spec>) -> Elements {
        let precision = precision(self.precision, spec);
        elements(self.dtype, self.b_dtype, self.output_dtype, precision)
    }
}

/// The layouts of problems that are given as sizes.
#[derive(Args, Clone, Debug)]
pub struct Majors {
    /// Contiguous dimension of A: k or m.
    #[arg(long, value_name = "MAJOR", value_parser = a_major, default_value = "k")]
    a_major: Major,
    /// Contiguous dimension of B: k or n.
    #[arg(long, value_name = "MAJOR", value_parser = b_major, default_value = "k")]
    b_major: Major,
    /// Contiguous dimension of C and D: n (row-major) or m (column-major).
    #[arg(long, value_name = "MAJOR", value_parser = d_major, default_value = "n")]
    d_major: Major,
    /// Products of each problem that is given without a number of its own.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    batch: usize,
    #[command(flatten)]
    strides: Strides,
}

impl Majors {
    /// The problem of this size, without padding between lines.
    pub fn problem(&self, size: Size) -> Problem {
        let [m, n, k] = size.extents;
        let problem = Problem::new(m, n, k, self.a_major, self.b_major).with_d_major(self.d_major);
        self.strides.batch(problem, size.batch.unwrap_or(self.batch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes("2GiB"), Ok(2 << 30));
        assert_eq!(bytes("512 MiB"), Ok(512 << 20));
        assert_eq!(bytes("4096"), Ok(4096));
        assert!(bytes("2GB").unwrap_err().contains("write 512MiB"));
        assert!(bytes("99999999999GiB").is_err());
    }

    #[test]
    fn types_that_are_left_out_follow_from_those_that_are_given() {
        for (a, b, output, expected) in [
            ("bf16", None, None, "bf16 -> bf16"),
            ("f16", None, Some("f32"), "f16 -> f32"),
            ("tf32", None, None, "tf32 -> f32"),
            ("e4m3", Some("e5m2"), None, "e4m3*e5m2 -> bf16"),
            ("e5m2", Some("e5m2"), Some("f16"), "e5m2 -> f16"),
            ("u8", Some("s8"), None, "u8*s8 -> s32"),
        ] {
            let named = |name: &str| dtype(name).unwrap();
            let elements = elements(named(a), b.map(named), output.map(named), None);
            assert_eq!(types(&config(elements)), expected);
        }
        // The kernel computes the transpose, so its first operand is B.
        let spec: Spec = "e4m3_e5m2-kkm-bf16-64x16x128-s5-w1-c1x1".parse().unwrap();
        assert_eq!(operands_of(&spec), [Dtype::E5m2, Dtype::E4m3]);
    }
}
