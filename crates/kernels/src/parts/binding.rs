//! The arguments and the grid of a kernel of parts.

use pgemm_ir::Argument;

use super::PartsError;
use crate::fixup::threads;
use crate::launch::{Values, Work, Workspace};
use crate::quantity::Quantity;
use crate::spec::Spec;

/// The parameters that [`GemmParts`](super::GemmParts) has declared, and how their values follow
/// from the work of a launch. Parameters of the author are not among them.
#[derive(Clone, Debug)]
pub struct Binding {
    pub(super) spec: Spec,
    pub(super) quantities: Vec<Quantity>,
    pub(super) reduces: bool,
}

impl Binding {
    /// The arguments of a launch, each with the name of its parameter.
    ///
    /// A and B, and the second operand of a gated spec, have to be as [`Work`] says. C and D,
    /// factors, bias and parameters count only if the kernel has a
    /// [`LibraryOutput`](super::LibraryOutput).
    ///
    /// # Errors
    /// [`PartsError::Work`] if the work has no product or no cluster, or if it splits tiles and the
    /// kernel does not reduce them.
    pub fn arguments(&self, work: &Work) -> Result<Vec<(String, Argument)>, PartsError> {
        for (what, requested) in
            [("batch", work.batch), ("clusters", work.clusters), ("raster_rows", work.raster_rows)]
        {
            if requested == 0 {
                return Err(PartsError::Work { what, requested, limit: "use at least 1" });
            }
        }
        if work.split_tiles > 0 && !self.reduces {
            return Err(PartsError::Work {
                what: "split_tiles",
                requested: work.split_tiles,
                limit: "only kernels with GemmParts::reducing_splits can be launched with more \
                        than 0",
            });
        }
        let values = Values::new(&self.spec, work);
        let argument = |quantity: &Quantity| (quantity.to_string(), values.value(*quantity));
        Ok(self.quantities.iter().map(argument).collect())
    }

    /// The grid of a launch: CTAs along x, y and z.
    pub fn grid(&self, work: &Work) -> [u32; 3] {
        [work.clusters * self.spec.cluster.size(), 1, 1]
    }

    /// A good number of clusters for a launch on a device with `sms` SMs: as many as run at once,
    /// but not more than there are tiles.
    pub fn clusters(&self, work: &Work, sms: u32) -> u32 {
        let at_once = sms * self.spec.working_ctas_per_sm() / self.spec.cluster.size();
        let tiles = self.spec.cluster_tiles(work.m, work.n) * u64::from(work.batch);
        tiles.min(u64::from(at_once)).max(1) as u32
    }

    /// The memory for partial sums that a launch with split tiles needs.
    pub fn workspace(&self, work: &Work) -> Workspace {
        match work.split_tiles {
            0 => Workspace { bytes: 0, zeroed: 0 },
            _ => threads::workspace(&self.spec, work),
        }
    }

    /// The spec of the kernel.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }
}
