//! Element types: their names in Python's libraries, and those of a product.

use pgemm::{Config, Dtype, Precision};
use pyo3::prelude::*;

use crate::errors::Failure;

/// The type that other libraries call so.
fn of_other_name(name: &str) -> Option<Dtype> {
    Some(match name {
        "float16" | "half" | "fp16" => Dtype::F16,
        "bfloat16" => Dtype::Bf16,
        "float32" | "float" | "single" | "fp32" => Dtype::F32,
        "float64" | "double" | "fp64" => Dtype::F64,
        "float8_e4m3fn" => Dtype::E4m3,
        "float8_e5m2" => Dtype::E5m2,
        "int8" => Dtype::S8,
        "uint8" => Dtype::U8,
        "int32" => Dtype::S32,
        _ => return None,
    })
}

/// The type that numpy, with ml_dtypes, has for elements of this one.
pub fn numpy_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F16 => "float16",
        Dtype::Bf16 => "bfloat16",
        Dtype::F32 | Dtype::Tf32 => "float32",
        Dtype::F64 => "float64",
        Dtype::E4m3 => "float8_e4m3fn",
        Dtype::E5m2 => "float8_e5m2",
        Dtype::S8 => "int8",
        Dtype::U8 => "uint8",
        Dtype::S32 => "int32",
    }
}

/// A type by the library's name or by that of others.
///
/// # Errors
/// There is none of that name.
pub fn named(name: &str) -> Result<Dtype, Failure> {
    let unknown = |error: <Dtype as std::str::FromStr>::Err| Failure::dtype(error.to_string());
    of_other_name(name).map_or_else(|| name.parse().map_err(unknown), Ok)
}

/// A type given as text, or as torch's, numpy's or others' object for it.
///
/// # Errors
/// It stands for no type that is multiplied.
pub fn given(requested: &Bound<'_, PyAny>) -> Result<Dtype, Failure> {
    if let Ok(text) = requested.extract::<String>() {
        return named(&text);
    }
    for attribute in ["name", "__name__"] {
        if let Ok(name) = requested.getattr(attribute).and_then(|name| name.extract::<String>()) {
            return named(&name);
        }
    }
    let text = requested.str()?.to_string();
    named(text.strip_prefix("torch.").unwrap_or(&text))
}

/// The types of a product, and how accurately it is added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Types {
    /// Of A.
    pub a: Dtype,
    /// Of B.
    pub b: Dtype,
    /// Of C and D.
    pub d: Dtype,
    /// `None` for the default.
    pub precision: Option<Precision>,
}

/// What is asked for besides the arrays' own types.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requested {
    /// Of the operands, where their library has no such type.
    pub dtype: Option<Dtype>,
    /// Of the result.
    pub out_dtype: Option<Dtype>,
    /// How accurately.
    pub precision: Option<Precision>,
}

impl Requested {
    /// What three keywords say. A precision of tf32 is that type.
    ///
    /// # Errors
    /// A word that stands for nothing.
    pub fn new(
        dtype: Option<&Bound<'_, PyAny>>,
        precision: Option<&str>,
        out_dtype: Option<&Bound<'_, PyAny>>,
    ) -> Result<Requested, Failure> {
        let mut requested = Requested {
            dtype: dtype.map(given).transpose()?,
            out_dtype: out_dtype.map(given).transpose()?,
            precision: None,
        };
        match precision {
            None => {}
            Some("tf32") if matches!(requested.dtype, None | Some(Dtype::F32 | Dtype::Tf32)) => {
                requested.dtype = Some(Dtype::Tf32);
            }
            Some(text) => requested.precision = Some(text.parse().map_err(Failure::argument)?),
        }
        Ok(requested)
    }

    /// The types of a product of arrays of these, into one that is given or to be made.
    ///
    /// # Errors
    /// The arrays' elements are not of the type that is asked for.
    pub fn types(&self, a: Dtype, b: Dtype, out: Option<Dtype>) -> Result<Types, Failure> {
        let operand = |name: &str, found: Dtype| match self.dtype {
            None => Ok(found),
            Some(requested) if holds(found, requested) => Ok(requested),
            Some(requested) => Err(Failure::dtype(format!(
                "dtype is {requested}, and {name} holds {found}: convert it, or leave dtype out"
            ))),
        };
        let (a, b) = (operand("a", a)?, operand("b", b)?);
        let d = match (out, self.out_dtype) {
            (Some(found), None) => found,
            (Some(found), Some(requested)) if holds(found, requested) => requested,
            (Some(found), Some(requested)) => {
                return Err(Failure::dtype(format!(
                    "out_dtype is {requested}, and out holds {found}: give another out, or leave \
                     out_dtype out"
                )));
            }
            (None, Some(requested)) => requested,
            (None, None) => Config::new(a).output_dtype(),
        };
        Ok(Types { a, b, d, precision: self.precision })
    }
}

impl Types {
    /// A config for them, with every knob left to the planner.
    pub fn config(&self) -> Config {
        let mut config = Config::new(self.a).with_b_dtype(self.b).with_output(self.d);
        config.precision = self.precision;
        config
    }
}

/// Whether elements of one type may be those of another: tf32 is binary32 in memory, and 8-bit
/// floats are bytes where a library lacks them.
pub fn holds(found: Dtype, requested: Dtype) -> bool {
    found == requested
        || matches!(
            (found, requested),
            (Dtype::F32, Dtype::Tf32) | (Dtype::U8, Dtype::E4m3 | Dtype::E5m2)
        )
}
