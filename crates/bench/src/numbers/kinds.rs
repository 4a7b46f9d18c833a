//! The measured combinations of values, types and modes.

use persistent_gemm::HostMatrix;
use persistent_gemm::measure::Elements;
use pgemm_ir::Element;
use pgemm_plan::{Config, Precision, Split};
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// The values of A and B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Values {
    /// Samples of N(0, 1): signs cancel.
    Normal,
    /// Uniform in [0, 1): sums only grow.
    Uniform,
    /// Samples of N(0, 1) times powers of two from the type's range: few products make up a sum.
    Wide,
    /// Uniform over all integers of the type, −128 excepted.
    Integers,
}

impl Values {
    /// All kinds of values.
    pub const ALL: [Values; 4] = [Values::Normal, Values::Uniform, Values::Wide, Values::Integers];

    /// The name as users type it.
    pub const fn name(self) -> &'static str {
        match self {
            Values::Normal => "normal",
            Values::Uniform => "uniform",
            Values::Wide => "wide",
            Values::Integers => "integers",
        }
    }

    /// Whether matrices of this type hold such values.
    pub const fn suit(self, element: Element) -> bool {
        let integers = matches!(element, Element::S8 | Element::U8 | Element::S32);
        matches!(self, Values::Integers) == integers
    }

    /// Fills a matrix from the seed.
    pub(super) fn fill(self, matrix: &mut HostMatrix, seed: u64) -> Result<()> {
        match self {
            Values::Normal => matrix.fill_normal(seed),
            Values::Uniform => matrix.fill_uniform(seed, 0.0, 1.0)?,
            Values::Wide => matrix.fill_wide(seed, wide_exponents(matrix.dtype())),
            Values::Integers => matrix.fill_random(seed),
        }
        Ok(())
    }
}

/// Range of exponents of [`Values::Wide`]: about that of the type's normal numbers. If D may be
/// f16, sums of a million products must fit f16.
fn wide_exponents(element: Element) -> [f64; 2] {
    match element {
        Element::F16 | Element::E5m2 => [-14.0, 4.0],
        Element::E4m3 => [-6.0, 3.0],
        _ => [-20.0, 20.0],
    }
}

/// A setting that changes how products are added up.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// The name in tables.
    pub name: &'static str,
    configure: fn(Config) -> Config,
}

const WHOLE: Mode = Mode { name: "whole", configure: |config| config.with_split(Split::Whole) };
const FAST: Mode =
    Mode { name: "fast", configure: |config| config.with_precision(Precision::Fast) };
const IN_F16: Mode =
    Mode { name: "f16", configure: |config| config.with_precision(Precision::F16) };
const TF32X3: Mode =
    Mode { name: "tf32x3", configure: |config| config.with_precision(Precision::Tf32x3) };
const F16X3: Mode =
    Mode { name: "f16x3", configure: |config| config.with_precision(Precision::F16x3) };
const BF16X6: Mode =
    Mode { name: "bf16x6", configure: |config| config.with_precision(Precision::Bf16x6) };
const BF16X9: Mode =
    Mode { name: "bf16x9", configure: |config| config.with_precision(Precision::Bf16x9) };
const SPLIT_16: Mode =
    Mode { name: "split-16", configure: |config| config.with_split(Split::SplitK(16)) };

/// Types of A and B, with the types of D and the modes to measure.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Type of A.
    pub a: Element,
    /// Type of B.
    pub b: Element,
    /// Types of D, the widest first, because its rounding hides the least.
    pub outputs: &'static [Element],
    /// Modes that are measured too, with the first type of D.
    pub modes: &'static [Mode],
    /// Factor of the products.
    pub alpha: f64,
}

/// Every product that is measured: a new type or mode is a line here.
pub const KINDS: &[Kind] = {
    use Element::{Bf16, E4m3, E5m2, F16, F32, F64, S8, S32, Tf32, U8};
    const SPLITS: &[Mode] = &[WHOLE, SPLIT_16];
    const SPLITS_8: &[Mode] = &[FAST, WHOLE, SPLIT_16];
    const SPLITS_F16: &[Mode] = &[IN_F16, WHOLE, SPLIT_16];
    const TERMS: &[Mode] = &[TF32X3, F16X3, BF16X6, BF16X9];
    const FLOATS: &[Element] = &[F32, Bf16, F16, E5m2, E4m3];
    const SCALED: &[Element] = &[F32, F16, Bf16, S8];
    const fn kind(
        [a, b]: [Element; 2],
        outputs: &'static [Element],
        modes: &'static [Mode],
    ) -> Kind {
        Kind { a, b, outputs, modes, alpha: 1.0 }
    }
    // Some ten thousand products are in the range of most types of D.
    const fn scaled(operands: [Element; 2]) -> Kind {
        Kind { alpha: 1.0 / (1 << 14) as f64, ..kind(operands, SCALED, &[]) }
    }
    &[
        kind([Bf16, Bf16], &[F32, Bf16], SPLITS),
        kind([F16, F16], &[F32, F16], SPLITS_F16),
        kind([Tf32, Tf32], &[F32], SPLITS),
        kind([E4m3, E4m3], FLOATS, SPLITS_8),
        kind([E4m3, E5m2], FLOATS, &[]),
        kind([E5m2, E4m3], FLOATS, &[]),
        kind([E5m2, E5m2], FLOATS, SPLITS_8),
        kind([S8, S8], &[S32], &[]),
        scaled([S8, S8]),
        kind([S8, U8], &[S32], &[]),
        scaled([S8, U8]),
        kind([U8, S8], &[S32], &[]),
        scaled([U8, S8]),
        kind([U8, U8], &[S32], &[]),
        scaled([U8, U8]),
        kind([F32, F32], &[F32], TERMS),
        kind([F64, F64], &[F64], &[]),
    ]
};

impl Kind {
    /// The measured variants: each type of D with the planner's choice, then the modes.
    pub fn variants(&self) -> Vec<Variant> {
        let config = |d| Config::new(self.a).with_b_dtype(self.b).with_output(d);
        let planned = self.outputs.iter().map(|&d| Variant { config: config(d), mode: None });
        let widest = self.outputs.first().into_iter();
        let modes = widest.flat_map(|&d| self.modes.iter().map(move |mode| (d, mode)));
        let modes = modes
            .map(|(d, mode)| Variant { config: (mode.configure)(config(d)), mode: Some(*mode) });
        planned.chain(modes).collect()
    }
}

/// A product of certain types in a certain mode.
#[derive(Clone, Debug)]
pub struct Variant {
    config: Config,
    mode: Option<Mode>,
}

impl Variant {
    /// The mode, if one is requested.
    pub fn mode(&self) -> Option<Mode> {
        self.mode
    }

    /// The config.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The types of the variant.
    pub(super) fn elements(&self) -> Elements {
        let [a, b] = self.config.operands();
        Elements {
            b,
            precision: self.config.precision(),
            ..Elements::new(a, self.config.output_dtype())
        }
    }

    /// The contestant's name in tables.
    pub(super) fn name(&self) -> String {
        self.mode.map_or_else(|| "pgemm".to_owned(), |mode| format!("pgemm {}", mode.name))
    }
}

#[cfg(test)]
mod tests {
    use pgemm_plan::{Major, Plan, Problem};

    use super::*;

    /// The list contains exactly the types that the planner supports.
    #[test]
    fn every_product_that_is_planned_is_a_kind() {
        let problem = Problem::new(64, 64, 1024, Major::K, Major::K);
        for a in Element::ALL {
            for b in Element::ALL {
                for d in Element::ALL {
                    let listed = KINDS
                        .iter()
                        .any(|kind| (kind.a, kind.b) == (a, b) && kind.outputs.contains(&d));
                    let config = Config::new(a).with_b_dtype(b).with_output(d);
                    let planned = Plan::check_problem(&problem, &config).is_ok();
                    assert_eq!(listed, planned, "{a}*{b} -> {d}");
                }
            }
        }
        for variant in KINDS.iter().flat_map(Kind::variants) {
            let plan = Plan::candidates(&problem, variant.config(), 132).unwrap().swap_remove(0);
            let splits = variant.config.split.unwrap_or(plan.split);
            assert_eq!(plan.split, splits, "{variant:?}");
        }
    }
}
