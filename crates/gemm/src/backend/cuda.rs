//! Products on a device.

use std::collections::HashMap;
use std::time::Instant;

use pgemm_plan::{Config, Problem};

use super::{
    Allocations, Backend, Computed, HostProducts, ProductMemory, multiply_in, multiply_together,
};
use crate::driver::{Device, DeviceBuffer, Stream};
use crate::error::Result;
use crate::gemm::{Gemm, Preparation};
use crate::work::Pointers;

pub(crate) struct Cuda<'a>(pub(crate) &'a Device);

impl Backend for Cuda<'_> {
    fn multiply(&self, products: HostProducts<'_>) -> Result<Computed> {
        multiply_together(self, products)
    }

    fn multiply_allocations(
        &self,
        config: &Config,
        problem: &Problem,
        allocations: Allocations<'_>,
    ) -> Result<Computed> {
        let stream = Stream::new(self.0)?;
        let mut memory = DeviceMemory { device: self.0, stream, buffers: HashMap::new() };
        multiply_in(&mut memory, config, problem, allocations)
    }
}

/// The buffers of one product, by their addresses.
struct DeviceMemory<'a> {
    device: &'a Device,
    stream: Stream,
    buffers: HashMap<u64, DeviceBuffer>,
}

impl ProductMemory for DeviceMemory<'_> {
    fn upload(&mut self, _matrix: &'static str, bytes: &[u8], _written: bool) -> Result<u64> {
        let buffer = DeviceBuffer::from_host(self.device, bytes, self.stream.as_ref())?;
        let address = buffer.address();
        self.buffers.insert(address, buffer);
        Ok(address)
    }

    fn download(&mut self, address: u64, bytes: &mut [u8]) -> Result<()> {
        match self.buffers.get(&address) {
            Some(buffer) => buffer.copy_to_host(0, bytes, self.stream.as_ref()),
            None => Ok(()),
        }
    }

    fn compute(
        &mut self,
        config: &Config,
        problem: &Problem,
        pointers: &Pointers,
    ) -> Result<Computed> {
        let start = Instant::now();
        let gemm = Gemm::create(self.device, config.clone())?;
        let prepared = gemm.prepare(Preparation::new(problem).at(pointers))?;
        let prepare = start.elapsed();
        let start = Instant::now();
        // SAFETY: the buffers hold the matrices as the problem describes them and live until the
        // stream has been waited for.
        unsafe { gemm.run_at(&prepared, pointers, self.stream.as_ref()) }?;
        self.stream.synchronize()?;
        let compute = start.elapsed();
        let (plan, cache) = (Some(prepared.plan().clone()), prepared.cache_outcome());
        Ok(Computed { plan, prepare, compute, cache })
    }
}
