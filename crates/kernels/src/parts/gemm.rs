//! The scheduler, the operands and the mainloop of a spec, and the persistent loop around them and
//! an output.

use pgemm_ir::{
    Element, KernelBuilder, NamedBarriers, RegionKind, SmemRequest, Special, Val,
    WARPGROUP_THREADS, WARPGROUP_WARPS, ty,
};

use super::output::{AnySums, Output, OutputTile, TileSums};
use super::staging::StagingTile;
use super::{Binding, PartsError};
use crate::compute::AtomicSum;
use crate::fixup::threads::ThreadFixup;
use crate::kernel::Composition;
use crate::mainloop::wgmma::{Sums, SumsLayout, WgmmaMainloop, sums_layout};
use crate::output::{self, WorkItem};
use crate::params::Params;
use crate::problem::{Boxes, Problem};
use crate::quantity::Quantity;
use crate::scheduler::Scheduler;
use crate::source::{Item, LaunchSource};
use crate::spec::{Schedule, Spec, WorkSource};
use crate::tiles::staging::STAGING_ROWS;

type Loop<'k, S> = Composition<'k, LaunchSource<'k, ty::F32>, WgmmaMainloop<'k, S>>;

/// The loop with sums of either type.
enum AnyLoop<'k> {
    Floats(Loop<'k, ty::F32>),
    Integers(Loop<'k, ty::S32>),
}

/// The parts of a wgmma kernel besides its output: the scheduler, the operands with their ring, and
/// the mainloop. Their parameters and their shared memory are declared.
///
/// ```
/// use pgemm_ir::{KernelBuilder, Val, ty};
/// use pgemm_kernels::parts::{GemmParts, Output, OutputTile, TileSums};
///
/// /// Stores the first sum of each thread.
/// struct First<'k> {
///     b: &'k KernelBuilder,
///     to: Val<'k, ty::U64>,
/// }
///
/// impl<'k> Output<'k> for First<'k> {
///     type Prepared = ();
///     type State = ();
///     fn start(&self) {}
///     fn prepare(&self, _: &OutputTile<'k>) {}
///     fn finish(&self, tile: &OutputTile<'k>, sums: &TileSums<'_, 'k>, (): (), (): ()) {
///         let [first, ..] = sums.quad(0, 0, 0);
///         self.b.store_global(self.to.byte_offset(tile.thread * 4), [first]);
///     }
/// }
///
/// let b = KernelBuilder::new("first", 1);
/// let spec = "bf16-kk-bf16-64x64x64-s4-w1-c1x1".parse().unwrap();
/// let gemm = GemmParts::declare(&b, &spec).unwrap();
/// let binding = gemm.write(&First { b: &b, to: b.param("to") });
/// b.finish().unwrap();
/// # assert_eq!(binding.spec(), &spec);
/// ```
pub struct GemmParts<'k> {
    pub(super) b: &'k KernelBuilder,
    pub(super) spec: Spec,
    pub(super) params: Params<'k, Quantity>,
    pub(super) problem: Problem<'k, ty::F32>,
    pub(super) layout: SumsLayout,
    scheduler: Scheduler<'k>,
    parts: AnyLoop<'k>,
    reduction: Option<Reduction<'k>>,
}

/// The reduction of tiles that are split along K.
struct Reduction<'k> {
    fixup: ThreadFixup<'k>,
    barriers: NamedBarriers<'k>,
    words: Val<'k, ty::Smem>,
}

impl<'k> GemmParts<'k> {
    /// Declares the parts of a spec of the library, such as `bf16-kk-bf16-128x128x64-s4-w2-c2x1`.
    /// The builder has to have the cluster of the spec ([`Cluster::size`](crate::Cluster::size)).
    /// Epilogue, scales and type of D of the spec count only for a
    /// [`LibraryOutput`](super::LibraryOutput).
    ///
    /// # Errors
    /// [`PartsError::Spec`] if the spec is impossible, and [`PartsError::NoParts`] if its kernel
    /// does not multiply by wgmma or takes its work from a queue.
    pub fn declare(b: &'k KernelBuilder, spec: &Spec) -> Result<Self, PartsError> {
        spec.validate()?;
        let refuse = |what, advice| PartsError::NoParts { spec: spec.to_string(), what, advice };
        let Some(wgmma) = spec.wgmma() else {
            let what = "its kernel does not multiply by wgmma";
            return Err(refuse(what, "Use operands of at most 32 bits and a spec of w or p"));
        };
        if spec.source == WorkSource::Queue {
            let advice = "Leave '-resident' out";
            return Err(refuse("its kernel takes its work from a queue", advice));
        }
        let operands = spec.stage_operands().into_iter();
        let tiles = operands.map(|(_, side)| spec.operand_tile(side).staged());
        let tiles = tiles.collect::<Result<Vec<_>, _>>()?;
        let params = Params::new(b);
        let problem = Problem::of_operands(&params, spec, &Boxes::new(&tiles, None));
        let scheduler = Scheduler::declare(&params, spec).placed();
        let source = LaunchSource::new(b, scheduler, problem.clone());
        let cta = scheduler.in_cluster();
        let parts = match spec.accumulator() {
            Element::S32 => {
                let mainloop = WgmmaMainloop::declare(b, spec, wgmma, tiles, cta)?;
                AnyLoop::Integers(Composition { b, source, mainloop })
            }
            _ => {
                let mainloop = WgmmaMainloop::declare(b, spec, wgmma, tiles, cta)?;
                AnyLoop::Floats(Composition { b, source, mainloop })
            }
        };
        let (spec, layout, reduction) = (*spec, sums_layout(spec)?, None);
        Ok(GemmParts { b, spec, params, problem, layout, scheduler, parts, reduction })
    }

    /// The same with the reduction of tiles that are split along K, so that launches may have
    /// [`Work::split_tiles`](crate::Work::split_tiles). Workers store their sums to the workspace,
    /// and the warpgroup that is the last to do so adds them up in the order of K and gets them as
    /// the sums of the tile. The sums of a tile are copied to registers of their own, so a small
    /// tile is best. A kernel of two products cannot split tiles.
    ///
    /// # Errors
    /// [`PartsError::NoParts`] if the kernel has two products.
    pub fn reducing_splits(self) -> Result<Self, PartsError> {
        let GemmParts { b, spec, .. } = self;
        if spec.accumulator_sets() > 1 {
            return Err(PartsError::NoParts {
                spec: spec.to_string(),
                what: "a kernel of several products does not split tiles",
                advice: "Leave reducing_splits out",
            });
        }
        let workspace = self.params.scalar(Quantity::Workspace);
        let words = SmemRequest::whole(spec.consumers() * 4, 4);
        let words = b.smem_address(b.region("reduction", RegionKind::Data(Element::F32), words));
        let reduction = Reduction {
            fixup: ThreadFixup::new(b, &spec, self.scheduler, workspace),
            barriers: b.named_barriers("reduction", spec.consumers(), WARPGROUP_WARPS),
            words,
        };
        Ok(GemmParts { reduction: Some(reduction), ..self })
    }

    /// The spec.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Rows and columns of the product, as values of the kernel.
    pub fn extents(&self) -> [Val<'k, ty::U32>; 2] {
        self.problem.extents
    }

    /// The staging tiles that the spec has room for, as [`StagedStores`](super::StagedStores) take
    /// them. They have the type and the major of the spec's D.
    ///
    /// # Errors
    /// No spec causes an error.
    pub fn staging(&self) -> Result<StagingTile, PartsError> {
        Ok(StagingTile::of_sums(self.spec.staging(), &self.layout)?)
    }

    /// Writes all roles of the kernel. One warpgroup loads operands; the others multiply, and give
    /// the sums of each tile to `output`.
    pub fn write<O: Output<'k>>(self, output: &O) -> Binding {
        let GemmParts { b, spec, params, layout, parts, reduction, .. } = self;
        let reduces = reduction.is_some();
        let output = Adaptor { b, spec, layout, reduction, output };
        match parts {
            AnyLoop::Floats(parts) => parts.write(&spec, &output),
            AnyLoop::Integers(parts) => parts.write(&spec, &output),
        }
        Binding { spec, quantities: params.into_quantities(), reduces }
    }
}

/// An author's output as an output of the library.
struct Adaptor<'o, 'k, O> {
    b: &'k KernelBuilder,
    spec: Spec,
    layout: SumsLayout,
    reduction: Option<Reduction<'k>>,
    output: &'o O,
}

/// A type of sums of wgmma kernels.
trait PartSums: AtomicSum {
    fn any<'t, 'k>(sums: &'t Sums<'k, Self>) -> AnySums<'t, 'k>;
}

impl PartSums for ty::F32 {
    fn any<'t, 'k>(sums: &'t Sums<'k, Self>) -> AnySums<'t, 'k> {
        AnySums::Floats(sums)
    }
}

impl PartSums for ty::S32 {
    fn any<'t, 'k>(sums: &'t Sums<'k, Self>) -> AnySums<'t, 'k> {
        AnySums::Integers(sums)
    }
}

/// A consumer warpgroup.
struct Worker<'k> {
    consumer: Val<'k, ty::U32>,
    part: Val<'k, ty::U32>,
    thread: Val<'k, ty::U32>,
    first: [Val<'k, ty::U32>; 2],
}

impl<'k, O> Adaptor<'_, 'k, O> {
    fn tile<R>(&self, worker: &Worker<'k>, work: &WorkItem<'_, 'k, R>) -> OutputTile<'k> {
        let origin = (work.origin)();
        OutputTile {
            row: origin.m + worker.part * (self.spec.blocks() * STAGING_ROWS),
            column: origin.n,
            batch: origin.batch,
            warpgroup: worker.consumer,
            thread: worker.thread,
            first: worker.first,
            second_row: self.layout.second_row(),
        }
    }
}

impl<'k, S: PartSums, O: Output<'k>> output::Output<'k, WgmmaMainloop<'k, S>, ty::F32>
    for Adaptor<'_, 'k, O>
{
    type Worker = Worker<'k>;
    type Prepared = (OutputTile<'k>, O::Prepared);
    type Ahead = ();
    type State = O::State;

    fn init(&self) {
        self.output.init();
    }

    /// An author may load anything before the mainloop, also what an earlier launch has stored.
    fn reads_vectors_early(&self) -> bool {
        true
    }

    fn worker(
        &self,
        _: &WgmmaMainloop<'k, S>,
        consumer: Val<'k, ty::U32>,
        part: Val<'k, ty::U32>,
    ) -> Worker<'k> {
        let thread = self.b.special(Special::Thread) % WARPGROUP_THREADS;
        Worker { consumer, part, thread, first: self.layout.first_element(thread) }
    }

    fn consumer<'w>(&self, worker: &'w Worker<'k>) -> &'w Val<'k, ty::U32> {
        &worker.part
    }

    fn leads(&self, worker: &Worker<'k>) -> Val<'k, ty::Bool> {
        worker.thread.eq(0)
    }

    fn start(&self) -> O::State {
        self.output.start()
    }

    fn prepare(&self, worker: &Worker<'k>, work: &WorkItem<'_, 'k, ty::F32>) -> Self::Prepared {
        let tile = self.tile(worker, work);
        let prepared = self.output.prepare(&tile);
        (tile, prepared)
    }

    fn look_ahead(&self, _: &Worker<'k>, _: &Item<'k, ty::F32>) {}

    fn finish(
        &self,
        worker: &Worker<'k>,
        _: &WgmmaMainloop<'k, S>,
        work: &WorkItem<'_, 'k, ty::F32>,
        sums: Sums<'k, S>,
        ((tile, prepared), _): (Self::Prepared, Option<()>),
        state: O::State,
    ) -> O::State {
        let (b, spec) = (self.b, &self.spec);
        // The place need not take registers during a mainloop that runs beside another warpgroup's
        // output.
        let tile = match spec.schedule() {
            Schedule::Cooperative => tile,
            Schedule::PingPong => self.tile(worker, work),
        };
        let (sets, blocks, groups) = (spec.accumulator_sets(), spec.blocks(), spec.tile.n / 8);
        let finish = |sums: &Sums<'k, S>, prepared| {
            let sums = TileSums { b, sums: S::any(sums), sets, blocks, groups };
            b.scope("output", || self.output.finish(&tile, &sums, prepared, state))
        };
        let Some(Reduction { fixup, barriers, words }) = &self.reduction else {
            return finish(&sums, prepared);
        };
        let values: Vec<Val<'k, S>> = (0..blocks * groups)
            .flat_map(|quad| sums.quad(b, quad / groups, quad % groups))
            .collect();
        let segment = &work.item.segment;
        let (values, complete) = b.if_else(
            segment.whole,
            || (values.clone(), b.constant::<ty::Bool>(true)),
            || {
                let word = words.offset(worker.consumer * 4);
                let together = (&barriers.at(worker.consumer), word);
                b.scope("reduction", || fixup.contribute_together(segment, &values, together))
            },
        );
        let sums = Sums::Values(values.chunks(groups as usize * 4).map(<[_]>::to_vec).collect());
        b.if_else(complete, || finish(&sums, prepared), || state)
    }

    fn drain(&self) {
        self.output.drain();
    }
}
