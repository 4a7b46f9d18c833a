//! Arguments of a launch, by the names of the kernel's parameters.

use std::sync::Arc;

use pgemm_ir::{Argument, Param, ParamKind, Type};

use super::Interface;
use crate::driver::{check_argument, check_spec};
use crate::error::{ProgramError, Result};

/// The arguments of a launch. Each is bound to a parameter by its name, and has its type.
#[derive(Clone, Debug)]
pub struct Arguments {
    interface: Arc<Interface>,
    /// By parameter.
    values: Vec<Option<Argument>>,
}

impl Arguments {
    pub(super) fn new(interface: Arc<Interface>) -> Arguments {
        let values = vec![None; interface.parameters.len()];
        Arguments { interface, values }
    }

    /// The parameters of the kernel, in the order of their declaration.
    pub fn parameters(&self) -> &[Param] {
        &self.interface.parameters
    }

    /// These arguments, with a value for the parameter of this name.
    ///
    /// # Errors
    /// The errors of [`set`](Self::set).
    pub fn with(mut self, name: &str, value: impl Into<Argument>) -> Result<Arguments> {
        self.set(name, value)?;
        Ok(self)
    }

    /// These arguments, with values for the parameters of these names, such as those of
    /// [`parts::Binding::arguments`](crate::parts::Binding::arguments).
    ///
    /// # Errors
    /// The errors of [`set`](Self::set).
    pub fn with_each<N: AsRef<str>>(
        mut self,
        values: impl IntoIterator<Item = (N, Argument)>,
    ) -> Result<Arguments> {
        for (name, value) in values {
            self.set(name.as_ref(), value)?;
        }
        Ok(self)
    }

    /// Gives the parameter of this name a value: a number, a buffer's address, or a tensor map.
    ///
    /// # Errors
    /// [`ProgramError::NoParameter`] if there is none of this name, [`ProgramError::ArgumentType`]
    /// if it has another type, [`ProgramError::TensorMap`] if the hardware does not accept the map.
    pub fn set(&mut self, name: &str, value: impl Into<Argument>) -> Result<()> {
        let value = value.into();
        let kernel = || self.interface.name.clone();
        let parameters = &self.interface.parameters;
        let Some(index) = parameters.iter().position(|parameter| parameter.name == name) else {
            let parameters: Vec<String> = parameters.iter().map(description).collect();
            let parameters =
                if parameters.is_empty() { "none".to_owned() } else { parameters.join(", ") };
            let name = name.to_owned();
            return Err(ProgramError::NoParameter { kernel: kernel(), name, parameters }.into());
        };
        let parameter = &parameters[index];
        let (expected, found) = (type_of(&parameter.kind), type_of_argument(&value));
        if expected != found {
            let name = name.to_owned();
            return Err(
                ProgramError::ArgumentType { kernel: kernel(), name, expected, found }.into()
            );
        }
        if let (ParamKind::TensorMap(spec), Argument::TensorMap(map)) = (&parameter.kind, &value) {
            let checked = check_spec(spec).and_then(|()| check_argument(spec, map));
            checked.map_err(|source| ProgramError::TensorMap {
                kernel: kernel(),
                name: name.to_owned(),
                source,
            })?;
        }
        self.values[index] = Some(value);
        Ok(())
    }

    /// The arguments in the order of the parameters of `interface`, whose kernel is launched.
    pub(super) fn complete(&self, interface: &Interface) -> Result<Vec<Argument>> {
        if *self.interface != *interface {
            let (kernel, bound) = (interface.name.clone(), self.interface.name.clone());
            return Err(ProgramError::ForeignArguments { kernel, bound }.into());
        }
        let missing = interface.parameters.iter().zip(&self.values);
        let missing: Vec<String> = missing
            .filter(|(_, value)| value.is_none())
            .map(|(parameter, _)| description(parameter))
            .collect();
        if !missing.is_empty() {
            let (kernel, missing) = (interface.name.clone(), missing.join(", "));
            return Err(ProgramError::MissingArguments { kernel, missing }.into());
        }
        Ok(self.values.iter().flatten().cloned().collect())
    }
}

/// A parameter's name and type.
fn description(parameter: &Param) -> String {
    format!("'{}' ({})", parameter.name, type_of(&parameter.kind))
}

fn type_of(kind: &ParamKind) -> &'static str {
    match kind {
        ParamKind::Scalar(ty) => scalar(*ty),
        ParamKind::TensorMap(_) => "a tensor map",
    }
}

fn type_of_argument(argument: &Argument) -> &'static str {
    match argument {
        Argument::U32(_) => scalar(Type::U32),
        Argument::U64(_) => scalar(Type::U64),
        Argument::F32(_) => scalar(Type::F32),
        Argument::F64(_) => scalar(Type::F64),
        Argument::TensorMap(_) => "a tensor map",
    }
}

fn scalar(ty: Type) -> &'static str {
    match ty {
        Type::U64 => "a u64 (a number or an address)",
        Type::F32 => "an f32",
        Type::F64 => "an f64",
        // The verifier allows no other scalar.
        _ => "a u32",
    }
}
