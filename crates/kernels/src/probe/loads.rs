//! A kernel that only reads, by plain loads. Those of all threads of an SM read L2 faster than TMA
//! does.

use pgemm_ir::{
    Argument, Kernel, KernelBuilder, Launch, Occupancy, Order, Scope, Special, Val,
    WARPGROUP_THREADS, ty,
};

use super::{CHUNK_BYTES, ProbeError, ProbeWork};

/// All threads that an SM can have in one CTA.
const WARPGROUPS: u32 = 8;
/// Loads of a thread that are under way at once.
const LOADS: u32 = 4;
/// Registers of a thread: the SM's are shared by all threads.
const REGISTERS: u32 = 64;

/// A kernel that reads a buffer by plain loads.
#[derive(Clone, Debug)]
pub struct LoadProbe {
    /// The code, verified and legalised.
    pub kernel: Kernel,
}

impl LoadProbe {
    /// Threads of a CTA.
    pub const THREADS: u32 = WARPGROUPS * WARPGROUP_THREADS;

    /// Bytes that a CTA reads at once. The size of a buffer is a multiple of it.
    pub const BLOCK_BYTES: u32 = LOADS * Self::THREADS * CHUNK_BYTES;

    /// Builds, verifies and legalises the probe.
    ///
    /// # Errors
    /// [`ProbeError`].
    pub fn build() -> Result<LoadProbe, ProbeError> {
        let builder = KernelBuilder::new("loads", 1);
        write(&builder);
        let kernel = builder.finish().map_err(|error| ProbeError::Build(Box::new(error)))?;
        let kernel =
            pgemm_ir::optimise(kernel).map_err(|error| ProbeError::Passes(Box::new(error)))?;
        Ok(LoadProbe { kernel })
    }

    /// What a CTA reads at once, for people.
    pub fn describe() -> String {
        format!("{LOADS} loads of {CHUNK_BYTES} bytes in each of {} threads", Self::THREADS)
    }

    /// The launch of this kernel on `work`, whose size is a multiple of
    /// [`BLOCK_BYTES`](Self::BLOCK_BYTES). `sums` has a 32-bit word for each thread of all CTAs,
    /// which is set to the sum of the words that the thread has read, with wrapping. The policy is
    /// not used. The arguments are in the order of the kernel's parameters.
    pub fn bind(&self, work: &ProbeWork) -> Launch {
        let blocks = (work.bytes / u64::from(Self::BLOCK_BYTES)) as u32;
        let argument = |name: &str| match name {
            "buffer" => Argument::U64(work.address),
            "blocks" => Argument::U32(blocks),
            "reads" => Argument::U32(blocks.saturating_mul(work.passes)),
            "sums" => Argument::U64(work.sums),
            name => unreachable!("the probe declares no parameter {name}"),
        };
        let arguments = self.kernel.params.iter().map(|param| argument(&param.name)).collect();
        Launch { grid: [work.ctas.min(blocks).max(1), 1, 1], arguments }
    }
}

fn write(b: &KernelBuilder) {
    let [buffer, sums] = ["buffer", "sums"].map(|name| b.param::<ty::U64>(name));
    let [blocks, reads] = ["blocks", "reads"].map(|name| b.param::<ty::U32>(name));
    b.scope("prologue", || {
        b.grid_dependency_launch();
        b.grid_dependency_wait();
    });
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("reader", WARPGROUPS, REGISTERS, |_| {
            let (cta, ctas) = (b.special(Special::Cta), b.special(Special::CtaCount));
            let thread = b.special(Special::Thread);
            let zero = b.constant::<ty::U32>(0);
            // In each pass a CTA reads other blocks. If it always read the same ones, some CTAs
            // would have a longer way to them than others, and be late.
            let sum = b.for_carry(cta, reads, ctas, zero, |index, sum| {
                let block = buffer + (index % blocks).to_u64() * u64::from(LoadProbe::BLOCK_BYTES);
                let first = block.byte_offset(thread * CHUNK_BYTES);
                let load = |load: u32| -> [Val<'_, ty::U32>; 4] {
                    let chunk = first.byte_offset(load * LoadProbe::THREADS * CHUNK_BYTES);
                    // Relaxed loads are not served by L1.
                    b.load_ordered_many(chunk, Order::Relaxed, Scope::Gpu)
                };
                let loaded: Vec<_> = (0..LOADS).map(load).collect();
                loaded.into_iter().flatten().fold(sum, |sum, word| sum + word)
            });
            let place = cta * LoadProbe::THREADS + thread;
            b.store_global(sums.byte_offset(place * 4), [sum]);
        });
    });
}
