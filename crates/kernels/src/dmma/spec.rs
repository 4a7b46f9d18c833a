//! [`DmmaSpec`]: what of an f64 GEMM changes its code. Its name, `f64-kn-f64-128x128x16-s6-w2x4-k8`: operands, majors of A
//! and B, output, CTA tile, stages, consumer warps along m and n, depth of the MMA. An [`Epilogue`] stands at its end, `…-ebias_n.silu`.

use std::fmt;

use pgemm_ir::{Element, MAX_SMEM_BYTES, OperandMajor, WarpMma};
use serde::{Deserialize, Serialize};

use super::fragment::BLOCK_LINES;
use crate::fusion::{Activation, Epilogue};
use crate::names::{WARPS_ALONG_M, has_name, major_name, majors, one_of, warps_along_n};
use crate::operand::OperandTile;
use crate::shared::SharedTile;
use crate::spec::{RegisterBudget, Tile, numbers};

/// Bytes kept for barriers behind the ring.
const BARRIER_BYTES: u32 = 1024;

/// Depth of a stage: one span of the 128-byte swizzle.
pub(super) const TILE_K: u32 = 16;

/// Registers per thread beside accumulators and fragments.
const OTHER_REGISTERS: u32 = 16;

/// And those that exp and polynomials take, which would be spilled.
const ACTIVATION_REGISTERS: u32 = 24;

/// Consumer warps of a CTA, along both dimensions of its tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Warps {
    /// Along m.
    pub m: u32,
    /// Along n.
    pub n: u32,
}

/// An f64 GEMM kernel: D = alpha·A·B + beta·C with C and D row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DmmaSpec {
    /// Major of A: along K or along M.
    pub a_major: OperandMajor,
    /// Major of B: along K or along N.
    pub b_major: OperandMajor,
    /// CTA tile, 16 deep.
    pub tile: Tile,
    /// Stages of the shared-memory ring.
    pub stages: u32,
    /// Consumer warps: 4 or 8.
    pub warps: Warps,
    /// Depth of one MMA: 8 or 16. Deeper ones need more registers for fragments.
    pub mma_k: u32,
    /// What happens to results before they are stored.
    pub epilogue: Epilogue,
}

/// A spec that no kernel can be built from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DmmaSpecError {
    /// Not a spec name.
    #[error(
        "'{name}' is not the spec of an f64 kernel: expected the form f64-kn-f64-128x128x16-s6-w2x4-k8 \
         (operands, majors of A and B, output, CTA tile, stages, consumer warps along m and n, depth of the MMA)"
    )]
    Name {
        /// What was given.
        name: String,
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
        "tile {}x{}x{} with {stages} stages needs {needed} bytes of shared memory, and a CTA has {}: {fitting_stages} \
         stages fit",
        tile.m, tile.n, tile.k, MAX_SMEM_BYTES
    )]
    SharedMemory {
        /// CTA tile.
        tile: Tile,
        /// Stages asked for.
        stages: u32,
        /// Bytes that they need, with the barriers.
        needed: u32,
        /// Stages that would fit.
        fitting_stages: u32,
    },
    /// The accumulators and fragments of a warp do not fit into registers.
    #[error(
        "tile {}x{} over {}x{} warps with MMAs of depth {mma_k} needs {needed} registers per thread, and each can have \
         {limit}: use a smaller tile, more warps or a depth of 8",
        tile.m, tile.n, warps.m, warps.n
    )]
    Registers {
        /// CTA tile.
        tile: Tile,
        /// Consumer warps.
        warps: Warps,
        /// Depth of an MMA.
        mma_k: u32,
        /// Registers per thread that they need.
        needed: u32,
        /// Registers per thread that they can have.
        limit: u32,
    },
}

impl DmmaSpec {
    /// The instruction.
    pub fn mma(&self) -> WarpMma {
        WarpMma::f64(self.mma_k)
    }

    /// Rows and columns of a warp's part of the tile.
    pub fn warp_tile(&self) -> (u32, u32) {
        (self.tile.m / self.warps.m.max(1), self.tile.n / self.warps.n.max(1))
    }

    /// Consumer warpgroups.
    pub fn warpgroups(&self) -> u32 {
        self.warps.m * self.warps.n / 4
    }

    /// How the registers of the SM are shared out.
    pub fn registers(&self) -> RegisterBudget {
        match self.warpgroups() {
            1 => RegisterBudget { producer: 40, consumer: 248 },
            _ => RegisterBudget { producer: 24, consumer: 240 },
        }
    }

    /// The A tile of one stage.
    pub fn a_tile(&self) -> OperandTile {
        OperandTile::new(Element::F64, self.a_major, self.tile.m, self.tile.k, 1)
    }

    /// The B tile of one stage.
    pub fn b_tile(&self) -> OperandTile {
        OperandTile::new(Element::F64, self.b_major, self.tile.n, self.tile.k, 1)
    }

    /// Bytes of one stage.
    pub fn stage_bytes(&self) -> u32 {
        self.a_tile().bytes() + self.b_tile().bytes()
    }

    /// An upper bound of the shared memory of a CTA, in bytes.
    pub fn smem_bytes(&self) -> u32 {
        self.stages * self.stage_bytes() + BARRIER_BYTES
    }

    /// Deepest ring that fits.
    pub fn most_stages(&self) -> u32 {
        (MAX_SMEM_BYTES - BARRIER_BYTES) / self.stage_bytes().max(1)
    }

    /// What its launch depends on.
    pub(crate) fn shared(&self) -> SharedTile {
        SharedTile {
            tile: self.tile,
            element: Element::F64,
            a_major: self.a_major,
            b_major: self.b_major,
            warpgroups: self.warpgroups(),
        }
    }

    /// Registers per thread: sums, the fragments of one step, those of B and half of A's for the step that follows.
    fn registers_needed(&self) -> u32 {
        let (m, n) = self.warp_tile();
        let lane = |elements: u32| elements / 32 * 2;
        let (a, b) = (lane(m * self.mma_k), lane(n * self.mma_k));
        let activated =
            matches!(self.epilogue.activation(), Some(Activation::Gelu | Activation::Silu));
        let activation = if activated { ACTIVATION_REGISTERS } else { 0 };
        lane(m * n) + a + a / 2 + 2 * b + OTHER_REGISTERS + activation
    }

    /// Whether a kernel can be built from it.
    ///
    /// # Errors
    /// See [`DmmaSpecError`].
    pub fn validate(&self) -> Result<(), DmmaSpecError> {
        let one_of = |knob, asked: u32, legal: &[u32]| {
            one_of(asked, legal).map_err(|(limit, nearest)| DmmaSpecError::Knob {
                knob,
                asked,
                limit,
                nearest,
            })
        };
        one_of("mma_k", self.mma_k, &[8, 16])?;
        one_of("tile_k", self.tile.k, &[TILE_K])?;
        one_of("warps_m", self.warps.m, &WARPS_ALONG_M)?;
        one_of("warps_n", self.warps.n, warps_along_n(self.warps.m))?;
        for (knob, asked, warps) in
            [("tile_m", self.tile.m, self.warps.m), ("tile_n", self.tile.n, self.warps.n)]
        {
            let step = BLOCK_LINES * warps;
            // One TMA box is 256 lines long at most.
            let legal: Vec<u32> = (step..=256).step_by(step as usize).collect();
            one_of(knob, asked, &legal)?;
        }
        let (needed, limit) = (self.registers_needed(), self.registers().consumer);
        if needed > limit {
            let DmmaSpec { tile, warps, mma_k, .. } = *self;
            return Err(DmmaSpecError::Registers { tile, warps, mma_k, needed, limit });
        }
        let fitting_stages = self.most_stages();
        if self.stages > fitting_stages {
            return Err(DmmaSpecError::SharedMemory {
                tile: self.tile,
                stages: self.stages,
                needed: self
                    .stages
                    .saturating_mul(self.stage_bytes())
                    .saturating_add(BARRIER_BYTES),
                fitting_stages,
            });
        }
        one_of("stages", self.stages, &(2..=16).collect::<Vec<_>>())
    }
}

impl fmt::Display for DmmaSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, b) = (major_name(self.a_major, "m"), major_name(self.b_major, "n"));
        let DmmaSpec { tile: Tile { m, n, k }, stages, warps, mma_k, .. } = self;
        write!(f, "f64-{a}{b}-f64-{m}x{n}x{k}-s{stages}-w{}x{}-k{mma_k}", warps.m, warps.n)?;
        f.write_str(&self.epilogue.suffix())
    }
}

has_name!(DmmaSpec, DmmaSpecError);

fn parse(name: &str) -> Option<DmmaSpec> {
    let mut parts = name.strip_prefix("f64-")?.split('-');
    let (a_major, b_major) = majors(&mut parts.next()?.chars())?;
    parts.next().filter(|output| *output == "f64")?;
    let [m, n, k] = numbers(parts.next()?)?;
    let [stages] = numbers(parts.next()?.strip_prefix('s')?)?;
    let [warps_m, warps_n] = numbers(parts.next()?.strip_prefix('w')?)?;
    let [mma_k] = numbers(parts.next()?.strip_prefix('k')?)?;
    let warps = Warps { m: warps_m, n: warps_n };
    let epilogue = Epilogue::last_of(parts)?;
    Some(DmmaSpec { a_major, b_major, tile: Tile { m, n, k }, stages, warps, mma_k, epilogue })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> DmmaSpec {
        name.parse().unwrap()
    }

    #[test]
    fn names_parse_back_and_only_canonical_ones_do() {
        for name in [
            "f64-kn-f64-128x128x16-s6-w2x4-k8",
            "f64-mk-f64-64x64x16-s8-w2x2-k16",
            "f64-kk-f64-64x64x16-s8-w2x2-k8-ebias_n",
        ] {
            assert_eq!(spec(name).to_string(), name);
            assert_eq!(spec(name).validate(), Ok(()));
        }
        for bad in [
            "",
            "f64-kn-f64",
            "f32-kn-f64-128x128x16-s6-w2x4-k8",
            "f64-kn-f32-128x128x16-s6-w2x4-k8",
            "f64-nk-f64-128x128x16-s6-w2x4-k8",
            "f64-knk-f64-128x128x16-s6-w2x4-k8",
            "f64-kn-f64-128x128x16-s6-w8-k8",
            "f64-kn-f64-128x128x16-s6-w2x4-k08",
            "f64-kn-f64-128x128x16-s6-w2x4-k8-x",
            "f64-kn-f64-128x128x16-s6-w2x4-k8-erelu-erelu",
            "f64-kn-f64-99999999999x128x16-s6-w2x4-k8",
        ] {
            assert!(bad.parse::<DmmaSpec>().is_err(), "{bad}");
        }
    }

    #[test]
    fn impossible_knobs_name_the_nearest_legal_value() {
        for (name, knob, nearest) in [
            ("f64-kk-f64-120x128x16-s6-w2x4-k8", "tile_m", 128),
            ("f64-kk-f64-128x4096x16-s6-w2x4-k8", "tile_n", 256),
            ("f64-kk-f64-128x128x32-s6-w2x4-k8", "tile_k", 16),
            ("f64-kk-f64-128x128x16-s6-w2x3-k8", "warps_n", 2),
            ("f64-kk-f64-128x128x16-s6-w0x4-k8", "warps_m", 1),
            ("f64-kk-f64-128x128x16-s6-w2x4-k4", "mma_k", 8),
            ("f64-kk-f64-128x128x16-s1-w2x4-k8", "stages", 2),
        ] {
            match spec(name).validate() {
                Err(DmmaSpecError::Knob { knob: found, nearest: near, .. }) => {
                    assert_eq!((found, near), (knob, nearest), "{name}");
                }
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_does_not_fit_says_what_would() {
        // As a caller may write it; names end at 4096.
        let usual = spec("f64-kk-f64-128x128x16-s2-w2x4-k8");
        let error = DmmaSpec { stages: u32::MAX, ..usual }.validate().unwrap_err();
        let DmmaSpecError::SharedMemory { fitting_stages, .. } = error else { panic!("{error}") };
        let fits = DmmaSpec { stages: fitting_stages, ..usual };
        assert_eq!(fits.validate(), Ok(()));
        for name in ["f64-kk-f64-128x128x16-s4-w2x2-k8", "f64-kk-f64-128x128x16-s4-w2x4-k16"] {
            let error = spec(name).validate().unwrap_err();
            assert!(matches!(error, DmmaSpecError::Registers { .. }), "{error}");
        }
    }
}
