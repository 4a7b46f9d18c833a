//! The GEMM kernel: spec → IR. One producer warpgroup and 1 to 3 consumer warpgroups stay on the SM and walk the work of
//! the problem together, joined by the ring of shared-memory stages.

use pgemm_cute::CuteError;
use pgemm_ir::{
    BuildError, Element, Kernel, KernelBuilder, PassError, Special, Val, WARPGROUP_THREADS, ty,
};

use crate::batch::BatchMap;
use crate::epilogue::{Epilogue, Output};
use crate::mainloop::Mainloop;
use crate::reduction::{Contributor, Reduction, Rest, Share};
use crate::resident;
use crate::scales::Scales;
use crate::scheduler::{Scheduler, Segment, TileOrigin};
use crate::spec::{KernelSpec, Schedule, SpecError};
use crate::staging::STAGING_ROWS;
use crate::sums::{Gives, Sum, results};
use crate::walk::Walk;

/// A kernel that could not be built from a spec.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum KernelError {
    /// The spec is impossible.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A tile has no layout.
    #[error("{spec}: {error}")]
    Layout {
        /// The spec.
        spec: KernelSpec,
        /// What the layout algebra refused.
        error: Box<CuteError>,
    },
    /// The kernel is malformed.
    #[error("{spec}: {error}")]
    Build {
        /// The spec.
        spec: KernelSpec,
        /// What the builder refused.
        error: Box<BuildError>,
    },
    /// The kernel breaks the language's rules.
    #[error("{spec}: {error}")]
    Passes {
        /// The spec.
        spec: KernelSpec,
        /// What the verifier or a pass refused.
        error: Box<PassError>,
    },
}

/// A kernel ready for a backend.
#[derive(Clone, Debug)]
pub struct GemmKernel {
    /// What it was built from.
    pub spec: KernelSpec,
    /// The code, verified and legalised.
    pub kernel: Kernel,
}

/// Builds, verifies and legalises the kernel of a spec.
pub fn build(spec: &KernelSpec) -> Result<GemmKernel, KernelError> {
    let kernel = describe(spec)?;
    let kernel = pgemm_ir::optimise(kernel)
        .map_err(|error| KernelError::Passes { spec: *spec, error: Box::new(error) })?;
    Ok(GemmKernel { spec: *spec, kernel })
}

/// The kernel as it is written, before verifier and passes.
pub fn describe(spec: &KernelSpec) -> Result<Kernel, KernelError> {
    spec.validate()?;
    let builder = KernelBuilder::new(entry_name(spec), spec.cluster.size());
    let written = match (spec.accumulator(), spec.output, spec.resident) {
        (Element::S32, Element::S32, false) => write::<ty::S32, ty::S32>(&builder, spec),
        (Element::S32, _, false) => write::<ty::S32, ty::F32>(&builder, spec),
        (_, _, false) => write::<ty::F32, ty::F32>(&builder, spec),
        (Element::S32, Element::S32, _) => resident::write::<ty::S32, ty::S32>(&builder, spec),
        (Element::S32, ..) => resident::write::<ty::S32, ty::F32>(&builder, spec),
        _ => resident::write::<ty::F32, ty::F32>(&builder, spec),
    };
    written.map_err(|error| KernelError::Layout { spec: *spec, error: Box::new(error) })?;
    builder.finish().map_err(|error| KernelError::Build { spec: *spec, error: Box::new(error) })
}

/// The PTX entry name of a spec.
fn entry_name(spec: &KernelSpec) -> String {
    format!("gemm_{spec}").replace(['-', '.'], "_")
}

/// Writes the kernel with sums of type `S`, of which `R` are scaled.
fn write<'k, S: Gives<R>, R: Sum>(
    b: &'k KernelBuilder,
    spec: &KernelSpec,
) -> Result<(), CuteError> {
    b.ctas_per_sm(spec.ctas_by_registers());
    let output = spec.staging().tensor_map();
    let a = BatchMap::declare(b, "a", spec.a_tile().tensor_map());
    let bt = BatchMap::declare(b, "b", spec.b_tile().tensor_map());
    let [c, d] = ["c", "d"].map(|name| {
        let param = |what: &str| b.param::<ty::U64>(&format!("{name}_{what}"));
        Output {
            map: BatchMap::declare(b, name, output.clone()),
            address: param("address"),
            stride: param("stride"),
            batch_stride: param("batch_stride"),
        }
    });
    let policy = |name| b.param::<ty::U64>(name);
    let (a, bt) = (a.with_policy(policy("a_policy")), bt.with_policy(policy("b_policy")));
    let d = Output { map: d.map.with_policy(policy("d_policy")), ..d };
    let (m, n) = (b.param::<ty::U32>("m"), b.param("n"));
    let walk = Walk::declare(b);
    let (workspace, unordered) = (b.param("workspace"), b.param("unordered"));
    let direct = b.param::<ty::U32>("direct").ne(0);
    let factors = ["alpha", "beta"].map(|name| R::factor(b, name));

    let scheduler = Scheduler::new(b, spec.tile, spec.cluster, walk);
    let scales = spec.arithmetic.scaled.then(|| Scales::new(b, [m, n], [&a, &bt]));
    let mainloop = Mainloop::new(b, spec, [a, bt], scheduler.in_cluster())?;
    let epilogue = Epilogue::new(b, spec, [c, d], [m, n], factors, scales, direct)?;
    let reduction = Reduction::new(b, spec, epilogue.staging(), workspace, unordered);

    b.scope("prologue", || {
        b.if_(b.special(Special::Thread).eq(0), || {
            mainloop.init();
            epilogue.init();
            b.fence_mbarrier_init();
        });
        if spec.cluster.size() > 1 {
            b.cluster_arrive(true);
            b.cluster_wait();
        } else {
            b.barrier_sync(0, (spec.consumers + 1) * WARPGROUP_THREADS);
        }
        // The next kernel's prologue may run beside this one's end, as this one's has beside the last one's.
        b.grid_dependency_launch();
    });

    let budget = spec.registers();
    let mut consumed = Ok(());
    b.warp_roles(|roles| {
        roles.role("producer", 1, budget.producer, |_| {
            let first_warp = b.special(Special::Warp).eq(0);
            b.if_(first_warp, || {
                b.if_(b.elect(), || {
                    // Consumers touch memory only after stages that were filled after this.
                    b.grid_dependency_wait();
                    let end = scheduler.for_each_segment(mainloop.start(), |segment, cursor| {
                        mainloop.load(scheduler.origin(segment.tile), &segment, cursor)
                    });
                    mainloop.drain(end);
                });
            });
        });
        roles.role("consumer", spec.consumers, budget.consumer, |consumer| {
            // The part of the tile that this warpgroup computes.
            let part = match spec.schedule {
                Schedule::Cooperative => consumer,
                Schedule::PingPong => b.constant(0),
            };
            if spec.loads_bias_ahead() {
                b.grid_dependency_wait();
            }
            let store = epilogue.warpgroup(consumer);
            let words = reduction.words(consumer);
            let mut consume = |segment: Segment<'k>, (cursor, c_parity), issued: &dyn Fn()| {
                // Found while the first stage loads, or where registers are short and the other warpgroup multiplies during the
                // epilogue, not before that.
                let place = || scheduler.origin(segment.tile);
                let early = (spec.schedule == Schedule::Cooperative).then(place);
                let in_tile = |tile: TileOrigin<'k>| TileOrigin {
                    m: tile.m + part * (spec.blocks() * STAGING_ROWS),
                    ..tile
                };
                let added = early.and_then(|tile| epilogue.bias_ahead(in_tile(tile), &store));
                let found = early.and_then(|tile| epilogue.find_ahead(in_tile(tile), &store));
                let share = || reduction.share(&scheduler, &segment, part, store.thread);
                let ahead = spec.looks_ahead().then_some(|| {
                    b.scope("look ahead", || reduction.look_ahead(&segment, share, &store, words))
                });
                let multiplied = b
                    .scope("mainloop", || mainloop.multiply(&segment, part, cursor, ahead, issued));
                let (accumulators, cursor, ahead) = match multiplied {
                    Ok(multiplied) => multiplied,
                    Err(error) => {
                        consumed = Err(error);
                        return (cursor, c_parity);
                    }
                };
                let origin = in_tile(early.unwrap_or_else(place));
                let accumulators = &accumulators;
                let who = Contributor { warpgroup: &store, origin, accumulators, words };
                let share = match &ahead {
                    Some(ahead) => ahead.share,
                    None => b.if_else(segment.whole, || Share::none(b), share),
                };
                let store_rest = || {
                    let rest = b.if_else(
                        segment.whole,
                        || Rest::all(b),
                        || b.scope("of two", || reduction.of_two(&share, ahead.as_ref(), &who)),
                    );
                    // One epilogue stores whole tiles and those to which the last of two adds the other's sums.
                    let store_tile = || {
                        b.scope("epilogue", || {
                            let sums = |groups| {
                                let sums = reduction.sums::<S>(
                                    &rest,
                                    accumulators,
                                    ahead.as_ref(),
                                    groups,
                                );
                                results::<S, R>(sums)
                            };
                            let ahead = (added.as_ref(), found.as_ref());
                            epilogue.store(origin, &store, &sums, ahead, c_parity)
                        })
                    };
                    b.if_else(rest.stores, store_tile, || c_parity)
                };
                // Apart, since it needs the registers that whole tiles are in.
                let store_pieces =
                    || b.scope("of many", || reduction.of_many(&segment, &share, &who, c_parity));
                let c_parity = b.if_else(share.of_many, store_pieces, store_rest);
                (cursor, c_parity)
            };
            let turns = Turns { b };
            let start = (mainloop.start(), epilogue.start());
            match spec.schedule {
                Schedule::Cooperative => {
                    scheduler.for_each_segment(start, |segment, at| consume(segment, at, &|| {}));
                }
                Schedule::PingPong => {
                    // Bit 0: whose turn it is. Bit 1: somebody had one before.
                    let turn = b.constant::<ty::U32>(0);
                    scheduler.for_each_segment((turn, start), |segment, (turn, at)| {
                        let mine = (turn & 1).eq(consumer);
                        let at = b.if_else(
                            mine,
                            || {
                                // Stages are read in their order: a wait knows only odd and even rounds apart.
                                b.if_(turn.ne(0), || turns.wait(consumer));
                                let pass_on = || b.if_(!segment.last, || turns.pass(consumer ^ 1));
                                consume(segment, at, &pass_on)
                            },
                            || (mainloop.skip(&segment, at.0), at.1),
                        );
                        ((turn ^ 1) | 2, at)
                    });
                }
            }
            epilogue.drain();
        });
    });
    consumed
}

/// Named barriers of ping-pong consumers, behind those of the epilogue: each waits at its own, where the other arrives.
const FIRST_TURN_BARRIER: u32 = 4;

/// Who multiplies, of two consumer warpgroups.
pub(crate) struct Turns<'k> {
    pub(crate) b: &'k KernelBuilder,
}

impl<'k> Turns<'k> {
    /// Waits for the turn of `consumer`, itself.
    pub(crate) fn wait(&self, consumer: Val<'k, ty::U32>) {
        self.b.barrier_sync(consumer + FIRST_TURN_BARRIER, 2 * WARPGROUP_THREADS);
    }

    /// Gives the turn to `consumer`, the other.
    pub(crate) fn pass(&self, consumer: Val<'k, ty::U32>) {
        self.b.barrier_arrive(consumer + FIRST_TURN_BARRIER, 2 * WARPGROUP_THREADS);
    }
}
