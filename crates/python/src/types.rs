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
/// The object does not name a supported type.
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
    /// Type of A.
    pub a: Dtype,
    /// Type of B.
    pub b: Dtype,
    /// Type of C and D.
    pub d: Dtype,
    /// `None` for the default.
    pub precision: Option<Precision>,
}

/// The requested types and precision.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requested {
    /// Type of the operands, if their library has no such type.
    pub dtype: Option<Dtype>,
    /// Type of the result.
    pub out_dtype: Option<Dtype>,
    /// The precision.
    pub precision: Option<Precision>,
}

impl Requested {
    /// Reads the three keywords. A precision of tf32 stands for the type tf32.
    ///
    /// # Errors
    /// An unknown name.
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
    /// The elements of the arrays do not have the requested type.
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

/// Whether an array of one type may hold elements of another. tf32 is stored as binary32, and 8-bit
/// floats as bytes if a library lacks them.
pub fn holds(found: Dtype, requested: Dtype) -> bool {
    found == requested
        || (found, requested) == (Dtype::F32, Dtype::Tf32)
        || found == Dtype::U8 && requested.is_float8()
}
