//! [`Config`]: element types and knobs. The types are given; every knob is optional, and the
//! planner chooses those that are left out.

mod epilogue;
mod knobs;
mod precision;

use pgemm_ir::Element;
use pgemm_kernels::{Cluster, Epilogue, L2Policies, Product, Schedule, Spec};
use serde::{Deserialize, Serialize};

use crate::choice::Choice;
use crate::precision::Precision;
use crate::split::Split;

/// Types and knobs of a GEMM. `tile_m`, `tile_n`, `tile_k` name the macro-tile; what doesn't fit
/// one CTA becomes several CTA tiles that are walked together, and the [`Plan`](crate::Plan) says
/// how.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Config {
    /// Element type of A, and of B where that is not given.
    pub dtype: Element,
    /// Element type of B; A's where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b: Option<Element>,
    /// Element type of C and D; where it is not given, the operands', but f32 for tf32, bf16 for
    /// e4m3 and e5m2, and s32 for s8 and u8.
    pub output: Option<Element>,
    /// How accurately products are added up; where it is not given, that of `spec`, else
    /// [`Precision::Full`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// What happens to results on their way to D: a bias, an activation. Nothing where it is not
    /// given.
    #[serde(default, skip_serializing_if = "Epilogue::is_none")]
    pub epilogue: Epilogue,
    /// Macro-tile rows: a multiple of 64.
    pub tile_m: Option<u32>,
    /// Macro-tile columns: a multiple of 8.
    pub tile_n: Option<u32>,
    /// Depth of a stage: 64, 128 or 256 bytes of an operand, which are 32, 64 or 128 of its 16-bit
    /// elements.
    pub tile_k: Option<u32>,
    /// Cluster shape, up to 4 CTAs.
    pub cluster: Option<Cluster>,
    /// Warps of a CTA: 8, 12 or 16 for one, two or three consumer warpgroups beside the producer's.
    pub warps_per_block: Option<u32>,
    /// Whether the consumer warpgroups share each tile or take turns with whole ones.
    pub schedule: Option<Schedule>,
    /// Stages of the shared-memory ring.
    pub prefetch_depth: Option<u32>,
    /// Rows of cluster tiles that are walked together.
    pub raster_rows: Option<u32>,
    /// Whether A and B change places: Dᵀ = Bᵀ·Aᵀ.
    pub swapped: Option<bool>,
    /// How tiles are split along k.
    pub split: Option<Split>,
    /// Whether partial sums of split tiles may be added in the order in which they come. Off,
    /// results are the same bit for bit on every run.
    pub unordered: bool,
    /// How long L2 keeps what is read and written.
    pub l2: Option<L2Policies>,
    /// Whether a launch may begin while the one before it on the stream ends (programmatic
    /// dependent launch). Where it is not given, as is estimated to be faster.
    pub dependent_launch: Option<bool>,
    /// SMs to use at most.
    pub sms: Option<u32>,
    /// The kernel, by name; the other kernel knobs must then be left out.
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

    /// A config that uses exactly this kernel.
    pub fn for_spec(spec: Spec) -> Self {
        let [a, b] = Choice::plain(spec).operands();
        let epilogue = Choice::plain(spec).epilogue();
        let config = Config { output: Some(spec.output), spec: Some(spec), ..Config::new(a) };
        config.with_b_dtype(b).with_epilogue(epilogue)
    }

    /// A config that computes exactly so.
    pub fn for_choice(choice: Choice) -> Self {
        let Choice { spec, raster_rows, split, dependent_launch } = choice;
        Config {
            raster_rows: Some(raster_rows),
            split: Some(split),
            dependent_launch: Some(dependent_launch),
            ..Config::for_spec(spec)
        }
    }

    /// The config for the transposed problem, in which A and B change places.
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

    /// Whether nothing but types and what is computed is given.
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
