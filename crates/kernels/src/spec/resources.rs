//! [`Resources`] are the registers, shared memory and CTA slots of an SM that a kernel takes. They
//! are computed once, from the parts of the kernel. The kernel, its validation, the planner and
//! `pgemm kernel show --resources` all read them. No other place states a threshold on registers or
//! shared memory.

use std::fmt;

use pgemm_ir::{MAX_SMEM_BYTES, SM_REGISTERS, SM_SMEM_BYTES, SYSTEM_SMEM_BYTES, WARPGROUP_THREADS};
use serde::Serialize;

use super::{
    DirectSpec, DmmaSpec, FfmaSpec, MainloopSpec, Schedule, Spec, Summation, Tile, WgmmaSpec,
};
use crate::dtype;
use crate::queue;
use crate::tiles::line::{LineForm, LineTile, QUAD};
use crate::tiles::staging::{OutputMajor, Staging};

/// Bytes reserved for barriers, behind the ring and the staging buffers.
const BARRIER_BYTES: u32 = 1024;

/// A ring of fewer stages is shallow: MMAs hold two stages while the others are loaded. In seven
/// pairs of kernels of 192×176, whose D leaves in two steps, four stages and one staging buffer
/// took 0 to 11 % less time than three stages with more buffers.
const SHALLOW_RING: u32 = 4;

/// Most steps of a tile's D that go through one staging buffer for the sake of the ring. With
/// 192×192, which has three, 22 pairs took 3 % longer so in the mean (as the pairs above, runs
/// `2026-11-26-turns-rings-*` of `benchmarks/results`).
const MOST_STEPS_OF_ONE_BUFFER: u32 = 2;

/// Batches of MMAs with promoted sums, between which one of two sets of accumulators is always in
/// use.
const BATCHES_OF_TURNS: u32 = 4;

/// Registers per thread that a wgmma mainloop and its epilogue need besides the accumulators. With
/// fewer registers the assembler spills.
pub(super) const WGMMA_OTHER: u32 = 32;

/// The same number for results of 32 or 8 bits and for column-major results. These need more
/// addresses.
const WGMMA_OTHER_LONG_ADDRESSES: u32 = 48;

/// The same number for an epilogue with a bias or an activation. With fewer registers, ping-pong
/// kernels of 128×208 would spill.
const WGMMA_OTHER_FUSED: u32 = 40;

/// Registers of an f64 thread besides accumulators and fragments. The registers for the exponential
/// function and polynomials follow.
const DMMA_OTHER: u32 = 16;
const DMMA_ACTIVATION: u32 = 24;

/// Sums of an f64 thread from which a kernel with one consumer warpgroup needs more registers, and
/// how many more. ptxas 13.0 spills warp tiles of 32×64, 64×32 and 48×48 with fewer.
const DMMA_MANY_SUMS: u32 = 128;
const DMMA_OTHER_OF_MANY_SUMS: u32 = 32;

/// Up to so many registers of A's fragments, ptxas 13.0 loads half of the next step's fragments
/// ahead. It loads all of them ahead if there are more, such as those of 112 rows; where two CTAs
/// share an SM, those of 96 rows too.
const DMMA_HALVED_FRAGMENTS: u32 = 48;
const DMMA_HALVED_FRAGMENTS_OF_PAIR: u32 = 40;

/// Registers of a thread of a direct kernel besides its sums and the loads of one step, and how
/// many more it needs for each step of a stage. With as many CTAs on an SM as these allow, ptxas
/// 13.0 spills none of the 540 kernels of bf16 that load one, two or four elements of each K-major
/// operand.
const DIRECT_OTHER: u32 = 49;
const DIRECT_OTHER_OF_STEP: u32 = 4;

/// Registers of an f32 thread besides sums and fragments.
const FFMA_OTHER: u32 = 24;

/// Maximum number of sums of a thread for which half the registers of an SM suffice for a CTA.
const SUMS_OF_HALF_SM: u32 = 32;

/// Maximum number of sums of a thread for which it may hold another worker's sums while it
/// multiplies.
const SUMS_LOOKED_AHEAD: u32 = 64;

/// A consumer thread with fewer registers than this keeps half as many loads in flight.
const PLENTY_OF_REGISTERS: u32 = 200;

/// Elements or units of D that a thread with free registers keeps in flight.
const STORES_IN_FLIGHT: u32 = 4;

/// The resources that one CTA of a kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Resources {
    /// Shared memory.
    pub smem: SmemUse,
    /// Registers per thread.
    pub registers: RegisterUse,
    /// Number of CTAs that share the registers of an SM. These CTAs may belong to different
    /// launches, such as a repack kernel and the GEMM that follows it.
    pub ctas_by_registers: u32,
    /// Number of CTAs of this kernel that an SM holds at once, by registers and shared memory.
    pub ctas_per_sm: u32,
    /// Number of CTAs of one launch that work on an SM at once. It is one for a small wgmma kernel
    /// whose operands TMA loads. The room of the second CTA is for the next launch, whose CTAs are
    /// set up while these still work.
    pub working_ctas_per_sm: u32,
    /// The buffers through which D is stored. Kernels that store D from registers have none.
    #[serde(skip)]
    pub staging: Staging,
}

/// Shared memory of a CTA, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SmemUse {
    /// Bytes of one stage of the ring.
    pub stage: u32,
    /// Bytes of all stages.
    pub ring: u32,
    /// Staging buffers of all consumer warpgroups.
    pub staging: u32,
    /// Upper bound for the barriers.
    pub barriers: u32,
    /// The work queue of a resident kernel.
    pub queue: u32,
    /// Bytes that a CTA may use.
    pub limit: u32,
}

impl SmemUse {
    /// Upper bound of the bytes in use.
    pub fn total(&self) -> u32 {
        self.ring.saturating_add(self.staging + self.barriers + self.queue)
    }
}

/// Registers per thread after `setmaxnreg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RegisterBudget {
    /// Registers of the producer warpgroup's threads.
    pub producer: u32,
    /// Registers of the consumer warpgroups' threads.
    pub consumer: u32,
}

/// Registers of a consumer thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RegisterUse {
    /// Accumulators. If sums are promoted, these include the binary32 sums.
    pub accumulators: u32,
    /// The stages during which two sets of the tensor core's accumulators take turns without a pause,
    /// if sums are promoted. 0 if there is a single set.
    pub turn_stages: u32,
    /// Fragments of operands.
    pub fragments: u32,
    /// Another worker's sums, which are loaded while this worker still multiplies.
    pub look_ahead: u32,
    /// Addresses, counters, and temporaries of the epilogue.
    pub other: u32,
    /// The registers of each role.
    pub budget: RegisterBudget,
    /// Registers of a thread before `setmaxnreg`, rounded down to the allocation unit. The
    /// accumulators of one MMA must fit into them.
    pub at_launch: u32,
    /// When a bias is loaded.
    pub bias: BiasLoads,
    /// Whether threads have free registers besides those of the values that they store.
    pub is_plenty: bool,
    /// Number of elements or 16-byte units that a thread keeps in flight if threads store D.
    pub stores_in_flight: u32,
}

impl RegisterUse {
    /// Registers that a consumer thread needs while it multiplies.
    pub fn needed(&self) -> u32 {
        self.accumulators + self.fragments + self.other
    }

    /// Whether consumers check for the other share of a split tile, and load it, while they still
    /// multiply.
    pub fn looks_ahead(&self) -> bool {
        self.look_ahead > 0
    }

    /// Registers that a consumer thread has no use for while it multiplies.
    pub(super) fn spare(&self) -> u32 {
        self.budget.consumer.saturating_sub(self.needed() + self.look_ahead)
    }
}

/// When threads load the elements of a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum BiasLoads {
    /// The elements of the whole tile are loaded before its mainloop, so that no thread waits for
    /// them.
    BeforeMainloop,
    /// Elements are loaded together with the part of the tile that is stored next.
    WithStore,
    /// Each element is loaded when it is added, since registers are short.
    ByElement,
}

impl Spec {
    /// The resources that one CTA takes.
    pub fn resources(&self) -> Resources {
        match &self.mainloop {
            MainloopSpec::Wgmma(wgmma) => self.wgmma_resources(wgmma),
            MainloopSpec::Dmma(dmma) => self.dmma_resources(dmma),
            MainloopSpec::Ffma(ffma) => self.ffma_resources(ffma),
            MainloopSpec::Direct(_) => self.direct_resources(),
        }
    }

    /// Number of CTAs of one launch that work on an SM at once, each on its own tile.
    ///
    /// It is one for a small wgmma kernel whose operands TMA loads. The room of the second CTA is
    /// for the next launch, whose CTAs are set up while these still work. It is two for one whose
    /// threads load operands: they have few loads in flight and wait for them, and the threads of
    /// another CTA load meanwhile.
    pub fn working_ctas_per_sm(&self) -> u32 {
        match &self.mainloop {
            MainloopSpec::Wgmma(wgmma) if wgmma.threads_load() => {
                1 + u32::from(self.is_pair(wgmma))
            }
            MainloopSpec::Wgmma(_) => 1,
            MainloopSpec::Dmma(dmma) => dmma.ctas_per_sm(self.tile),
            MainloopSpec::Ffma(ffma) => ffma.ctas_per_sm(),
            MainloopSpec::Direct(_) => self.direct_ctas_per_sm(),
        }
    }

    /// Bytes of shared memory that a launch of so many CTAs on `sms` SMs asks for, if a CTA needs
    /// `bytes`.
    ///
    /// The hardware gives some SMs two CTAs before others have one: in one launch on an H200, eight
    /// of the first 44 of 264 CTAs shared an SM with another of them
    /// (`benchmarks/probes/cta-placement.cu`). If there is an SM for each CTA, the launch thus asks
    /// for more than each of two CTAs on an SM can have.
    pub fn launch_smem(&self, bytes: u32, ctas: u64, sms: u32) -> u32 {
        if self.working_ctas_per_sm() > 1 && !self.is_direct() && ctas <= sms.into() {
            bytes.max(share_of_sm(2) + 1)
        } else {
            bytes
        }
    }

    /// Bytes of one stage.
    pub fn stage_bytes(&self) -> u32 {
        match &self.mainloop {
            MainloopSpec::Ffma(ffma) => self.line_tiles(ffma).iter().map(LineTile::bytes).sum(),
            MainloopSpec::Direct(_) => 0,
            MainloopSpec::Wgmma(_) | MainloopSpec::Dmma(_) => {
                let operands = self.stage_operands().into_iter();
                operands.map(|(_, side)| self.operand_tile(side).bytes()).sum()
            }
        }
    }

    /// Number of stages of the deepest ring that fits with the fewest staging buffers.
    pub fn most_stages(&self) -> u32 {
        self.fitting_stages(self.smem_limit())
    }

    /// Number of stages of the deepest ring with which two CTAs fit on an SM. `None` if their
    /// registers do not fit.
    pub fn most_stages_of_pair(&self) -> Option<u32> {
        let fits = self.wgmma().is_some_and(|wgmma| self.needs_half_of_registers(wgmma));
        fits.then(|| self.fitting_stages(share_of_sm(2)))
    }

    /// Bytes that the kernel needs with the fewest staging buffers, and bytes that it may use.
    pub(super) fn least_smem(&self) -> (u64, u32) {
        let ring = u64::from(self.stages) * u64::from(self.stage_bytes());
        let limit = self.smem_limit();
        (ring + u64::from(self.least_bytes_beside_ring(limit)), limit)
    }

    fn fitting_stages(&self, limit: u32) -> u32 {
        limit.saturating_sub(self.least_bytes_beside_ring(limit)) / self.stage_bytes().max(1)
    }

    /// Bytes besides the ring, with the fewest staging buffers, if a CTA has `limit` bytes. One
    /// buffer has to do if the ring would be shallow with two.
    fn least_bytes_beside_ring(&self, limit: u32) -> u32 {
        let others = BARRIER_BYTES + self.queue_bytes();
        if self.wgmma().is_none() {
            return others;
        }
        let of = |staging: fn(_, _, _, _) -> Staging| {
            let staging = staging(self.output, self.d_major, self.tile.n, self.blocks());
            (self.consumers() * staging.bytes() + others, staging.steps())
        };
        let ((fewest, steps), (single, _)) = (of(Staging::fewest), of(Staging::single));
        let is_shallow =
            |beside| limit.saturating_sub(beside) / self.stage_bytes().max(1) < SHALLOW_RING;
        let one_will_do = steps <= MOST_STEPS_OF_ONE_BUFFER && !is_shallow(single);
        if is_shallow(fewest) && one_will_do { single } else { fewest }
    }

    /// Most bytes that a CTA may use. Kernels of f64 and f32 run as many CTAs on an SM as their
    /// warps say, while a wgmma kernel with a deep ring has an SM to itself.
    fn smem_limit(&self) -> u32 {
        match &self.mainloop {
            MainloopSpec::Wgmma(_) => share_of_sm(1),
            MainloopSpec::Dmma(_) | MainloopSpec::Ffma(_) | MainloopSpec::Direct(_) => {
                share_of_sm(self.working_ctas_per_sm())
            }
        }
    }

    /// Whether half the registers of an SM suffice for a CTA of a wgmma kernel.
    fn needs_half_of_registers(&self, wgmma: &WgmmaSpec) -> bool {
        wgmma.warpgroups == 1
            && !self.is_resident()
            && self.sums(wgmma) <= SUMS_OF_HALF_SM
            && (!wgmma.threads_load() || self.loaders_need_half_of_registers(wgmma))
    }

    /// Sums of a thread of a wgmma kernel, with those of the tensor core if they are promoted: all
    /// blocks use one block of its accumulators, one after the other.
    pub(super) fn sums(&self, wgmma: &WgmmaSpec) -> u32 {
        let promoted = matches!(wgmma.summation, Summation::Promoted { .. });
        let blocks = self.blocks() * self.accumulator_sets() + u32::from(promoted);
        blocks * self.tile.n / 2
    }

    /// Whether two CTAs of a wgmma kernel fit on an SM.
    fn is_pair(&self, wgmma: &WgmmaSpec) -> bool {
        let limit = share_of_sm(2);
        let ring = self.stages.saturating_mul(self.stage_bytes());
        let needed = ring.saturating_add(self.least_bytes_beside_ring(limit));
        self.needs_half_of_registers(wgmma) && needed <= limit
    }

    fn queue_bytes(&self) -> u32 {
        if self.is_resident() { queue::smem::BYTES } else { 0 }
    }

    fn wgmma_resources(&self, wgmma: &WgmmaSpec) -> Resources {
        let warpgroups = wgmma.warpgroups;
        let sums = self.sums(wgmma);
        let accumulators = sums / wgmma.sums_per_register();
        let fragments = if self.reads_a_from_registers() { self.fragment_registers() } else { 0 };

        let resident = self.is_resident();
        let by_threads = wgmma.threads_load();
        let is_pair = self.is_pair(wgmma);
        // A thread that loads operands has the more loads in flight, the more registers it has, so
        // it has half an SM's only if that makes room for another CTA.
        let is_half_sm = self.needs_half_of_registers(wgmma) && (is_pair || !by_threads);
        let ctas_by_registers = if is_half_sm { 2 } else { 1 };
        let ctas_per_sm = if is_pair { 2 } else { 1 };
        let limit = share_of_sm(ctas_per_sm);

        let pair = self.budget_of_pair(wgmma);
        let (producer, consumer) = match warpgroups {
            // The queue's relay needs more registers than a producer.
            1 if resident => (96, 248),
            2 if resident => (56, 224),
            1 if by_threads && is_half_sm => (pair.producer, pair.consumer),
            1 if by_threads => (240, 248),
            _ if by_threads => (152, 176),
            1 if is_half_sm => (128, 128),
            1 => (40, 248),
            2 if accumulators + fragments >= 192 => (24, 240),
            2 => (40, 232),
            _ => (32, 160),
        };
        let other = match (self.output.bytes(), self.d_major) {
            (1 | 4, _) | (_, OutputMajor::M) => WGMMA_OTHER_LONG_ADDRESSES,
            _ if !self.epilogue.is_none() => WGMMA_OTHER_FUSED,
            _ => WGMMA_OTHER,
        };
        let threads = warpgroups.saturating_add(1).saturating_mul(WARPGROUP_THREADS);
        let ring = self.stages.saturating_mul(self.stage_bytes());
        let queue = self.queue_bytes();
        let left = limit.saturating_sub(ring.saturating_add(BARRIER_BYTES + queue));
        let staging = Staging::new(
            self.output,
            self.d_major,
            self.tile.n,
            self.blocks(),
            left / warpgroups.max(1),
        );
        // If sums are promoted, a second set of accumulators lets the tensor core work while CUDA
        // cores add up the first.
        let turn_stages = self.turn_stages(wgmma);
        let needed = accumulators + fragments + other;
        let set = self.tile.n / 2;
        // Turns that outlast a stage gain more than looking ahead at another worker's sums.
        let ahead = if turn_stages == 1 { sums } else { 0 };
        let turn_stages = if needed + set + ahead <= consumer { turn_stages } else { 0 };
        let accumulators = accumulators + if turn_stages == 0 { 0 } else { set };
        // Registers cannot always hold another worker's sums beside fragments of A or a second set of
        // accumulators.
        let needed = accumulators + fragments + other;
        let is_tight = is_half_sm || turn_stages > 1 || fragments > 0;
        let has_room = !is_tight || needed + sums <= consumer;
        let can_look_ahead = self.accumulator_sets() == 1 && sums <= SUMS_LOOKED_AHEAD && has_room;
        let mut registers = RegisterUse {
            accumulators,
            turn_stages,
            fragments,
            look_ahead: if can_look_ahead { sums } else { 0 },
            other,
            budget: RegisterBudget { producer, consumer },
            at_launch: SM_REGISTERS / threads.saturating_mul(ctas_by_registers).max(1) / 8 * 8,
            bias: BiasLoads::WithStore,
            is_plenty: consumer >= PLENTY_OF_REGISTERS,
            stores_in_flight: if is_half_sm && !by_threads { STORES_IN_FLIGHT } else { 1 },
        };
        registers.bias = self.bias_loads(&registers, &staging);
        Resources {
            smem: SmemUse {
                stage: self.stage_bytes(),
                ring,
                staging: warpgroups * staging.bytes(),
                barriers: BARRIER_BYTES,
                queue,
                limit,
            },
            registers,
            ctas_by_registers,
            ctas_per_sm,
            working_ctas_per_sm: self.working_ctas_per_sm(),
            staging,
        }
    }

    /// The stages during which two sets of accumulators can take turns if sums are promoted, or 0.
    ///
    /// A group of stages has an even number of batches of MMAs, so that it begins and ends with the
    /// same set. Within it the next stage must be there before the last is free, which costs what it
    /// gains in a shallow ring or if three warpgroups share the tensor cores anyway (run
    /// `2026-11-27-turns-of-sums` of `benchmarks/results/changes.jsonl`).
    fn turn_stages(&self, wgmma: &WgmmaSpec) -> u32 {
        let Some(interval) = wgmma.promotion() else { return 0 };
        let batches = self.tile.k / interval.max(1) * self.blocks();
        let is_long = match wgmma.warpgroups {
            // The assemblers move many registers between the sets in some such kernels.
            _ if wgmma.terms.is_some() => false,
            1 => true,
            2 => self.stages > SHALLOW_RING,
            _ => false,
        };
        match BATCHES_OF_TURNS / batches.max(1) {
            stages @ 2.. if is_long => stages,
            _ => u32::from(batches.is_multiple_of(2)),
        }
    }

    /// When a bias is loaded. Ping-pong kernels do not load it ahead, since one warpgroup
    /// multiplies while the other waits for it.
    fn bias_loads(&self, registers: &RegisterUse, staging: &Staging) -> BiasLoads {
        use crate::epilogue::BiasAlong;
        let Some(along) = self.epilogue.bias() else { return BiasLoads::WithStore };
        let per_pair = dtype::bias_type(self.output).bytes();
        let (tile_registers, staging_registers) = match along {
            BiasAlong::M => (2 * self.blocks(), 0),
            BiasAlong::N => (self.tile.n / 4 * per_pair / 4, staging.columns() / 4 * per_pair / 4),
        };
        if self.schedule() == Schedule::Cooperative && tile_registers <= registers.spare() {
            BiasLoads::BeforeMainloop
        } else if staging_registers > registers.spare() {
            BiasLoads::ByElement
        } else {
            BiasLoads::WithStore
        }
    }

    /// Whether the activation needs registers for exponentials and polynomials.
    pub(crate) fn has_long_activation(&self) -> bool {
        self.epilogue.activation().is_some_and(|activation| activation.is_long())
    }

    fn dmma_resources(&self, dmma: &DmmaSpec) -> Resources {
        let (m, n) = dmma.warp_tile(self.tile);
        let lane = |elements: u32| elements / 32 * 2;
        let (a, b) = (lane(m * dmma.depth), lane(n * dmma.depth));
        let (producer, consumer) = match (self.consumers(), self.working_ctas_per_sm()) {
            (1, 1) => (40, 248),
            (1, _) => (40, 216),
            _ => (24, 240),
        };
        let accumulators = dmma.sums(self.tile);
        let many_sums = self.consumers() == 1 && accumulators >= DMMA_MANY_SUMS;
        let halved = match self.working_ctas_per_sm() {
            1 => DMMA_HALVED_FRAGMENTS,
            _ => DMMA_HALVED_FRAGMENTS_OF_PAIR,
        };
        let next_of_a = if a > halved { a } else { a / 2 };
        self.register_resources(RegisterUse {
            accumulators,
            turn_stages: 0,
            // The fragments of one step, and those of the next as far as they are loaded ahead.
            fragments: a + next_of_a + 2 * b,
            look_ahead: 0,
            other: DMMA_OTHER
                + if self.has_long_activation() { DMMA_ACTIVATION } else { 0 }
                + if many_sums { DMMA_OTHER_OF_MANY_SUMS } else { 0 },
            budget: RegisterBudget { producer, consumer },
            at_launch: 0,
            bias: BiasLoads::ByElement,
            is_plenty: true,
            stores_in_flight: 1,
        })
    }

    fn ffma_resources(&self, ffma: &FfmaSpec) -> Resources {
        // The registers that the producer's warpgroup needs to transpose depend on how much of a
        // line a lane holds at once. If they only just suffice, the assembler no longer places
        // operands in different banks of the register file, in the entire kernel.
        let (producer, consumer) = match (ffma.warps.warpgroups(), self.transposed_elements() > 0) {
            (1, _) => (40, 216),
            (_, true) => (56, 224),
            (_, false) => (40, 232),
        };
        let [a, _] = self.line_tiles(ffma);
        let depths_of_a = if a.form == LineForm::Depths { QUAD } else { 1 };
        self.register_resources(RegisterUse {
            accumulators: ffma.sums(),
            turn_stages: 0,
            // The fragments of one step and of the next.
            fragments: 2 * (ffma.thread.m * depths_of_a + ffma.thread.n),
            look_ahead: 0,
            other: FFMA_OTHER,
            budget: RegisterBudget { producer, consumer },
            at_launch: 0,
            bias: BiasLoads::WithStore,
            is_plenty: true,
            stores_in_flight: 1,
        })
    }

    fn direct_resources(&self) -> Resources {
        let [accumulators, fragments, other] = self.direct_registers();
        let consumer = direct_budget(self.direct_ctas_per_sm());
        self.register_resources(RegisterUse {
            accumulators,
            turn_stages: 0,
            fragments,
            look_ahead: 0,
            other,
            budget: RegisterBudget { producer: 0, consumer },
            at_launch: 0,
            bias: BiasLoads::ByElement,
            is_plenty: false,
            stores_in_flight: 1,
        })
    }

    /// Registers of a thread of a direct kernel: sums, loads of one step, and others. Each element
    /// has a register until it is packed.
    pub(super) fn direct_registers(&self) -> [u32; 3] {
        let Tile { m, n, k } = self.tile;
        let blocks = (m + n) / DirectSpec::BLOCK_LINES;
        let steps = k / DirectSpec::mma(self.a).k;
        let other = DIRECT_OTHER + DIRECT_OTHER_OF_STEP * steps;
        [m * n / 32, blocks * DirectSpec::LANE_DEPTHS, other]
    }

    fn direct_ctas_per_sm(&self) -> u32 {
        let needed: u32 = self.direct_registers().iter().sum();
        let [most, fewer] = DirectSpec::CTAS_PER_SM;
        if needed <= direct_budget(most) { most } else { fewer }
    }

    /// The resources of a kernel that stores D from registers.
    fn register_resources(&self, registers: RegisterUse) -> Resources {
        let ctas_per_sm = self.working_ctas_per_sm();
        let threads = (self.producers() + self.consumers()) * WARPGROUP_THREADS * ctas_per_sm;
        let at_launch = SM_REGISTERS / threads.max(1) / 8 * 8;
        Resources {
            smem: SmemUse {
                stage: self.stage_bytes(),
                ring: self.stages.saturating_mul(self.stage_bytes()),
                staging: 0,
                barriers: self.producers() * BARRIER_BYTES,
                queue: 0,
                limit: share_of_sm(ctas_per_sm),
            },
            registers: RegisterUse { at_launch, ..registers },
            ctas_by_registers: ctas_per_sm,
            ctas_per_sm,
            working_ctas_per_sm: ctas_per_sm,
            staging: Staging::NONE,
        }
    }

    /// Number of elements of a stage of an FFMA kernel that are transposed in shared memory before
    /// they are read.
    pub fn transposed_elements(&self) -> u32 {
        let MainloopSpec::Ffma(ffma) = &self.mainloop else { return 0 };
        let tiles = self.line_tiles(ffma).into_iter();
        tiles.filter(|tile| tile.form == LineForm::Transposed).map(|tile| tile.lines * tile.k).sum()
    }
}

/// Registers of a thread of a direct kernel if so many CTAs share an SM.
fn direct_budget(ctas: u32) -> u32 {
    SM_REGISTERS / (WARPGROUP_THREADS * ctas) / 8 * 8
}

/// Bytes of shared memory that a CTA may use if `ctas` CTAs share an SM.
fn share_of_sm(ctas: u32) -> u32 {
    (SM_SMEM_BYTES / ctas - SYSTEM_SMEM_BYTES).min(MAX_SMEM_BYTES)
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Resources { smem, registers, .. } = self;
        let RegisterBudget { producer, consumer } = registers.budget;
        writeln!(f, "shared memory of a CTA, in bytes")?;
        writeln!(f, "  ring              {:>7}  {} a stage", smem.ring, smem.stage)?;
        writeln!(f, "  staging buffers   {:>7}", smem.staging)?;
        writeln!(f, "  barriers          {:>7}  at most", smem.barriers)?;
        writeln!(f, "  work queue        {:>7}", smem.queue)?;
        writeln!(f, "  in all            {:>7}  of {}", smem.total(), smem.limit)?;
        writeln!(f, "registers of a consumer thread")?;
        writeln!(f, "  accumulators      {:>7}", registers.accumulators)?;
        writeln!(f, "  fragments         {:>7}", registers.fragments)?;
        writeln!(f, "  look-ahead        {:>7}", registers.look_ahead)?;
        writeln!(f, "  everything else   {:>7}", registers.other)?;
        writeln!(f, "  budget            {consumer:>7}  {producer} in the producer's warpgroup")?;
        writeln!(f, "  at launch         {:>7}", registers.at_launch)?;
        write!(f, "CTAs on an SM       {:>7}", self.ctas_per_sm)
    }
}
