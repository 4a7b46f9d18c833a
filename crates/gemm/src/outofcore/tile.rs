//! Tiles of the matrices of a product by blocks.

/// The matrix of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operand {
    A,
    B,
    /// C, which is uploaded to the slot of the block of D.
    C,
}

impl Operand {
    /// The axes of the product (m, n, k) along its rows and columns.
    pub fn axes(self) -> [usize; 2] {
        match self {
            Operand::A => [0, 2],
            Operand::B => [2, 1],
            Operand::C => [0, 1],
        }
    }
}

/// A tile: its place along the rows and columns of its matrix, in tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tile {
    pub operand: Operand,
    pub row: usize,
    pub column: usize,
}
