//! Arrays as problems of an engine, and the keys of these problems.

use std::hash::{Hash, Hasher};

use pgemm::{Epilogue, Error, PlanError, Pointers, Problem};
use pyo3::prelude::*;

use crate::compute::{bias_address, keeps_rows};
use crate::errors::Failure;
use crate::layout::{Operands, Place, View, launches};
use crate::source::Source;
use crate::types::{self, Types};

/// The arrays that Python passes.
pub struct Arrays<'a, 'py> {
    /// A.
    pub a: &'a Bound<'py, PyAny>,
    /// B.
    pub b: &'a Bound<'py, PyAny>,
    /// C.
    pub c: Option<&'a Bound<'py, PyAny>>,
    /// The bias.
    pub bias: Option<&'a Bound<'py, PyAny>>,
    /// D.
    pub out: &'a Bound<'py, PyAny>,
}

impl Arrays<'_, '_> {
    /// References that keep them alive.
    pub fn owned(&self) -> Vec<Py<PyAny>> {
        [Some(self.a), Some(self.b), self.c, self.bias, Some(self.out)]
            .into_iter()
            .flatten()
            .map(|array| array.clone().unbind())
            .collect()
    }

    /// Reads the views of all arrays. C is ignored if beta is 0.
    ///
    /// # Errors
    /// An object is not an array, or C is missing although beta is not 0.
    pub fn read(&self, beta: f64) -> Result<Read, Failure> {
        let c = self.c.filter(|_| beta != 0.0);
        if c.is_none() && beta != 0.0 {
            return Err(Error::from(PlanError::MissingC { beta }).into());
        }
        Ok(Read {
            a: Source::of("a", self.a)?,
            b: Source::of("b", self.b)?,
            c: c.map(|c| Source::of("c", c)).transpose()?,
            bias: self.bias.map(|bias| Source::of("bias", bias)).transpose()?,
            out: Source::of("out", self.out)?,
        })
    }
}

/// The views of a job's arrays.
pub struct Read {
    a: Source,
    b: Source,
    c: Option<Source>,
    bias: Option<Source>,
    out: Source,
}

/// Everything that a job depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    a: View,
    b: View,
    c: Option<View>,
    bias: Option<View>,
    out: View,
    scalars: [u64; 2],
}

/// Addresses, factors and extents of A distinguish most jobs. Hashing whole views would take longer
/// than the submission.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let addresses = [self.a.address, self.b.address, self.out.address];
        (addresses, self.scalars).hash(state);
        self.a.shape.iter().for_each(|extent| extent.hash(state));
    }
}

impl Read {
    /// The key of the job of these arrays.
    pub fn key(&self, alpha: f64, beta: f64) -> Key {
        let [c, bias] = [&self.c, &self.bias].map(|one| one.as_ref().map(|one| one.view));
        let scalars = [alpha, beta].map(f64::to_bits);
        Key { a: self.a.view, b: self.b.view, c, bias, out: self.out.view, scalars }
    }

    /// Streams on which work may still write them, as their libraries say.
    pub fn streams(&self) -> impl Iterator<Item = u64> {
        self.all().filter_map(|(_, source)| source.stream)
    }

    fn all(&self) -> impl Iterator<Item = (&'static str, &Source)> {
        let c = self.c.as_ref().map(|c| ("c", c));
        let bias = self.bias.as_ref().map(|bias| ("bias", bias));
        [Some(("a", &self.a)), Some(("b", &self.b)), c, bias, Some(("out", &self.out))]
            .into_iter()
            .flatten()
    }

    /// The problem that they make, for an engine of these types and with this epilogue on that
    /// device.
    ///
    /// # Errors
    /// Arrays elsewhere, of other types, or that make no product, or more than one launch.
    pub fn problem(
        &self,
        ordinal: u32,
        types: &Types,
        epilogue: Epilogue,
        [alpha, beta]: [f64; 2],
    ) -> Result<(Problem, Pointers), Failure> {
        let here = Place::Cuda(ordinal);
        for (name, source) in self.all() {
            let View { place, dtype, .. } = source.view;
            if place != here {
                return Err(Failure::argument(format!(
                    "{name} is on {place}, and the engine on {here}: move it"
                )));
            }
            let needed = match name {
                "a" => types.a,
                "b" => types.b,
                "bias" => Epilogue::bias_type(types.d),
                _ => types.d,
            };
            if !types::holds(dtype, needed) {
                return Err(Failure::dtype(format!(
                    "{name} holds {dtype}, and the engine's are of {needed}: convert it, or make \
                     another engine"
                )));
            }
        }
        if self.out.view.read_only {
            return Err(Failure::argument(
                "out must not be written: its library says that it is read-only",
            ));
        }
        let (a, b, out) = (&self.a.view, &self.b.view, &self.out.view);
        let c = self.c.as_ref().map(|c| &c.view);
        let planned =
            launches(&Operands { a, b, c, out, alpha, beta, keep_rows: keeps_rows(epilogue) })?;
        match planned.offsets.len() {
            0 => Err(Failure::argument("out has no elements: there is nothing to submit")),
            1 => {
                let c = c.map_or(0, |c| c.address);
                let bias = self.bias_address(epilogue, types, &planned.problem)?;
                let pointers = Pointers::new(a.address, b.address, c, out.address);
                Ok((planned.problem, pointers.with_bias(bias)))
            }
            launches => Err(Failure::argument(format!(
                "these arrays make {launches} products, whose leading dimensions are no one batch: \
                 submit each, or use matmul"
            ))),
        }
    }

    fn bias_address(
        &self,
        epilogue: Epilogue,
        types: &Types,
        problem: &Problem,
    ) -> Result<u64, Failure> {
        match (&self.bias, epilogue.bias()) {
            (None, None) => Ok(0),
            (Some(bias), Some(_)) => {
                bias_address(&bias.view, &self.out.view, epilogue, types, problem)
            }
            (None, Some(_)) => Err(Failure::argument(format!(
                "the engine's epilogue {epilogue} needs a bias, and none was given: give bias"
            ))),
            (Some(_), None) => Err(Failure::argument(format!(
                "a bias was given, and the engine's epilogue is {epilogue}: make an engine with \
                 epilogue='bias_n' or 'bias_m'"
            ))),
        }
    }
}
