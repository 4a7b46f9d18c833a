//! [`Accumulation`]: how products are added up, and the resulting error bound.

use pgemm_ir::Element;
use pgemm_kernels::{Spec, Terms, WgmmaSpec};
use pgemm_plan::Precision;
use serde::{Deserialize, Serialize};

use super::NumericsError;
use super::format::Format;

/// How the products are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Accumulation {
    /// Every addition or fused multiply-add rounds to the nearest binary32, as on CPUs and CUDA
    /// cores. With f64, every multiplication and addition rounds to the nearest binary64, as on all
    /// processors.
    Nearest,
    /// Blocks are aligned and truncated to binary32: Hopper's tensor cores with 16-bit and tf32
    /// inputs.
    TensorCore,
    /// Blocks are aligned and truncated to 13 bits of fraction, as by Hopper's tensor cores for all
    /// 8-bit floats.
    TensorCore8,
    /// The same for products whose signs are independent of each other, as random matrices have
    /// them. No worst case.
    TensorCore8Random,
    /// Every addition is off by a unit in the last place of f16 at most, and sums overflow as f16
    /// does: Hopper's tensor cores with sums in f16.
    TensorCore16,
    /// The same for products whose signs are independent of each other. No worst case.
    TensorCore16Random,
    /// Groups of this number of products are summed as by [`TensorCore`](Self::TensorCore). The
    /// group sums are added to the nearest binary32.
    Promoted(u32),
    /// Groups of this number of products are summed as by [`TensorCore8`](Self::TensorCore8). The
    /// group sums are added to the nearest binary32.
    Promoted8(u32),
    /// The same for products whose signs are independent of each other. No worst case.
    Promoted8Random(u32),
    /// Products of binary32 are computed from shorter terms, by a precision that does so.
    Emulated(Precision),
}

impl Accumulation {
    /// The accumulation of Hopper's tensor cores for inputs of this type and any values. For f32 it
    /// is that of its CUDA cores.
    pub fn on_tensor_cores(input: Element) -> Accumulation {
        match input {
            input if input.is_float8() => Accumulation::TensorCore8,
            Element::F32 | Element::F64 => Accumulation::Nearest,
            _ => Accumulation::TensorCore,
        }
    }

    /// The accumulation of a kernel, for inputs of any values.
    pub fn of(spec: &Spec) -> Accumulation {
        let precision = Precision::of(spec);
        let promotion = spec.wgmma().and_then(WgmmaSpec::promotion);
        match (promotion, Accumulation::on_tensor_cores(spec.a)) {
            _ if precision.terms().is_some() => Accumulation::Emulated(precision),
            _ if precision == Precision::F16 => Accumulation::TensorCore16,
            (Some(interval), Accumulation::TensorCore8) => Accumulation::Promoted8(interval),
            (Some(interval), _) => Accumulation::Promoted(interval),
            (None, accumulation) => accumulation,
        }
    }

    /// The same accumulation with a bound for all values instead of a statistical one.
    pub fn of_any_values(self) -> Accumulation {
        match self {
            Accumulation::TensorCore8Random => Accumulation::TensorCore8,
            Accumulation::TensorCore16Random => Accumulation::TensorCore16,
            Accumulation::Promoted8Random(interval) => Accumulation::Promoted8(interval),
            same => same,
        }
    }

    /// The same for products whose signs are independent of each other, as random matrices have
    /// them.
    pub fn of_random_signs(self) -> Accumulation {
        match self {
            Accumulation::TensorCore8 => Accumulation::TensorCore8Random,
            Accumulation::TensorCore16 => Accumulation::TensorCore16Random,
            Accumulation::Promoted8(interval) => Accumulation::Promoted8Random(interval),
            other => other,
        }
    }

    /// The largest error of a sum of `k` products, of doubles or not: parts of its own magnitude,
    /// and of the sum of all magnitudes.
    pub(super) fn factors(self, k: usize, doubles: bool) -> Result<(f64, f64), NumericsError> {
        let count = k as f64;
        let added_up = |count: f64, unit: f64| match count * unit > 0.5 {
            true => Err(NumericsError::DepthTooLarge { k }),
            false => Ok(gamma(count, unit)),
        };
        // Errors of the group sums, and of the sum of groups. The latter is relative to the
        // former's magnitude.
        let promoted = |group: f64, interval: u32| {
            let groups = (count / f64::from(interval.max(1))).ceil();
            Ok((0.0, group + (1.0 + group) * added_up(groups, NEAREST)?))
        };
        let in_group = |interval: u32| count.min(f64::from(interval));
        let random = |unit: f64, worst: f64| {
            let roundings = (count / RANDOM_BLOCK + RANDOM_STEPS * count.sqrt()) * unit;
            let random = (roundings, roundings * RANDOM_SUM / count.sqrt().max(1.0));
            // Few products have no statistics.
            if random.0 + random.1 < worst { random } else { (0.0, worst) }
        };
        match self {
            Accumulation::Nearest if doubles => Ok((0.0, added_up(count, DOUBLE)?)),
            Accumulation::Nearest => Ok((0.0, added_up(count, NEAREST)?)),
            Accumulation::TensorCore => Ok((0.0, added_up(count, TRUNCATED)?)),
            Accumulation::Promoted(interval) => {
                promoted(added_up(in_group(interval), TRUNCATED)?, interval)
            }
            Accumulation::Emulated(precision) => {
                let Some((element, terms)) = precision.terms() else {
                    return Err(NumericsError::NoBound { input: Element::F32 });
                };
                let span = Terms::SPAN_BYTES / element.bytes();
                let products = in_group(span) * terms.products().len() as f64;
                let (_, sums) = promoted(added_up(products, TRUNCATED)?, span)?;
                // The sum of magnitudes of all products of terms, relative to the product of two
                // numbers.
                let unit = Format::of(element).unit_roundoff;
                let magnitudes = (1.0 - unit).powi(-4);
                Ok((0.0, sums * magnitudes))
            }
            // The limit of (1 + u)^k - 1, which holds for every k.
            Accumulation::TensorCore8 => Ok((0.0, (count * WORST_8).exp_m1())),
            Accumulation::Promoted8(interval) => {
                promoted((in_group(interval) * WORST_8).exp_m1(), interval)
            }
            Accumulation::Promoted8Random(interval) => {
                let group = in_group(interval);
                // The magnitude that a partial sum of a group reaches, relative to the sum of all
                // magnitudes.
                let partial = RANDOM_SUM * group.sqrt() / count.max(1.0);
                let groups = (count / group.max(1.0)).ceil();
                let steps = count.sqrt() + groups.sqrt() * (group / RANDOM_BLOCK).max(1.0);
                let (_, added) = promoted(0.0, interval)?;
                let random = RANDOM_STEPS * steps * UNIT_8 * partial + added;
                let (_, worst) = Accumulation::Promoted8(interval).factors(k, doubles)?;
                Ok((0.0, random.min(worst)))
            }
            Accumulation::TensorCore8Random => {
                let (_, worst) = Accumulation::TensorCore8.factors(k, doubles)?;
                Ok(random(UNIT_8, worst))
            }
            // Finite, so that a sum of zeros has no error.
            Accumulation::TensorCore16 => {
                Ok((0.0, (count * WORST_16).exp_m1().min(f64::MAX.sqrt())))
            }
            Accumulation::TensorCore16Random => {
                let (_, worst) = Accumulation::TensorCore16.factors(k, doubles)?;
                Ok(random(UNIT_16, worst))
            }
        }
    }
}

/// Unit roundoffs: of binary64, and of binary32 to nearest and truncated.
pub(super) const DOUBLE: f64 = 1.0 / (1u64 << 53) as f64;
pub(super) const NEAREST: f64 = 1.0 / (1u64 << 24) as f64;
pub(super) const TRUNCATED: f64 = 1.0 / (1u64 << 23) as f64;

/// For 8-bit floats on tensor cores: the last place kept, and the largest error per product.
pub(super) const UNIT_8: f64 = 1.0 / (1u64 << 13) as f64;
pub(super) const WORST_8: f64 = 1.0 / (1u64 << 12) as f64;

/// For sums in f16: the largest error of a truncation. The average error is half of it if sums are
/// truncated, and no more than half if they are rounded to nearest.
pub(super) const WORST_16: f64 = 1.0 / (1u64 << 10) as f64;
pub(super) const UNIT_16: f64 = 1.0 / (1u64 << 11) as f64;

/// Products of a block of which tensor cores truncate the sum, at least.
pub(super) const RANDOM_BLOCK: f64 = 16.0;

/// Number of standard deviations allowed for the random walk of rounding errors of products with
/// random signs.
pub(super) const RANDOM_STEPS: f64 = 4.0;

/// The magnitude that a partial sum of products with random signs reaches, in units of the sum of
/// their magnitudes divided by √k. For normal samples, whose products have a mean magnitude of 0.64
/// standard deviations, it is nearly four standard deviations.
pub(super) const RANDOM_SUM: f64 = 6.0;

/// `γₙ(u)`: the relative error that n roundings add up to.
pub(super) fn gamma(count: f64, unit_roundoff: f64) -> f64 {
    let product = count * unit_roundoff;
    product / (1.0 - product)
}
