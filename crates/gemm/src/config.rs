//! [`Config`]: what a [`Gemm`](crate::Gemm) is made for. Types are given; every other knob is optional and left to the
//! planner where it is.

use pgemm_ir::Element;
use pgemm_kernels::{Cluster, KernelSpec};
use serde::{Deserialize, Serialize};

/// Types and knobs of a GEMM. `tile_m`, `tile_n`, `tile_k` name the macro-tile; what doesn't fit one CTA becomes several
/// CTA tiles that are walked together, and the [`Plan`](crate::Plan) says how.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Config {
    /// Element type of A and B.
    pub dtype: Element,
    /// Element type of C and D; the operands' where it is not given.
    pub output: Option<Element>,
    /// Macro-tile rows: a multiple of 64.
    pub tile_m: Option<u32>,
    /// Macro-tile columns: a multiple of 16.
    pub tile_n: Option<u32>,
    /// Depth of a stage: 32, 64 or 128.
    pub tile_k: Option<u32>,
    /// Cluster shape, up to 4 CTAs.
    pub cluster: Option<Cluster>,
    /// Warps of a CTA: 8, 12 or 16 for one, two or three consumer warpgroups beside the producer's.
    pub warps_per_block: Option<u32>,
    /// Stages of the shared-memory ring.
    pub prefetch_depth: Option<u32>,
    /// Rows of cluster tiles that are walked together.
    pub raster_rows: Option<u32>,
    /// SMs to use at most.
    pub sms: Option<u32>,
    /// The kernel, by name; the other kernel knobs must then be left out.
    pub spec: Option<KernelSpec>,
}

impl Config {
    /// A config for operands of this type with every knob left to the planner.
    pub fn new(dtype: Element) -> Self {
        Config {
            dtype,
            output: None,
            tile_m: None,
            tile_n: None,
            tile_k: None,
            cluster: None,
            warps_per_block: None,
            prefetch_depth: None,
            raster_rows: None,
            sms: None,
            spec: None,
        }
    }

    /// A config that uses exactly this kernel.
    pub fn for_spec(spec: KernelSpec) -> Self {
        Config { output: Some(spec.output), spec: Some(spec), ..Config::new(spec.operand) }
    }

    /// Sets the element type of C and D.
    pub fn with_output(self, output: Element) -> Self {
        Config { output: Some(output), ..self }
    }

    /// Element type of C and D.
    pub fn output_dtype(&self) -> Element {
        self.output.unwrap_or(self.dtype)
    }

    /// Whether nothing but types is given.
    pub(crate) fn leaves_all_to_planner(&self) -> bool {
        let Config { raster_rows, sms, spec, .. } = self;
        !self.shapes_kernel() && raster_rows.is_none() && sms.is_none() && spec.is_none()
    }

    /// Whether a knob that changes the kernel is set.
    pub(crate) fn shapes_kernel(&self) -> bool {
        self.tile_m.is_some()
            || self.tile_n.is_some()
            || self.tile_k.is_some()
            || self.cluster.is_some()
            || self.warps_per_block.is_some()
            || self.prefetch_depth.is_some()
    }
}
