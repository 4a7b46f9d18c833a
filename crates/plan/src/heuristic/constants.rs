//! [`Constants`]: the constants of the cost model that are fitted to surveys.

/// Declares a set of constants and their names in order.
macro_rules! constants {
    ($(#[$of_set:meta])* $set:ident { $($(#[$attribute:meta])* $name:ident,)* }) => {
        $(#[$of_set])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $set {
            $($(#[$attribute])* pub $name: f64,)*
        }

        impl $set {
            const NAMES: &[&str] = &[$(stringify!($name)),*];

            fn values_mut(&mut self) -> Vec<&mut f64> {
                vec![$(&mut self.$name),*]
            }
        }
    };
}

/// The fitted constants of the cost model. Cycles are those of a clock of 1.7 GHz.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// Those of wgmma kernels.
    pub wgmma: WgmmaConstants,
    /// Those of f64 kernels.
    pub dmma: RegisterConstants,
    /// Those of f32 kernels.
    pub ffma: RegisterConstants,
}

impl Constants {
    /// The constants that estimates use.
    pub fn fitted() -> Constants {
        FITTED
    }

    /// The names of the constants.
    pub fn names() -> Vec<String> {
        let of = |set: &str, names: &[&str]| -> Vec<String> {
            names.iter().map(|name| format!("{set}.{name}")).collect()
        };
        [
            of("wgmma", WgmmaConstants::NAMES),
            of("dmma", RegisterConstants::NAMES),
            of("ffma", RegisterConstants::NAMES),
        ]
        .concat()
    }

    /// The constants, in the order of their names.
    pub fn values_mut(&mut self) -> Vec<&mut f64> {
        let Constants { wgmma, dmma, ffma } = self;
        let registers = [dmma, ffma].into_iter().flat_map(RegisterConstants::values_mut);
        wgmma.values_mut().into_iter().chain(registers).collect()
    }
}

constants! {
    /// The constants of wgmma kernels.
    WgmmaConstants {
        /// Factor by which MMAs take longer than at the full rate of 1.7 GHz. Short problems run at a
        /// higher clock, those at the power limit at a lower one.
        math_factor,
        /// Additional cycles of each MMA of 64 rows and 32 bytes along k.
        mma_cycles,
        /// Fewest cycles of a stage, however narrow the tile is. They go to barrier waits and
        /// instruction issue.
        stage_cycles,
        /// Cycles from the issue of a load by TMA to its arrival. In this time the ring is filled at
        /// most once.
        load_latency,
        /// Cycles from the issue of a thread's loads to their arrival, in a kernel whose threads load
        /// operands.
        thread_load_latency,
        /// Cycles of a pass in which each of these threads stores a chunk of 16 bytes.
        cycles_per_pass,
        /// Bytes of shared memory that a stage's MMAs read and its loads write per cycle.
        smem_bytes_per_cycle,
        /// Bytes of L2 lines that are sent to an SM per cycle.
        l2_bytes_per_cycle,
        /// Bytes of L2 lines that are sent to all SMs together per cycle.
        l2_bytes_per_cycle_of_all,
        /// Factor by which bytes of a stage that lie outside the matrix count. TMA fills in zeros.
        out_of_bounds_factor,
        /// Bytes that one pair of SMs (TPC) moves from and to L2 and DRAM per cycle, if each byte
        /// moves once.
        bytes_per_cycle_of_pair,
        /// Bytes that the DRAM of an H200 moves per cycle. That of other devices moves as many more
        /// or fewer as its bandwidth says.
        dram_bytes_per_cycle,
        /// Bytes of L2 lines of D that are written per cycle. A line that two boxes share counts
        /// twice.
        d_line_bytes_per_cycle,
        /// Cycles of a warpgroup's epilogue.
        epilogue_cycles,
        /// Cycles of each staging tile of an epilogue, which has a barrier and a store.
        epilogue_cycles_per_step,
        /// Cycles of each byte of D in an epilogue.
        epilogue_cycles_per_byte,
        /// Cycles of each L2 line that the boxes of an epilogue touch.
        epilogue_cycles_per_line,
        /// Fewest cycles from one tile to the next in ping-pong kernels.
        least_ping_pong_cycles,
        /// Factor by which stages take longer in ping-pong kernels. Two warpgroups fill each other's
        /// gaps.
        ping_pong_factor,
        /// Additional cycles for each byte of a tile of D that the threads of one warpgroup store
        /// instead of TMA.
        thread_store_cycles_per_byte,
        /// The same factor for staging tiles whose lines are not multiples of 128 bytes.
        thread_store_factor_ragged,
        /// The same factor for a column-major D.
        thread_store_factor_column_major,
        /// Fraction of an operand's bytes that is added to the traffic if more than one tile reads
        /// the operand. SMs at the other half of L2 read it a second time.
        reread_fraction,
        /// Factor by which stream-K takes longer, because its workers are out of step along k.
        stream_k_factor,
        /// Cycles of a launch apart from its tiles.
        launch_cycles,
        /// Additional cycles of a launch for each warpgroup that multiplies.
        warpgroup_cycles,
        /// Additional cycles of a launch with clusters.
        any_cluster_cycles,
        /// Additional cycles of a launch for each doubling of a cluster.
        cluster_cycles,
        /// Cycles to reduce a tile that two workers share: store the partial sums, signal arrival,
        /// add them.
        reduction_cycles,
        /// Additional cycles of each further worker of a tile.
        reduction_cycles_per_worker,
        /// Additional cycles of each element of a tile that is reduced.
        reduction_cycles_per_element,
    }
}

constants! {
    /// The constants of kernels that add up products in registers.
    RegisterConstants {
        /// Factor by which multiply-adds take longer than at the full rate.
        math_factor,
        /// The same factor, in addition, for a CTA of four consumer warps that has the SM to
        /// itself.
        four_warps_factor,
        /// Cycles of every stage apart from its multiply-adds: a barrier and address arithmetic.
        stage_cycles,
        /// Cycles from the issue of a load to its arrival. In this time the ring is filled at most
        /// once.
        load_latency,
        /// Bytes of shared memory that threads read and loads write per cycle.
        smem_bytes_per_cycle,
        /// Bytes that reach an SM from L2 per cycle.
        l2_bytes_per_cycle,
        /// Bytes that reach all SMs together from L2 per cycle.
        l2_bytes_per_cycle_of_all,
        /// Part of a tile's time along k by which CTAs that began together are apart in the mean.
        drift,
        /// Bytes from DRAM per cycle for one pair of SMs (TPC).
        bytes_per_cycle_of_pair,
        /// Bytes of D that are written per cycle, in addition to the traffic of each pair.
        result_bytes_per_cycle,
        /// Cycles of a tile's epilogue, which does not overlap with multiply-adds of the same CTA.
        epilogue_cycles,
        /// Additional cycles of each element of the tile.
        epilogue_cycles_per_element,
        /// Cycles to store the sums of one part of a tile.
        reduction_cycles,
        /// Additional cycles of each sum that a thread stores or loads.
        reduction_cycles_per_sum,
        /// Cycles of a launch apart from its tiles.
        launch_cycles,
        /// Additional cycles of a serial launch, which begins only after the previous one has
        /// ended.
        serial_cycles,
    }
}

/// The values that estimates use.
pub(super) static FITTED: Constants = Constants {
    wgmma: WgmmaConstants {
        math_factor: 1.122,
        mma_cycles: 1.519,
        stage_cycles: 230.6,
        load_latency: 2149.0,
        thread_load_latency: 2549.0,
        cycles_per_pass: 14.47,
        smem_bytes_per_cycle: 180.2,
        l2_bytes_per_cycle: 114.1,
        l2_bytes_per_cycle_of_all: 8102.0,
        out_of_bounds_factor: 4.534,
        bytes_per_cycle_of_pair: 108.3,
        dram_bytes_per_cycle: 2606.0,
        d_line_bytes_per_cycle: 6832.0,
        epilogue_cycles: 377.3,
        epilogue_cycles_per_step: 313.9,
        epilogue_cycles_per_byte: 0.008,
        epilogue_cycles_per_line: 0.4485,
        least_ping_pong_cycles: 808.0,
        ping_pong_factor: 0.9442,
        thread_store_cycles_per_byte: 0.0568,
        thread_store_factor_ragged: 1.438,
        thread_store_factor_column_major: 2.368,
        reread_fraction: 0.2959,
        stream_k_factor: 1.013,
        launch_cycles: 3565.0,
        warpgroup_cycles: 48.87,
        any_cluster_cycles: 76.66,
        cluster_cycles: 39.96,
        reduction_cycles: 3096.0,
        reduction_cycles_per_worker: 39.68,
        reduction_cycles_per_element: 0.3265,
    },
    dmma: RegisterConstants {
        math_factor: 1.066,
        four_warps_factor: 1.159,
        stage_cycles: 5.804,
        load_latency: 2_352.0,
        smem_bytes_per_cycle: 306.0,
        l2_bytes_per_cycle: 51.97,
        l2_bytes_per_cycle_of_all: 8_485.0,
        drift: 0.0043,
        bytes_per_cycle_of_pair: 48.15,
        result_bytes_per_cycle: 3_252.0,
        epilogue_cycles: 86.34,
        epilogue_cycles_per_element: 0.1424,
        reduction_cycles: 4_602.0,
        reduction_cycles_per_sum: 25.16,
        launch_cycles: 3_744.0,
        serial_cycles: 197.7,
    },
    ffma: RegisterConstants {
        math_factor: 1.009,
        four_warps_factor: 1.591,
        stage_cycles: 27.53,
        load_latency: 1_800.0,
        smem_bytes_per_cycle: 262.4,
        l2_bytes_per_cycle: 68.52,
        l2_bytes_per_cycle_of_all: 2_983.0,
        drift: 0.01,
        bytes_per_cycle_of_pair: 39.32,
        result_bytes_per_cycle: 4_039.0,
        epilogue_cycles: 206.8,
        epilogue_cycles_per_element: 0.192,
        reduction_cycles: 1_066.0,
        reduction_cycles_per_sum: 20.42,
        launch_cycles: 5_562.0,
        serial_cycles: 1_500.0,
    },
};
