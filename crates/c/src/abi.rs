//! The types of the C ABI: structs, and integer constants for enumerations. They are not Rust
//! enums, because an unexpected number from C would then be undefined behaviour.

use std::ffi::{c_char, c_void};

/// Version of this header: major.
pub const PGEMM_VERSION_MAJOR: i32 = 0;
/// Version of this header: minor.
pub const PGEMM_VERSION_MINOR: i32 = 1;
/// Version of this header: patch.
pub const PGEMM_VERSION_PATCH: i32 = 0;

/// The status of a call: PGEMM_SUCCESS or one of PGEMM_ERROR_... pgemm_last_error returns the
/// message of an error.
pub type Status = i32;

/// The call succeeded.
pub const PGEMM_SUCCESS: Status = 0;
/// An argument is null, out of range, or contradicts another.
pub const PGEMM_ERROR_INVALID_ARGUMENT: Status = 1;
/// There is no kernel for these types, knobs or layouts, or this library was built without the
/// entry point.
pub const PGEMM_ERROR_NOT_SUPPORTED: Status = 2;
/// There is no driver, no GPU, or none of Hopper's generation.
pub const PGEMM_ERROR_NO_DEVICE: Status = 3;
/// Device memory ran out.
pub const PGEMM_ERROR_OUT_OF_MEMORY: Status = 4;
/// A call of the CUDA driver failed, or work queued before did.
pub const PGEMM_ERROR_DRIVER: Status = 5;
/// The call is not possible in the present state. A stream is being captured, and the problem is
/// not prepared or the call would wait for the stream. Or an engine was stopped or aborted, has no
/// free slot, or makes no progress.
pub const PGEMM_ERROR_INVALID_STATE: Status = 6;
/// A file cannot be read, written or used.
pub const PGEMM_ERROR_FILE: Status = 7;
/// A defect of this library: please report it with the message.
pub const PGEMM_ERROR_INTERNAL: Status = 8;

/// The time limit of a wait was reached. The work continues, and can be waited for again.
pub const PGEMM_ERROR_TIMEOUT: Status = 9;

/// The type of a matrix element: PGEMM_UNSPECIFIED, or one of PGEMM_FP16 to PGEMM_S32.
pub type Dtype = i32;

/// Not given. B then has the type of A. C and D have FP32 for TF32, BF16 for E4M3 and E5M2, S32 for
/// S8 and U8, and the type of the operands otherwise.
pub const PGEMM_UNSPECIFIED: Dtype = 0;
/// IEEE 754 binary16.
pub const PGEMM_FP16: Dtype = 1;
/// bfloat16.
pub const PGEMM_BF16: Dtype = 2;
/// IEEE 754 binary32, multiplied and added up as such unless precision says otherwise.
pub const PGEMM_FP32: Dtype = 3;
/// binary32 in memory, of which the tensor core multiplies the upper 19 bits, rounded to nearest.
pub const PGEMM_TF32: Dtype = 4;
/// IEEE 754 binary64.
pub const PGEMM_FP64: Dtype = 5;
/// 8-bit float, 4 exponent and 3 mantissa bits.
pub const PGEMM_E4M3: Dtype = 6;
/// 8-bit float, 5 exponent and 2 mantissa bits.
pub const PGEMM_E5M2: Dtype = 7;
/// Signed 8-bit integer.
pub const PGEMM_S8: Dtype = 8;
/// Unsigned 8-bit integer.
pub const PGEMM_U8: Dtype = 9;
/// Signed 32-bit integer: results only.
pub const PGEMM_S32: Dtype = 10;

/// How accurately products are added up: one of PGEMM_PRECISION_...
pub type Precision = i32;

/// 8-bit floats with sums of 128 products added in binary32; FP32 in binary32 throughout. The
/// default.
pub const PGEMM_PRECISION_FULL: Precision = 0;
/// 8-bit floats added up all along k by the tensor core, with about 14 bits.
pub const PGEMM_PRECISION_FAST: Precision = 1;
/// FP16 added up in FP16, as cuBLAS's COMPUTE_16F has it; for no other type.
pub const PGEMM_PRECISION_F16: Precision = 2;
/// FP32 in binary32 throughout, as PGEMM_PRECISION_FULL has it; for no other type.
pub const PGEMM_PRECISION_EXACT: Precision = 3;
/// FP32 as sums of two TF32: three products on tensor cores.
pub const PGEMM_PRECISION_TF32X3: Precision = 4;
/// FP32 as sums of two FP16 with scales: three products on tensor cores.
pub const PGEMM_PRECISION_F16X3: Precision = 5;
/// FP32 as sums of three BF16: the six larger products, on tensor cores.
pub const PGEMM_PRECISION_BF16X6: Precision = 6;
/// FP32 as sums of three BF16: all nine products, on tensor cores.
pub const PGEMM_PRECISION_BF16X9: Precision = 7;

/// The layout of a matrix: PGEMM_ROW_MAJOR or PGEMM_COLUMN_MAJOR.
pub type Layout = i32;

/// The elements of a row are neighbours. The default.
pub const PGEMM_ROW_MAJOR: Layout = 0;
/// The elements of a column are neighbours.
pub const PGEMM_COLUMN_MAJOR: Layout = 1;

/// Whether something is to be so: PGEMM_AUTO, PGEMM_ON or PGEMM_OFF.
pub type Switch = i32;

/// The planner chooses. The default.
pub const PGEMM_AUTO: Switch = 0;
/// Yes.
pub const PGEMM_ON: Switch = 1;
/// No.
pub const PGEMM_OFF: Switch = 2;

/// How the consumer warps of a CTA share its tiles: one of PGEMM_SCHEDULE_...
pub type Schedule = i32;

/// As the planner finds best. The default.
pub const PGEMM_SCHEDULE_AUTO: Schedule = 0;
/// All consumer warps work on each tile.
pub const PGEMM_SCHEDULE_COOPERATIVE: Schedule = 1;
/// Two consumer warpgroups take turns with whole tiles (ping-pong).
pub const PGEMM_SCHEDULE_PING_PONG: Schedule = 2;

/// For a leading dimension or a batch stride: lines or matrices follow one another without gaps.
/// The default.
pub const PGEMM_TIGHT: i64 = -1;
/// For a leading dimension of A, B or C, or a batch stride of these: all lines or all matrices are
/// the same one.
pub const PGEMM_SAME: i64 = -2;

/// For device: the device of the CUDA context that is current on the calling thread, or device 0 if
/// there is none. The default.
pub const PGEMM_CURRENT_DEVICE: i32 = -1;

/// The optimisation goal of an engine: PGEMM_GOAL_THROUGHPUT or PGEMM_GOAL_LATENCY.
pub type Goal = i32;

/// High throughput, for many jobs at once or large ones. The default.
pub const PGEMM_GOAL_THROUGHPUT: Goal = 0;
/// Low latency, for small jobs one after another.
pub const PGEMM_GOAL_LATENCY: Goal = 1;

/// When kernels are compiled that have to be: PGEMM_COMPILE_NOW or PGEMM_COMPILE_BEHIND.
pub type Compile = i32;

/// As soon as a problem needs the kernel, which the problem waits for.
pub const PGEMM_COMPILE_NOW: Compile = 0;
/// While another kernel computes the problem: the best one that needs no compilation and gives the
/// same results bit for bit. Later runs take the better kernel once it is compiled. If there is no
/// such kernel, the problem waits.
pub const PGEMM_COMPILE_BEHIND: Compile = 1;

/// The type of a program's parameter: one of PGEMM_PARAMETER_...
pub type ParameterType = i32;

/// A 32-bit unsigned integer: pgemm_arguments_set_u32.
pub const PGEMM_PARAMETER_U32: ParameterType = 1;
/// A 64-bit unsigned integer, or an address of device memory: pgemm_arguments_set_u64 or
/// pgemm_arguments_set_pointer.
pub const PGEMM_PARAMETER_U64: ParameterType = 2;
/// binary32: pgemm_arguments_set_f32.
pub const PGEMM_PARAMETER_F32: ParameterType = 3;
/// binary64: pgemm_arguments_set_f64.
pub const PGEMM_PARAMETER_F64: ParameterType = 4;
/// A tensor map: pgemm_arguments_set_tensor_map.
pub const PGEMM_PARAMETER_TENSOR_MAP: ParameterType = 5;

/// A job that was submitted to an engine. Never 0.
pub type Ticket = u64;

/// The callback of pgemm_engine_on_done. It is called on a thread of the engine when a job is done
/// or has failed, with the status and the context pointer of the registration. On a failure
/// pgemm_last_error() returns the message within this call. It must not throw.
pub type Callback = Option<unsafe extern "C" fn(status: Status, context: *mut c_void)>;

/// The callback of pgemm_warm_up. It is called on the calling thread with the number of problems
/// that are prepared and of all, and with the context pointer of the call. It may use the GEMM, but
/// must not destroy it, and must not throw.
pub type Progress = Option<unsafe extern "C" fn(done: usize, all: usize, context: *mut c_void)>;

/// The configuration of a GEMM. pgemm_config_init sets every field to its default. Then dtype_a
/// must be set; knobs may be. A knob of 0 is left to the planner. An impossible knob is an error
/// that names the nearest possible value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of this struct in the caller's header. Set by pgemm_config_init.
    pub struct_size: usize,
    /// Type of A. Must be given.
    pub dtype_a: Dtype,
    /// Type of B.
    pub dtype_b: Dtype,
    /// Type of C and D.
    pub dtype_c: Dtype,
    /// How accurately products are added up. FP32 is never computed with less than binary32 unless
    /// this asks for it.
    pub precision: Precision,
    /// Rows of the macro-tile, which is decomposed into tiles that one CTA can have.
    pub tile_m: u32,
    /// Columns of the macro-tile.
    pub tile_n: u32,
    /// Depth of a stage of the pipeline, in elements along k.
    pub tile_k: u32,
    /// Whether the kernel is persistent. It must be 1, the default, because all kernels are.
    pub persistent: i32,
    /// CTAs of a cluster along m, given with cluster_n: up to 8 together.
    pub cluster_m: u32,
    /// CTAs of a cluster along n.
    pub cluster_n: u32,
    /// Warps of a CTA: 8, 12 or 16.
    pub warps_per_block: u32,
    /// Stages of the pipeline.
    pub prefetch_depth: u32,
    /// Rows of cluster tiles that are walked together.
    pub raster_rows: u32,
    /// How the consumer warps of a CTA share its tiles.
    pub schedule: Schedule,
    /// Whether A and B are exchanged: the transpose of D is computed from the transposes of B and
    /// A.
    pub swapped: Switch,
    /// If not 0, partial sums of split tiles may be added in any order, so last bits may differ
    /// from run to run.
    pub unordered: i32,
    /// Whether a launch may begin while the previous one on its stream ends.
    pub dependent_launch: Switch,
    /// Multiprocessors to use at most, of which the device must have so many. 0: all.
    pub sms: u32,
    /// Ordinal of the CUDA device, whose primary context is used, or PGEMM_CURRENT_DEVICE.
    pub device: i32,
    /// How tiles are split along k: "whole", "split-N" or "stream-k". Null leaves it to the
    /// planner.
    pub split: *const c_char,
    /// The kernel, by a name that "pgemm kernel list" has, in place of tiles, cluster, warps,
    /// stages, schedule and swapping. Null leaves it to the planner.
    pub kernel: *const c_char,
    /// A results file of the autotuner, or a folder of such files. Its choices are used if no knob
    /// is set. "off" turns them off. Null stands for the location in the environment variable
    /// PGEMM_AUTOTUNE, or for the results that "pgemm autotune" installed.
    pub autotune_file: *const c_char,
    /// What happens to results before they are rounded to D's type: "bias_n" (an element of the
    /// bias is added to each column) or "bias_m" (to each row), an activation by its name, such as
    /// "relu" (docs/types.md lists all), or both with | between them: "bias_n|silu". The numbers
    /// that an activation takes follow its name in parentheses, with commas between them:
    /// "clamp(0,6)". Null, or "none": nothing. If there is a bias, problem.bias is its address.
    pub epilogue: *const c_char,
}

/// A problem: D = alpha * A*B + beta * C, and the config's epilogue of that, with A of m x k, B of
/// k x n, C and D of m x n; or a batch of such products. pgemm_problem_init sets every field to its
/// default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    /// Bytes of this struct in the caller's header. Set by pgemm_problem_init.
    pub struct_size: usize,
    /// Rows of A, C and D.
    pub m: i64,
    /// Columns of B, C and D.
    pub n: i64,
    /// Columns of A, rows of B.
    pub k: i64,
    /// Elements from one row of A to the next (from one column to the next if A is column-major). 0
    /// means PGEMM_TIGHT too.
    pub lda: i64,
    /// The same for B.
    pub ldb: i64,
    /// The same for C.
    pub ldc: i64,
    /// The same for D.
    pub ldd: i64,
    /// Layout of A.
    pub layout_a: Layout,
    /// Layout of B.
    pub layout_b: Layout,
    /// Layout of C and D.
    pub layout_c: Layout,
    /// Factor of A*B, 1 by default. It is rounded to binary32, except for FP64. For a result of S32
    /// it must be an integer.
    pub alpha: f64,
    /// Factor of C, 0 by default, as alpha is one. If it is 0, C is never read.
    pub beta: f64,
    /// Products, 1 by default. All fields above hold for each of them.
    pub batch: i64,
    /// Elements from one A to the next. 0 is PGEMM_SAME too.
    pub batch_stride_a: i64,
    /// Elements from one B to the next. 0 is PGEMM_SAME too.
    pub batch_stride_b: i64,
    /// Elements from one C to the next. 0 is PGEMM_SAME too.
    pub batch_stride_c: i64,
    /// Elements from one D to the next. Matrices D must not overlap.
    pub batch_stride_d: i64,
    /// Address of the bias in device memory, where the config's epilogue has one: n elements of D's
    /// type without gaps, or m for "bias_m"; of BF16 where D is E4M3 or E5M2. One for all products
    /// of a batch. Only runs look at it.
    pub bias: *const c_void,
}

/// Options of an engine. pgemm_engine_options_init sets every field to its default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Bytes of this struct in the caller's header. Set by pgemm_engine_options_init.
    pub struct_size: usize,
    /// The optimisation goal.
    pub goal: Goal,
    /// Multiprocessors that its kernel holds while there are jobs, of which the device must have so
    /// many. 0, the default: all.
    pub sms: u32,
    /// Microseconds after the last job until the kernel leaves the device, 1000 by default. The
    /// next job launches it again.
    pub idle_microseconds: u64,
    /// Microseconds without any progress after which waiting for a job is an error. The default is
    /// 10 seconds. 0 stands for no limit.
    pub watchdog_microseconds: u64,
}

/// What pgemm_warm_up did. pgemm_warm_up_result_init sets every number to 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WarmUpResult {
    /// Bytes of this struct in the caller's header. Set by pgemm_warm_up_result_init.
    pub struct_size: usize,
    /// Problems that were not prepared before, each once.
    pub problems: usize,
    /// Kernels that they need, without those that lay operands out anew.
    pub kernels: usize,
    /// Those of the kernels that were assembled in advance.
    pub assembled: usize,
}

/// What a pack has. pgemm_pack_info_init sets every number to 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PackInfo {
    /// Bytes of this struct in the caller's header. Set by pgemm_pack_info_init.
    pub struct_size: usize,
    /// Kernels that were assembled in advance.
    pub kernels: usize,
    /// Problems that the autotuner has found the fastest kernels for, on any device.
    pub problems: usize,
}

/// A parameter of a program. pgemm_parameter_init sets every field to 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Bytes of this struct in the caller's header. Set by pgemm_parameter_init.
    pub struct_size: usize,
    /// The name, valid until the program is destroyed.
    pub name: *const c_char,
    /// The type.
    pub kind: ParameterType,
    /// Type of the elements of a tensor map.
    pub dtype: Dtype,
    /// Dimensions of a tensor map, 1 to 5. 0 for other parameters.
    pub rank: u32,
    /// Extents of the boxes of a tensor map that the kernel copies, in elements, the contiguous
    /// dimension first. An im2col map has two, channels and pixels, and others are 0.
    pub box_extents: [u32; 5],
}

impl Default for Config {
    fn default() -> Self {
        Config {
            struct_size: size_of::<Config>(),
            dtype_a: PGEMM_UNSPECIFIED,
            dtype_b: PGEMM_UNSPECIFIED,
            dtype_c: PGEMM_UNSPECIFIED,
            precision: PGEMM_PRECISION_FULL,
            tile_m: 0,
            tile_n: 0,
            tile_k: 0,
            persistent: 1,
            cluster_m: 0,
            cluster_n: 0,
            warps_per_block: 0,
            prefetch_depth: 0,
            raster_rows: 0,
            schedule: PGEMM_SCHEDULE_AUTO,
            swapped: PGEMM_AUTO,
            unordered: 0,
            dependent_launch: PGEMM_AUTO,
            sms: 0,
            device: PGEMM_CURRENT_DEVICE,
            split: std::ptr::null(),
            kernel: std::ptr::null(),
            autotune_file: std::ptr::null(),
            epilogue: std::ptr::null(),
        }
    }
}

impl Default for Problem {
    fn default() -> Self {
        Problem {
            struct_size: size_of::<Problem>(),
            m: 0,
            n: 0,
            k: 0,
            lda: PGEMM_TIGHT,
            ldb: PGEMM_TIGHT,
            ldc: PGEMM_TIGHT,
            ldd: PGEMM_TIGHT,
            layout_a: PGEMM_ROW_MAJOR,
            layout_b: PGEMM_ROW_MAJOR,
            layout_c: PGEMM_ROW_MAJOR,
            alpha: 1.0,
            beta: 0.0,
            batch: 1,
            batch_stride_a: PGEMM_TIGHT,
            batch_stride_b: PGEMM_TIGHT,
            batch_stride_c: PGEMM_TIGHT,
            batch_stride_d: PGEMM_TIGHT,
            bias: std::ptr::null(),
        }
    }
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            struct_size: size_of::<EngineOptions>(),
            goal: PGEMM_GOAL_THROUGHPUT,
            sms: 0,
            idle_microseconds: 1_000,
            watchdog_microseconds: 10_000_000,
        }
    }
}

impl Default for WarmUpResult {
    fn default() -> Self {
        WarmUpResult {
            struct_size: size_of::<WarmUpResult>(),
            problems: 0,
            kernels: 0,
            assembled: 0,
        }
    }
}

impl Default for PackInfo {
    fn default() -> Self {
        PackInfo { struct_size: size_of::<PackInfo>(), kernels: 0, problems: 0 }
    }
}

impl Default for Parameter {
    fn default() -> Self {
        Parameter {
            struct_size: size_of::<Parameter>(),
            name: std::ptr::null(),
            kind: 0,
            dtype: PGEMM_UNSPECIFIED,
            rank: 0,
            box_extents: [0; 5],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of released headers keep their offsets: new fields are added at the end only.
    #[test]
    fn sizes_and_places_of_the_first_release_stay() {
        assert!(size_of::<Config>() >= 112 && size_of::<Problem>() >= 136);
        assert!(size_of::<EngineOptions>() >= 32);
        assert!(size_of::<WarmUpResult>() >= 32);
        assert_eq!(std::mem::offset_of!(WarmUpResult, assembled), 24);
        assert!(size_of::<PackInfo>() >= 24);
        assert_eq!(std::mem::offset_of!(PackInfo, problems), 16);
        assert!(size_of::<Parameter>() >= 48);
        assert_eq!(std::mem::offset_of!(Parameter, box_extents), 28);
        assert_eq!(std::mem::offset_of!(EngineOptions, watchdog_microseconds), 24);
        assert_eq!(std::mem::offset_of!(Config, device), 80);
        assert_eq!(std::mem::offset_of!(Config, autotune_file), 104);
        assert_eq!(std::mem::offset_of!(Problem, alpha), 80);
        assert_eq!(std::mem::offset_of!(Problem, batch_stride_d), 128);
    }

    #[test]
    fn the_header_has_the_version_of_the_library() {
        let version = format!("{PGEMM_VERSION_MAJOR}.{PGEMM_VERSION_MINOR}.{PGEMM_VERSION_PATCH}");
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
    }
}
