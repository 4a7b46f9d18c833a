//! [`Config`]: element types and knobs. Every knob is optional; the planner chooses the ones that
//! are left out.

mod epilogue;
mod knobs;
mod precision;

use pgemm_ir::Element;
use pgemm_kernels::{Cluster, Epilogue, L2Policies, Product, Schedule, Spec};
use serde::{Deserialize, Serialize};

use crate::choice::Choice;
use crate::precision::Precision;
use crate::split::Split;

/// Types and knobs of a GEMM. `tile_m`, `tile_n` and `tile_k` name the macro-tile. A macro-tile
/// that is too large for one CTA is decomposed into CTA tiles, and the [`Plan`](crate::Plan) says
/// how.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Config {
    /// Element type of A, and of B unless `b` is given.
    pub dtype: Element,
    /// Element type of B; by default that of A.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b: Option<Element>,
    /// Element type of C and D. The default is f32 for tf32, bf16 for e4m3 and e5m2, s32 for s8 and
    /// u8, and the operands' type otherwise.
    pub output: Option<Element>,
    /// How accurately products are added up. The default is the precision of `spec` if a kernel is
    /// named, and [`Precision::Full`] otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// The bias and activation that are applied to results. The default is none.
    #[serde(default, skip_serializing_if = "Epilogue::is_none")]
    pub epilogue: Epilogue,
    /// Macro-tile rows: a multiple of 64.
    pub tile_m: Option<u32>,
    /// Macro-tile columns: a multiple of 8.
    pub tile_n: Option<u32>,
    /// Depth of a stage along k, in elements. It must be 64, 128 or 256 bytes of an operand (32, 64
    /// or 128 elements of 16 bits).
    pub tile_k: Option<u32>,
    /// Cluster shape: up to 8 CTAs.
    pub cluster: Option<Cluster>,
    /// Warps of a CTA: 8, 12 or 16, for one, two or three consumer warpgroups and the producer
    /// warpgroup.
    pub warps_per_block: Option<u32>,
    /// Cooperative (the consumer warpgroups share each tile) or ping-pong (they take turns with
    /// whole tiles).
    pub schedule: Option<Schedule>,
    /// Number of stages of the shared-memory ring.
    pub prefetch_depth: Option<u32>,
    /// Height of a raster block, in cluster tiles.
    pub raster_rows: Option<u32>,
    /// Whether the kernel computes Dᵀ = Bᵀ·Aᵀ, with A and B exchanged.
    pub swapped: Option<bool>,
    /// How tiles are split along k.
    pub split: Option<Split>,
    /// Whether partial sums of split tiles may be added in their order of arrival. If false,
    /// results are the same bit for bit on every run.
    pub unordered: bool,
    /// The L2 eviction policies of A, B and D.
    pub l2: Option<L2Policies>,
    /// Whether a launch may begin while the previous one on the stream ends (programmatic dependent
    /// launch). By default the planner takes the variant that it estimates to be faster.
    pub dependent_launch: Option<bool>,
    /// The largest number of SMs to use: 1 to as many as the device has.
    pub sms: Option<u32>,
    /// The kernel, by name. The other kernel knobs must then be left out.
    pub spec: Option<Spec>,
}

impl Config {
    /// A config for A and B of this type with every knob left to the planner.
    pub fn new(dtype: Element) -> Self {
        Config {
            dtype,
            b: None,
            output: None,
            precision: None,
            epilogue: Epilogue::NONE,
            tile_m: None,
            tile_n: None,
            tile_k: None,
            cluster: None,
            warps_per_block: None,
            schedule: None,
            prefetch_depth: None,
            raster_rows: None,
            swapped: None,
            split: None,
            unordered: false,
            l2: None,
            dependent_launch: None,
            sms: None,
            spec: None,
        }
    }

    /// A config that uses exactly this kernel. If its activation has parameters,
    /// [`with_epilogue`](Self::with_epilogue) has to set them.
    pub fn for_spec(spec: Spec) -> Self {
        let [a, b] = Choice::plain(spec).operands();
        let epilogue = Epilogue::of_shape(Choice::plain(spec).epilogue());
        let config = Config { output: Some(spec.output), spec: Some(spec), ..Config::new(a) };
        config.with_b_dtype(b).with_epilogue(epilogue)
    }

    /// A config that requests exactly this choice.
    pub fn for_choice(choice: Choice) -> Self {
        let Choice { spec, raster_rows, split, dependent_launch } = choice;
        Config {
            raster_rows: Some(raster_rows),
            split: Some(split),
            dependent_launch: Some(dependent_launch),
            ..Config::for_spec(spec)
        }
    }

    /// The config for the transposed problem, in which A and B are exchanged.
    pub fn transposed(&self) -> Self {
        let [a, b] = self.operands();
        let output = Some(self.output_dtype());
        let l2 = self.l2.map(|l2| L2Policies { a: l2.b, b: l2.a, ..l2 });
        let epilogue = self.epilogue.transposed();
        Config { dtype: b, output, l2, epilogue, ..self.clone() }.with_b_dtype(a)
    }

    /// Sets the element type of B.
    pub fn with_b_dtype(self, b: Element) -> Self {
        Config { b: (b != self.dtype).then_some(b), ..self }
    }

    /// Sets the element type of C and D.
    pub fn with_output(self, output: Element) -> Self {
        Config { output: Some(output), ..self }
    }

    /// Element type of B.
    pub fn b_dtype(&self) -> Element {
        self.b.unwrap_or(self.dtype)
    }

    /// Element types of A and B.
    pub fn operands(&self) -> [Element; 2] {
        [self.dtype, self.b_dtype()]
    }

    /// Element type of C and D.
    pub fn output_dtype(&self) -> Element {
        let usual = Product::of(self.dtype, self.dtype).and_then(|product| product.outputs.first());
        self.output.or(usual.copied()).unwrap_or(self.dtype)
    }

    /// Whether every knob is left to the planner.
    pub fn leaves_all_to_planner(&self) -> bool {
        let Config { raster_rows, swapped, split, l2, dependent_launch, sms, spec, .. } = self;
        let knobs = [raster_rows.is_some(), swapped.is_some(), split.is_some(), l2.is_some()];
        let launch = [dependent_launch.is_some(), sms.is_some(), spec.is_some()];
        !self.shapes_kernel() && !knobs.contains(&true) && !launch.contains(&true)
    }

    /// Whether a knob that changes the kernel is set.
    pub fn shapes_kernel(&self) -> bool {
        self.tile_m.is_some()
            || self.tile_n.is_some()
            || self.tile_k.is_some()
            || self.cluster.is_some()
            || self.warps_per_block.is_some()
            || self.prefetch_depth.is_some()
            || self.schedule.is_some()
    }
}
