//! [`Regime`]: what bounds the time of a problem on an ideal device.

use std::fmt;

use persistent_gemm::measure::{Elements, operand_bytes};
use pgemm_ir::Element;
use pgemm_plan::{PlanError, Precision, Problem};
use serde::{Deserialize, Serialize};

/// Bytes per second by which problems are labelled, about what an H200 reaches in large copies.
/// Only labels depend on these figures.
const BYTES_PER_SECOND: f64 = 4.3e12;

/// Seconds of a launch by which problems are labelled, about those of an empty kernel in a graph.
const LAUNCH_SECONDS: f64 = 0.6e-6;

/// A problem is bound by the launch if memory and tensor cores would need less than this many
/// launches.
const LAUNCHES: f64 = 5.0;

/// What bounds the time of a problem on an ideal device: the larger of two times, that of moving
/// each operand once and that of the arithmetic at the full rate, or the launch if both are short.
/// The figures are those of an H200, on every device, so that a problem's regime does not depend on
/// where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Regime {
    /// Less than 3 µs of work.
    Launch,
    /// Moving the operands takes longer than the arithmetic.
    Memory,
    /// The arithmetic takes longer than moving the operands.
    Compute,
}

/// Rates of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Bytes that are read or written per second.
    pub bytes_per_second: f64,
    /// Multiplications and additions per second.
    pub operations_per_second: f64,
}

/// The rates by which problems of these types are labelled.
pub fn nominal_rates(elements: Elements) -> Rates {
    let operations_per_second = operations_per_second(elements);
    Rates { bytes_per_second: BYTES_PER_SECOND, operations_per_second }
}

impl Regime {
    /// All regimes.
    pub const ALL: [Regime; 3] = [Regime::Launch, Regime::Memory, Regime::Compute];

    /// The regime of a problem.
    ///
    /// # Errors
    /// A leading dimension is too short or a span overflows.
    pub fn of(problem: &Problem, elements: Elements) -> Result<Regime, PlanError> {
        let (bytes, operations) = (operand_bytes(problem, elements)?, problem.operations()?);
        Ok(Regime::at(nominal_rates(elements), bytes as f64, operations as f64))
    }

    /// What bounds so many bytes and operations at these rates.
    pub fn at(rates: Rates, bytes: f64, operations: f64) -> Regime {
        let memory = bytes / rates.bytes_per_second;
        let compute = operations / rates.operations_per_second;
        if memory.max(compute) < LAUNCHES * LAUNCH_SECONDS {
            Regime::Launch
        } else if memory > compute {
            Regime::Memory
        } else {
            Regime::Compute
        }
    }

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Regime::Launch => "launch",
            Regime::Memory => "memory",
            Regime::Compute => "compute",
        }
    }
}

impl fmt::Display for Regime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Multiplications and additions per second by which problems are labelled, about what an H200
/// sustains on random data without loads. f32 is the data sheet's rate of fused multiply-adds.
fn operations_per_second(elements: Elements) -> f64 {
    let tera = match (elements.a, elements.precision.terms()) {
        (_, Some((element, terms))) => tensor_cores(element) / terms.products().len() as f64,
        (Element::F32, None) if elements.precision == Precision::Exact => 67.0,
        (element, None) => tensor_cores(element),
    };
    tera * 1e12
}

/// 10^12 operations per second of the tensor cores on operands of this type.
fn tensor_cores(element: Element) -> f64 {
    match element {
        Element::F64 => 66.0,
        Element::F32 => 67.0,
        Element::Tf32 => 435.0,
        Element::E4m3 | Element::E5m2 => 1641.0,
        Element::S8 | Element::U8 => 1824.0,
        _ => 839.0,
    }
}

#[cfg(test)]
mod tests {
    use pgemm_plan::Major;

    use super::*;

    #[test]
    fn a_problem_is_bound_by_what_takes_longest() {
        let regime = |element: Element, [m, n, k]: [usize; 3]| {
            let problem = Problem::new(m, n, k, Major::K, Major::K);
            Regime::of(&problem, Elements::new(element, element)).unwrap()
        };
        assert_eq!(regime(Element::Bf16, [4096; 3]), Regime::Compute);
        assert_eq!(regime(Element::Bf16, [16, 8192, 8192]), Regime::Memory);
        assert_eq!(regime(Element::Bf16, [256; 3]), Regime::Launch);
        // 128 rows are enough arithmetic for f64, and not for 8-bit floats.
        assert_eq!(regime(Element::F64, [128, 4096, 4096]), Regime::Compute);
        assert_eq!(regime(Element::E4m3, [128, 4096, 4096]), Regime::Memory);
        // Three products of terms take three times as long.
        let problem = Problem::new(280, 8192, 8192, Major::K, Major::K);
        let of = |precision| {
            let elements = Elements::new(Element::F32, Element::F32);
            Regime::of(&problem, Elements { precision, ..elements }).unwrap()
        };
        assert_eq!(of(Precision::Tf32x3), Regime::Compute);
    }
}
