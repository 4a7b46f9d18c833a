//! Named barriers, as values that belong to the warps that meet at them.

use crate::builder::{KernelBuilder, WHOLE_CTA};
use crate::error::BuildError;
use crate::value::{IntoVal, Val, ty};
use crate::{NAMED_BARRIERS, Op};

/// Threads of a warp.
const WARP_THREADS: u32 = 32;

/// The barrier of all threads.
const CTA_BARRIER: u32 = 0;

/// Named barriers of a CTA that the same number of warps meet at. [`KernelBuilder::named_barriers`]
/// declares them.
#[derive(Clone, Copy)]
pub struct NamedBarriers<'k> {
    builder: &'k KernelBuilder,
    /// The declaration.
    index: usize,
    /// Number of the first of them.
    first: u32,
    threads: u32,
}

/// A named barrier: a meeting point of some warps of the CTA.
#[derive(Clone, Copy)]
pub struct NamedBarrier<'k> {
    barriers: NamedBarriers<'k>,
    id: Val<'k, ty::U32>,
}

impl<'k> NamedBarriers<'k> {
    /// The barrier of this index.
    #[track_caller]
    pub fn at(&self, index: impl IntoVal<'k, ty::U32>) -> NamedBarrier<'k> {
        let index = index.into_val(self.builder);
        NamedBarrier { barriers: *self, id: index + self.first }
    }
}

impl NamedBarrier<'_> {
    /// Waits until all participating threads have arrived. The whole warp.
    #[track_caller]
    pub fn sync(&self) {
        let NamedBarriers { builder, index, threads, .. } = self.barriers;
        builder.use_barriers(index);
        builder.effect(Op::BarrierSync { threads }, vec![self.id.id]);
    }

    /// Arrives without waiting. The whole warp.
    #[track_caller]
    pub fn arrive(&self) {
        let NamedBarriers { builder, index, threads, .. } = self.barriers;
        builder.use_barriers(index);
        builder.effect(Op::BarrierArrive { threads }, vec![self.id.id]);
    }
}

impl KernelBuilder {
    /// Declares a named barrier that `warps` warps meet at, of those roles that use it.
    #[track_caller]
    pub fn named_barrier(&self, name: &str, warps: u32) -> NamedBarrier<'_> {
        let barriers = self.named_barriers(name, 1, warps);
        NamedBarrier { barriers, id: self.constant(barriers.first) }
    }

    /// Declares `count` named barriers, each for a meeting of `warps` warps. An index that is known
    /// when the kernel runs picks one of them, such as the index of a warpgroup. A CTA has 15
    /// besides that of [`sync_cta`](Self::sync_cta).
    #[track_caller]
    pub fn named_barriers(&self, name: &str, count: u32, warps: u32) -> NamedBarriers<'_> {
        let threads = warps.saturating_mul(WARP_THREADS);
        let (index, first) = self.declare_barriers(name, count, threads);
        let end = first.saturating_add(count);
        if end > NAMED_BARRIERS {
            let name = name.to_owned();
            self.fail(|location| BuildError::TooManyBarriers { location, name, end });
        }
        NamedBarriers { builder: self, index, first, threads }
    }

    /// Waits for all threads of the CTA. The whole warp.
    #[track_caller]
    pub fn sync_cta(&self) {
        let id = self.constant::<ty::U32>(CTA_BARRIER);
        // The number of threads is known once the roles are declared.
        self.effect(Op::BarrierSync { threads: WHOLE_CTA }, vec![id.id]);
    }
}
