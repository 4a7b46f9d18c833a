//! [`Constants`]: the constants of the cost model of wgmma kernels that are fitted to surveys.

/// Declares the constants, each with its fitted value, and their names in order.
macro_rules! constants {
    ($($(#[$attribute:meta])* $name:ident = $fitted:literal,)*) => {
        /// The fitted constants of the cost model of wgmma kernels. Cycles are those of a clock of
        /// 1.7 GHz.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct Constants {
            $($(#[$attribute])* pub $name: f64,)*
        }

        /// The values that estimates use.
        pub(super) static FITTED: Constants = Constants { $($name: $fitted,)* };

        impl Constants {
            /// The names of the constants.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// The constants that estimates use.
            pub fn fitted() -> Constants {
                FITTED
            }

            /// The constants, in the order of their names.
            pub fn values_mut(&mut self) -> Vec<&mut f64> {
                vec![$(&mut self.$name),*]
            }
        }
    };
}

constants! {
    /// Factor by which MMAs take longer than at the full rate of 1.7 GHz. Short problems run at a
    /// higher clock, those at the power limit at a lower one.
    math_factor = 1.122,
    /// Additional cycles of each MMA of 64 rows and 32 bytes along k.
    mma_cycles = 1.519,
    /// Fewest cycles of a stage, however narrow the tile is. They go to barrier waits and
    /// instruction issue.
    stage_cycles = 230.6,
    /// Cycles from the issue of a load by TMA to its arrival. In this time the ring is filled at
    /// most once.
    load_latency = 2149.0,
    /// Cycles from the issue of a thread's loads to their arrival, in a kernel whose threads load
    /// operands.
    thread_load_latency = 2549.0,
    /// Cycles of a pass in which each of these threads stores a chunk of 16 bytes.
    cycles_per_pass = 14.47,
    /// Bytes of shared memory that a stage's MMAs read and its loads write per cycle.
    smem_bytes_per_cycle = 180.2,
    /// Bytes of L2 lines that are sent to an SM per cycle.
    l2_bytes_per_cycle = 114.1,
    /// Bytes of L2 lines that are sent to all SMs together per cycle.
    l2_bytes_per_cycle_of_all = 8102.0,
    /// Factor by which bytes of a stage that lie outside the matrix count. TMA fills in zeros.
    out_of_bounds_factor = 4.534,
    /// Bytes that one pair of SMs (TPC) moves from and to L2 and DRAM per cycle, if each byte
    /// moves once.
    bytes_per_cycle_of_pair = 108.3,
    /// Bytes that DRAM moves per cycle.
    dram_bytes_per_cycle = 2606.0,
    /// Bytes of L2 lines of D that are written per cycle. A line that two boxes share counts
    /// twice.
    d_line_bytes_per_cycle = 6832.0,
    /// Cycles of a warpgroup's epilogue.
    epilogue_cycles = 377.3,
    /// Cycles of each staging tile of an epilogue, which has a barrier and a store.
    epilogue_cycles_per_step = 313.9,
    /// Cycles of each byte of D in an epilogue.
    epilogue_cycles_per_byte = 0.008,
    /// Cycles of each L2 line that the boxes of an epilogue touch.
    epilogue_cycles_per_line = 0.4485,
    /// Fewest cycles from one tile to the next in ping-pong kernels.
    least_ping_pong_cycles = 808.0,
    /// Factor by which stages take longer in ping-pong kernels. Two warpgroups fill each other's
    /// gaps.
    ping_pong_factor = 0.9442,
    /// Additional cycles for each byte of a tile of D that the threads of one warpgroup store
    /// instead of TMA.
    thread_store_cycles_per_byte = 0.0568,
    /// The same factor for staging tiles whose lines are not multiples of 128 bytes.
    thread_store_factor_ragged = 1.438,
    /// The same factor for a column-major D.
    thread_store_factor_column_major = 2.368,
    /// Fraction of an operand's bytes that is added to the traffic if more than one tile reads
    /// the operand. SMs at the other half of L2 read it a second time.
    reread_fraction = 0.2959,
    /// Factor by which stream-K takes longer, because its workers are out of step along k.
    stream_k_factor = 1.013,
    /// Cycles of a launch apart from its tiles.
    launch_cycles = 3565.0,
    /// Additional cycles of a launch for each warpgroup that multiplies.
    warpgroup_cycles = 48.87,
    /// Additional cycles of a launch with clusters.
    any_cluster_cycles = 76.66,
    /// Additional cycles of a launch for each doubling of a cluster.
    cluster_cycles = 39.96,
    /// Cycles to reduce a tile that two workers share: store the partial sums, signal arrival,
    /// add them.
    reduction_cycles = 3096.0,
    /// Additional cycles of each further worker of a tile.
    reduction_cycles_per_worker = 39.68,
    /// Additional cycles of each element of a tile that is reduced.
    reduction_cycles_per_element = 0.3265,
}
