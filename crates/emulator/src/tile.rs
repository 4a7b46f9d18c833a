//! The sums of one accumulator group, and which of them are written.

use pgemm_ir::{Accumulator, Type};

use crate::product::TILE_ROWS;

/// The sums of one accumulator group of a warpgroup: 64 rows, row-major.
#[derive(Default)]
pub(crate) struct Tile {
    pub(crate) values: Values,
    /// By sum: whether something has written it.
    pub(crate) defined: Vec<bool>,
    /// Number of sums that nothing has written.
    pub(crate) undefined: usize,
}

/// The numbers of a tile.
pub(crate) enum Values {
    /// binary32, also for f16 sums.
    Float(Vec<f32>),
    Integer(Vec<i32>),
}

impl Default for Values {
    fn default() -> Values {
        Values::Float(Vec::new())
    }
}

impl Tile {
    pub(crate) fn new(group: &Accumulator) -> Tile {
        let sums = group.columns() as usize * TILE_ROWS;
        let values = match group.ty {
            Type::S32 => Values::Integer(vec![0; sums]),
            _ => Values::Float(vec![0.0; sums]),
        };
        Tile { values, defined: vec![false; sums], undefined: sums }
    }

    /// Whether every sum has been written.
    pub(crate) fn is_defined(&self) -> bool {
        self.undefined == 0
    }

    /// Every sum is written.
    pub(crate) fn define_all(&mut self) {
        if self.undefined > 0 {
            self.undefined = 0;
            self.defined.fill(true);
        }
    }

    pub(crate) fn define(&mut self, sum: usize) {
        self.undefined -= usize::from(!self.defined[sum]);
        self.defined[sum] = true;
    }
}
