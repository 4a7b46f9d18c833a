//! Launches that cannot be run at all.

use pgemm_ir::{Location, Violation};

/// Why a launch cannot start.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SetupError {
    /// The number of arguments differs from that of parameters.
    #[error(
        "the launch has {asked} arguments, the kernel {parameters} parameters: pass one for each"
    )]
    ArgumentCount {
        /// Arguments of the launch.
        asked: usize,
        /// Parameters of the kernel.
        parameters: usize,
    },
    /// An argument's type differs from its parameter's.
    #[error("the argument for parameter '{name}' has another type than the kernel declares")]
    ArgumentType {
        /// The parameter.
        name: String,
    },
    /// A tensor map that the hardware does not take.
    #[error("tensor map '{name}': {rule}")]
    TensorMap {
        /// The parameter.
        name: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// The grid is empty or not a multiple of the cluster.
    #[error(
        "a grid of {grid:?} CTAs: use a positive multiple of the kernel's cluster of {cluster} along x"
    )]
    Grid {
        /// CTAs asked for.
        grid: [u32; 3],
        /// CTAs of a cluster.
        cluster: u32,
    },
    /// No cluster may be resident.
    #[error("at least one cluster must be resident")]
    NoResidentCluster,
    /// The CTA has no threads or too many.
    #[error("a CTA of {threads} threads: roles must add up to 128 to 1024")]
    Threads {
        /// Threads of the CTA.
        threads: u32,
    },
    /// Shared-memory regions reach beyond what a CTA has.
    #[error("{bytes} bytes of shared memory: a CTA has {} at most", pgemm_ir::MAX_SMEM_BYTES)]
    SharedMemory {
        /// Bytes that the kernel asks for.
        bytes: u32,
    },
    /// Roles are not lowered yet.
    #[error("{location}: the kernel still has roles: run pgemm_ir::legalise first")]
    NotLegalised {
        /// Where they are declared.
        location: Location,
    },
    /// The kernel is no well-formed program.
    #[error("the kernel is malformed: {0}")]
    Malformed(Violation),
}
