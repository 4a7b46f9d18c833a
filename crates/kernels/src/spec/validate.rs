//! The validation of a [`Spec`]: whether a kernel can be built from it.

use pgemm_ir::{Element, OperandMajor};

use super::{
    Cluster, DirectSpec, DmmaSpec, FfmaSpec, Loader, MainloopSpec, Resources, Schedule, Spec,
    SpecError, Summation, Terms, Tile, Warps, WgmmaSpec,
};
use crate::dtype::{Instruction, Majors, Product};
use crate::quantity::Side;
use crate::tiles::operand::OperandTile;
use crate::tiles::staging::OutputMajor;

/// Maximum number of CTAs of a cluster that every Hopper device can run (CUDA programming guide,
/// "Thread Block Clusters").
const MOST_CTAS_OF_A_CLUSTER: u32 = 8;

/// Maximum number of elements of one TMA box along one dimension.
pub(crate) const MOST_BOX_LINES: u32 = 256;

/// Maximum number of blocks of 64 rows of a cooperative warpgroup.
const MOST_BLOCKS: u32 = 4;

/// Number of lines of an operand that an FFMA warp transposes as one block.
const FFMA_BLOCK: u32 = 32;

/// Numbers of warps along M that, with some warps along N, make up one or two warpgroups.
const WARPS_ALONG_M: [u32; 4] = [1, 2, 4, 8];

impl Spec {
    /// Checks whether a kernel can be built from the spec. This rule defines the catalogue. Tiles
    /// may have any extent along N that is a multiple of 8 (16 if an instruction or a store
    /// requires it). Along M they consist of whole blocks of 64. Clusters have up to eight CTAs,
    /// and any ring that fits is legal.
    ///
    /// # Errors
    /// The part that is impossible, with a legal value close to it.
    pub fn validate(&self) -> Result<(), SpecError> {
        let Spec { a, b, output, .. } = *self;
        let product = Product::of(a, b)
            .filter(|product| product.outputs.contains(&output))
            .ok_or(SpecError::Types { a, b, output })?;
        for (operand, element, side) in [("A", a, Side::M), ("B", b, Side::N)] {
            let legal = match product.majors {
                Majors::Any => true,
                Majors::KOrAFromRegisters if side == Side::M => self.can_read_a_from_registers(),
                Majors::KOrAFromRegisters => false,
                Majors::K => self.turns(side),
            };
            if self.major(side) == OperandMajor::Mn && !legal {
                return Err(SpecError::Major { operand, element });
            }
        }
        match (&self.mainloop, product.instruction) {
            (MainloopSpec::Wgmma(wgmma), Instruction::Wgmma) => self.validate_wgmma(wgmma),
            (MainloopSpec::Dmma(dmma), Instruction::Dmma) => self.validate_dmma(dmma),
            (MainloopSpec::Ffma(ffma), Instruction::Ffma) => self.validate_ffma(ffma),
            (MainloopSpec::Direct(direct), Instruction::Wgmma) if DirectSpec::multiplies(a) => {
                self.validate_direct(direct)
            }
            _ => Err(SpecError::Types { a, b, output }),
        }
    }

    fn refuse<T>(&self, what: &'static str, limit: impl Into<String>) -> Result<T, SpecError> {
        Err(SpecError::Combination { spec: self.to_string(), what, limit: limit.into() })
    }

    fn validate_wgmma(&self, wgmma: &WgmmaSpec) -> Result<(), SpecError> {
        let warpgroups = wgmma.warpgroups;
        match wgmma.schedule {
            Schedule::Cooperative => in_steps("consumers", warpgroups, 1, 1, 3)?,
            Schedule::PingPong => in_steps("consumers", warpgroups, 2, 2, 2)?,
        }
        let rows = 64 * self.parts();
        let most = rows * (MOST_BLOCKS / self.parts()).max(1);
        in_steps("tile_m", self.tile.m, rows, rows, most)?;
        in_steps("tile_n", self.tile.n, 8, 8, 256)?;
        self.validate_columns()?;
        self.validate_depth()?;
        self.validate_summation(wgmma)?;
        self.validate_epilogue()?;
        self.validate_resident(wgmma)?;
        self.validate_sets(wgmma)?;
        self.validate_loaders(wgmma)?;
        self.validate_cluster()?;
        self.validate_wgmma_registers(wgmma)?;
        self.validate_ring()
    }

    /// The step between legal widths of a tile of a wgmma kernel.
    fn column_step(&self) -> u32 {
        // TMA stores rows of 16 bytes or more. PTX ISA, "wgmma.mma_async", has the shapes of
        // integers.
        let byte_rows = self.output.bytes() == 1 && self.d_major == OutputMajor::N;
        let wide_integers = self.accumulator() == Element::S32 && self.tile.n > 32;
        if byte_rows || wide_integers { 16 } else { 8 }
    }

    fn validate_columns(&self) -> Result<(), SpecError> {
        if self.tile.n.is_multiple_of(self.column_step()) {
            return Ok(());
        }
        let limit = if self.output.bytes() == 1 && self.d_major == OutputMajor::N {
            "must be a multiple of 16 with a row-major D of one byte an element"
        } else {
            "must be 8, 16, 24, 32 or a multiple of 16 with integer operands"
        };
        let (knob, requested, nearest) = ("tile_n", self.tile.n, self.tile.n + 8);
        Err(SpecError::Knob { knob, requested, limit: limit.into(), nearest })
    }

    /// A stage is a half, one or two swizzle spans deep.
    fn validate_depth(&self) -> Result<(), SpecError> {
        let depths = [64, 128, 256].map(|bytes| bytes / self.a.bytes());
        if depths.contains(&self.tile.k) {
            return Ok(());
        }
        let [half, one, two] = depths;
        let requested = self.tile.k;
        Err(SpecError::Knob {
            knob: "tile_k",
            requested,
            limit: format!("must be {half}, {one} or {two} with {} operands", self.a),
            nearest: depths.into_iter().min_by_key(|k| k.abs_diff(requested)).unwrap_or(one),
        })
    }

    fn validate_summation(&self, wgmma: &WgmmaSpec) -> Result<(), SpecError> {
        let integers = self.accumulator() == Element::S32;
        if self.scaled && integers {
            return self.refuse("scales", "are binary32, and integers are added up as such");
        }
        if wgmma.summation == Summation::F16 {
            let what = "sums in f16";
            if self.a != Element::F16 {
                return self.refuse(what, format!("are of f16 operands, not of {}", self.a));
            }
            if wgmma.terms.is_some() {
                return self.refuse(what, "are for all of k: leave terms out");
            }
        }
        if wgmma.terms.is_some() {
            self.validate_terms()?;
        }
        let Summation::Promoted { interval } = wgmma.summation else { return Ok(()) };
        let what = "promotion";
        if integers {
            return self.refuse(what, "is for floats: sums of integers are exact already");
        }
        if wgmma.schedule == Schedule::PingPong {
            let limit = "leaves the tensor core idle in a ping-pong kernel: use w in place of p";
            return self.refuse(what, limit);
        }
        let step = 32 / self.a.bytes();
        let divides = interval > 0 && self.tile.k.is_multiple_of(interval);
        if !divides || !interval.is_multiple_of(step) {
            let limit = format!(
                "comes at multiples of {step} that divide the stage of {}: use -p{}",
                self.tile.k, self.tile.k
            );
            return self.refuse(what, limit);
        }
        Ok(())
    }

    fn validate_terms(&self) -> Result<(), SpecError> {
        let what = "operands of several terms";
        let element = self.a;
        let splits = element.is_float() && element.bytes() > 1;
        if !splits || self.output != Element::F32 {
            return self.refuse(what, "are of f16, bf16 or tf32 and give f32");
        }
        if [self.a_major, self.b_major] != [OperandMajor::K; 2] {
            return self.refuse(what, "are stored along k: use majors kk");
        }
        let span = Terms::SPAN_BYTES / element.bytes();
        if self.tile.k != span {
            let count = self.terms().map_or(1, Terms::count);
            return self.refuse(what, format!("have stages of {count} spans: use tile_k = {span}"));
        }
        Ok(())
    }

    fn validate_epilogue(&self) -> Result<(), SpecError> {
        if self.epilogue.is_none() || self.output.is_float() {
            return Ok(());
        }
        self.refuse("an epilogue", "is for results in floating point: use a D of f32, f16 or bf16")
    }

    fn validate_resident(&self, wgmma: &WgmmaSpec) -> Result<(), SpecError> {
        let what = "a resident kernel";
        match self.is_resident() {
            true if self.cluster.size() > 1 => {
                self.refuse(what, "takes tiles CTA by CTA: use a cluster of 1x1")
            }
            true if wgmma.warpgroups > 2 => {
                self.refuse(what, "leaves registers for its queue: use 1 or 2 consumers")
            }
            true if self.scaled => {
                self.refuse(what, "has alpha, beta and an epilogue only: leave the scales out")
            }
            _ => Ok(()),
        }
    }

    /// Refuses features that kernels with several products at once do not have.
    fn validate_sets(&self, wgmma: &WgmmaSpec) -> Result<(), SpecError> {
        let what = "a kernel of several products";
        match self.accumulator_sets() {
            1 => Ok(()),
            _ if !wgmma.is_plain() => {
                self.refuse(what, "sums each in the tensor core, of operands as they are stored")
            }
            _ if self.reads_a_from_registers() => {
                self.refuse(what, "reads A from shared memory: use a K-major A")
            }
            _ if self.scaled => self.refuse(what, "has no scales of rows and columns"),
            _ if self.epilogue.bias().is_some() => self.refuse(what, "has no bias"),
            _ if !self.output.is_float() => {
                self.refuse(what, "computes in floating point: use a D of f32, f16 or bf16")
            }
            _ if self.is_resident() => self.refuse(what, "is launched for one problem"),
            _ => Ok(()),
        }
    }

    /// Refuses features that kernels whose threads load operands do not have.
    fn validate_loaders(&self, wgmma: &WgmmaSpec) -> Result<(), SpecError> {
        if !wgmma.threads_load() {
            return Ok(());
        }
        let what = "a kernel whose threads load an operand";
        if self.a.bytes() > Loader::MOST_ELEMENT_BYTES {
            let limit = format!("has operands of 1 or 2 bytes an element, and {} has 4", self.a);
            return self.refuse(what, limit);
        }
        if wgmma.terms.is_some() || wgmma.gated.is_some() || self.is_resident() {
            return self.refuse(what, "computes one product of operands as they are stored");
        }
        if wgmma.warpgroups > 2 {
            return self.refuse(what, "leaves registers to its loaders: use 1 or 2 consumers");
        }
        let shares = [(Side::M, self.cluster.n), (Side::N, self.cluster.m)];
        if shares.iter().any(|(side, peers)| wgmma.loader(*side) == Loader::Threads && *peers > 1) {
            return self.refuse(what, "does not share that operand in a cluster: use c1x1");
        }
        let [needed, available] = self.loader_registers();
        if needed > available {
            let limit = format!(
                "has at least one stage in flight, which takes {needed} registers of {available}: use \
                 a smaller tile"
            );
            return self.refuse(what, limit);
        }
        // ptxas 13.0 spills 192x96 ping-pong kernels in clusters whose threads load A along M. It
        // spills none of those whose threads load B along N and have no register to spare either.
        let spare = available - needed + self.resources().registers.spare();
        let along_m = wgmma.loader(Side::M) == Loader::Threads && self.a_major == OperandMajor::Mn;
        if spare == 0 && self.cluster != Cluster::NONE && along_m {
            return self.refuse(what, "has a register to spare in a cluster: use a smaller tile");
        }
        Ok(())
    }

    fn validate_cluster(&self) -> Result<(), SpecError> {
        let Cluster { m, n } = self.cluster;
        for (knob, requested) in [("cluster_m", m), ("cluster_n", n)] {
            if !matches!(requested, 1 | 2 | 4 | 8) {
                let nearest = 1 << requested.clamp(1, MOST_CTAS_OF_A_CLUSTER).ilog2();
                let limit = "must be 1, 2, 4 or 8".into();
                return Err(SpecError::Knob { knob, requested, limit, nearest });
            }
        }
        if self.cluster.size() <= MOST_CTAS_OF_A_CLUSTER {
            return Ok(());
        }
        Err(SpecError::Knob {
            knob: "cluster_n",
            requested: n,
            limit: format!(
                "a cluster has at most {MOST_CTAS_OF_A_CLUSTER} CTAs, and it is {m} along m"
            ),
            nearest: MOST_CTAS_OF_A_CLUSTER / m,
        })
    }

    /// All sums must fit into the consumers' budget. In addition, the assembler allocates the
    /// accumulators of one instruction in the registers of the launch, before any `setmaxnreg`.
    fn validate_wgmma_registers(&self, wgmma: &WgmmaSpec) -> Result<(), SpecError> {
        let Resources { registers, .. } = self.resources();
        let columns_per_register = 2 * wgmma.sums_per_register();
        let promoted = wgmma.promotion().is_some();
        let blocks = self.blocks() * self.accumulator_sets() + u32::from(promoted);
        let others = registers.needed() - registers.accumulators;
        let whole = (blocks, registers.budget.consumer, others);
        let one = (1, registers.at_launch, super::resources::WGMMA_OTHER);
        for (blocks, available, others) in [whole, one] {
            let accumulators = blocks * self.tile.n / columns_per_register;
            let needed = accumulators + others;
            if needed > available {
                let step = self.column_step();
                let left = available.saturating_sub(others);
                let advice = match left * columns_per_register / blocks / step * step {
                    0 => format!("use a tile_k below {}, which takes fewer of them", self.tile.k),
                    most => format!("the nearest tile that fits is {}x{most}", self.tile.m),
                };
                return Err(SpecError::Registers {
                    tile: self.tile,
                    warps: wgmma.warpgroups * 4,
                    accumulators,
                    needed,
                    available,
                    advice,
                });
            }
        }
        Ok(())
    }

    fn validate_ring(&self) -> Result<(), SpecError> {
        let fitting_stages = self.most_stages();
        if self.stages > fitting_stages {
            let (needed, available) = self.least_smem();
            return Err(SpecError::SharedMemory {
                tile: self.tile,
                stages: self.stages,
                needed,
                available,
                fitting_stages,
            });
        }
        in_steps("stages", self.stages, 1, 2, 16)
    }

    /// Refuses features that kernels which store D from registers do not have.
    fn validate_plain(&self) -> Result<(), SpecError> {
        let kernels = if self.is_direct() { "direct" } else { self.a.name() };
        let clustered = self.cluster != Cluster::NONE;
        if clustered && !self.may_have_clusters() {
            return self.refuse("a cluster", format!("{kernels} kernels do not have"));
        }
        self.validate_cluster()?;
        if clustered && [self.a_tile(), self.b_tile()].iter().any(OperandTile::is_shared_unevenly) {
            let limit = "whose CTAs do not copy equal parts of an operand is for wgmma kernels only: \
                         use a smaller cluster";
            return self.refuse("a cluster", limit);
        }
        if self.scaled {
            return self.refuse("scales", format!("{kernels} kernels do not have"));
        }
        if self.is_resident() {
            return self.refuse("a resident kernel", format!("{kernels} kernels cannot be"));
        }
        if self.d_major == OutputMajor::M {
            return self.refuse("a column-major D", format!("{kernels} kernels do not store"));
        }
        Ok(())
    }

    fn validate_direct(&self, direct: &DirectSpec) -> Result<(), SpecError> {
        self.validate_plain()?;
        let mma = DirectSpec::mma(self.a);
        let Tile { m, n, k } = self.tile;
        in_steps("tile_m", m, mma.m, mma.m, DirectSpec::MOST_LINES)?;
        let most = (DirectSpec::MOST_ELEMENTS / m).min(DirectSpec::MOST_LINES);
        in_steps("tile_n", n, mma.n, mma.n, most / mma.n * mma.n)?;
        let [sums, loads, _] = self.direct_registers();
        let limits = DirectSpec::REGISTERS_OF_MORE_STEPS.into_iter();
        let more = limits.filter(|limit| sums + loads <= *limit).count() as u32;
        let steps = DirectSpec::FEW_STEPS + more;
        in_steps("tile_k", k, mma.k, mma.k, steps * mma.k)?;
        one_of("stages", self.stages, &[0])?;
        for (width, major) in direct.widths.into_iter().zip([self.a_major, self.b_major]) {
            let along_k: &[u32] = &DirectSpec::WIDTHS;
            let legal = if major == OperandMajor::K { along_k } else { &[1] };
            one_of("elements loaded at once", width, legal)?;
        }
        self.validate_registers("use a smaller tile")
    }

    fn validate_dmma(&self, dmma: &DmmaSpec) -> Result<(), SpecError> {
        self.validate_plain()?;
        let DmmaSpec { warps, depth } = *dmma;
        one_of("mma_k", depth, &[8, 16])?;
        one_of("tile_k", self.tile.k, &[DmmaSpec::TILE_K])?;
        validate_warps(warps)?;
        for (knob, requested, warps) in
            [("tile_m", self.tile.m, warps.m), ("tile_n", self.tile.n, warps.n)]
        {
            let step = DmmaSpec::BLOCK_LINES * warps;
            let legal: Vec<u32> = (step..=MOST_BOX_LINES).step_by(step as usize).collect();
            one_of(knob, requested, &legal)?;
        }
        self.validate_registers("use a smaller tile, more warps or an MMA of depth 8")?;
        self.validate_ring()
    }

    fn validate_ffma(&self, ffma: &FfmaSpec) -> Result<(), SpecError> {
        self.validate_plain()?;
        let FfmaSpec { thread, warps } = *ffma;
        one_of("tile_k", self.tile.k, &[8, 16, 32])?;
        validate_warps(warps)?;
        // Parts of which some tile can be made.
        let parts = [4, 8, 12, 16];
        let with = |legal: &dyn Fn(u32) -> bool| -> Vec<u32> {
            parts.into_iter().filter(|&part| legal(part)).collect()
        };
        let along_m = with(&|m| parts.iter().any(|&n| !ffma_tiles(warps, (m, n)).is_empty()));
        one_of("thread_m", thread.m, &along_m)?;
        let along_n = with(&|n| !ffma_tiles(warps, (thread.m, n)).is_empty());
        one_of("thread_n", thread.n, &along_n)?;
        let Tile { m, n, k } = self.tile;
        let distance = |&(other_m, other_n): &(u32, u32)| {
            other_m.abs_diff(m).saturating_add(other_n.abs_diff(n))
        };
        let tiles = ffma_tiles(warps, (thread.m, thread.n));
        match tiles.into_iter().min_by_key(distance) {
            Some(nearest) if nearest != (m, n) => {
                let nearest = Tile { m: nearest.0, n: nearest.1, k };
                return Err(SpecError::Extents { tile: self.tile, thread, warps, nearest });
            }
            _ => {}
        }
        self.validate_registers("use a smaller part for each thread")?;
        self.validate_ring()
    }

    fn validate_registers(&self, advice: &str) -> Result<(), SpecError> {
        let Resources { registers, .. } = self.resources();
        let (needed, available) = (registers.needed(), registers.budget.consumer);
        if needed <= available {
            return Ok(());
        }
        Err(SpecError::Registers {
            tile: self.tile,
            warps: self.consumers() * 4,
            accumulators: registers.accumulators,
            needed,
            available,
            advice: advice.into(),
        })
    }
}

/// The extents along M and N of the CTA tiles that warps make up if threads have these parts.
fn ffma_tiles(warps: Warps, (thread_m, thread_n): (u32, u32)) -> Vec<(u32, u32)> {
    let legal = |lines: u32| lines.is_multiple_of(FFMA_BLOCK) && lines <= MOST_BOX_LINES;
    [(4, 8), (8, 4)]
        .map(|(m, n)| (m * thread_m * warps.m, n * thread_n * warps.n))
        .into_iter()
        .filter(|&(m, n)| legal(m) && legal(n))
        .collect()
}

fn validate_warps(warps: Warps) -> Result<(), SpecError> {
    one_of("warps_m", warps.m, &WARPS_ALONG_M)?;
    let along_n: &[u32] = match warps.m {
        1 => &[4, 8],
        2 => &[2, 4],
        4 => &[1, 2],
        _ => &[1],
    };
    one_of("warps_n", warps.n, along_n)
}

/// Checks a knob whose legal values are the multiples of `step` from `least` to `most`.
fn in_steps(
    knob: &'static str,
    requested: u32,
    step: u32,
    least: u32,
    most: u32,
) -> Result<(), SpecError> {
    if requested.is_multiple_of(step) && (least..=most).contains(&requested) {
        return Ok(());
    }
    let limit = if least == most {
        format!("must be {least}")
    } else if step == 1 {
        format!("must be {least} to {most}")
    } else {
        format!("must be a multiple of {step} from {least} to {most}")
    };
    let rounded = requested.saturating_add(step / 2) / step * step;
    Err(SpecError::Knob { knob, requested, limit, nearest: rounded.clamp(least, most) })
}

/// Checks a knob that has few legal values.
fn one_of(knob: &'static str, requested: u32, legal: &[u32]) -> Result<(), SpecError> {
    if legal.contains(&requested) {
        return Ok(());
    }
    let nearest = legal.iter().copied().min_by_key(|value| value.abs_diff(requested));
    let names: Vec<String> = legal.iter().map(u32::to_string).collect();
    let limit = format!("must be one of {}", names.join(", "));
    Err(SpecError::Knob { knob, requested, limit, nearest: nearest.unwrap_or(requested) })
}
