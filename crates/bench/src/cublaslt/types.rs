//! The combinations of element types that cuBLASLt offers, and alpha and beta in the type that it
//! computes in.

use std::ffi::{c_int, c_void};

use half::f16;
use persistent_gemm::measure::Elements;
use pgemm_ir::Element;
use pgemm_plan::{Precision, Problem};

use super::library::{compute_type, data_type};
use crate::error::BenchError;

/// The library's names for a combination of element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types {
    pub(super) a: c_int,
    pub(super) b: c_int,
    pub(super) c: c_int,
    pub(super) d: c_int,
    pub(super) compute: c_int,
    pub(super) scale: Scale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    F16,
    F32,
    F64,
    S32,
}

/// The results that the library offers for operands with limited support (NVIDIA, cuBLAS
/// documentation, "cublasLtMatmul").
const OF_F16_SUMS: &str = "where it adds up in f16, its D is f16: use that or another precision";
const OF_FLOAT8: &str = "of e4m3 × e4m3 it gives f16, bf16, f32 and e4m3, of e4m3 × e5m2 and e5m2 \
    × e4m3 e5m2 as well, of e5m2 × e5m2 nothing";
const OF_FLOAT8_C: &str =
    "where its D is an 8-bit float, its C is bf16 or f16, and here C has D's type: use beta = 0";
const OF_INTEGERS: &str = "of s8 × s8 it gives s32, s8 and f32, of u8 nothing";
const OF_OTHERS: &str = "use f16, bf16, f32, tf32, f64, 8-bit floats or s8 operands";

impl Types {
    /// The types of a product, with a C if `adds_c` is set.
    pub(super) fn of(elements: Elements, adds_c: bool) -> Result<Types, BenchError> {
        use Element::{Bf16, E4m3, E5m2, F16, F32, F64, S8, S32, Tf32, U8};
        let Elements { a, b, d, precision, .. } = elements;
        let refused = |limit| BenchError::CublasLtTypes { a, b, d, limit };
        let (compute, scale) = match (a, b, d) {
            (F16, F16, F16) if precision == Precision::F16 => (compute_type::F16, Scale::F16),
            _ if precision == Precision::F16 => return Err(refused(OF_F16_SUMS)),
            (F16, F16, F16 | F32) | (Bf16, Bf16, Bf16 | F32) | (F32, F32, F32) => {
                (compute_type::F32, Scale::F32)
            }
            (E4m3, E4m3 | E5m2, Bf16 | F16 | F32) | (E5m2, E4m3, Bf16 | F16 | F32) => {
                (compute_type::F32, Scale::F32)
            }
            (E4m3, E4m3, E4m3) | (E4m3, E5m2, E4m3 | E5m2) | (E5m2, E4m3, E4m3 | E5m2) => {
                if adds_c {
                    return Err(refused(OF_FLOAT8_C));
                }
                (compute_type::F32, Scale::F32)
            }
            (E4m3 | E5m2, ..) => return Err(refused(OF_FLOAT8)),
            (Tf32, Tf32, F32) => (compute_type::F32_FAST_TF32, Scale::F32),
            (F64, F64, F64) => (compute_type::F64, Scale::F64),
            (S8, S8, S32) => (compute_type::I32, Scale::S32),
            (S8, S8, S8) => (compute_type::I32, Scale::F32),
            (S8, S8, F32) => (compute_type::F32, Scale::F32),
            (S8 | U8, ..) => return Err(refused(OF_INTEGERS)),
            _ => return Err(refused(OF_OTHERS)),
        };
        let name = |element| data_type_of(element).ok_or(refused(OF_OTHERS));
        // Not read where it is of another type than D.
        let c = if matches!(d, E4m3 | E5m2) { Bf16 } else { d };
        Ok(Types { a: name(a)?, b: name(b)?, c: name(c)?, d: name(d)?, compute, scale })
    }
}

fn data_type_of(element: Element) -> Option<c_int> {
    Some(match element {
        Element::F16 => data_type::R_16F,
        Element::Bf16 => data_type::R_16BF,
        Element::F32 | Element::Tf32 => data_type::R_32F,
        Element::F64 => data_type::R_64F,
        Element::E4m3 => data_type::R_8F_E4M3,
        Element::E5m2 => data_type::R_8F_E5M2,
        Element::S8 => data_type::R_8I,
        Element::S32 => data_type::R_32I,
        Element::U8 => return None,
    })
}

/// alpha and beta in the scale type. The library reads them here at each launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalars {
    F16([f16; 2]),
    F32([f32; 2]),
    F64([f64; 2]),
    S32([i32; 2]),
}

impl Scale {
    pub(super) fn data_type(self) -> c_int {
        match self {
            Scale::F16 => data_type::R_16F,
            Scale::F32 => data_type::R_32F,
            Scale::F64 => data_type::R_64F,
            Scale::S32 => data_type::R_32I,
        }
    }

    pub(super) fn scalars(self, problem: &Problem) -> Result<Scalars, BenchError> {
        let (alpha, beta) = (problem.alpha, problem.beta);
        Ok(match self {
            Scale::F16 => Scalars::F16([half("alpha", alpha)?, half("beta", beta)?]),
            Scale::F32 => Scalars::F32([alpha as f32, beta as f32]),
            Scale::F64 => Scalars::F64([alpha, beta]),
            Scale::S32 => Scalars::S32([integer("alpha", alpha)?, integer("beta", beta)?]),
        })
    }
}

impl Scalars {
    pub(super) fn pointers(&self) -> (*const c_void, *const c_void) {
        match self {
            Scalars::F16([alpha, beta]) => ((&raw const *alpha).cast(), (&raw const *beta).cast()),
            Scalars::F32([alpha, beta]) => ((&raw const *alpha).cast(), (&raw const *beta).cast()),
            Scalars::F64([alpha, beta]) => ((&raw const *alpha).cast(), (&raw const *beta).cast()),
            Scalars::S32([alpha, beta]) => ((&raw const *alpha).cast(), (&raw const *beta).cast()),
        }
    }
}

fn integer(scalar: &'static str, value: f64) -> Result<i32, BenchError> {
    let fits = value.fract() == 0.0 && (-2_147_483_648.0..2_147_483_648.0).contains(&value);
    let wanted = "an integer of 32 bits";
    if fits { Ok(value as i32) } else { Err(BenchError::CublasLtScalar { scalar, value, wanted }) }
}

fn half(scalar: &'static str, value: f64) -> Result<f16, BenchError> {
    let half = f16::from_f64(value);
    let same = half.to_f64() == value || value.is_nan();
    if same {
        Ok(half)
    } else {
        Err(BenchError::CublasLtScalar { scalar, value, wanted: "an f16" })
    }
}

#[cfg(test)]
mod tests {
    use pgemm_plan::Major;

    use super::*;

    fn elements(a: Element, b: Element, d: Element) -> Elements {
        Elements { b, ..Elements::new(a, d) }
    }

    #[test]
    fn types_map_to_compute_types() {
        let of = |a, b, d| Types::of(elements(a, b, d), false);
        let types = of(Element::Bf16, Element::Bf16, Element::F32).unwrap();
        assert_eq!((types.a, types.d), (data_type::R_16BF, data_type::R_32F));
        assert_eq!((types.compute, types.scale), (compute_type::F32, Scale::F32));
        let types = of(Element::F32, Element::F32, Element::F32).unwrap();
        assert_eq!((types.a, types.compute), (data_type::R_32F, compute_type::F32));
        let types = of(Element::Tf32, Element::Tf32, Element::F32).unwrap();
        assert_eq!((types.a, types.compute), (data_type::R_32F, compute_type::F32_FAST_TF32));
        let types = of(Element::S8, Element::S8, Element::S8).unwrap();
        assert_eq!((types.compute, types.scale), (compute_type::I32, Scale::F32));
        let types = of(Element::E4m3, Element::E5m2, Element::E5m2).unwrap();
        assert_eq!((types.c, types.d), (data_type::R_16BF, data_type::R_8F_E5M2));
        for (a, b, d, limit) in [
            (Element::Bf16, Element::F16, Element::Bf16, "use f16"),
            (Element::U8, Element::U8, Element::S32, "of u8 nothing"),
            (Element::S8, Element::S8, Element::Bf16, "s32, s8 and f32"),
            (Element::E5m2, Element::E5m2, Element::F16, "of e5m2 × e5m2 nothing"),
            (Element::E4m3, Element::E4m3, Element::E5m2, "f32 and e4m3"),
        ] {
            let error = of(a, b, d).unwrap_err();
            assert!(matches!(error, BenchError::CublasLtTypes { .. }), "{error}");
            assert!(error.to_string().contains(limit), "{error}");
        }
        let error = Types::of(elements(Element::E4m3, Element::E4m3, Element::E4m3), true);
        assert!(error.unwrap_err().to_string().contains("use beta = 0"));
    }

    #[test]
    fn sums_in_f16_take_scalars_and_a_d_of_f16() {
        let of = |d| {
            let elements = Elements::new(Element::F16, d);
            Types::of(Elements { precision: Precision::F16, ..elements }, true)
        };
        let types = of(Element::F16).unwrap();
        assert_eq!((types.compute, types.scale), (compute_type::F16, Scale::F16));
        assert_eq!(types.scale.data_type(), types.d);
        assert!(of(Element::F32).unwrap_err().to_string().contains("its D is f16"));
        let problem = Problem::new(1, 1, 1, Major::K, Major::K);
        let scaled = |alpha| Scale::F16.scalars(&problem.with_alpha(alpha));
        assert_eq!(scaled(-0.5).unwrap(), Scalars::F16([f16::from_f64(-0.5), f16::ZERO]));
        for alpha in [0.1, 1e6] {
            assert!(matches!(scaled(alpha), Err(BenchError::CublasLtScalar { .. })), "{alpha}");
        }
    }

    #[test]
    fn integer_products_take_integer_scalars() {
        let problem = Problem::new(1, 1, 1, Major::K, Major::K);
        let scaled = |alpha| Scale::S32.scalars(&problem.with_alpha(alpha));
        assert_eq!(scaled(-3.0).unwrap(), Scalars::S32([-3, 0]));
        for alpha in [0.5, f64::NAN, f64::INFINITY, 2_147_483_648.0] {
            assert!(matches!(scaled(alpha), Err(BenchError::CublasLtScalar { .. })), "{alpha}");
        }
    }
}
