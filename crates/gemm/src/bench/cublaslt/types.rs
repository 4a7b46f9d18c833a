//! Which combinations of element types cuBLASLt is asked for, and alpha and beta in the type that it computes in.

use std::ffi::{c_int, c_void};

use pgemm_ir::Element;

use super::library::{compute_type, data_type};
use crate::bench::BenchError;
use crate::bench::operands::Elements;
use crate::problem::Problem;

/// The library's names for a combination of element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types {
    pub(super) a: c_int,
    pub(super) b: c_int,
    pub(super) d: c_int,
    pub(super) compute: c_int,
    pub(super) scale: Scale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    F32,
    F64,
    S32,
}

impl Types {
    pub(super) fn of(elements: Elements) -> Result<Types, BenchError> {
        use Element::{Bf16, E4m3, E5m2, F16, F32, F64, S8, S32, Tf32};
        let Elements { a, b, d, .. } = elements;
        let (compute, scale) = match (a, b, d) {
            (F16, F16, F16 | F32) | (Bf16, Bf16, Bf16 | F32) | (F32, F32, F32) => {
                (compute_type::F32, Scale::F32)
            }
            (E4m3, E4m3 | E5m2, Bf16 | F16 | F32) | (E5m2, E4m3, Bf16 | F16 | F32) => {
                (compute_type::F32, Scale::F32)
            }
            (Tf32, Tf32, F32) => (compute_type::F32_FAST_TF32, Scale::F32),
            (F64, F64, F64) => (compute_type::F64, Scale::F64),
            (S8, S8, S32) => (compute_type::I32, Scale::S32),
            _ => return Err(BenchError::CublasLtTypes { a, b, d }),
        };
        let name = |element| data_type_of(element).ok_or(BenchError::CublasLtTypes { a, b, d });
        Ok(Types { a: name(a)?, b: name(b)?, d: name(d)?, compute, scale })
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

/// alpha and beta in the scale type, kept where the library reads them at each launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalars {
    F32([f32; 2]),
    F64([f64; 2]),
    S32([i32; 2]),
}

impl Scale {
    pub(super) fn data_type(self) -> c_int {
        match self {
            Scale::F32 => data_type::R_32F,
            Scale::F64 => data_type::R_64F,
            Scale::S32 => data_type::R_32I,
        }
    }

    pub(super) fn scalars(self, problem: &Problem) -> Result<Scalars, BenchError> {
        let (alpha, beta) = (problem.alpha, problem.beta);
        Ok(match self {
            Scale::F32 => Scalars::F32([alpha as f32, beta as f32]),
            Scale::F64 => Scalars::F64([alpha, beta]),
            Scale::S32 => Scalars::S32([integer("alpha", alpha)?, integer("beta", beta)?]),
        })
    }
}

impl Scalars {
    pub(super) fn pointers(&self) -> (*const c_void, *const c_void) {
        match self {
            Scalars::F32([alpha, beta]) => ((&raw const *alpha).cast(), (&raw const *beta).cast()),
            Scalars::F64([alpha, beta]) => ((&raw const *alpha).cast(), (&raw const *beta).cast()),
            Scalars::S32([alpha, beta]) => ((&raw const *alpha).cast(), (&raw const *beta).cast()),
        }
    }
}

fn integer(scalar: &'static str, value: f64) -> Result<i32, BenchError> {
    let fits = value.fract() == 0.0 && (-2_147_483_648.0..2_147_483_648.0).contains(&value);
    if fits { Ok(value as i32) } else { Err(BenchError::CublasLtScalar { scalar, value }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Major;

    fn elements(a: Element, b: Element, d: Element) -> Elements {
        Elements { b, ..Elements::new(a, d) }
    }

    #[test]
    fn types_map_to_compute_types() {
        let types = Types::of(elements(Element::Bf16, Element::Bf16, Element::F32)).unwrap();
        assert_eq!((types.a, types.d), (data_type::R_16BF, data_type::R_32F));
        assert_eq!((types.compute, types.scale), (compute_type::F32, Scale::F32));
        let types = Types::of(elements(Element::F32, Element::F32, Element::F32)).unwrap();
        assert_eq!((types.a, types.compute), (data_type::R_32F, compute_type::F32));
        let types = Types::of(elements(Element::Tf32, Element::Tf32, Element::F32)).unwrap();
        assert_eq!((types.a, types.compute), (data_type::R_32F, compute_type::F32_FAST_TF32));
        for (a, b, d) in [
            (Element::Bf16, Element::F16, Element::Bf16),
            (Element::U8, Element::U8, Element::S32),
            (Element::E5m2, Element::E5m2, Element::F16),
        ] {
            assert!(matches!(Types::of(elements(a, b, d)), Err(BenchError::CublasLtTypes { .. })));
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
