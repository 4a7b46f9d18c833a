//! A kernel that only reads. Its CTAs stay on their SMs and stream a buffer by TMA into a deep
//! ring. Its bandwidth bounds every kernel whose operands come from memory.

mod arithmetic;
mod loads;
mod sums;

use pgemm_cute::CuteError;
use pgemm_ir::{
    Argument, AtomicOp, BuildError, Element, Kernel, KernelBuilder, Launch, MAX_SMEM_BYTES,
    MBARRIER_BYTES, Occupancy, Order, ParamKind, PassError, RegionId, RegionKind, Scope,
    SmemRequest, Special, SwizzleMode, TensorMap, TensorMapArgument, TensorMapSpec, Val,
    WARPGROUP_THREADS, ty,
};

pub use self::arithmetic::{ArithmeticProbe, ArithmeticWork};
pub use self::loads::LoadProbe;
pub use self::sums::{SumInstruction, SumProbe, SumWork};
use crate::launch::L2Policy;
use crate::spec::SpecError;

/// Bytes of a row of the buffer. The size of the buffer is a multiple of it.
pub const PROBE_ROW_BYTES: u32 = ROW_ELEMENTS * ELEMENT_BYTES;

/// Maximum number of elements of a box along one dimension.
const ROW_ELEMENTS: u32 = 256;
const ELEMENT_BYTES: u32 = 4;
const WARPS: u32 = WARPGROUP_THREADS / 32;
/// Bytes of shared memory that are reserved for barriers.
const BARRIER_BYTES: u32 = 1024;
/// Maximum number of stages. Each has two barriers.
const MOST_STAGES: u32 = BARRIER_BYTES / (2 * MBARRIER_BYTES);
/// Bytes that a thread reads at once, in the variant with checksums.
const CHUNK_BYTES: u32 = 16;

/// The parameters that change the probe's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbeSpec {
    /// Bytes of one TMA copy, a multiple of 2 KiB from 2 KiB to 64 KiB.
    pub box_bytes: u32,
    /// Copies in flight in each CTA. There are at least 2, and as many as fit into shared memory.
    pub stages: u32,
    /// Whether the words of each box are added up in memory. Tests use it to check that all bytes
    /// are read.
    pub checksums: bool,
}

/// The buffer that a probe reads, and the parameters of the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeWork {
    /// Address of the buffer, a multiple of 16.
    pub address: u64,
    /// Its size, a multiple of [`PROBE_ROW_BYTES`] below 2⁴⁰.
    pub bytes: u64,
    /// The L2 policy of the loads.
    pub policy: L2Policy,
    /// How often the launch reads the buffer. A buffer that L2 holds is read in microseconds, of
    /// which the start and the end of the launch would be a large part.
    pub passes: u32,
    /// Number of CTAs to launch, which is the number of SMs of the device.
    pub ctas: u32,
    /// Address of one 32-bit word for each box. The box's words are added to it in each pass, with
    /// wrapping. It is not used without checksums.
    pub sums: u64,
}

/// The reason why a probe could not be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProbeError {
    /// Tensor cores do not multiply the type.
    #[error("tensor cores do not multiply {0}")]
    NoTensorCores(Element),
    /// The layout algebra refuses a tile.
    #[error("a probe: {0}")]
    Layout(Box<CuteError>),
    /// The spec is impossible.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The kernel is malformed.
    #[error("a probe: {0}")]
    Build(Box<BuildError>),
    /// The kernel breaks the language's rules.
    #[error("a probe: {0}")]
    Passes(Box<PassError>),
}

/// A probe ready for a backend.
#[derive(Clone, Debug)]
pub struct ProbeKernel {
    /// The spec that it was built from.
    pub spec: ProbeSpec,
    /// The code, verified and legalised.
    pub kernel: Kernel,
}

impl ProbeSpec {
    fn validate(&self) -> Result<(), SpecError> {
        let step = 2 * PROBE_ROW_BYTES;
        if !self.box_bytes.is_multiple_of(step) || !(step..=64 << 10).contains(&self.box_bytes) {
            let nearest = self.box_bytes.saturating_add(step / 2) / step * step;
            return Err(SpecError::Knob {
                knob: "box_bytes",
                requested: self.box_bytes,
                limit: format!("must be a multiple of {step} from {step} to {}", 64 << 10),
                nearest: nearest.clamp(step, 64 << 10),
            });
        }
        let most = MOST_STAGES.min((MAX_SMEM_BYTES - BARRIER_BYTES) / self.box_bytes);
        if !(2..=most).contains(&self.stages) {
            return Err(SpecError::Knob {
                knob: "stages",
                requested: self.stages,
                limit: format!("must be 2 to {most}"),
                nearest: self.stages.clamp(2, most),
            });
        }
        Ok(())
    }

    /// Number of boxes of a buffer of `bytes` bytes.
    pub fn boxes(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.box_bytes.into())
    }
}

impl ProbeKernel {
    /// Builds, verifies and legalises a probe.
    ///
    /// # Errors
    /// [`ProbeError::Spec`] with the nearest legal spec.
    pub fn build(spec: ProbeSpec) -> Result<ProbeKernel, ProbeError> {
        spec.validate()?;
        let sums = if spec.checksums { "_sums" } else { "" };
        let name = format!("probe_{}_s{}{sums}", spec.box_bytes, spec.stages);
        let builder = KernelBuilder::new(name, 1);
        Probe::declare(&builder, spec).write();
        let kernel = builder.finish().map_err(|error| ProbeError::Build(Box::new(error)))?;
        let kernel =
            pgemm_ir::optimise(kernel).map_err(|error| ProbeError::Passes(Box::new(error)))?;
        Ok(ProbeKernel { spec, kernel })
    }

    /// The launch of this kernel on `work`. The arguments are in the order of the kernel's
    /// parameters.
    pub fn bind(&self, work: &ProbeWork) -> Launch {
        let rows = work.bytes / u64::from(PROBE_ROW_BYTES);
        let boxes = self.spec.boxes(work.bytes) as u32;
        let arguments = self
            .kernel
            .params
            .iter()
            .map(|param| match (param.name.as_str(), &param.kind) {
                ("buffer", ParamKind::TensorMap(_)) => Argument::TensorMap(TensorMapArgument {
                    address: work.address,
                    extents: vec![ROW_ELEMENTS.into(), rows],
                    strides: vec![PROBE_ROW_BYTES.into()],
                }),
                ("boxes", _) => Argument::U32(boxes),
                ("reads", _) => Argument::U32(boxes.saturating_mul(work.passes)),
                ("policy", _) => Argument::U64(work.policy.word()),
                ("sums", _) => Argument::U64(work.sums),
                (name, _) => unreachable!("Probe::declare declares no parameter {name}"),
            })
            .collect();
        Launch { grid: [work.ctas.min(boxes).max(1), 1, 1], arguments }
    }
}

/// A probe while its code is written.
struct Probe<'k> {
    b: &'k KernelBuilder,
    spec: ProbeSpec,
    map: TensorMap<'k>,
    /// Boxes of the buffer.
    boxes: Val<'k, ty::U32>,
    /// Boxes that are read, in all passes.
    reads: Val<'k, ty::U32>,
    /// Address of the checksums.
    sums: Option<Val<'k, ty::U64>>,
    stages: RegionId,
    full: RegionId,
    empty: RegionId,
}

/// The stage, and the parity of the ring's round.
type Cursor<'k> = (Val<'k, ty::U32>, Val<'k, ty::U32>);

impl<'k> Probe<'k> {
    fn declare(b: &'k KernelBuilder, spec: ProbeSpec) -> Probe<'k> {
        let map = b.tensor_map(
            "buffer",
            TensorMapSpec::tiled(
                Element::F32,
                vec![ROW_ELEMENTS, spec.box_bytes / PROBE_ROW_BYTES],
                SwizzleMode::None,
            ),
        );
        let [boxes, reads] = ["boxes", "reads"].map(|name| b.param(name));
        let map = map.with_policy(b.param::<ty::U64>("policy"));
        let barriers = || SmemRequest::whole(spec.stages * MBARRIER_BYTES, MBARRIER_BYTES);
        let stages = SmemRequest::whole(spec.stages * spec.box_bytes, 1024);
        Probe {
            b,
            spec,
            map,
            boxes,
            reads,
            sums: spec.checksums.then(|| b.param("sums")),
            stages: b.region("stages", RegionKind::Data(Element::F32), stages),
            full: b.region("full", RegionKind::Mbarrier, barriers()),
            empty: b.region("empty", RegionKind::Mbarrier, barriers()),
        }
    }

    fn write(&self) {
        let b = self.b;
        b.scope("prologue", || {
            b.if_(b.special(Special::Thread).eq(0), || {
                for stage in 0..self.spec.stages {
                    let offset = stage * MBARRIER_BYTES;
                    b.smem_address(self.full).offset(offset).mbarrier_init(1);
                    b.smem_address(self.empty).offset(offset).mbarrier_init(self.readers());
                }
                self.map.prefetch_map();
                b.fence_mbarrier_init();
            });
            b.sync_cta();
            // GEMM kernels do the same, and the probe is compared with them.
            b.grid_dependency_launch();
            b.grid_dependency_wait();
        });
        b.warp_roles(Occupancy::ONE_CTA, |roles| {
            roles.role("producer", 1, 40, |_| {
                b.if_(b.special(Special::Warp).eq(0), || b.if_(b.elect(), || self.load()));
            });
            roles.role("consumer", 1, 40, |_| match self.sums {
                Some(sums) => self.for_each_box(|index, stage| self.add_up(sums, index, stage)),
                None => {
                    b.if_(b.special(Special::Warp).eq(WARPS), || self.for_each_box(|_, _| ()));
                }
            });
        });
    }

    /// Number of warps that free a stage.
    fn readers(&self) -> u32 {
        if self.spec.checksums { WARPS } else { 1 }
    }

    /// Producer: loads all boxes of this CTA. Boxes that all CTAs read at about the same time are
    /// neighbours.
    fn load(&self) {
        let b = self.b;
        let rows = self.spec.box_bytes / PROBE_ROW_BYTES;
        self.for_each((b.constant(0), b.constant(0)), |index, (stage, phase)| {
            self.barrier(self.empty, stage).mbarrier_wait(phase ^ 1);
            let full = self.barrier(self.full, stage);
            full.mbarrier_expect_copies(|copies| {
                copies.load(&self.map, self.stage(stage), &[b.constant(0), index * rows]);
            });
        });
    }

    /// Consumer: waits for each box, calls `read`, and then frees the stage.
    fn for_each_box(&self, read: impl FnOnce(Val<'k, ty::U32>, Val<'k, ty::U32>)) {
        let b = self.b;
        self.for_each((b.constant(0), b.constant(0)), |index, (stage, phase)| {
            self.barrier(self.full, stage).mbarrier_wait(phase);
            read(index, stage);
            // All lanes must have read before the first lane frees the stage.
            b.warp_sync();
            b.if_(b.special(Special::Lane).eq(0), || {
                self.barrier(self.empty, stage).mbarrier_arrive()
            });
        });
    }

    fn add_up(&self, sums: Val<'k, ty::U64>, index: Val<'k, ty::U32>, stage: Val<'k, ty::U32>) {
        let b = self.b;
        let thread = b.special(Special::Thread) % WARPGROUP_THREADS;
        let first = self.stage(stage).offset(thread * CHUNK_BYTES);
        let step = WARPGROUP_THREADS * CHUNK_BYTES;
        let sum = b.for_carry(
            0,
            self.spec.box_bytes / step,
            1,
            b.constant::<ty::U32>(0),
            |chunk, sum| {
                let words = b.load_shared::<ty::U32, 4>(first.offset(chunk * step));
                words.into_iter().fold(sum, |sum, word| sum + word)
            },
        );
        b.atomic(AtomicOp::Add, sums.byte_offset(index * 4), sum, Order::Relaxed, Scope::Gpu);
    }

    /// Runs `body` for every box that this CTA reads, with the cursor of its stage.
    fn for_each(&self, start: Cursor<'k>, body: impl FnOnce(Val<'k, ty::U32>, Cursor<'k>)) {
        let b = self.b;
        let (cta, ctas) = (b.special(Special::Cta), b.special(Special::CtaCount));
        b.for_carry(cta, self.reads, ctas, start, |index, (stage, phase)| {
            body(index % self.boxes, (stage, phase));
            let next = stage + 1;
            let wraps = next.eq(self.spec.stages);
            (wraps.select(0, next), wraps.select(phase ^ 1, phase))
        });
    }

    fn stage(&self, stage: Val<'k, ty::U32>) -> Val<'k, ty::Smem> {
        self.b.smem_address(self.stages).offset(stage * self.spec.box_bytes)
    }

    fn barrier(&self, region: RegionId, stage: Val<'k, ty::U32>) -> Val<'k, ty::Smem> {
        self.b.smem_address(region).offset(stage * MBARRIER_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_probes_name_the_nearest() {
        let nearest = |box_bytes, stages| {
            let spec = ProbeSpec { box_bytes, stages, checksums: false };
            match ProbeKernel::build(spec) {
                Err(ProbeError::Spec(SpecError::Knob { knob, nearest, .. })) => (knob, nearest),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(nearest(3000, 4), ("box_bytes", 2048));
        assert_eq!(nearest(0, 4), ("box_bytes", 2048));
        assert_eq!(nearest(u32::MAX, 4), ("box_bytes", 65_536));
        assert_eq!(nearest(16 << 10, 15), ("stages", 14));
        assert_eq!(nearest(16 << 10, 1), ("stages", 2));
    }
}
