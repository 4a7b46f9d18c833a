//! Kernels composed of parts: a work source, operands, a mainloop and an output, run by one
//! persistent loop. [`declare`] makes the parts of a spec, and [`Composition::write`] is the loop.

use pgemm_cute::CuteError;
use pgemm_ir::{
    BuildError, Carried, Element, Kernel, KernelBuilder, Launch, Occupancy, PassError, RingCursor,
    Special, Val, WARPGROUP_WARPS, ty,
};

use crate::compute::{AtomicSum, Compute, ConvertsTo};
use crate::coordinates::CtaPlace;
use crate::direct::DirectKernel;
use crate::fixup::staged::StagedFixup;
use crate::fixup::threads::ThreadFixup;
use crate::launch::{Parameter, Signature, Work, Workspace};
use crate::mainloop::Mainloop;
use crate::mainloop::RegisterSums;
use crate::mainloop::dmma::DmmaMainloop;
use crate::mainloop::ffma::FfmaMainloop;
use crate::mainloop::wgmma::{WgmmaMainloop, sums_layout};
use crate::output::{Output, RegisterTiles, StagedTiles, WorkItem};
use crate::params::Params;
use crate::problem::{Boxes, LaunchParameters};
use crate::quantity::Quantity;
use crate::resident::{QueueQuantity, QueueSource};
use crate::source::{Item, LaunchSource, Source, Walker};
use crate::spec::{DirectSpec, MainloopSpec, Schedule, Spec, SpecError, WgmmaSpec, WorkSource};
use crate::store::registers::RegisterOutput;
use crate::store::staged::StagedOutput;
use crate::store::write::StagedResult;
use crate::tiles::operand::StageTile;

/// A kernel that could not be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The spec is impossible.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A tile has no layout.
    #[error("kernel {kernel}: {error}")]
    Layout {
        /// The kernel's name.
        kernel: String,
        /// What the layout algebra refused.
        error: Box<CuteError>,
    },
    /// The kernel is malformed.
    #[error("kernel {kernel}: {error}")]
    Build {
        /// The kernel's name.
        kernel: String,
        /// What the builder refused.
        error: Box<BuildError>,
    },
    /// The kernel breaks the language's rules.
    #[error("kernel {kernel}: {error}")]
    Passes {
        /// The kernel's name.
        kernel: String,
        /// What the verifier or a pass refused.
        error: Box<PassError>,
    },
}

/// Finishes a written kernel, verifies it and legalises it.
///
/// # Errors
/// The builder, the verifier or a pass refuses the kernel.
pub(crate) fn finish(builder: KernelBuilder, kernel: &str) -> Result<Kernel, KernelError> {
    let kernel = kernel.to_owned();
    match builder.finish() {
        Ok(written) => pgemm_ir::optimise(written)
            .map_err(|error| KernelError::Passes { kernel, error: Box::new(error) }),
        Err(error) => Err(KernelError::Build { kernel, error: Box::new(error) }),
    }
}

/// A GEMM kernel ready for a backend.
#[derive(Clone, Debug)]
pub struct GemmKernel {
    /// What it is launched with.
    pub signature: Signature,
    /// The code, verified and legalised.
    pub kernel: Kernel,
}

impl GemmKernel {
    /// Builds, verifies and legalises the kernel of a spec.
    ///
    /// # Errors
    /// [`KernelError::Spec`] for an impossible spec, with a legal one close to it.
    pub fn build(spec: &Spec) -> Result<GemmKernel, KernelError> {
        let (signature, builder) = write(spec)?;
        let kernel = finish(builder, &spec.to_string())?;
        Ok(GemmKernel { signature, kernel })
    }

    /// The spec that it was built from.
    pub fn spec(&self) -> &Spec {
        &self.signature.spec
    }

    /// The memory for partial sums that `work` needs.
    pub fn workspace(&self, work: &Work) -> Workspace {
        self.spec().workspace(work)
    }

    /// The launch of the kernel on `work`.
    pub fn bind(&self, work: &Work) -> Launch {
        self.signature.bind(work)
    }
}

/// The kernel of a spec as it was written, before the verifier and the passes.
///
/// # Errors
/// As [`GemmKernel::build`].
pub fn describe(spec: &Spec) -> Result<Kernel, KernelError> {
    let (_, builder) = write(spec)?;
    let kernel = spec.to_string();
    builder.finish().map_err(|error| KernelError::Build { kernel, error: Box::new(error) })
}

fn write(spec: &Spec) -> Result<(Signature, KernelBuilder), KernelError> {
    spec.validate()?;
    let builder = KernelBuilder::new(spec.entry_name(), spec.cluster.size());
    let layout = |error| KernelError::Layout { kernel: spec.to_string(), error: Box::new(error) };
    let Declared { parameters, write } = declare(&builder, spec).map_err(layout)?;
    write();
    let signature = Signature::new(spec, &builder, parameters);
    Ok((signature, builder))
}

impl Signature {
    /// The signature of the kernel of a spec. No code is written for it.
    ///
    /// # Errors
    /// As [`GemmKernel::build`].
    pub fn of(spec: &Spec) -> Result<Signature, KernelError> {
        spec.validate()?;
        let builder = KernelBuilder::new(spec.entry_name(), spec.cluster.size());
        let layout =
            |error| KernelError::Layout { kernel: spec.to_string(), error: Box::new(error) };
        let Declared { parameters, .. } = declare(&builder, spec).map_err(layout)?;
        Ok(Signature::new(spec, &builder, parameters))
    }
}

/// A kernel whose parts are declared: its parameters, and the closure that writes its code.
struct Declared<'k> {
    parameters: Vec<Parameter>,
    write: Box<dyn FnOnce() + 'k>,
}

/// Declares the parts of a spec.
fn declare<'k>(b: &'k KernelBuilder, spec: &Spec) -> Result<Declared<'k>, CuteError> {
    match &spec.mainloop {
        MainloopSpec::Wgmma(wgmma) => match (spec.accumulator(), spec.output) {
            (Element::S32, Element::S32) => declare_wgmma::<ty::S32, ty::S32>(b, spec, wgmma),
            (Element::S32, _) => declare_wgmma::<ty::S32, ty::F32>(b, spec, wgmma),
            _ => declare_wgmma::<ty::F32, ty::F32>(b, spec, wgmma),
        },
        MainloopSpec::Dmma(dmma) => {
            let tiles = [spec.a_tile().staged()?, spec.b_tile().staged()?];
            let mainloop = |cta| DmmaMainloop::declare(b, spec, dmma, cta);
            declare_registers::<ty::F64, _>(b, spec, &tiles, mainloop)
        }
        MainloopSpec::Ffma(ffma) => {
            let tiles = spec.line_tiles(ffma).map(|tile| tile.staged());
            let mainloop = |_| Ok(FfmaMainloop::declare(b, spec, ffma));
            declare_registers::<ty::F32, _>(b, spec, &tiles, mainloop)
        }
        MainloopSpec::Direct(direct) => Ok(declare_direct(b, spec, direct)),
    }
}

/// Declares a wgmma kernel that has sums of type `S` and computes results of type `R`.
fn declare_wgmma<'k, S, R>(
    b: &'k KernelBuilder,
    spec: &Spec,
    wgmma: &WgmmaSpec,
) -> Result<Declared<'k>, CuteError>
where
    S: AtomicSum + ConvertsTo<R>,
    R: StagedResult,
{
    let operands = spec.stage_operands().into_iter();
    let tiles = operands.map(|(_, side)| spec.operand_tile(side).staged());
    let tiles = tiles.collect::<Result<Vec<_>, _>>()?;
    let boxes = Boxes::new(&tiles, Some(spec.resources().staging.tensor_map()));
    match spec.source {
        WorkSource::Launch => {
            let params = Params::<Quantity>::new(b);
            let launch = LaunchParameters::<R>::declare(&params, spec, &boxes);
            let scheduler = launch.scheduler.placed();
            let cta = scheduler.in_cluster();
            let mainloop = WgmmaMainloop::<S>::declare(b, spec, wgmma, tiles, cta)?;
            let output = StagedOutput::declare(b, spec, sums_layout(spec)?, launch.scales)?;
            // Workers that share a tile reduce only one set of sums.
            let fixup = (spec.accumulator_sets() == 1).then(|| {
                StagedFixup::declare(b, spec, scheduler, launch.workspace, launch.unordered)
            });
            let source = LaunchSource::new(b, scheduler, launch.problem);
            let output = StagedTiles { b, output, fixup };
            let parameters = params.into_quantities().into_iter().map(Parameter::Problem);
            Ok(compose(spec, parameters.collect(), Composition { b, source, mainloop }, output))
        }
        WorkSource::Queue => {
            let params = Params::<QueueQuantity>::new(b);
            let source = QueueSource::<R>::declare(&params, spec, boxes);
            let mainloop = WgmmaMainloop::<S>::declare(b, spec, wgmma, tiles, None)?;
            let output = StagedOutput::declare(b, spec, sums_layout(spec)?, None)?;
            let output = StagedTiles { b, output, fixup: None };
            let parameters = params.into_quantities().into_iter().map(Parameter::Queue);
            Ok(compose(spec, parameters.collect(), Composition { b, source, mainloop }, output))
        }
    }
}

/// Declares a kernel that computes in type `R` and stores D from registers.
fn declare_registers<'k, R, M>(
    b: &'k KernelBuilder,
    spec: &Spec,
    tiles: &[StageTile],
    mainloop: impl FnOnce(Option<CtaPlace<'k>>) -> Result<M, CuteError>,
) -> Result<Declared<'k>, CuteError>
where
    R: Compute,
    M: RegisterSums<'k, Sums = Vec<Val<'k, R>>> + 'k,
{
    let params = Params::<Quantity>::new(b);
    let launch = LaunchParameters::<R>::declare(&params, spec, &Boxes::new(tiles, None));
    let scheduler = launch.scheduler.placed();
    let mainloop = mainloop(scheduler.in_cluster())?;
    let output = RegisterTiles {
        b,
        output: RegisterOutput::new(b, spec, &mainloop),
        fixup: ThreadFixup::new(b, spec, scheduler, launch.workspace),
    };
    let source = LaunchSource::new(b, scheduler, launch.problem);
    let parameters = params.into_quantities().into_iter().map(Parameter::Problem);
    Ok(compose(spec, parameters.collect(), Composition { b, source, mainloop }, output))
}

/// Declares a direct kernel.
fn declare_direct<'k>(b: &'k KernelBuilder, spec: &Spec, direct: &DirectSpec) -> Declared<'k> {
    let params = Params::<Quantity>::new(b);
    let boxes = Boxes { operands: vec![], output: None };
    let launch = LaunchParameters::declare(&params, spec, &boxes);
    let parameters = params.into_quantities().into_iter().map(Parameter::Problem).collect();
    let kernel = DirectKernel::new(b, spec, direct, launch);
    Declared { parameters, write: Box::new(move || kernel.write()) }
}

fn compose<'k, S, M, O>(
    spec: &Spec,
    parameters: Vec<Parameter>,
    composition: Composition<'k, S, M>,
    output: O,
) -> Declared<'k>
where
    S: Source<'k> + 'k,
    M: Mainloop<'k> + 'k,
    O: Output<'k, M, S::Result> + 'k,
{
    let spec = *spec;
    Declared { parameters, write: Box::new(move || composition.write(&spec, &output)) }
}

/// The parts of a kernel besides its output.
pub(crate) struct Composition<'k, S, M> {
    pub(crate) b: &'k KernelBuilder,
    pub(crate) source: S,
    pub(crate) mainloop: M,
}

impl<'k, S, M> Composition<'k, S, M>
where
    S: Source<'k>,
    M: Mainloop<'k>,
{
    /// Writes the kernel. One producer warpgroup and several consumer warpgroups stay on the SM.
    /// They walk the same items of work, and the ring of stages connects them.
    pub(crate) fn write<O: Output<'k, M, S::Result>>(&self, spec: &Spec, output: &O) {
        let b = self.b;
        let resources = spec.resources();
        b.scope("prologue", || self.prologue(spec, output));
        let budget = resources.registers.budget;
        b.warp_roles(Occupancy::ctas(resources.ctas_by_registers), |roles| {
            roles.role("producer", 1, budget.producer, |_| self.produce());
            roles.role("consumer", spec.consumers(), budget.consumer, |consumer| {
                self.consume(spec.schedule(), consumer, output);
            });
        });
    }

    fn prologue<O: Output<'k, M, S::Result>>(&self, spec: &Spec, output: &O) {
        let b = self.b;
        b.if_(b.special(Special::Thread).eq(0), || {
            self.mainloop.init();
            output.init();
            self.source.init();
            b.fence_mbarrier_init();
        });
        if spec.cluster.size() > 1 {
            b.cluster_arrive(true);
            b.cluster_wait();
        } else {
            b.sync_cta();
        }
        self.source.release_dependents();
    }

    /// The producer's warpgroup. One warp loads operands, and others are helpers.
    fn produce(&self) {
        let b = self.b;
        let (operands, warp) = (self.mainloop.operands(), b.special(Special::Warp));
        if operands.are_loaded_by_threads() {
            self.source.await_dependencies();
            let end = self.source.load(operands);
            return b.if_(warp.eq(0), || b.if_(b.elect(), || operands.drain(end)));
        }
        b.if_(warp.eq(0), || {
            b.if_(b.elect(), || {
                // Consumers access global memory only after stages that were filled after this
                // wait.
                self.source.await_dependencies();
                let end = self.source.load(operands);
                operands.drain(end);
            });
        });
        let helpers = self.mainloop.helper_warps();
        if helpers > 0 {
            let first = 1;
            b.if_(warp.ge(first) & warp.lt(first + helpers), || {
                b.scope("helper", || {
                    self.source.for_each_run(operands.start(), |k_count, cursor| {
                        self.mainloop.help(warp - first, k_count, cursor)
                    });
                });
            });
        }
        for (index, helper) in (1 + helpers..).zip(self.source.helpers()) {
            b.if_(warp.eq(index), helper);
        }
    }

    /// A consumer warpgroup. It multiplies and stores its own items (ping-pong), or its part of
    /// every item (cooperative).
    fn consume<O: Output<'k, M, S::Result>>(
        &self,
        schedule: Schedule,
        consumer: Val<'k, ty::U32>,
        output: &O,
    ) {
        let b = self.b;
        let part = match schedule {
            Schedule::Cooperative => consumer,
            Schedule::PingPong => b.constant(0),
        };
        if output.reads_vectors_early() {
            self.source.await_dependencies();
        }
        let worker = output.worker(&self.mainloop, consumer, part);
        let walker = Walker::Consumer { leads: output.leads(&worker) };
        let operands = self.mainloop.operands();
        let item =
            |item: &Item<'k, S::Result>, (cursor, (state, problem_state)), issued: &dyn Fn()| {
                let problem_state = self.source.begin(item, walker, problem_state);
                let origin = || self.source.origin(item);
                let work = WorkItem { item, origin: &origin };
                let prepared = output.prepare(&worker, &work);
                let look_ahead = || b.scope("look ahead", || output.look_ahead(&worker, item));
                let look_ahead = output.looks_ahead().then_some(look_ahead);
                let (sums, cursor, ahead) = b.scope("mainloop", || {
                    let consumer = output.consumer(&worker);
                    self.mainloop.multiply(consumer, &item.segment, cursor, look_ahead, issued)
                });
                let found = (prepared, ahead);
                let state = output.finish(&worker, &self.mainloop, &work, sums, found, state);
                self.source.finished(item, walker);
                (cursor, (state, problem_state))
            };
        let start = (operands.start(), (output.start(), self.source.initial_state()));
        match schedule {
            Schedule::Cooperative => {
                self.source.for_each(walker, start, |work, at| item(work, at, &|| {}));
            }
            Schedule::PingPong => self.ping_pong(consumer, walker, start, item),
        }
        output.drain();
    }

    /// The ping-pong schedule: two consumer warpgroups alternate by whole items, so that one
    /// multiplies while the other stores. Stages are read in order, because a wait distinguishes
    /// only odd from even rounds.
    fn ping_pong<C: Carried<'k> + Copy>(
        &self,
        consumer: Val<'k, ty::U32>,
        walker: Walker<'k>,
        start: (RingCursor<'k>, C),
        item: impl Fn(&Item<'k, S::Result>, (RingCursor<'k>, C), &dyn Fn()) -> (RingCursor<'k>, C),
    ) {
        let b = self.b;
        let ring = self.mainloop.operands().ring();
        // Each warpgroup waits at its own barrier. The other warpgroup arrives there.
        let barriers = b.named_barriers("turns", 2, 2 * WARPGROUP_WARPS);
        let wait = || barriers.at(consumer).sync();
        let pass = || barriers.at(consumer ^ 1).arrive();
        // Bit 0 is the warpgroup that has the turn. Bit 1 is set after the first turn.
        let turn = b.constant::<ty::U32>(0);
        let (turn, _) = self.source.for_each(walker, (turn, start), |work, (turn, at)| {
            let own_turn = (turn & 1).eq(consumer);
            let (cursor, state) = at;
            let at = b.if_else(
                own_turn,
                || {
                    b.if_(turn.ne(0), wait);
                    item(work, (cursor, state), &pass)
                },
                || (ring.skip(cursor, work.segment.k_count), state),
            );
            ((turn ^ 1) | 2, at)
        });
        // The last turn was passed on too, so its arrival has to be waited for.
        b.if_((turn & 1).eq(consumer) & turn.ne(0), wait);
    }
}
