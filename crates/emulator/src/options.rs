//! The options of a run.

use crate::schedule::Schedule;

/// The checks that cost time. Bounds, alignment, misuse and deadlocks are always checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Happens-before and proxy fences of all memory accesses and barrier initialisations.
    pub races: bool,
    /// Reads of bytes that nothing has written.
    pub uninitialised: bool,
    /// Fences and waits between register accesses and wgmma.
    pub registers: bool,
}

impl Checks {
    /// All checks.
    pub const fn all() -> Self {
        Self { races: true, uninitialised: true, registers: true }
    }

    /// No checks: values only.
    pub const fn none() -> Self {
        Self { races: false, uninitialised: false, registers: false }
    }
}

/// How to run a launch.
#[derive(Clone, Debug)]
pub struct Options {
    /// The order in which actors run.
    pub schedule: Schedule,
    /// Most clusters that are resident at once; `None` for the whole grid. When a cluster exits,
    /// another one becomes resident.
    pub resident_clusters: Option<u32>,
    /// The checks.
    pub checks: Checks,
    /// Operations of warps and turns of the host after which the run is reported as a livelock.
    pub max_steps: u64,
    /// Whether the launch depends on grids that may still run (programmatic dependent launch). Then
    /// a kernel must wait for them before it accesses global memory. A kernel that has such a wait
    /// is checked in any case.
    pub dependent: bool,
    /// Whether what kernels print also goes to stderr at once.
    pub echo: bool,
    /// Nanoseconds by which each operation of a warp and each turn of the host advances the clock
    /// of the GPU. The default is 1: a wait of 10 µs by the clock takes 10 000 operations of all
    /// actors.
    pub step_nanoseconds: u64,
    /// Whether floats are summed as [`tensor_core`](crate::tensor_core) describes, which takes many
    /// times as long. The default sums of binary32 are rounded at each step.
    pub tensor_core_sums: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schedule: Schedule::round_robin(),
            resident_clusters: None,
            checks: Checks::all(),
            max_steps: 1_000_000_000,
            dependent: false,
            echo: true,
            step_nanoseconds: 1,
            tensor_core_sums: false,
        }
    }
}
