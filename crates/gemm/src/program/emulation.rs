//! Kernels of one's own on the emulator.

use std::marker::PhantomData;

use bytemuck::Pod;
use pgemm_emulator::{Emulator, Memory, Options, Permission, Statistics};
use pgemm_ir::{Argument, Launch};

use super::{Arguments, Program};
use crate::error::{ProgramError, Result};

/// The memory of an emulated GPU, and how launches run on it. Every launch is checked for races,
/// missing fences, deadlocks, and reads of what was never written.
#[derive(Default)]
pub struct Emulation {
    memory: Memory,
    options: Options,
}

/// An array of elements in the memory of an [`Emulation`].
#[derive(Clone, Copy, Debug)]
pub struct EmulatedArray<T> {
    address: u64,
    len: usize,
    element: PhantomData<T>,
}

impl<T> EmulatedArray<T> {
    /// The address of the first element, a multiple of 256.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T> From<&EmulatedArray<T>> for Argument {
    fn from(array: &EmulatedArray<T>) -> Argument {
        Argument::U64(array.address)
    }
}

impl Emulation {
    /// An emulated GPU without allocations, whose warps run in turn.
    pub fn new() -> Emulation {
        Emulation::default()
    }

    /// An emulated GPU with another schedule, or with other limits and checks.
    pub fn with_options(options: Options) -> Emulation {
        Emulation { memory: Memory::new(), options }
    }

    /// An array with a copy of `values`. Reports call it by its name.
    pub fn array<T: Pod>(&mut self, name: &str, values: &[T]) -> EmulatedArray<T> {
        self.upload(name, values, Permission::ReadWrite)
    }

    /// An array with a copy of `values`, which kernels may not write.
    pub fn constant<T: Pod>(&mut self, name: &str, values: &[T]) -> EmulatedArray<T> {
        self.upload(name, values, Permission::ReadOnly)
    }

    /// An array of `len` elements that nothing has written yet. A read of such an element is an
    /// error.
    pub fn unwritten<T: Pod>(&mut self, name: &str, len: usize) -> EmulatedArray<T> {
        let address = self.memory.allocate(name, len.saturating_mul(size_of::<T>()));
        EmulatedArray { address, len, element: PhantomData }
    }

    fn upload<T: Pod>(
        &mut self,
        name: &str,
        values: &[T],
        permission: Permission,
    ) -> EmulatedArray<T> {
        let address = self.memory.upload(name, bytemuck::cast_slice(values), permission);
        EmulatedArray { address, len: values.len(), element: PhantomData }
    }

    /// Runs a launch of `grid` CTAs along x, y and z to its end.
    ///
    /// # Errors
    /// [`Error::EmulatorSetup`](crate::Error::EmulatorSetup) if the launch is not possible,
    /// [`Error::Emulation`](crate::Error::Emulation) with a report if the kernel does something
    /// wrong, and the errors of arguments.
    pub fn run(
        &mut self,
        program: &Program,
        grid: [u32; 3],
        arguments: &Arguments,
    ) -> Result<Statistics> {
        let launch = Launch { grid, arguments: arguments.complete(&program.interface)? };
        let options = self.options.clone();
        Ok(Emulator::new(program.kernel(), &launch, &mut self.memory, options)?.run()?)
    }

    /// The elements of an array.
    ///
    /// # Errors
    /// [`ProgramError::Memory`] if one was never written, or the array belongs to another
    /// emulation.
    pub fn read<T: Pod>(&self, array: &EmulatedArray<T>) -> Result<Vec<T>> {
        let bytes = array.len * size_of::<T>();
        let bytes = self.memory.read(array.address, bytes).map_err(ProgramError::from)?;
        let mut values = vec![T::zeroed(); array.len];
        bytemuck::cast_slice_mut(&mut values).copy_from_slice(bytes);
        Ok(values)
    }
}
