//! A histogram of bytes.

use persistent_gemm::Result;
use persistent_gemm::language::{
    AtomicOp, Element, KernelBuilder, Occupancy, Order, RegionKind, Scope, SmemRequest, Special, ty,
};
use persistent_gemm::program::Program;

/// Bins: one for each value of a byte.
pub const BINS: u32 = 256;

const WARPGROUPS: u32 = 4;
const THREADS: u32 = 128 * WARPGROUPS;

/// Adds the number of bytes of each value to 256 words. Parameters are the address `bytes`, a
/// multiple of 16, the address `bins` of the words, and the number `vectors` of vectors of 16
/// bytes. Any grid is possible. Each CTA counts in shared memory, and adds its counts to the bins
/// at its end.
///
/// # Errors
/// None that a caller could cause: a kernel that breaks a rule of the language is refused.
pub fn histogram() -> Result<Program> {
    let b = KernelBuilder::new("histogram", 1);
    let [bytes, bins] = ["bytes", "bins"].map(|name| b.param::<ty::U64>(name));
    let vectors = b.param::<ty::U32>("vectors");
    let (kind, request) = (RegionKind::Data(Element::S32), SmemRequest::whole(4 * BINS, 16));
    let counts = b.smem_address(b.region("counts", kind, request));
    b.warp_roles(Occupancy::ctas(4), |roles| {
        roles.role("all", WARPGROUPS, 32, |_| {
            let thread = b.special(Special::Thread);
            let own_bin = counts.offset(thread * 4);
            b.if_(thread.lt(BINS), || b.store_shared(own_bin, [b.constant(0u32)]));
            b.sync_cta();
            let first = b.special(Special::Cta) * THREADS + thread;
            b.for_range(first, vectors, b.special(Special::CtaCount) * THREADS, |vector| {
                let address = bytes + vector.to_u64() * 16;
                let words = b.load_global_once::<ty::U32, 4>(address);
                for (word, shift) in words.into_iter().flat_map(|w| [0, 8, 16, 24].map(|s| (w, s)))
                {
                    let bin = counts.offset(((word >> shift) & 255) * 4);
                    b.atomic::<ty::U32>(AtomicOp::Add, bin, 1, Order::Relaxed, Scope::Cta);
                }
            });
            b.sync_cta();
            b.if_(thread.lt(BINS), || {
                let [count] = b.load_shared::<ty::U32, 1>(own_bin);
                let bin = bins.byte_offset(thread * 4);
                b.atomic::<ty::U32>(AtomicOp::Add, bin, count, Order::Relaxed, Scope::Gpu);
            });
        });
    });
    Program::new(b.finish()?)
}
