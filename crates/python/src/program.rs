//! `Program`: a kernel of one's own in its text form, launched and emulated with arrays.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pgemm::driver::ContextRef;
use pgemm::language::{Argument, ParamKind, TensorMapArgument, Type};
use pgemm::program::{Arguments, Emulation, LoadedProgram, Options, Schedule};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString};

use crate::errors::{Class, Failure, detached};
use crate::layout::{Place, View};
use crate::raw::{self, Strided};
use crate::source::{Source, Torch, is_of, stream_handle};
use crate::{gemms, types};

/// A kernel in its text form: ``Program('saxpy.kernel')(3, x=x, y=y, n=300, alpha=2.0)``.
///
/// The argument is the path of a file, or a text with line breaks. The kernel is checked against
/// the rules of its language, without a GPU. A call launches it on a GPU, and emulate runs it on
/// the CPU. See docs/kernels.md.
#[pyclass(module = "persistent_gemm", frozen)]
pub struct Program {
    program: pgemm::program::Program,
    /// By the device's ordinal.
    loaded: Mutex<HashMap<u32, Arc<LoadedProgram>>>,
}

/// An argument that is an array.
struct Array<'n> {
    name: &'n str,
    source: Source,
}

#[pymethods]
impl Program {
    #[new]
    fn new(py: Python<'_>, source: &Bound<'_, PyAny>) -> PyResult<Program> {
        let text = source.cast::<PyString>().ok().map(|text| text.extract::<String>());
        let text = text.transpose()?.filter(|text| text.contains('\n'));
        let path = match text {
            Some(_) => PathBuf::new(),
            None => source.extract::<PathBuf>()?,
        };
        let program = detached(py, || match &text {
            Some(text) => Ok(pgemm::program::Program::from_text(text)?),
            None => Ok(pgemm::program::Program::load_file(&path)?),
        });
        let program = program.map_err(|failure| failure.raise(py))?;
        Ok(Program { program, loaded: Mutex::default() })
    }

    /// The name of the kernel.
    #[getter]
    fn name(&self) -> &str {
        self.program.name()
    }

    /// A dict of the parameters in the order of their declaration: the name, and the type in the
    /// text form, such as 'u32' or 'tensor_map bf16 [64, 128] b128'.
    #[getter]
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let parameters = PyDict::new(py);
        for parameter in self.program.parameters() {
            parameters.set_item(&parameter.name, parameter.kind.to_string())?;
        }
        Ok(parameters)
    }

    /// The kernel in its text form, after all passes.
    #[getter]
    fn text(&self) -> String {
        self.program.to_text()
    }

    /// The PTX that the driver compiles.
    #[getter]
    fn ptx(&self, py: Python<'_>) -> PyResult<String> {
        self.program.ptx().map_err(|error| Failure::from(error).raise(py))
    }

    /// A page about the kernel: parameters, roles, shared memory, occupancy, operations.
    fn explain(&self) -> String {
        self.program.explain()
    }

    fn __repr__(&self) -> String {
        format!("<persistent_gemm.Program {}>", self.program.signature())
    }

    /// Compiles and loads the kernel for a device, so that launches only launch. Otherwise the
    /// first launch does this, which is not possible while a stream is being captured.
    #[pyo3(signature = (device=0))]
    fn load(&self, py: Python<'_>, device: u32) -> PyResult<()> {
        let load = detached(py, || self.on_device(device).map(|_| ()));
        load.map_err(|failure| failure.raise(py))
    }

    /// Launches the kernel with a grid of CTAs, a number or up to three, and returns at once.
    ///
    /// Arguments are given by the names of the parameters, as keywords or in a dict. A parameter of
    /// type u32 or u64 takes an int, f32 and f64 take a number. An array on a device is its address
    /// for u64. A tensor map takes an array of its rank and element type, whose last dimension is
    /// contiguous. The launch is queued on the stream, by default on torch's current one if an
    /// argument is a tensor. What the kernel does with addresses is not checked. Arrays must live
    /// until it has ended, as the rules of their library for streams say.
    #[pyo3(signature = (grid, arguments=None, /, *, stream=None, **more))]
    fn __call__(
        &self,
        py: Python<'_>,
        grid: &Bound<'_, PyAny>,
        arguments: Option<&Bound<'_, PyDict>>,
        stream: Option<&Bound<'_, PyAny>>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let launch = || self.launch(py, self::grid(grid)?, &all(py, arguments, more)?, stream);
        launch().map_err(|failure| failure.raise(py))
    }

    /// Runs the kernel in the emulator, with arrays in the host's memory, and returns when it has
    /// ended.
    ///
    /// Arguments are as for a launch. Arrays are copied to the emulated device, and what the kernel
    /// has written is copied back. Arrays that are read-only may not be written by the kernel. The
    /// schedule is 'round-robin', 'seeded', 'async-late', 'async-early', 'stores-late' or
    /// 'loads-early', with a seed behind a colon. A race, a missing fence, a deadlock and an access
    /// beyond an array raise KernelError, and leave the arrays as they were.
    #[pyo3(signature = (grid, arguments=None, /, *, schedule="round-robin", **more))]
    fn emulate(
        &self,
        py: Python<'_>,
        grid: &Bound<'_, PyAny>,
        arguments: Option<&Bound<'_, PyDict>>,
        schedule: &str,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let emulate = || {
            let schedule: Schedule = schedule.parse().map_err(Failure::argument)?;
            self.emulate_with(py, self::grid(grid)?, &all(py, arguments, more)?, schedule)
        };
        emulate().map_err(|failure| failure.raise(py))
    }
}

impl Program {
    /// The kernel on a device.
    fn on_device(&self, ordinal: u32) -> Result<Arc<LoadedProgram>, Failure> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = loaded.get(&ordinal) {
            return Ok(found.clone());
        }
        let made = Arc::new(self.program.load(&gemms::device(ordinal)?)?);
        loaded.insert(ordinal, made.clone());
        Ok(made)
    }

    fn is_loaded(&self, ordinal: u32) -> bool {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&ordinal)
    }

    fn launch(
        &self,
        py: Python<'_>,
        grid: [u32; 3],
        given: &Bound<'_, PyDict>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<(), Failure> {
        let names = names(given)?;
        let (mut arguments, mut arrays) = (self.program.arguments(), vec![]);
        self.bind(&mut arguments, given, &names, &mut arrays, |_, view| Ok(view.address))?;
        let ordinal = self.ordinal(&arrays)?;
        let stream = self.stream(py, ordinal, given, &arrays, stream)?;
        // 0 and 1 are the legacy default stream, which others wait for.
        let others = arrays.iter().filter_map(|array| array.source.stream);
        let others: Vec<u64> = others.filter(|other| (*other).max(1) != stream.max(1)).collect();
        let is_of_jax = given
            .values()
            .iter()
            .try_fold(false, |found, value| Ok::<_, PyErr>(found || is_of(&value, "jax")?))?;
        detached(py, || {
            let device = gemms::device(ordinal)?;
            // SAFETY: the stream exists, as the documentation asks.
            if !self.is_loaded(ordinal) && unsafe { raw::is_capturing(&device, stream) }? {
                let name = self.program.name();
                return Err(Failure::Interface(
                    Class::State,
                    format!(
                        "the stream is being captured, and '{name}' is not loaded: call its \
                         load({ordinal}) before the capture"
                    ),
                ));
            }
            let loaded = self.on_device(ordinal)?;
            for other in others {
                // SAFETY: the array's library names its stream.
                unsafe { raw::wait(&device, other) }?;
            }
            let launch = loaded.prepare(grid, &arguments).map_err(|error| match error {
                pgemm::Error::Launch(error) => Failure::argument(error),
                error => error.into(),
            })?;
            // SAFETY: whoever calls vouches for what the kernel does with arrays and addresses.
            unsafe { raw::launch(&launch, &device, stream) }?;
            if is_of_jax {
                // JAX does not order its own work after other streams.
                // SAFETY: the stream is the one that was just launched on.
                unsafe { raw::wait(&device, stream) }?;
            }
            Ok(())
        })
    }

    /// The device that all arrays are on.
    fn ordinal(&self, arrays: &[Array<'_>]) -> Result<u32, Failure> {
        let mut found = None;
        for Array { name, source } in arrays {
            match (source.view.place, found) {
                (Place::Cpu, _) => {
                    return Err(Failure::argument(format!(
                        "{name} is on the CPU: move it to a CUDA device, or call emulate"
                    )));
                }
                (Place::Cuda(here), Some((first, there))) if here != there => {
                    return Err(Failure::argument(format!(
                        "{name} is on cuda:{here}, and {first} on cuda:{there}: move one of them"
                    )));
                }
                (Place::Cuda(here), _) => found = Some((*name, here)),
            }
        }
        match found {
            Some((_, ordinal)) => Ok(ordinal),
            None => Ok(match ContextRef::current() {
                Ok(context) => raw::device_of(context)?.properties().ordinal,
                Err(_) => 0,
            }),
        }
    }

    fn stream(
        &self,
        py: Python<'_>,
        ordinal: u32,
        given: &Bound<'_, PyDict>,
        arrays: &[Array<'_>],
        requested: Option<&Bound<'_, PyAny>>,
    ) -> Result<u64, Failure> {
        if let Some(requested) = requested {
            return stream_handle(requested);
        }
        if let Some(torch) = Torch::loaded(py) {
            for value in given.values() {
                if torch.is_tensor(&value)? {
                    return torch.current_stream(py, ordinal);
                }
            }
        }
        Ok(arrays.iter().find_map(|array| array.source.stream).unwrap_or(0))
    }

    fn emulate_with(
        &self,
        py: Python<'_>,
        grid: [u32; 3],
        given: &Bound<'_, PyDict>,
        schedule: Schedule,
    ) -> Result<(), Failure> {
        let names = names(given)?;
        let (mut arguments, mut arrays) = (self.program.arguments(), vec![]);
        let mut memory = HostArrays {
            emulation: Emulation::with_options(Options { schedule, ..Options::default() }),
            placed: vec![],
        };
        self.bind(&mut arguments, given, &names, &mut arrays, |name, view| {
            memory.place(name, view)
        })?;
        let HostArrays { mut emulation, placed } = memory;
        detached(py, || Ok(emulation.run(&self.program, grid, &arguments)?))?;
        for Placed { memory, array, read_only, .. } in placed {
            if !read_only {
                // SAFETY: the memory is that of an array which its library says may be written, and
                // which the call's arguments keep alive.
                unsafe { raw::scatter(&emulation.read(&array)?, &memory) };
            }
        }
        Ok(())
    }

    /// Gives the parameters values. `address_of` says where the kernel finds an array.
    fn bind<'n>(
        &self,
        arguments: &mut Arguments,
        given: &Bound<'_, PyDict>,
        names: &'n [String],
        arrays: &mut Vec<Array<'n>>,
        mut address_of: impl FnMut(&str, &View) -> Result<u64, Failure>,
    ) -> Result<(), Failure> {
        for (name, value) in names.iter().zip(given.values()) {
            let known = self.program.parameters().iter().find(|known| known.name == *name);
            let number = |needed: &str| {
                Failure::Interface(
                    Class::Dtype,
                    format!("{name} is {value}, and its parameter is {needed}"),
                )
            };
            let argument = match known.map(|parameter| &parameter.kind) {
                // The arguments refuse a name that there is not.
                None => Argument::U32(0),
                Some(ParamKind::Scalar(Type::F32)) => Argument::F32(
                    value.extract::<f64>().map_err(|_| number("a number of type f32"))? as f32,
                ),
                Some(ParamKind::Scalar(Type::F64)) => {
                    Argument::F64(value.extract().map_err(|_| number("a number of type f64"))?)
                }
                Some(ParamKind::Scalar(Type::U64)) => {
                    if is_number(&value)? {
                        let needed = "a u64: give an int from 0 to 2**64 - 1, or an array";
                        Argument::U64(value.extract().map_err(|_| number(needed))?)
                    } else {
                        let source = Source::of(name, &value).map_err(untyped)?;
                        let address = address_of(name, &source.view)?;
                        arrays.push(Array { name, source });
                        Argument::U64(address)
                    }
                }
                Some(ParamKind::Scalar(_)) => {
                    let needed = "a u32: give an int from 0 to 2**32 - 1";
                    Argument::U32(value.extract().map_err(|_| number(needed))?)
                }
                Some(ParamKind::TensorMap(spec)) => {
                    let source = Source::of(name, &value)?;
                    let view = &source.view;
                    if !types::holds(view.dtype, spec.element) {
                        return Err(Failure::dtype(format!(
                            "{name} holds {}, and its tensor map is of {}: convert it",
                            view.dtype, spec.element
                        )));
                    }
                    let map = tensor_map(name, view, spec.rank(), address_of(name, view)?)?;
                    arrays.push(Array { name, source });
                    map.into()
                }
            };
            arguments.set(name, argument)?;
        }
        Ok(())
    }
}

/// Kernels must not be unloaded while they run, nor while graphs may run them. There are few, so
/// they stay.
impl Drop for Program {
    fn drop(&mut self) {
        static FORMER: Mutex<Vec<Arc<LoadedProgram>>> = Mutex::new(Vec::new());
        let loaded =
            std::mem::take(&mut *self.loaded.lock().unwrap_or_else(PoisonError::into_inner));
        FORMER.lock().unwrap_or_else(PoisonError::into_inner).extend(loaded.into_values());
    }
}

/// Arrays of the host that have a copy in the memory of an emulation.
struct HostArrays {
    emulation: Emulation,
    placed: Vec<Placed>,
}

struct Placed {
    /// The first parameter that it is given to.
    name: String,
    /// From the first element to the last one.
    memory: Strided,
    array: pgemm::program::EmulatedArray<u8>,
    read_only: bool,
}

impl HostArrays {
    /// The address of the copy of an array. An array that is given twice has one copy.
    fn place(&mut self, name: &str, view: &View) -> Result<u64, Failure> {
        if let Place::Cuda(ordinal) = view.place {
            return Err(Failure::argument(format!(
                "{name} is on cuda:{ordinal}, and the emulator takes arrays in the host's memory: \
                 copy it to the CPU, or launch the program"
            )));
        }
        if view.strides.iter().any(|stride| *stride < 0) {
            return Err(Failure::argument(format!(
                "{name} has strides {}, and none may be negative: call .copy() first",
                view.strides
            )));
        }
        let last = view.shape.iter().zip(view.strides.iter());
        let last: i64 = last.map(|(extent, stride)| (extent - 1).max(0) * stride).sum();
        let (element_bytes, columns) =
            (view.dtype.bytes() as usize, if view.is_empty() { 0 } else { last as usize + 1 });
        let memory = Strided {
            address: view.address,
            rows: 1,
            columns,
            row_bytes: 0,
            column_bytes: element_bytes,
            element_bytes,
        };
        let range = |memory: &Strided| {
            memory.address..memory.address + (memory.columns * memory.element_bytes) as u64
        };
        let here = range(&memory);
        for placed in &self.placed {
            let there = range(&placed.memory);
            if here == there && !here.is_empty() {
                return Ok(placed.array.address());
            }
            if here.start < there.end && there.start < here.end {
                return Err(Failure::argument(format!(
                    "{name} shares a part of its memory with {}: give the emulator arrays that do \
                     not, or the same one twice",
                    placed.name
                )));
            }
        }
        // SAFETY: the memory is that of an array of the caller's, from its first element to its
        // last one.
        let bytes = unsafe { raw::gather(&memory) };
        let array = match view.read_only {
            true => self.emulation.constant(name, &bytes),
            false => self.emulation.array(name, &bytes),
        };
        let name = name.to_owned();
        self.placed.push(Placed { name, memory, array, read_only: view.read_only });
        Ok(array.address())
    }
}

/// A tensor map of an array, at the address where the kernel finds it.
fn tensor_map(
    name: &str,
    view: &View,
    rank: usize,
    address: u64,
) -> Result<TensorMapArgument, Failure> {
    let (shape, strides) = (&view.shape, &view.strides);
    if shape.len() != rank {
        return Err(Failure::argument(format!(
            "{name} is of shape {shape}, and its tensor map has {rank} dimensions: reshape it"
        )));
    }
    if strides.last() != Some(&1) || strides.iter().any(|stride| *stride < 0) {
        return Err(Failure::argument(format!(
            "{name} has strides {strides}: for a tensor map the last one must be 1, and none \
             negative. Call .contiguous() (numpy: ascontiguousarray) first"
        )));
    }
    let bytes = u64::from(view.dtype.bytes());
    let outer = strides.iter().rev().skip(1);
    Ok(TensorMapArgument {
        address,
        extents: shape.iter().rev().map(|extent| *extent as u64).collect(),
        strides: outer.map(|stride| (*stride as u64).saturating_mul(bytes)).collect(),
    })
}

/// Whether a value is a number and no array. Scalars of numpy are, although they have the interface
/// of arrays.
fn is_number(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(value.is_instance_of::<PyInt>()
        || value.hasattr("__index__")? && !value.hasattr("__setitem__")?)
}

/// The failure of an array whose type only matters as a size.
fn untyped(failure: Failure) -> Failure {
    match failure {
        Failure::Interface(Class::Dtype, message) => Failure::dtype(format!(
            "{message}. A program also takes the address of an array of any type, as an int"
        )),
        failure => failure,
    }
}

/// The CTAs along x, y and z.
fn grid(grid: &Bound<'_, PyAny>) -> Result<[u32; 3], Failure> {
    let numbers = match grid.extract::<u32>() {
        Ok(x) => Some(vec![x]),
        Err(_) => grid.extract::<Vec<u32>>().ok(),
    };
    match numbers.as_deref() {
        Some(&[x]) => Ok([x, 1, 1]),
        Some(&[x, y]) => Ok([x, y, 1]),
        Some(&[x, y, z]) => Ok([x, y, z]),
        _ => Err(Failure::argument(format!(
            "grid is {grid}: give the number of CTAs, or up to three, along x, y and z"
        ))),
    }
}

/// The arguments of a dict and of keywords together.
fn all<'py>(
    py: Python<'py>,
    arguments: Option<&Bound<'py, PyDict>>,
    more: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyDict>, Failure> {
    match (arguments, more) {
        (Some(arguments), None) => Ok(arguments.clone()),
        (None, Some(more)) => Ok(more.clone()),
        (Some(arguments), Some(more)) => {
            let both = arguments.copy()?;
            both.update(more.as_mapping())?;
            Ok(both)
        }
        (None, None) => Ok(PyDict::new(py)),
    }
}

/// The names of arguments.
fn names(given: &Bound<'_, PyDict>) -> Result<Vec<String>, Failure> {
    let names = given.keys().iter().map(|name| Ok(name.extract::<String>()?));
    names.collect()
}
