//! Launches that cannot be run.

use pgemm_ir::{Location, Violation};

/// Why a launch cannot start.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SetupError {
    /// The number of arguments differs from that of parameters.
    #[error(
        "the launch has {arguments} arguments and the kernel has {parameters} parameters: pass one \
         for each"
    )]
    ArgumentCount {
        /// Arguments of the launch.
        arguments: usize,
        /// Parameters of the kernel.
        parameters: usize,
    },
    /// An argument has another type than its parameter.
    #[error("the argument for parameter '{name}' has another type than the kernel declares")]
    ArgumentType {
        /// The parameter.
        name: String,
    },
    /// A tensor map that the hardware does not accept.
    #[error("tensor map '{name}': {rule}")]
    TensorMap {
        /// The parameter.
        name: String,
        /// The rule that it breaks.
        rule: String,
    },
    /// The grid is empty or not a multiple of the cluster.
    #[error(
        "a grid of {grid:?} CTAs: use a positive multiple of the kernel's cluster of {cluster} \
         along x"
    )]
    Grid {
        /// CTAs of the launch.
        grid: [u32; 3],
        /// CTAs of a cluster.
        cluster: u32,
    },
    /// The options allow no resident cluster.
    #[error("no cluster may be resident: allow at least one")]
    NoResidentCluster,
    /// The CTA has no threads or too many.
    #[error("a CTA of {threads} threads: roles must add up to 128 to 1024")]
    Threads {
        /// Threads of the CTA.
        threads: u32,
    },
    /// Shared-memory regions end beyond what a CTA has.
    #[error("{bytes} bytes of shared memory: a CTA has {} at most", pgemm_ir::MAX_SMEM_BYTES)]
    SharedMemory {
        /// Bytes that the kernel needs.
        bytes: u32,
    },
    /// Roles are not lowered.
    #[error("{location}: the kernel still has roles: run pgemm_ir::legalise first")]
    NotLegalised {
        /// Place of the declaration.
        location: Location,
    },
    /// An instruction that its author describes has no emulation.
    #[error(
        "{location}: the instruction '{name}' has no emulation: give it one by \
         Instruction::emulated; a kernel that was read from a text has none"
    )]
    NoEmulation {
        /// The name of the instruction.
        name: String,
        /// Place of its use.
        location: Location,
    },
    /// The kernel is not a well-formed program.
    #[error("the kernel is malformed: {0}")]
    Malformed(Violation),
}
