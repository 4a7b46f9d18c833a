//! Errors of launches and tensor maps, and the version of the driver.

use std::ffi::c_int;
use std::fmt;

/// The CUDA version that a driver supports, as `nvidia-smi` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverVersion {
    /// Major version: 12 for CUDA 12.8.
    pub major: u32,
    /// Minor version: 8 for CUDA 12.8.
    pub minor: u32,
}

impl DriverVersion {
    /// From `cuDriverGetVersion`: 1000 · major + 10 · minor.
    pub(crate) fn from_raw(raw: c_int) -> Self {
        let raw = raw.max(0).unsigned_abs();
        DriverVersion { major: raw / 1000, minor: raw % 1000 / 10 }
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Why a kernel cannot be launched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The grid has no CTA or too many.
    #[error(
        "a grid of {grid:?} CTAs is not possible: it must be 1 to [2147483647, 65535, 65535]. \
         Split the problem"
    )]
    Grid {
        /// CTAs along x, y and z.
        grid: [u32; 3],
    },
    /// The cluster is empty or too large.
    #[error(
        "a cluster of {cluster:?} CTAs is not possible: it must have 1 to 8. Choose a smaller \
         cluster"
    )]
    Cluster {
        /// CTAs along x, y and z.
        cluster: [u32; 3],
    },
    /// The grid is not made of whole clusters.
    #[error(
        "a grid of {grid:?} CTAs is not a multiple of the cluster {cluster:?}: round the grid up"
    )]
    PartialCluster {
        /// CTAs along x, y and z of the grid.
        grid: [u32; 3],
        /// CTAs along x, y and z of a cluster.
        cluster: [u32; 3],
    },
    /// The CTA is empty or larger than the kernel allows.
    #[error("{requested} threads per CTA are not possible: this kernel takes 1 to {limit}")]
    Threads {
        /// The requested threads.
        requested: u32,
        /// The largest number of threads of the kernel.
        limit: u32,
    },
    /// More shared memory than there is, or than the kernel was prepared for.
    #[error(
        "{requested} bytes of shared memory per CTA are not possible: the limit is {limit}. Use \
         smaller tiles or fewer stages"
    )]
    SharedMemory {
        /// The requested bytes.
        requested: u64,
        /// Bytes there are.
        limit: u64,
    },
    /// The tensor maps given do not match the arguments.
    #[error(
        "the launch has {found} tensor-map arguments, and the kernel states {needed}: bind the \
         kernel's own arguments"
    )]
    TensorMapCount {
        /// Tensor-map arguments of the launch.
        found: usize,
        /// Tensor maps that the kernel states.
        needed: usize,
    },
    /// An argument does not exist or is of another kind.
    #[error("argument {index} is not {wanted}: it is {found}")]
    ArgumentKind {
        /// Position among the arguments.
        index: usize,
        /// The kind of the new argument.
        wanted: &'static str,
        /// The kind of the prepared argument.
        found: &'static str,
    },
    /// Another number of arguments than prepared.
    #[error(
        "{found} arguments were given for a kernel prepared with {needed}: bind the kernel's own \
         arguments"
    )]
    ArgumentCount {
        /// Arguments given.
        found: usize,
        /// Arguments prepared.
        needed: usize,
    },
}

/// Why a tensor map cannot be encoded. Dimension 0 is the innermost, contiguous one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorMapError {
    /// The box has no dimension or too many.
    #[error(
        "a tensor map of rank {rank} is not possible: the rank must be 1 to 5. Fold dimensions \
         together"
    )]
    Rank {
        /// The box's number of dimensions.
        rank: usize,
    },
    /// The argument's number of dimensions is not the kernel's.
    #[error(
        "a tensor map of rank {needed} needs {needed} extents and one stride fewer, and got \
         {extents} and {strides}"
    )]
    Dimensions {
        /// The rank that the kernel states.
        needed: usize,
        /// Extents given.
        extents: usize,
        /// Strides given.
        strides: usize,
    },
    /// A box extent is out of range.
    #[error(
        "box extent {extent} of dimension {dimension} is not possible: it must be 1 to {largest}. \
         Use several boxes"
    )]
    BoxExtent {
        /// The dimension.
        dimension: usize,
        /// The requested extent, in elements.
        extent: u32,
        /// The largest possible one.
        largest: u32,
    },
    /// An im2col map that the hardware does not have.
    #[error(transparent)]
    Im2col(#[from] pgemm_ir::Im2colError),
    /// A box row is not a multiple of 16 bytes.
    #[error(
        "a box row of {bytes} bytes is not possible: it must be a multiple of 16. Widen dimension \
         0 of the box"
    )]
    BoxRow {
        /// Bytes of dimension 0 of the box.
        bytes: u32,
    },
    /// A box row is longer than the swizzle's span.
    #[error(
        "a box row of {bytes} bytes does not fit a swizzle span of {span}. Narrow dimension 0 of \
         the box"
    )]
    SwizzleSpan {
        /// Bytes of dimension 0 of the box.
        bytes: u32,
        /// The swizzle's span in bytes.
        span: u32,
    },
    /// The address is null or unaligned.
    #[error(
        "address {address:#x} is not possible: it must be a multiple of 16 other than 0. Copy the \
         matrix, or repack it"
    )]
    Address {
        /// The requested address.
        address: u64,
    },
    /// An extent is out of range.
    #[error(
        "extent {extent} of dimension {dimension} is not possible: it must be 1 to 2^32. Split the \
         problem"
    )]
    Extent {
        /// The dimension.
        dimension: usize,
        /// The requested extent, in elements.
        extent: u64,
    },
    /// A stride is unaligned or out of range.
    #[error(
        "a stride of {bytes} bytes for dimension {dimension} is not possible: it must be a \
         multiple of 16 below 2^40. Pad the rows, or repack the matrix"
    )]
    Stride {
        /// The dimension, 1 or more.
        dimension: usize,
        /// The requested stride, in bytes.
        bytes: u64,
    },
}
