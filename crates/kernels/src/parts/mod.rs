//! The parts of the library's kernels, for kernels that are written elsewhere.
//!
//! A GEMM with an output of one's own has three steps. [`GemmParts`] declares what a [`Spec`] says:
//! the scheduler, the operands with their ring, and the wgmma mainloop. An [`Output`] says what
//! becomes of the sums of each tile. [`GemmParts::write`] writes the persistent loop around them
//! and returns a [`Binding`], which computes the arguments and the grid of a launch from a
//! [`Work`].
//!
//! | part | what it does |
//! |---|---|
//! | [`GemmParts`] | the work of each CTA, its operands and its sums |
//! | [`Output`] | what a warpgroup does with the sums of a tile |
//! | [`LibraryOutput`] | the library's own output (alpha, beta, C, bias, activation), of sums that the author may change |
//! | [`StagedStores`] | stores of computed tiles through shared memory by TMA |
//! | [`StagingTile`] | one tile in shared memory, written from accumulators by `stmatrix` |
//! | [`OperandTiles`] | the tiles of an operand of wgmma: TMA boxes, addresses and descriptors |
//! | [`multiply`] | the MMAs of two such tiles |
//!
//! The last three need no [`GemmParts`]: any kernel can use them.
//!
//! The sums are in the registers of the consumer warpgroups, as wgmma leaves them. A *set* is the
//! sums of one product; a kernel of a gated spec has two. A *block* is 64 rows. A *group* is 8
//! columns, of which a thread has a *quad*: two neighbouring columns of two rows, in the order
//! (row 0, column 0), (row 0, column 1), (row 1, column 0), (row 1, column 1).

mod binding;
mod gemm;
mod library;
mod operand;
mod output;
mod staging;

pub use self::binding::Binding;
pub use self::gemm::GemmParts;
pub use self::library::{LibraryOutput, LibraryState};
pub use self::operand::{MmaOperand, OperandTiles, multiply};
pub use self::output::{Output, OutputTile, TileSums};
pub use self::staging::{StagedStores, StagingTile};
pub use crate::launch::{MatrixArgument, Work, Workspace};
pub use crate::spec::{Spec, SpecError};
pub use crate::tiles::staging::{OutputMajor, STAGING_ROWS, Staging};

use pgemm_cute::CuteError;

/// What is wrong with the parts of a kernel.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PartsError {
    /// The spec is impossible.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The spec is possible, but not a spec of parts.
    #[error("{spec}: {what}. {advice}")]
    NoParts {
        /// The name of the spec.
        spec: String,
        /// What the parts do not have.
        what: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// A tile in shared memory has no layout.
    #[error("tile '{name}' of {mn} × {k} elements: {limit}")]
    Operand {
        /// The name of the tile.
        name: String,
        /// Lines along M or N.
        mn: u32,
        /// Elements along K.
        k: u32,
        /// The limit that it exceeds.
        limit: &'static str,
    },
    /// The layout algebra refuses a tile.
    #[error("a tile in shared memory: {0}")]
    Layout(Box<CuteError>),
    /// The work of a launch is not possible.
    #[error("{what} is {requested}: {limit}")]
    Work {
        /// The field of [`Work`].
        what: &'static str,
        /// Its value.
        requested: u32,
        /// Which values are possible.
        limit: &'static str,
    },
}

impl From<CuteError> for PartsError {
    fn from(error: CuteError) -> Self {
        PartsError::Layout(Box::new(error))
    }
}
