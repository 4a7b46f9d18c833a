//! [`FfmaSpec`]: what of an f32 GEMM changes its code. Its name, `f32-kn-f32-128x256x16-s8-t8x16-w2x4`: operands, majors of A
//! and B, output, CTA tile, stages, a thread's part of the tile, consumer warps along m and n. An [`Epilogue`] stands at its end,
//! `…-ebias_n.silu`.

use std::fmt;

use pgemm_ir::{Element, MAX_SMEM_BYTES, OperandMajor, SM_SMEM_BYTES, SYSTEM_SMEM_BYTES};
use serde::{Deserialize, Serialize};

use super::tile::{BLOCK_LINES, StageTile};
use crate::dmma::Warps;
use crate::fusion::Epilogue;
use crate::names::{WARPS_ALONG_M, has_name, major_name, majors, one_of, warps_along_n};
use crate::shared::SharedTile;
use crate::spec::{RegisterBudget, Tile, numbers};

/// Bytes kept for barriers behind the ring.
const BARRIER_BYTES: u32 = 1024;

/// Registers per thread beside sums and fragments.
const OTHER_REGISTERS: u32 = 24;

/// Lines of a tile at most: those of one TMA box.
const MAX_LINES: u32 = 256;

/// A thread's part of a CTA tile, in elements: whole groups of four along both dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadTile {
    /// Rows.
    pub m: u32,
    /// Columns.
    pub n: u32,
}

/// An f32 GEMM kernel on CUDA cores: D = alpha·A·B + beta·C with C and D row-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FfmaSpec {
    /// Major of A: along K or along M.
    pub a_major: OperandMajor,
    /// Major of B: along K or along N.
    pub b_major: OperandMajor,
    /// CTA tile, 8, 16 or 32 deep.
    pub tile: Tile,
    /// Stages of the shared-memory ring.
    pub stages: u32,
    /// A thread's part of the tile.
    pub thread: ThreadTile,
    /// Consumer warps: 8, or 4 of each of two CTAs that share an SM. Their lanes lie 4×8 or 8×4, as the tile wants it.
    pub warps: Warps,
    /// What happens to results before they are stored.
    pub epilogue: Epilogue,
}

/// A spec that no kernel can be built from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FfmaSpecError {
    /// Not a spec name.
    #[error(
        "'{name}' is not the spec of an f32 kernel: expected the form f32-kn-f32-128x256x16-s8-t8x16-w2x4 \
         (operands, majors of A and B, output, CTA tile, stages, a thread's part, consumer warps along m and n)"
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
    /// The parts of the threads do not make up the tile.
    #[error(
        "{}x{} warps of 4x8 or 8x4 lanes with {}x{} elements each do not make up a tile of {}x{}: the nearest that they do is \
         {}x{}",
        warps.m, warps.n, thread.m, thread.n, tile.m, tile.n, nearest.m, nearest.n
    )]
    Extents {
        /// CTA tile.
        tile: Tile,
        /// A thread's part.
        thread: ThreadTile,
        /// Consumer warps.
        warps: Warps,
        /// A tile that they make up.
        nearest: Tile,
    },
    /// The tile and its stages do not fit into shared memory.
    #[error(
        "tile {}x{}x{} with {stages} stages needs {needed} bytes of shared memory, and a CTA has {limit}: {fitting_stages} \
         stages fit",
        tile.m, tile.n, tile.k
    )]
    SharedMemory {
        /// CTA tile.
        tile: Tile,
        /// Stages asked for.
        stages: u32,
        /// Bytes that they need, with the barriers.
        needed: u32,
        /// Bytes that a CTA can have.
        limit: u32,
        /// Stages that would fit.
        fitting_stages: u32,
    },
    /// The sums and fragments of a thread do not fit into registers.
    #[error(
        "{}x{} sums of a thread need {needed} registers, and it can have {limit}: use a smaller part",
        thread.m, thread.n
    )]
    Registers {
        /// A thread's part of the tile.
        thread: ThreadTile,
        /// Registers that it needs.
        needed: u32,
        /// Registers that it can have.
        limit: u32,
    },
}

impl FfmaSpec {
    /// Lanes of a warp along m and n: 4×8 or 8×4 in a legal spec.
    pub fn lanes(&self) -> (u32, u32) {
        let lanes = |tile: u32, warps: u32, thread: u32| tile / (warps * thread).max(1);
        (
            lanes(self.tile.m, self.warps.m, self.thread.m),
            lanes(self.tile.n, self.warps.n, self.thread.n),
        )
    }

    /// Consumer warpgroups.
    pub fn warpgroups(&self) -> u32 {
        self.warps.m * self.warps.n / 4
    }

    /// CTAs that share an SM: two where each has four consumer warps.
    pub fn ctas_per_sm(&self) -> u32 {
        if self.warpgroups() == 1 { 2 } else { 1 }
    }

    /// How the registers of the SM are shared out.
    pub fn registers(&self) -> RegisterBudget {
        // What the producer's warpgroup needs for transposing depends on how much of a line a lane has at once. Where it only
        // just fits, the assembler gives up placing operands in different banks of the register file, in all of the kernel.
        let (producer, consumer) = match (self.warpgroups(), self.transposes()) {
            (1, _) => (40, 216),
            (_, true) => (56, 224),
            (_, false) => (40, 232),
        };
        RegisterBudget { producer, consumer }
    }

    /// The A tile of one stage.
    pub(super) fn a_tile(&self) -> StageTile {
        self.stage_tile(self.a_major, self.tile.m)
    }

    /// The B tile of one stage.
    pub(super) fn b_tile(&self) -> StageTile {
        self.stage_tile(self.b_major, self.tile.n)
    }

    fn stage_tile(&self, major: OperandMajor, lines: u32) -> StageTile {
        let k = self.tile.k;
        let box_depth = match (major, self.warpgroups()) {
            (OperandMajor::Mn, _) => k,
            (OperandMajor::K, 1) => k.min(8),
            (OperandMajor::K, _) => k.min(16),
        };
        StageTile { major, lines, k, box_depth }
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
        (self.smem_limit() - BARRIER_BYTES) / self.stage_bytes().max(1)
    }

    /// Whether an operand lies along k, and so is transposed in shared memory before it is multiplied.
    pub fn transposes(&self) -> bool {
        self.a_major == OperandMajor::K || self.b_major == OperandMajor::K
    }

    /// Sums of a thread.
    pub fn sums(&self) -> u32 {
        self.thread.m * self.thread.n
    }

    /// What its launch depends on.
    pub(crate) fn shared(&self) -> SharedTile {
        SharedTile {
            tile: self.tile,
            element: Element::F32,
            a_major: self.a_major,
            b_major: self.b_major,
            warpgroups: self.warpgroups(),
        }
    }

    /// Registers per thread: sums, and the fragments of one step and of the next.
    fn registers_needed(&self) -> u32 {
        self.sums() + 2 * (self.thread.m + self.thread.n) + OTHER_REGISTERS
    }

    /// Bytes of shared memory that a CTA can have.
    fn smem_limit(&self) -> u32 {
        (SM_SMEM_BYTES / self.ctas_per_sm() - SYSTEM_SMEM_BYTES).min(MAX_SMEM_BYTES)
    }

    /// Extents of CTA tiles along m and n that warps of threads with such parts make up.
    fn tiles(&self, (thread_m, thread_n): (u32, u32)) -> Vec<(u32, u32)> {
        let legal = |lines: u32| lines.is_multiple_of(BLOCK_LINES) && lines <= MAX_LINES;
        [(4, 8), (8, 4)]
            .map(|(m, n)| (m * thread_m * self.warps.m, n * thread_n * self.warps.n))
            .into_iter()
            .filter(|&(m, n)| legal(m) && legal(n))
            .collect()
    }

    /// Whether a kernel can be built from it.
    ///
    /// # Errors
    /// See [`FfmaSpecError`].
    pub fn validate(&self) -> Result<(), FfmaSpecError> {
        let one_of = |knob, asked: u32, legal: &[u32]| {
            one_of(asked, legal).map_err(|(limit, nearest)| FfmaSpecError::Knob {
                knob,
                asked,
                limit,
                nearest,
            })
        };
        let FfmaSpec { tile, stages, thread, warps, .. } = *self;
        one_of("tile_k", tile.k, &[8, 16, 32])?;
        one_of("warps_m", warps.m, &WARPS_ALONG_M)?;
        one_of("warps_n", warps.n, warps_along_n(warps.m))?;
        // Parts from which some tile can be made.
        let parts = [4, 8, 12, 16];
        let of = |legal: &dyn Fn(u32) -> bool| -> Vec<u32> {
            parts.into_iter().filter(|&part| legal(part)).collect()
        };
        let along_m = of(&|m| parts.iter().any(|&n| !self.tiles((m, n)).is_empty()));
        one_of("thread_m", thread.m, &along_m)?;
        let along_n = of(&|n| !self.tiles((thread.m, n)).is_empty());
        one_of("thread_n", thread.n, &along_n)?;
        let tiles = self.tiles((thread.m, thread.n));
        let distance = |&(m, n): &(u32, u32)| m.abs_diff(tile.m).saturating_add(n.abs_diff(tile.n));
        match tiles.iter().copied().min_by_key(distance) {
            Some((m, n)) if (m, n) != (tile.m, tile.n) => {
                let nearest = Tile { m, n, k: tile.k };
                return Err(FfmaSpecError::Extents { tile, thread, warps, nearest });
            }
            _ => {}
        }
        let (needed, limit) = (self.registers_needed(), self.registers().consumer);
        if needed > limit {
            return Err(FfmaSpecError::Registers { thread, needed, limit });
        }
        let (limit, fitting_stages) = (self.smem_limit(), self.most_stages());
        if stages > fitting_stages {
            let needed = stages.saturating_mul(self.stage_bytes()).saturating_add(BARRIER_BYTES);
            return Err(FfmaSpecError::SharedMemory {
                tile,
                stages,
                needed,
                limit,
                fitting_stages,
            });
        }
        one_of("stages", stages, &(2..=16).collect::<Vec<_>>())
    }
}

impl fmt::Display for FfmaSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, b) = (major_name(self.a_major, "m"), major_name(self.b_major, "n"));
        let FfmaSpec { tile: Tile { m, n, k }, stages, thread, warps, .. } = self;
        write!(f, "f32-{a}{b}-f32-{m}x{n}x{k}-s{stages}")?;
        write!(f, "-t{}x{}-w{}x{}", thread.m, thread.n, warps.m, warps.n)?;
        f.write_str(&self.epilogue.suffix())
    }
}

has_name!(FfmaSpec, FfmaSpecError);

fn parse(name: &str) -> Option<FfmaSpec> {
    let mut parts = name.strip_prefix("f32-")?.split('-');
    let (a_major, b_major) = majors(&mut parts.next()?.chars())?;
    parts.next().filter(|output| *output == "f32")?;
    let [m, n, k] = numbers(parts.next()?)?;
    let [stages] = numbers(parts.next()?.strip_prefix('s')?)?;
    let [thread_m, thread_n] = numbers(parts.next()?.strip_prefix('t')?)?;
    let [warps_m, warps_n] = numbers(parts.next()?.strip_prefix('w')?)?;
    let thread = ThreadTile { m: thread_m, n: thread_n };
    let warps = Warps { m: warps_m, n: warps_n };
    let epilogue = Epilogue::last_of(parts)?;
    Some(FfmaSpec { a_major, b_major, tile: Tile { m, n, k }, stages, thread, warps, epilogue })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> FfmaSpec {
        name.parse().unwrap()
    }

    #[test]
    fn names_parse_back_and_only_canonical_ones_do() {
        for name in [
            "f32-kn-f32-128x256x16-s8-t8x16-w2x4",
            "f32-mk-f32-64x64x32-s4-t8x4-w2x2",
            "f32-kk-f32-192x192x8-s9-t12x12-w4x2",
            "f32-kk-f32-192x192x8-s9-t12x12-w4x2-ebias_m.gelu",
        ] {
            assert_eq!(spec(name).to_string(), name);
            assert_eq!(spec(name).validate(), Ok(()));
        }
        for bad in [
            "",
            "f32-kn-f32",
            "f64-kn-f32-128x256x16-s8-t8x16-w2x4",
            "f32-kn-f64-128x256x16-s8-t8x16-w2x4",
            "f32-nk-f32-128x256x16-s8-t8x16-w2x4",
            "f32-knk-f32-128x256x16-s8-t8x16-w2x4",
            "f32-kn-f32-128x256x16-s8-t8x16-w8",
            "f32-kn-f32-128x256x16-s8-t08x16-w2x4",
            "f32-kn-f32-128x256x16-s8-t8x16-w2x4-x",
            "f32-kn-f32-128x256x16-s8-t8x16-w2x4-egelu.bias_m",
            "f32-kn-f32-99999999999x256x16-s8-t8x16-w2x4",
        ] {
            assert!(bad.parse::<FfmaSpec>().is_err(), "{bad}");
        }
    }

    #[test]
    fn impossible_knobs_name_the_nearest_legal_value() {
        for (name, knob, nearest) in [
            ("f32-kk-f32-128x256x64-s8-t8x16-w2x4", "tile_k", 32),
            ("f32-kk-f32-128x256x16-s1-t8x16-w2x4", "stages", 2),
            ("f32-kk-f32-128x256x16-s8-t8x16-w2x3", "warps_n", 2),
            ("f32-kk-f32-128x256x16-s8-t8x16-w0x4", "warps_m", 1),
            ("f32-kk-f32-128x256x16-s8-t9x16-w2x4", "thread_m", 8),
            ("f32-kk-f32-128x256x16-s8-t8x0-w2x4", "thread_n", 4),
        ] {
            match spec(name).validate() {
                Err(FfmaSpecError::Knob { knob: found, nearest: near, .. }) => {
                    assert_eq!((found, near), (knob, nearest), "{name}");
                }
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn every_warp_grid_and_part_has_a_tile() {
        let usual = spec("f32-kk-f32-128x256x16-s2-t8x16-w2x4");
        for (m, n) in [(1, 4), (1, 8), (2, 2), (2, 4), (4, 1), (4, 2), (8, 1)] {
            // As a caller may write it; names end at 4096.
            let asked = FfmaSpec {
                warps: Warps { m, n },
                thread: ThreadTile { m: u32::MAX, n: u32::MAX },
                tile: Tile { m: u32::MAX, n: 0, k: 8 },
                ..usual
            };
            let knob = |spec: FfmaSpec| match spec.validate() {
                Err(FfmaSpecError::Knob { nearest, .. }) => nearest,
                other => panic!("{other:?}"),
            };
            let thread = ThreadTile { m: knob(asked), ..asked.thread };
            let thread = ThreadTile { n: knob(FfmaSpec { thread, ..asked }), ..thread };
            let asked = FfmaSpec { thread, ..asked };
            let Err(FfmaSpecError::Extents { nearest, .. }) = asked.validate() else {
                panic!("{asked} must not be legal")
            };
            match (FfmaSpec { tile: nearest, ..asked }).validate() {
                Ok(()) | Err(FfmaSpecError::Registers { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn what_does_not_fit_says_what_would() {
        let usual = spec("f32-kk-f32-128x128x16-s2-t8x16-w4x1");
        let error = FfmaSpec { stages: u32::MAX, ..usual }.validate().unwrap_err();
        let FfmaSpecError::SharedMemory { fitting_stages, .. } = error else { panic!("{error}") };
        let fits = FfmaSpec { stages: fitting_stages, ..usual };
        assert_eq!(fits.validate(), Ok(()));
        let error = spec("f32-kk-f32-256x256x16-s2-t16x16-w2x4").validate().unwrap_err();
        assert!(matches!(error, FfmaSpecError::Registers { .. }), "{error}");
        let error = spec("f32-kk-f32-128x128x16-s2-t8x16-w2x4").validate().unwrap_err();
        let FfmaSpecError::Extents { nearest, .. } = error else { panic!("{error}") };
        assert_eq!((nearest.m, nearest.n), (128, 256));
    }
}
