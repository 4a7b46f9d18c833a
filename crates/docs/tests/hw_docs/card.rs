//! The names of `persistent_gemm::program`, with an [`Emulation`] that is a GPU. A listing that is
//! compiled with this module in place of the other one launches its kernels there.

#[path = "../../../gemm/tests/hw/device.rs"]
mod device;

use std::marker::PhantomData;
use std::path::Path;
use std::time::Duration;

use bytemuck::Pod;
use persistent_gemm::driver::{Device, Stream};
use persistent_gemm::language::Argument;
pub use persistent_gemm::program::*;
use persistent_gemm::{Error, Result};

use device::device;

/// The variable with the folder in which the emulated device looks for kernels.
pub const KERNELS: &str = "PGEMM_EMULATED_KERNELS";
/// The variable that makes a missing GPU a failure.
pub const REQUIRE_GPU: &str = "PGEMM_REQUIRE_GPU";
/// How long a launch may take.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs the program of a listing, if there is a GPU.
#[track_caller]
pub fn launch(listing: &str, program: fn() -> Result<()>) {
    if device(listing).is_some() {
        program().unwrap_or_else(|error| panic!("{listing}: {error}"));
    }
}

/// Memory and launches as those of the emulator's `Emulation`, on a GPU.
pub struct Emulation {
    stream: Stream,
    /// As long as an emulation, its arrays exist.
    arrays: Vec<DeviceArray<u8>>,
}

/// An array in the memory of the GPU.
pub struct Array<T> {
    address: u64,
    /// Its place among the arrays of its emulation.
    index: usize,
    element: PhantomData<T>,
}

impl<T> Array<T> {
    /// The address of the first element.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl<T> From<&Array<T>> for Argument {
    fn from(array: &Array<T>) -> Argument {
        Argument::U64(array.address)
    }
}

impl Emulation {
    /// The first device, with a stream of its own.
    pub fn new() -> Emulation {
        let device = Device::new(0).expect("`launch` has opened the device");
        let stream = Stream::new(&device).expect("a device has streams");
        Emulation { stream, arrays: vec![] }
    }

    /// An array with a copy of `values`.
    pub fn array<T: Pod>(&mut self, name: &str, values: &[T]) -> Array<T> {
        let (device, bytes) = (self.stream.device(), bytemuck::cast_slice(values));
        let array = DeviceArray::from_slice(device, bytes, self.stream.as_ref())
            .unwrap_or_else(|error| panic!("array '{name}': {error}"));
        let address = array.address();
        self.arrays.push(array);
        Array { address, index: self.arrays.len() - 1, element: PhantomData }
    }

    /// An array with a copy of `values`. The device does not protect it.
    pub fn constant<T: Pod>(&mut self, name: &str, values: &[T]) -> Array<T> {
        self.array(name, values)
    }

    /// An array whose bytes are all ones, which is NaN in floats, so that elements that a kernel
    /// does not write are noticed.
    pub fn unwritten<T: Pod>(&mut self, name: &str, len: usize) -> Array<T> {
        let poison: T = bytemuck::pod_read_unaligned(&vec![0xff; size_of::<T>()]);
        self.array(name, &vec![poison; len])
    }

    /// Compiles the program, launches it and waits for its end.
    pub fn run(&mut self, program: &Program, grid: [u32; 3], arguments: &Arguments) -> Result<()> {
        if let Some(folder) = std::env::var_os(KERNELS) {
            program.save(Path::new(&folder).join(program.name()).with_extension("kernel"))?;
        }
        let (device, stream) = (self.stream.device(), self.stream.as_ref());
        let loaded = program.load(device)?;
        let launch = loaded.prepare(grid, arguments)?;
        // SAFETY: the emulator has run the listing without an access beyond its arrays, which
        // outlive the launch.
        unsafe { launch.enqueue(stream)? };
        let result = stream.synchronize_within(LIMIT);
        if let Err(error @ Error::Timeout { .. }) = &result {
            // Nothing that the kernel may still use can be freed, and a failing test would wait.
            eprintln!("kernel '{}': {error}", program.name());
            std::process::abort();
        }
        result
    }

    /// The elements of an array.
    pub fn read<T: Pod>(&self, array: &Array<T>) -> Result<Vec<T>> {
        let bytes = self.arrays[array.index].to_vec(self.stream.as_ref())?;
        let mut values = vec![T::zeroed(); bytes.len() / size_of::<T>()];
        bytemuck::cast_slice_mut(&mut values).copy_from_slice(&bytes);
        Ok(values)
    }
}
