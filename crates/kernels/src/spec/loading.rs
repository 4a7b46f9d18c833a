//! The registers of threads that load operands, and what follows from them: the tiles that they can
//! load, the stages whose loads are in flight together, and whether two CTAs share an SM.

use pgemm_ir::SwizzleMode;

use super::{Cluster, Loader, RegisterBudget, Spec, WgmmaSpec};
use crate::quantity::Side;

/// Registers of the two 16-byte units that hold a chunk of an operand.
const UNITS_REGISTERS: u32 = 8;

/// Most registers of the loads of one stage. With more, ptxas 13.0 spills.
const MOST_UNITS_REGISTERS: u32 = 144;

/// The same if threads load both operands, since their addresses take registers too.
const MOST_UNITS_REGISTERS_OF_BOTH: u32 = 120;

/// The same for elements of one byte in tiles whose rows are longer than a swizzle, so that a chunk
/// of a row lies in one of two places. ptxas 12.4 spills with more.
const MOST_UNITS_REGISTERS_OF_LONG_ROWS: u32 = 112;

/// The same for threads that ask L2 for the next stage, and if they load both operands. With more,
/// or with the loads of several stages in flight, or in a larger cluster or tile, ptxas 12.4 or
/// 13.0 spills.
const MOST_UNITS_REGISTERS_WITH_REQUESTS: u32 = 96;
const MOST_UNITS_REGISTERS_OF_BOTH_WITH_REQUESTS: u32 = 64;

/// Most CTAs of the cluster of such threads, and most elements of the tile of a CTA.
const MOST_CTAS_WITH_REQUESTS: u32 = 2;
const MOST_ELEMENTS_WITH_REQUESTS: u32 = 32_768;

/// Most stages whose loads are in flight together. The code of a stage is repeated for each.
const MOST_STAGES_IN_FLIGHT: u32 = 3;

/// Registers of a thread besides the units that it has in flight. With fewer, ptxas 13.0 spills.
const OTHER: u32 = 56;

/// Additional registers if the loads of several stages are in flight, and further ones for elements
/// of one byte.
const OTHER_OF_STAGES: u32 = 72;
const OTHER_OF_STAGES_OF_BYTES: u32 = 8;

/// Additional registers for tiles whose rows are longer than a swizzle.
const OTHER_OF_LONG_ROWS: u32 = 16;

/// Registers of a loading thread and of a consumer thread together, if two CTAs share an SM.
const REGISTERS_OF_PAIR: u32 = 256;

/// Registers of such a consumer thread besides its sums and those of another worker, for elements
/// of D of up to two bytes and of four, and the fewest that it has. With fewer, ptxas 12.4 or 13.0
/// spills.
const CONSUMER_OTHER: u32 = 40;
const CONSUMER_OTHER_OF_32_BITS: u32 = 64;
const CONSUMER_FEWEST: u32 = 88;

/// Additional registers of such a consumer thread for an epilogue with a bias or an activation.
const CONSUMER_FUSED: u32 = 16;

impl Spec {
    /// Registers of a thread for the loads of one stage, if threads load operands, and those that
    /// it has for all loads.
    pub(super) fn loader_registers(&self) -> [u32; 2] {
        self.loads_of(self.resources().registers.budget.producer)
    }

    /// Number of stages whose loads are in flight together if threads load operands: as many as
    /// registers suffice for.
    pub fn stages_in_flight(&self) -> u32 {
        let [of_stage, _] = self.loader_registers();
        let of_bytes = if self.a.bytes() == 1 { OTHER_OF_STAGES_OF_BYTES } else { 0 };
        let other = OTHER + OTHER_OF_STAGES + of_bytes;
        let available = self.resources().registers.budget.producer.saturating_sub(other);
        (available / of_stage.max(1)).clamp(1, MOST_STAGES_IN_FLIGHT)
    }

    /// Whether threads pass on the last stage of a tile apart from the others, without loads behind
    /// it. Small kernels whose CTAs share an SM do so if threads load both operands: their tiles
    /// often have few stages, and the instructions of these threads bound them. On an H100 they
    /// took from 12 % less to 3 % more time so in 15 problems. Kernels that load one operand by TMA
    /// took from 3 % less to 16 % more (runs `2026-11-25-atlas-h100-last-stage-*` of
    /// `benchmarks/results`). With rows longer than a swizzle, ptxas spills.
    pub(crate) fn passes_last_stage_apart(&self) -> bool {
        self.has_both_loaded_by_threads()
            && self.working_ctas_per_sm() > 1
            && self.stages_in_flight() == 1
            && self.row_bytes() <= swizzle_bytes()
    }

    /// Whether threads ask L2 for a stage before they load it. On an H200 eight problems took
    /// from 0.5 to 18 % less time so. Three others, whose kernels have two CTAs on an SM, took 0
    /// to 23 % more (runs `2026-11-27-atlas-h200-ahead-*` of `benchmarks/results`), so those do
    /// not ask. Threads that transpose a tile do not either, since that was not tried.
    pub(crate) fn asks_ahead(&self) -> bool {
        let [of_stage, _] = self.loader_registers();
        let turns = [Side::M, Side::N].map(|side| self.turns(side));
        let most = match self.has_both_loaded_by_threads() {
            true => MOST_UNITS_REGISTERS_OF_BOTH_WITH_REQUESTS,
            false => MOST_UNITS_REGISTERS_WITH_REQUESTS,
        };
        self.working_ctas_per_sm() == 1
            && turns == [false; 2]
            && self.cluster.size() <= MOST_CTAS_WITH_REQUESTS
            && self.tile.m * self.tile.n <= MOST_ELEMENTS_WITH_REQUESTS
            && self.stages_in_flight() == 1
            && of_stage <= most
    }

    fn has_both_loaded_by_threads(&self) -> bool {
        [Side::M, Side::N].iter().all(|side| self.loader(*side) == Loader::Threads)
    }

    /// Whether threads can load the operands with half the registers of an SM. With no register to
    /// spare, ptxas 13.0 spills.
    pub(super) fn loaders_need_half_of_registers(&self, wgmma: &WgmmaSpec) -> bool {
        let [of_stage, most] = self.loads_of(self.budget_of_pair(wgmma).producer);
        self.cluster == Cluster::NONE && of_stage < most
    }

    /// The registers of each role if threads load operands and two CTAs share an SM.
    pub(super) fn budget_of_pair(&self, wgmma: &WgmmaSpec) -> RegisterBudget {
        let fused = if self.epilogue.is_none() { 0 } else { CONSUMER_FUSED };
        let other = match self.output.bytes() {
            4 => CONSUMER_OTHER_OF_32_BITS,
            _ => CONSUMER_OTHER,
        };
        let consumer = (2 * self.sums(wgmma) + other).max(CONSUMER_FEWEST) + fused;
        RegisterBudget { producer: REGISTERS_OF_PAIR.saturating_sub(consumer), consumer }
    }

    /// Registers for the loads of one stage, and those that a thread with `registers` has for all
    /// loads.
    fn loads_of(&self, registers: u32) -> [u32; 2] {
        // Such kernels have one operand on each side.
        let passes = [Side::M, Side::N].map(|side| match self.loader(side) {
            Loader::Threads if self.turns(side) => self.operand_tile(side).turned_chunks(),
            Loader::Threads => self.operand_tile(side).pass_count(),
            Loader::Tma => 0,
        });
        let of_stage = passes.iter().sum::<u32>() * UNITS_REGISTERS;
        let long_rows = self.row_bytes() > swizzle_bytes();
        let other = OTHER + if long_rows { OTHER_OF_LONG_ROWS } else { 0 };
        let most = if long_rows && self.a.bytes() == 1 {
            MOST_UNITS_REGISTERS_OF_LONG_ROWS
        } else if passes.iter().all(|passes| *passes > 0) {
            MOST_UNITS_REGISTERS_OF_BOTH
        } else {
            MOST_UNITS_REGISTERS
        };
        [of_stage, registers.saturating_sub(other).min(most)]
    }

    /// Bytes of a row of a stage along K.
    fn row_bytes(&self) -> u32 {
        self.tile.k * self.a.bytes()
    }
}

/// Bytes of a row that the longest swizzle covers.
fn swizzle_bytes() -> u32 {
    SwizzleMode::B128.span_bytes().unwrap_or(0)
}
