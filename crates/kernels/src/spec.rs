//! [`KernelSpec`]: what of a GEMM changes its code. Sizes, strides, scalars, raster and grid are run-time arguments.
//!
//! A spec has a readable name, `bf16-kn-f32-256x192x64-s3-w2-c1x1`: types of A and B (one where both are the same, else two,
//! `e4m3_e5m2`), majors of A and B, type of D, CTA tile, stages, consumer warpgroups, cluster. A third major, `kkm`, says that
//! D is column-major; `p2` in place of `w2` that the consumer warpgroups take turns with whole tiles (ping-pong). What is
//! said of [`Arithmetic`] comes behind the operands (`tf32x3-…`) and the cluster (`…-c1x1-p128-scaled`), and behind all the
//! [`Epilogue`] (`…-c1x1-ebias_n.silu`), whose bias lies along the dimensions of the kernel's D.

use std::fmt;

use pgemm_ir::{
    Element, MAX_SMEM_BYTES, OperandMajor, SM_REGISTERS, SM_SMEM_BYTES, SYSTEM_SMEM_BYTES,
    WARPGROUP_THREADS,
};
use serde::{Deserialize, Serialize};

use crate::arithmetic::{Arithmetic, Terms};
use crate::fusion::Epilogue;
use crate::mainloop::registers::fragment_registers;
use crate::names::{has_name, major_name, majors};
use crate::operand::OperandTile;
use crate::resident;
use crate::staging::Staging;

/// Registers per thread that mainloop and epilogue need beside the accumulators; fewer make the assembler spill.
const REGISTERS_BESIDE_ACCUMULATORS: u32 = 32;

/// The same where results have 32 bits or 8, or are column-major, which need more addresses.
const REGISTERS_BESIDE_LONG_ADDRESSES: u32 = 48;

/// And where there is an epilogue: tiles of 128×208 in turns would spill.
const REGISTERS_BESIDE_FUSED: u32 = 40;

/// Bytes kept for barriers behind the ring and the staging buffers.
const BARRIER_BYTES: u32 = 1024;

/// CTAs that every device takes as one cluster.
const MOST_CTAS_OF_A_CLUSTER: u32 = 8;

/// What one CTA computes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tile {
    /// Rows of D: 64 for each m64 block of each consumer warpgroup.
    pub m: u32,
    /// Columns of D.
    pub n: u32,
    /// Depth of one stage.
    pub k: u32,
}

/// CTAs that run together, along both dimensions of D.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cluster {
    /// CTAs along m; they share their B tiles by multicast.
    pub m: u32,
    /// CTAs along n; they share their A tiles by multicast.
    pub n: u32,
}

impl Cluster {
    /// No cluster: every CTA loads for itself.
    pub const NONE: Cluster = Cluster { m: 1, n: 1 };

    /// CTAs in it.
    pub const fn size(self) -> u32 {
        self.m * self.n
    }
}

/// The dimension in which C and D are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OutputMajor {
    /// Along N: row-major.
    N,
    /// Along M: column-major.
    M,
}

/// How the consumer warpgroups share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Schedule {
    /// All of them on one tile, split along m.
    Cooperative,
    /// Two of them, each with a whole tile: one stores its tile while the other multiplies.
    PingPong,
}

/// A GEMM kernel: D = alpha·A·B + beta·C, C in the type and major of D.
///
/// Operands of integers are summed up in 32-bit integers, which wrap, and scaled in these where D has them; all others are
/// summed up in binary32, and all other results scaled in it. 8-bit floats are
/// summed up by the tensor core all along k, which is fast and keeps fewer bits of a sum than binary32 has; f16 is summed up in f16
/// where [`Arithmetic`] says so. tf32 operands are
/// binary32 in memory, rounded as they are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KernelSpec {
    /// Element type of A.
    pub a: Element,
    /// Element type of B.
    pub b: Element,
    /// Element type of C and D.
    pub output: Element,
    /// Major of A: along K or along M.
    pub a_major: OperandMajor,
    /// Major of B: along K or along N.
    pub b_major: OperandMajor,
    /// Major of C and D.
    pub d_major: OutputMajor,
    /// CTA tile.
    pub tile: Tile,
    /// Stages of the shared-memory ring.
    pub stages: u32,
    /// Consumer warpgroups.
    pub consumers: u32,
    /// How these share the work.
    pub schedule: Schedule,
    /// Cluster shape.
    pub cluster: Cluster,
    /// How products are added up and scaled.
    pub arithmetic: Arithmetic,
    /// What happens to results before they are rounded.
    pub epilogue: Epilogue,
    /// Whether it stays and takes jobs from a queue ([`crate::resident`]), or is launched for each problem.
    pub resident: bool,
}

/// A spec that no kernel can be built from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Not a spec name.
    #[error(
        "'{name}' is not a kernel spec: expected the form bf16-kn-bf16-256x192x64-s3-w2-c1x1 \
         (operands, majors of A and B, output, CTA tile, stages, consumer warpgroups, cluster); \
         `pgemm kernel list` shows all"
    )]
    Name {
        /// What was given.
        name: String,
    },
    /// Types without a kernel.
    #[error(
        "no kernel multiplies {a} by {b} into {output}: f16×f16 and bf16×bf16 give the same type or f32, tf32×tf32 gives f32, \
         any two of e4m3 and e5m2 give f16, bf16, f32, e4m3 or e5m2, any two of s8 and u8 give s32, f32, f16, bf16 or s8, \
         f64×f64 gives f64"
    )]
    Types {
        /// Element type of A.
        a: Element,
        /// Element type of B.
        b: Element,
        /// Output type.
        output: Element,
    },
    /// An operand that a kernel cannot read as it lies.
    #[error(
        "{operand} of {element} is read K-major here, so that k is contiguous: store A row-major and B column-major, or use \
         f16 or bf16"
    )]
    Major {
        /// A or B.
        operand: &'static str,
        /// Its type.
        element: Element,
    },
    /// Arithmetic that a kernel of these types or this schedule cannot do.
    #[error("{asked} asks for {what}, which {limit}")]
    Arithmetic {
        /// The spec.
        asked: String,
        /// Which part of its arithmetic.
        what: &'static str,
        /// What the limit is, and what to do.
        limit: String,
    },
    /// A knob outside its range.
    #[error("{knob} = {asked}: {limit}; the nearest legal value is {nearest}")]
    Knob {
        /// Which knob.
        knob: &'static str,
        /// What was asked.
        asked: u32,
        /// What is legal.
        limit: String,
        /// A legal value close to it.
        nearest: u32,
    },
    /// The tile and its stages do not fit into shared memory.
    #[error(
        "tile {}x{}x{} with {stages} stages needs {needed} bytes of shared memory, and a CTA has {}: {}",
        tile.m, tile.n, tile.k, MAX_SMEM_BYTES, nearest_by_stages(*fitting_stages, *tile)
    )]
    SharedMemory {
        /// CTA tile.
        tile: Tile,
        /// Stages asked for.
        stages: u32,
        /// Bytes that they need, with the epilogue's fewest buffers and the barriers.
        needed: u32,
        /// Stages that would fit.
        fitting_stages: u32,
    },
    /// The accumulators do not fit into registers.
    #[error(
        "tile {}x{} over {consumers} consumer warpgroup(s) needs {needed} registers per thread \
         ({accumulators} of them accumulators), and each can have {limit}: the nearest tile that fits is {}x{nearest_n}",
        tile.m, tile.n, tile.m
    )]
    Registers {
        /// CTA tile.
        tile: Tile,
        /// Consumer warpgroups.
        consumers: u32,
        /// Accumulator registers per thread.
        accumulators: u32,
        /// Registers per thread that they need in all.
        needed: u32,
        /// Registers per thread that they can have.
        limit: u32,
        /// Widest tile that fits.
        nearest_n: u32,
    },
}

fn nearest_by_stages(stages: u32, tile: Tile) -> String {
    if stages >= 2 {
        format!("{stages} stages fit")
    } else {
        let (m, n) = if tile.m >= tile.n { (tile.m / 2, tile.n) } else { (tile.m, tile.n / 2) };
        format!("no ring of two stages fits, use a smaller tile, {}x{}x{} say", m, n, tile.k)
    }
}

/// Registers per thread of producer and consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterBudget {
    /// The producer warpgroup.
    pub producer: u32,
    /// Each consumer warpgroup.
    pub consumer: u32,
}

impl KernelSpec {
    /// Type of the sums: S32 for integer operands, else F32, also where the tensor core has them in f16. Sums of integers become
    /// binary32 in the epilogue unless D is of S32.
    pub fn accumulator(&self) -> Element {
        match self.a {
            Element::S8 | Element::U8 => Element::S32,
            _ => Element::F32,
        }
    }

    /// Whether consumers load A to registers, which wgmma reads it from: an M-major one of tf32, which is read K-major from shared
    /// memory.
    pub fn reads_a_to_registers(&self) -> bool {
        (self.a, self.a_major) == (Element::Tf32, OperandMajor::Mn)
            && self.arithmetic == Arithmetic::default()
    }

    /// Registers per thread that hold sums while it multiplies: the accumulators, and what these are promoted to.
    pub fn accumulator_registers(&self) -> u32 {
        self.sums() / self.sums_per_register()
    }

    /// Sums of a thread while it multiplies, those that are promoted counted in both places.
    fn sums(&self) -> u32 {
        self.blocks_in_registers() * self.tile.n / 2
    }

    /// How many of them a register holds while the tensor core adds up.
    pub(crate) fn sums_per_register(&self) -> u32 {
        1 + u32::from(self.arithmetic.f16_sums)
    }

    /// m64 blocks of sums in registers: where they are promoted, one of the tensor core's serves all in turn.
    fn blocks_in_registers(&self) -> u32 {
        self.blocks() + u32::from(self.arithmetic.promotion.is_some())
    }

    /// Consumer warpgroups that share a tile, along m.
    pub fn parts(&self) -> u32 {
        match self.schedule {
            Schedule::Cooperative => self.consumers.max(1),
            Schedule::PingPong => 1,
        }
    }

    /// m64 blocks of a tile that each consumer warpgroup computes.
    pub fn blocks(&self) -> u32 {
        self.tile.m / self.parts() / 64
    }

    /// CTAs of it that an SM holds at once: two of the small ones, so that the next launch's can come and set up while these
    /// still work.
    pub fn ctas_per_sm(&self) -> u32 {
        let small = self.few_registers()
            && self.least_smem_bytes() <= SM_SMEM_BYTES / 2 - SYSTEM_SMEM_BYTES;
        if small { 2 } else { 1 }
    }

    /// Whether half the registers of an SM are enough. The rest is for a second CTA or, where shared memory has no room for one, for a
    /// CTA of the launch before or behind, such as the pass that lays operands out.
    pub(crate) fn few_registers(&self) -> bool {
        self.consumers == 1 && !self.resident && self.sums() <= 32
    }

    /// CTAs among which the registers of an SM are shared out.
    pub fn ctas_by_registers(&self) -> u32 {
        if self.few_registers() { 2 } else { 1 }
    }

    /// Whether consumers look for the other share of a split tile, and load it, while they still multiply: those whose
    /// accumulators leave registers for it, one for each sum.
    pub fn looks_ahead(&self) -> bool {
        self.sums() <= 64
    }

    /// Shared memory that a CTA may use, in bytes.
    fn smem_limit(&self) -> u32 {
        let all = (SM_SMEM_BYTES / self.ctas_per_sm() - SYSTEM_SMEM_BYTES).min(MAX_SMEM_BYTES);
        all - self.queue_bytes()
    }

    /// How the registers of the SM are shared out.
    pub fn registers(&self) -> RegisterBudget {
        match self.consumers {
            // The relay needs more than a producer does.
            1 if self.resident => RegisterBudget { producer: 96, consumer: 248 },
            2 if self.resident => RegisterBudget { producer: 56, consumer: 224 },
            1 if self.few_registers() => RegisterBudget { producer: 128, consumer: 128 },
            1 => RegisterBudget { producer: 40, consumer: 248 },
            2 if self.accumulator_registers() + self.registers_of_a() >= 192 => {
                RegisterBudget { producer: 24, consumer: 240 }
            }
            2 => RegisterBudget { producer: 40, consumer: 232 },
            _ => RegisterBudget { producer: 32, consumer: 160 },
        }
    }

    /// Registers per thread that a consumer needs beside its accumulators.
    fn registers_beside(&self) -> u32 {
        let addresses = match (self.output.bytes(), self.d_major) {
            (1 | 4, _) | (_, OutputMajor::M) => REGISTERS_BESIDE_LONG_ADDRESSES,
            _ if !self.epilogue.is_none() => REGISTERS_BESIDE_FUSED,
            _ => REGISTERS_BESIDE_ACCUMULATORS,
        };
        addresses + self.registers_of_a()
    }

    /// Registers of a consumer thread that nothing is planned for.
    pub(crate) fn spare_registers(&self) -> u32 {
        let looked_ahead = if self.looks_ahead() { self.sums() } else { 0 };
        let used = self.accumulator_registers() + looked_ahead + self.registers_beside();
        self.registers().consumer.saturating_sub(used)
    }

    /// Registers per thread that hold fragments of A.
    fn registers_of_a(&self) -> u32 {
        if self.reads_a_to_registers() { fragment_registers(self) } else { 0 }
    }

    /// Depth of a stage in stored elements: those of every term.
    pub fn stored_tile_k(&self) -> u32 {
        self.tile.k * self.arithmetic.term_count()
    }

    /// Elements along k that A and B hold where `k` are multiplied.
    pub fn stored_k(&self, k: u32) -> u64 {
        let k = u64::from(k);
        self.arithmetic.terms.map_or(k, |terms| terms.stored_k(k, self.a))
    }

    /// The A tile of one stage.
    pub fn a_tile(&self) -> OperandTile {
        OperandTile::new(self.a, self.a_major, self.tile.m, self.stored_tile_k(), self.cluster.n)
    }

    /// The B tile of one stage.
    pub fn b_tile(&self) -> OperandTile {
        OperandTile::new(self.b, self.b_major, self.tile.n, self.stored_tile_k(), self.cluster.m)
    }

    /// The epilogue's staging buffers.
    pub fn staging(&self) -> Staging {
        let ring = self.stages * self.stage_bytes() + BARRIER_BYTES;
        let left = self.smem_limit().saturating_sub(ring) / self.consumers.max(1);
        Staging::new(self.output, self.d_major, self.tile.n, self.blocks(), left)
    }

    /// Bytes of one stage.
    pub fn stage_bytes(&self) -> u32 {
        self.a_tile().bytes() + self.b_tile().bytes()
    }

    /// An upper bound of the shared memory of a CTA, in bytes.
    pub fn smem_bytes(&self) -> u32 {
        let staging = self.consumers * self.staging().bytes();
        self.stages * self.stage_bytes() + staging + BARRIER_BYTES + self.queue_bytes()
    }

    /// Shared memory for the queue of a resident kernel, in bytes.
    fn queue_bytes(&self) -> u32 {
        if self.resident { resident::SMEM_BYTES } else { 0 }
    }

    /// Bytes beside the ring with the fewest buffers of the epilogue.
    fn least_bytes_beside_ring(&self) -> u32 {
        let staging = Staging::fewest(self.output, self.d_major, self.tile.n, self.blocks());
        self.consumers * staging.bytes() + BARRIER_BYTES + self.queue_bytes()
    }

    /// Shared memory of a CTA with the fewest buffers of the epilogue, in bytes.
    fn least_smem_bytes(&self) -> u32 {
        self.stages * self.stage_bytes() + self.least_bytes_beside_ring()
    }

    /// Deepest ring that fits beside the fewest buffers of the epilogue.
    pub fn most_stages(&self) -> u32 {
        let left = MAX_SMEM_BYTES.saturating_sub(self.least_bytes_beside_ring());
        left / self.stage_bytes().max(1)
    }

    /// Whether a kernel can be built from it.
    pub fn validate(&self) -> Result<(), SpecError> {
        let KernelSpec { a, b, output, .. } = *self;
        if !multiplies(a, b, output) {
            return Err(SpecError::Types { a, b, output });
        }
        for (operand, element, major) in [("A", a, self.a_major), ("B", b, self.b_major)] {
            let in_registers = operand == "A" && self.reads_a_to_registers();
            if element.bytes() != 2 && major != OperandMajor::K && !in_registers {
                return Err(SpecError::Major { operand, element });
            }
        }
        match self.schedule {
            Schedule::Cooperative => knob("consumers", self.consumers, 1, 1, 3)?,
            Schedule::PingPong => knob("consumers", self.consumers, 2, 2, 2)?,
        }
        let rows = 64 * self.parts();
        knob("tile_m", self.tile.m, rows, rows, rows * (4 / self.parts()).max(1))?;
        knob("tile_n", self.tile.n, 8, 8, 256)?;
        // TMA stores rows of 16 bytes or more. PTX ISA, "wgmma.mma_async": the shapes of integers.
        let byte_rows = output.bytes() == 1 && self.d_major == OutputMajor::N;
        let wide_integers = self.accumulator() == Element::S32 && self.tile.n > 32;
        let n_step = if byte_rows || wide_integers { 16 } else { 8 };
        if !self.tile.n.is_multiple_of(n_step) {
            let limit = match byte_rows {
                true => "must be a multiple of 16 with a row-major D of one byte an element",
                false => "must be 8, 16, 24, 32 or a multiple of 16 with integer operands",
            };
            return Err(SpecError::Knob {
                knob: "tile_n",
                asked: self.tile.n,
                limit: limit.into(),
                nearest: self.tile.n + 8,
            });
        }
        // Half a swizzle span, one, or two.
        let depths = [64, 128, 256].map(|bytes| bytes / a.bytes());
        if !depths.contains(&self.tile.k) {
            let [half, one, two] = depths;
            return Err(SpecError::Knob {
                knob: "tile_k",
                asked: self.tile.k,
                limit: format!("must be {half}, {one} or {two} with {a} operands"),
                nearest: depths.into_iter().min_by_key(|k| k.abs_diff(self.tile.k)).unwrap_or(one),
            });
        }
        self.validate_arithmetic()?;
        self.validate_epilogue()?;
        self.validate_resident()?;
        for (name, extent) in [("cluster_m", self.cluster.m), ("cluster_n", self.cluster.n)] {
            if !matches!(extent, 1 | 2 | 4 | 8) {
                return Err(SpecError::Knob {
                    knob: name,
                    asked: extent,
                    limit: "must be 1, 2, 4 or 8".into(),
                    nearest: 1 << extent.clamp(1, MOST_CTAS_OF_A_CLUSTER).ilog2(),
                });
            }
        }
        if self.cluster.size() > MOST_CTAS_OF_A_CLUSTER {
            return Err(SpecError::Knob {
                knob: "cluster_n",
                asked: self.cluster.n,
                limit: format!(
                    "a cluster has at most {MOST_CTAS_OF_A_CLUSTER} CTAs, and it is {} along m",
                    self.cluster.m
                ),
                nearest: MOST_CTAS_OF_A_CLUSTER / self.cluster.m,
            });
        }
        // The assembler gives the accumulators of one instruction registers that the launch has, before any setmaxnreg.
        let at_launch = SM_REGISTERS
            / ((self.consumers + 1) * WARPGROUP_THREADS * self.ctas_by_registers())
            / 8
            * 8;
        let held = self.blocks_in_registers();
        let whole = (held, self.registers().consumer, self.registers_beside());
        for (blocks, limit, beside) in [whole, (1, at_launch, REGISTERS_BESIDE_ACCUMULATORS)] {
            let columns_per_register = 2 * self.sums_per_register();
            let needed = blocks * self.tile.n / columns_per_register + beside;
            if needed > limit {
                let most = (limit - beside) * columns_per_register / blocks;
                return Err(SpecError::Registers {
                    tile: self.tile,
                    consumers: self.consumers,
                    accumulators: needed - beside,
                    needed,
                    limit,
                    nearest_n: most / n_step * n_step,
                });
            }
        }
        let fitting = self.most_stages();
        if self.stages > fitting {
            return Err(SpecError::SharedMemory {
                tile: self.tile,
                stages: self.stages,
                needed: self.least_smem_bytes(),
                fitting_stages: fitting,
            });
        }
        knob("stages", self.stages, 1, 2, 16)
    }
}

impl KernelSpec {
    /// The part of [`validate`](Self::validate) that is about resident kernels.
    fn validate_resident(&self) -> Result<(), SpecError> {
        let refused = |what, limit: &str| {
            Err(SpecError::Arithmetic { asked: self.to_string(), what, limit: limit.into() })
        };
        match self.resident {
            true if self.cluster.size() > 1 => {
                refused("a resident kernel", "takes tiles CTA by CTA: use a cluster of 1x1")
            }
            true if self.consumers > 2 => {
                refused("a resident kernel", "leaves registers for its queue: use 1 or 2 consumers")
            }
            true if self.arithmetic.scaled => refused(
                "a resident kernel",
                "has alpha, beta and an epilogue only: leave the scales out",
            ),
            _ => Ok(()),
        }
    }

    /// The part of [`validate`](Self::validate) that is about the epilogue.
    fn validate_epilogue(&self) -> Result<(), SpecError> {
        let integers = matches!(self.output, Element::S32 | Element::S8);
        match self.epilogue.is_none() || !integers {
            true => Ok(()),
            false => Err(SpecError::Arithmetic {
                asked: self.to_string(),
                what: "an epilogue",
                limit: "is for results in floating point: use a D of f32, f16 or bf16".into(),
            }),
        }
    }
}

/// Whether there are kernels for operands of these types with results of this type.
fn multiplies(a: Element, b: Element, output: Element) -> bool {
    use Element::{Bf16, E4m3, E5m2, F16, F32, S8, S32, Tf32, U8};
    match (a, b) {
        (F16, F16) | (Bf16, Bf16) => output == a || output == F32,
        (Tf32, Tf32) => output == F32,
        (E4m3 | E5m2, E4m3 | E5m2) => matches!(output, F16 | Bf16 | F32 | E4m3 | E5m2),
        (S8 | U8, S8 | U8) => matches!(output, S32 | F32 | F16 | Bf16 | S8),
        _ => false,
    }
}

/// Checks a knob that is a multiple of `step` from `least` to `most`.
fn knob(knob: &'static str, asked: u32, step: u32, least: u32, most: u32) -> Result<(), SpecError> {
    if asked.is_multiple_of(step) && (least..=most).contains(&asked) {
        return Ok(());
    }
    let limit = if step == 1 {
        format!("must be {least} to {most}")
    } else {
        format!("must be a multiple of {step} from {least} to {most}")
    };
    let rounded = asked.saturating_add(step / 2) / step * step;
    Err(SpecError::Knob { knob, asked, limit, nearest: rounded.clamp(least, most) })
}

impl fmt::Display for KernelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KernelSpec { output, tile, stages, consumers, cluster, arithmetic, .. } = self;
        let (a, b) = (major_name(self.a_major, "m"), major_name(self.b_major, "n"));
        let d = match self.d_major {
            OutputMajor::N => "",
            OutputMajor::M => "m",
        };
        let share = match self.schedule {
            Schedule::Cooperative => 'w',
            Schedule::PingPong => 'p',
        };
        let Tile { m, n, k } = tile;
        let Cluster { m: cm, n: cn } = cluster;
        write!(f, "{}", self.a)?;
        if self.b != self.a {
            write!(f, "_{}", self.b)?;
        }
        write!(f, "{}", arithmetic.terms.map_or("", Terms::suffix))?;
        write!(f, "-{a}{b}{d}-{output}-{m}x{n}x{k}-s{stages}-{share}{consumers}-c{cm}x{cn}")?;
        write!(f, "{}{}", arithmetic.suffix(), self.epilogue.suffix())?;
        f.write_str(if self.resident { RESIDENT } else { "" })
    }
}

has_name!(KernelSpec, SpecError);

/// Behind the names of resident kernels.
const RESIDENT: &str = "-resident";

fn parse(name: &str) -> Option<KernelSpec> {
    let (name, resident) = match name.strip_suffix(RESIDENT) {
        Some(name) => (name, true),
        None => (name, false),
    };
    let mut parts = name.split('-');
    let (operands, terms) = Terms::strip(parts.next()?);
    let (a, b) = operands.split_once('_').unwrap_or((operands, operands));
    let (a, b) = (a.parse().ok()?, b.parse().ok()?);
    let mut letters = parts.next()?.chars();
    let (a_major, b_major) = majors(&mut letters)?;
    let d_major = match letters.next() {
        None => OutputMajor::N,
        Some(_) => OutputMajor::M,
    };
    let output = parts.next()?.parse().ok()?;
    let [m, n, k] = numbers(parts.next()?)?;
    let [stages] = numbers(parts.next()?.strip_prefix('s')?)?;
    let share = parts.next()?;
    let (schedule, consumers) = match share.strip_prefix('w') {
        Some(consumers) => (Schedule::Cooperative, consumers),
        None => (Schedule::PingPong, share.strip_prefix('p')?),
    };
    let [consumers] = numbers(consumers)?;
    let [cluster_m, cluster_n] = numbers(parts.next()?.strip_prefix('c')?)?;
    let mut arithmetic = Arithmetic { terms, ..Arithmetic::default() };
    let mut epilogue = Epilogue::NONE;
    for part in parts {
        if let Some(text) = part.strip_prefix('e') {
            epilogue = Epilogue::from_suffix(text)?;
            continue;
        }
        match (part, part.strip_prefix('p').map(numbers)) {
            (_, Some(interval)) => arithmetic.promotion = interval.map(|[k]| k),
            ("acc16", None) => arithmetic.f16_sums = true,
            (_, None) => arithmetic.scaled = true,
        }
    }
    Some(KernelSpec {
        a,
        b,
        output,
        a_major,
        b_major,
        d_major,
        tile: Tile { m, n, k },
        stages,
        consumers,
        schedule,
        cluster: Cluster { m: cluster_m, n: cluster_n },
        arithmetic,
        epilogue,
        resident,
    })
}

/// The numbers of a part of a name: `256x192x64`.
pub(crate) fn numbers<const N: usize>(text: &str) -> Option<[u32; N]> {
    let numbers: Vec<u32> =
        text.split('x').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    // Larger ones could overflow the products that validation computes.
    numbers.iter().all(|&number| number <= 4096).then_some(())?;
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests;
