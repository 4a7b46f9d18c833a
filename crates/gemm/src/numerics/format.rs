//! The rounding behaviour of each element type.

use pgemm_ir::Element;

/// The rounding properties of an element type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    /// Largest relative error of rounding to nearest a normal number.
    pub(super) unit_roundoff: f64,
    /// Distance of neighbours around zero.
    pub(super) smallest: f64,
    /// The largest finite value.
    pub(super) largest: f64,
}

impl Format {
    pub(super) fn of(element: Element) -> Format {
        // Significant bits, exponent of the smallest positive value, exponent of the largest power
        // of two.
        let (bits, smallest, top) = match element {
            Element::F16 => (11, -24, 15),
            Element::Bf16 => (8, -133, 127),
            Element::F32 => (24, -149, 127),
            Element::Tf32 => (11, -136, 127),
            Element::F64 => (53, -1074, 1023),
            Element::E4m3 => (4, -9, 8),
            Element::E5m2 => (3, -16, 15),
            Element::S8 => (8, 0, 6),
            Element::U8 => (8, 0, 7),
            Element::S32 => (32, 0, 30),
        };
        let unit_roundoff = 2f64.powi(-bits);
        let largest = match element {
            // All ones is NaN, which takes the last significand of the top binade.
            Element::E4m3 => 448.0,
            Element::S8 => 127.0,
            Element::S32 => f64::from(i32::MAX),
            _ => (1.0 - unit_roundoff) * 2f64.powi(top) * 2.0,
        };
        Format { unit_roundoff, smallest: 2f64.powi(smallest), largest }
    }

    /// Half the distance of neighbours around zero: the largest error of rounding a subnormal
    /// number.
    pub(super) fn half_smallest(self) -> f64 {
        self.smallest / 2.0
    }

    /// The least and the largest value of a saturating element type. `None` if the type overflows
    /// or wraps.
    pub(super) fn saturation(element: Element) -> Option<[f64; 2]> {
        let largest = Format::of(element).largest;
        match element {
            element if element.is_float8() => Some([-largest, largest]),
            Element::S8 => Some([-128.0, largest]),
            Element::U8 => Some([0.0, largest]),
            _ => None,
        }
    }

    /// The least value that rounds to infinity: half a unit in the last place beyond the largest
    /// finite value.
    pub(super) fn overflow_threshold(self) -> f64 {
        self.largest / (1.0 - self.unit_roundoff) * (1.0 - self.unit_roundoff / 2.0)
    }

    /// Whether every value of this type is a value of `other`.
    pub(super) fn fits(self, other: Format) -> bool {
        self.unit_roundoff >= other.unit_roundoff
            && self.smallest >= other.smallest
            && self.largest <= other.largest
    }
}

#[cfg(test)]
mod tests {
    use pgemm_plan::MatrixLayout;

    use super::*;
    use crate::matrix::HostMatrix;

    fn rounded(element: Element, value: f64) -> f64 {
        HostMatrix::from_f64(MatrixLayout::row_major(1, 1), element, &[value])
            .unwrap()
            .get(0, 0)
            .unwrap()
    }

    #[test]
    fn formats_are_those_of_the_conversions() {
        for element in Element::ALL {
            let format = Format::of(element);
            assert_eq!(rounded(element, format.largest), format.largest, "{element}");
            assert_eq!(rounded(element, format.smallest), format.smallest, "{element}");
            if element == Element::F64 {
                continue;
            }
            assert_eq!(rounded(element, format.smallest * 0.49), 0.0, "{element}");
            if !matches!(element, Element::S8 | Element::U8 | Element::S32) {
                let u = format.unit_roundoff;
                assert_eq!(rounded(element, 1.0 + u), 1.0, "{element}");
                assert_eq!(rounded(element, 1.0 + 1.01 * u), 1.0 + 2.0 * u, "{element}");
            }
            if let Some(ends) = Format::saturation(element) {
                assert_eq!([-1e9, 1e9].map(|value| rounded(element, value)), ends, "{element}");
            }
            if matches!(element, Element::F16 | Element::Bf16 | Element::F32) {
                let threshold = format.overflow_threshold();
                assert_eq!(rounded(element, threshold), f64::INFINITY, "{element}");
                assert_eq!(rounded(element, threshold.next_down()), format.largest, "{element}");
            }
        }
    }

    #[test]
    fn widening_is_exact() {
        let fits = |from, to| Format::of(from).fits(Format::of(to));
        for (from, to) in [
            (Element::Bf16, Element::F32),
            (Element::F16, Element::F32),
            (Element::E4m3, Element::F16),
            (Element::E5m2, Element::F16),
            (Element::U8, Element::Bf16),
            (Element::S8, Element::F16),
        ] {
            assert!(fits(from, to), "{from} {to}");
        }
        for (from, to) in [
            (Element::F16, Element::Bf16),
            (Element::Bf16, Element::F16),
            (Element::F32, Element::Tf32),
            (Element::S32, Element::F32),
        ] {
            assert!(!fits(from, to), "{from} {to}");
        }
    }
}
