//! The size of a problem and how it is launched.

use pgemm_kernels::{OutputMajor, Spec};

/// Where C lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CPlace {
    /// Nowhere: beta is 0, and D's bytes, all of them NaN, are C's too.
    Unread,
    /// In memory of its own.
    Apart,
    /// In D.
    InPlace,
}

/// The size of a problem and how it is launched.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub alpha: f32,
    pub beta: f32,
    pub c: CPlace,
    pub raster_rows: u32,
    pub clusters: u32,
    pub split: Split,
    pub batch: Batch,
    /// Elements by which the addresses and the leading dimensions of C and D exceed a multiple of
    /// 16 bytes.
    pub off: [usize; 2],
    /// The same for an operand that threads load. Its memory ends with its last element.
    pub operands_off: usize,
}

/// Which tiles are split along k, among how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    pub tiles: u32,
    pub workers: u32,
    pub unordered: bool,
}

impl Split {
    pub const NONE: Split = Split { tiles: 0, workers: 0, unordered: false };
}

/// Products of a case, each with matrices of its own, or all with the same A, B or C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    pub count: u32,
    pub same: [bool; 3],
}

impl Batch {
    pub const ONE: Batch = Batch { count: 1, same: [false; 3] };

    /// Matrices in memory, of A, B and C.
    pub fn matrices(&self) -> [usize; 3] {
        self.same.map(|same| if same { 1 } else { self.count as usize })
    }
}

impl Case {
    /// D = A·B of `tiles` cluster tiles along m and n and `k_tiles` stages along k. The last tile
    /// of each dimension is cut short. Along m and n so much is cut that the last CTAs of a cluster
    /// have nothing to do. TMA can still store the lines of D.
    pub fn ragged(spec: &Spec, tiles: [u32; 2], k_tiles: u32) -> Case {
        let cut = |tile: u32, tiles: u32| (tiles - 1) * tile + tile / 2 - (tile / 4).min(5);
        let m = cut(spec.tile.m * spec.cluster.m, tiles[0]);
        let n = cut(spec.tile.n * spec.cluster.n, tiles[1]);
        let unit = 16 / spec.output.bytes();
        let (m, n) = match spec.d_major {
            OutputMajor::N => (m, n.next_multiple_of(unit)),
            OutputMajor::M => (m.next_multiple_of(unit), n),
        };
        Case {
            m,
            n,
            k: cut(spec.tile.k, k_tiles),
            alpha: 1.0,
            beta: 0.0,
            c: CPlace::Unread,
            raster_rows: 2,
            clusters: 1,
            split: Split::NONE,
            batch: Batch::ONE,
            off: [0; 2],
            operands_off: 0,
        }
    }

    /// The same with the first `tiles` split among `workers`.
    pub fn split(self, tiles: u32, workers: u32, unordered: bool) -> Case {
        Case { split: Split { tiles, workers, unordered }, ..self }
    }

    /// So many products, with the same A, B or C for all where `same` says so.
    pub fn batch(self, count: u32, same: [bool; 3]) -> Case {
        Case { batch: Batch { count, same }, ..self }
    }

    /// The same case with other factors. They are powers of two, so that the result stays exact
    /// until it is rounded to D's type.
    pub fn scaled(self, alpha: f32, beta: f32, c: CPlace) -> Case {
        Case { alpha, beta, c, ..self }
    }
}
