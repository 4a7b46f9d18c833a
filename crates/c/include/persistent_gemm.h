// persistent-gemm: D = alpha * A*B + beta * C on NVIDIA Hopper. The C API, and below it the class PersistentGemm for C++17.
//
// Every function of the C API that can fail returns a pgemm_status; pgemm_last_error() then says on the same thread what was
// asked, what the limit is and what to do. Structs are filled by their _init function before fields are set. A pgemm_gemm or
// pgemm_engine may be used by many threads at once. docs/c.md is the guide.
//
// Generated from crates/c by its test tests/header.rs: do not edit.

#ifndef PERSISTENT_GEMM_H
#define PERSISTENT_GEMM_H

#include <stddef.h>
#include <stdint.h>

// Version of this header: major.
#define PGEMM_VERSION_MAJOR 0

// Version of this header: minor.
#define PGEMM_VERSION_MINOR 1

// Version of this header: patch.
#define PGEMM_VERSION_PATCH 0

// For a leading dimension or a batch stride: lines or matrices follow one another without gaps.
// The default.
#define PGEMM_TIGHT -1

// For a leading dimension of A, B or C, or a batch stride of these: all lines or all matrices are
// the same one.
#define PGEMM_SAME -2

// For device: the device of the CUDA context that is current on the calling thread, or device 0 if
// there is none. The default.
#define PGEMM_CURRENT_DEVICE -1

// Values for the parameters of a program: made by pgemm_arguments_create, used by one thread at a
// time, destroyed by pgemm_arguments_destroy.
typedef struct pgemm_arguments pgemm_arguments;

// A resident kernel that computes jobs as they arrive. It is created by pgemm_engine_create, may
// be used from any thread, and is destroyed by pgemm_engine_destroy.
typedef struct pgemm_engine pgemm_engine;

// A GEMM: made by pgemm_create, used from any thread, destroyed by pgemm_destroy.
typedef struct pgemm_gemm pgemm_gemm;

// A problem at addresses, checked and ready to be submitted: made by pgemm_job_prepare, destroyed
// by pgemm_job_destroy.
typedef struct pgemm_job pgemm_job;

// A kernel of one's own: made by pgemm_program_open or pgemm_program_parse, used from any thread,
// destroyed by pgemm_program_destroy.
typedef struct pgemm_program pgemm_program;

// The status of a call: PGEMM_SUCCESS or one of PGEMM_ERROR_... pgemm_last_error returns the
// message of an error.
typedef int32_t pgemm_status;

// The type of a matrix element: PGEMM_UNSPECIFIED, or one of PGEMM_FP16 to PGEMM_S32.
typedef int32_t pgemm_dtype;

// How accurately products are added up: one of PGEMM_PRECISION_...
typedef int32_t pgemm_precision;

// How the consumer warps of a CTA share its tiles: one of PGEMM_SCHEDULE_...
typedef int32_t pgemm_schedule;

// Whether something is to be so: PGEMM_AUTO, PGEMM_ON or PGEMM_OFF.
typedef int32_t pgemm_switch;

// The configuration of a GEMM. pgemm_config_init sets every field to its default. Then dtype_a
// must be set; knobs may be. A knob of 0 is left to the planner. An impossible knob is an error
// that names the nearest possible value.
typedef struct pgemm_config {
  // Bytes of this struct in the caller's header. Set by pgemm_config_init.
  size_t struct_size;
  // Type of A. Must be given.
  pgemm_dtype dtype_a;
  // Type of B.
  pgemm_dtype dtype_b;
  // Type of C and D.
  pgemm_dtype dtype_c;
  // How accurately products are added up. FP32 is never computed with less than binary32 unless
  // this asks for it.
  pgemm_precision precision;
  // Rows of the macro-tile, which is decomposed into tiles that one CTA can have.
  uint32_t tile_m;
  // Columns of the macro-tile.
  uint32_t tile_n;
  // Depth of a stage of the pipeline, in elements along k.
  uint32_t tile_k;
  // Whether the kernel is persistent. It must be 1, the default, because all kernels are.
  int32_t persistent;
  // CTAs of a cluster along m, given with cluster_n: up to 8 together.
  uint32_t cluster_m;
  // CTAs of a cluster along n.
  uint32_t cluster_n;
  // Warps of a CTA: 8, 12 or 16.
  uint32_t warps_per_block;
  // Stages of the pipeline.
  uint32_t prefetch_depth;
  // Rows of cluster tiles that are walked together.
  uint32_t raster_rows;
  // How the consumer warps of a CTA share its tiles.
  pgemm_schedule schedule;
  // Whether A and B are exchanged: the transpose of D is computed from the transposes of B and
  // A.
  pgemm_switch swapped;
  // If not 0, partial sums of split tiles may be added in any order, so last bits may differ
  // from run to run.
  int32_t unordered;
  // Whether a launch may begin while the previous one on its stream ends.
  pgemm_switch dependent_launch;
  // Multiprocessors to use at most, of which the device must have so many. 0: all.
  uint32_t sms;
  // Ordinal of the CUDA device, whose primary context is used, or PGEMM_CURRENT_DEVICE.
  int32_t device;
  // How tiles are split along k: "whole", "split-N" or "stream-k". Null leaves it to the
  // planner.
  const char *split;
  // The kernel, by a name that "pgemm kernel list" has, in place of tiles, cluster, warps,
  // stages, schedule and swapping. Null leaves it to the planner.
  const char *kernel;
  // A results file of the autotuner, or a folder of such files. Its choices are used if no knob
  // is set. "off" turns them off. Null stands for the location in the environment variable
  // PGEMM_AUTOTUNE, or for the results that "pgemm autotune" installed.
  const char *autotune_file;
  // What happens to results before they are rounded to D's type: "bias_n" (an element of the
  // bias is added to each column) or "bias_m" (to each row), an activation by its name, such as
  // "relu" (docs/types.md lists all), or both with | between them: "bias_n|silu". The numbers
  // that an activation takes follow its name in parentheses, with commas between them:
  // "clamp(0,6)". Null, or "none": nothing. If there is a bias, problem.bias is its address.
  const char *epilogue;
} pgemm_config;

// The layout of a matrix: PGEMM_ROW_MAJOR or PGEMM_COLUMN_MAJOR.
typedef int32_t pgemm_layout;

// A problem: D = alpha * A*B + beta * C, and the config's epilogue of that, with A of m x k, B of
// k x n, C and D of m x n; or a batch of such products. pgemm_problem_init sets every field to its
// default.
typedef struct pgemm_problem {
  // Bytes of this struct in the caller's header. Set by pgemm_problem_init.
  size_t struct_size;
  // Rows of A, C and D.
  int64_t m;
  // Columns of B, C and D.
  int64_t n;
  // Columns of A, rows of B.
  int64_t k;
  // Elements from one row of A to the next (from one column to the next if A is column-major). 0
  // means PGEMM_TIGHT too.
  int64_t lda;
  // The same for B.
  int64_t ldb;
  // The same for C.
  int64_t ldc;
  // The same for D.
  int64_t ldd;
  // Layout of A.
  pgemm_layout layout_a;
  // Layout of B.
  pgemm_layout layout_b;
  // Layout of C and D.
  pgemm_layout layout_c;
  // Factor of A*B, 1 by default. It is rounded to binary32, except for FP64. For a result of S32
  // it must be an integer.
  double alpha;
  // Factor of C, 0 by default, as alpha is one. If it is 0, C is never read.
  double beta;
  // Products, 1 by default. All fields above hold for each of them.
  int64_t batch;
  // Elements from one A to the next. 0 is PGEMM_SAME too.
  int64_t batch_stride_a;
  // Elements from one B to the next. 0 is PGEMM_SAME too.
  int64_t batch_stride_b;
  // Elements from one C to the next. 0 is PGEMM_SAME too.
  int64_t batch_stride_c;
  // Elements from one D to the next. Matrices D must not overlap.
  int64_t batch_stride_d;
  // Address of the bias in device memory, where the config's epilogue has one: n elements of D's
  // type without gaps, or m for "bias_m"; of BF16 where D is E4M3 or E5M2. One for all products
  // of a batch. Only runs look at it.
  const void *bias;
} pgemm_problem;

// When kernels are compiled that have to be: PGEMM_COMPILE_NOW or PGEMM_COMPILE_BEHIND.
typedef int32_t pgemm_compile;

// The optimisation goal of an engine: PGEMM_GOAL_THROUGHPUT or PGEMM_GOAL_LATENCY.
typedef int32_t pgemm_goal;

// Options of an engine. pgemm_engine_options_init sets every field to its default.
typedef struct pgemm_engine_options {
  // Bytes of this struct in the caller's header. Set by pgemm_engine_options_init.
  size_t struct_size;
  // The optimisation goal.
  pgemm_goal goal;
  // Multiprocessors that its kernel holds while there are jobs, of which the device must have so
  // many. 0, the default: all.
  uint32_t sms;
  // Microseconds after the last job until the kernel leaves the device, 1000 by default. The
  // next job launches it again.
  uint64_t idle_microseconds;
  // Microseconds without any progress after which waiting for a job is an error. The default is
  // 10 seconds. 0 stands for no limit.
  uint64_t watchdog_microseconds;
} pgemm_engine_options;

// A job that was submitted to an engine. Never 0.
typedef uint64_t pgemm_ticket;

// The callback of pgemm_engine_on_done. It is called on a thread of the engine when a job is done
// or has failed, with the status and the context pointer of the registration. On a failure
// pgemm_last_error() returns the message within this call. It must not throw.
typedef void (*pgemm_callback)(pgemm_status status, void *context);

// What a pack has. pgemm_pack_info_init sets every number to 0.
typedef struct pgemm_pack_info {
  // Bytes of this struct in the caller's header. Set by pgemm_pack_info_init.
  size_t struct_size;
  // Kernels that were assembled in advance.
  size_t kernels;
  // Problems that the autotuner has found the fastest kernels for, on any device.
  size_t problems;
} pgemm_pack_info;

// The type of a program's parameter: one of PGEMM_PARAMETER_...
typedef int32_t pgemm_parameter_type;

// A parameter of a program. pgemm_parameter_init sets every field to 0.
typedef struct pgemm_parameter {
  // Bytes of this struct in the caller's header. Set by pgemm_parameter_init.
  size_t struct_size;
  // The name, valid until the program is destroyed.
  const char *name;
  // The type.
  pgemm_parameter_type kind;
  // Type of the elements of a tensor map.
  pgemm_dtype dtype;
  // Dimensions of a tensor map, 1 to 5. 0 for other parameters.
  uint32_t rank;
  // Extents of the boxes of a tensor map that the kernel copies, in elements, the contiguous
  // dimension first. An im2col map has two, channels and pixels, and others are 0.
  uint32_t box_extents[5];
} pgemm_parameter;

// What pgemm_warm_up did. pgemm_warm_up_result_init sets every number to 0.
typedef struct pgemm_warm_up_result {
  // Bytes of this struct in the caller's header. Set by pgemm_warm_up_result_init.
  size_t struct_size;
  // Problems that were not prepared before, each once.
  size_t problems;
  // Kernels that they need, without those that lay operands out anew.
  size_t kernels;
  // Those of the kernels that were assembled in advance.
  size_t assembled;
} pgemm_warm_up_result;

// The callback of pgemm_warm_up. It is called on the calling thread with the number of problems
// that are prepared and of all, and with the context pointer of the call. It may use the GEMM, but
// must not destroy it, and must not throw.
typedef void (*pgemm_progress)(size_t done, size_t all, void *context);

// The call succeeded.
#define PGEMM_SUCCESS 0

// An argument is null, out of range, or contradicts another.
#define PGEMM_ERROR_INVALID_ARGUMENT 1

// There is no kernel for these types, knobs or layouts, or this library was built without the
// entry point.
#define PGEMM_ERROR_NOT_SUPPORTED 2

// There is no driver, no GPU, or none of Hopper's generation.
#define PGEMM_ERROR_NO_DEVICE 3

// Device memory ran out.
#define PGEMM_ERROR_OUT_OF_MEMORY 4

// A call of the CUDA driver failed, or work queued before did.
#define PGEMM_ERROR_DRIVER 5

// The call is not possible in the present state. A stream is being captured, and the problem is
// not prepared or the call would wait for the stream. Or an engine was stopped or aborted, has no
// free slot, or makes no progress.
#define PGEMM_ERROR_INVALID_STATE 6

// A file cannot be read, written or used.
#define PGEMM_ERROR_FILE 7

// A defect of this library: please report it with the message.
#define PGEMM_ERROR_INTERNAL 8

// The time limit of a wait was reached. The work continues, and can be waited for again.
#define PGEMM_ERROR_TIMEOUT 9

// Not given. B then has the type of A. C and D have FP32 for TF32, BF16 for E4M3 and E5M2, S32 for
// S8 and U8, and the type of the operands otherwise.
#define PGEMM_UNSPECIFIED 0

// IEEE 754 binary16.
#define PGEMM_FP16 1

// bfloat16.
#define PGEMM_BF16 2

// IEEE 754 binary32, multiplied and added up as such unless precision says otherwise.
#define PGEMM_FP32 3

// binary32 in memory, of which the tensor core multiplies the upper 19 bits, rounded to nearest.
#define PGEMM_TF32 4

// IEEE 754 binary64.
#define PGEMM_FP64 5

// 8-bit float, 4 exponent and 3 mantissa bits.
#define PGEMM_E4M3 6

// 8-bit float, 5 exponent and 2 mantissa bits.
#define PGEMM_E5M2 7

// Signed 8-bit integer.
#define PGEMM_S8 8

// Unsigned 8-bit integer.
#define PGEMM_U8 9

// Signed 32-bit integer: results only.
#define PGEMM_S32 10

// 8-bit floats with sums of 128 products added in binary32; FP32 in binary32 throughout. The
// default.
#define PGEMM_PRECISION_FULL 0

// 8-bit floats added up all along k by the tensor core, with about 14 bits.
#define PGEMM_PRECISION_FAST 1

// FP16 added up in FP16, as cuBLAS's COMPUTE_16F has it; for no other type.
#define PGEMM_PRECISION_F16 2

// FP32 in binary32 throughout, as PGEMM_PRECISION_FULL has it; for no other type.
#define PGEMM_PRECISION_EXACT 3

// FP32 as sums of two TF32: three products on tensor cores.
#define PGEMM_PRECISION_TF32X3 4

// FP32 as sums of two FP16 with scales: three products on tensor cores.
#define PGEMM_PRECISION_F16X3 5

// FP32 as sums of three BF16: the six larger products, on tensor cores.
#define PGEMM_PRECISION_BF16X6 6

// FP32 as sums of three BF16: all nine products, on tensor cores.
#define PGEMM_PRECISION_BF16X9 7

// The elements of a row are neighbours. The default.
#define PGEMM_ROW_MAJOR 0

// The elements of a column are neighbours.
#define PGEMM_COLUMN_MAJOR 1

// The planner chooses. The default.
#define PGEMM_AUTO 0

// Yes.
#define PGEMM_ON 1

// No.
#define PGEMM_OFF 2

// As the planner finds best. The default.
#define PGEMM_SCHEDULE_AUTO 0

// All consumer warps work on each tile.
#define PGEMM_SCHEDULE_COOPERATIVE 1

// Two consumer warpgroups take turns with whole tiles (ping-pong).
#define PGEMM_SCHEDULE_PING_PONG 2

// High throughput, for many jobs at once or large ones. The default.
#define PGEMM_GOAL_THROUGHPUT 0

// Low latency, for small jobs one after another.
#define PGEMM_GOAL_LATENCY 1

// As soon as a problem needs the kernel, which the problem waits for.
#define PGEMM_COMPILE_NOW 0

// While another kernel computes the problem: the best one that needs no compilation and gives the
// same results bit for bit. Later runs take the better kernel once it is compiled. If there is no
// such kernel, the problem waits.
#define PGEMM_COMPILE_BEHIND 1

// A 32-bit unsigned integer: pgemm_arguments_set_u32.
#define PGEMM_PARAMETER_U32 1

// A 64-bit unsigned integer, or an address of device memory: pgemm_arguments_set_u64 or
// pgemm_arguments_set_pointer.
#define PGEMM_PARAMETER_U64 2

// binary32: pgemm_arguments_set_f32.
#define PGEMM_PARAMETER_F32 3

// binary64: pgemm_arguments_set_f64.
#define PGEMM_PARAMETER_F64 4

// A tensor map: pgemm_arguments_set_tensor_map.
#define PGEMM_PARAMETER_TENSOR_MAP 5

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, such as "0.1.0". The header's is PGEMM_VERSION_MAJOR and so on.
const char *pgemm_version(void);

// A status in a few words. Never null, never to be freed.
const char *pgemm_status_string(pgemm_status status);

// The message of the last failed call on this thread: what was requested, what the limit is, and
// what to do. Empty if no call failed. It is never null, must not be freed, and is valid until the
// next failed call on this thread.
const char *pgemm_last_error(void);

// Sets all fields of a config to their defaults. size is sizeof(pgemm_config).
pgemm_status pgemm_config_init(struct pgemm_config *config, size_t size);

// Sets all fields of a problem to their defaults. size is sizeof(pgemm_problem).
pgemm_status pgemm_problem_init(struct pgemm_problem *problem, size_t size);

// Creates a GEMM on the device that the config names. By default this is the device of the CUDA
// context that is current on the calling thread; the context must outlive the GEMM. If there is
// none, it is device 0 with its primary context. Nothing is compiled yet. *gemm is null after a
// failure.
pgemm_status pgemm_create(const struct pgemm_config *config, struct pgemm_gemm **gemm);

// Destroys a GEMM and sets *gemm to null. Does nothing if *gemm is null. Waits for the device if
// there is queued work that pgemm_sync has not waited for. No other thread may be using the GEMM,
// nor a graph that captured runs of it.
pgemm_status pgemm_destroy(struct pgemm_gemm **gemm);

// Plans a problem, and compiles and loads its kernel, so that later runs only launch. Otherwise
// the first run of a problem does this. It takes up to some tenths of a second and is not possible
// on a stream that is being captured.
pgemm_status pgemm_prepare(const struct pgemm_gemm *gemm, const struct pgemm_problem *problem);

// Says when kernels are compiled that have to be, for the problems of this GEMM. Without this call
// it is what the environment variable PGEMM_COMPILE says, now or behind, and otherwise
// PGEMM_COMPILE_NOW. With PGEMM_COMPILE_BEHIND, pgemm_plan_describe describes the plan of the
// kernel that computes for the time being, and a graph keeps the kernel that it has captured.
pgemm_status pgemm_set_compile(const struct pgemm_gemm *gemm, pgemm_compile compile);

// Queues C = A*B on a stream (a CUstream or cudaStream_t; null is the legacy default stream) and
// returns. A is m x k, B is k x n, C is m x n: device memory, row-major, without gaps, and not
// used otherwise until the work is done. The stream must belong to the GEMM's context, and must
// exist until a later pgemm_sync has returned, if there is one. May be called from any thread.
pgemm_status pgemm_run(const struct pgemm_gemm *gemm,
                       const void *a,
                       const void *b,
                       void *c,
                       int64_t m,
                       int64_t n,
                       int64_t k,
                       void *stream);

// Queues D = alpha * A*B + beta * C, or a batch of such products, as the problem describes it.
// Everything else is as with pgemm_run. C is not looked at where beta is 0, and may be D. A bias
// that the config's epilogue adds is at problem.bias.
pgemm_status pgemm_run_ex(const struct pgemm_gemm *gemm,
                          const struct pgemm_problem *problem,
                          const void *a,
                          const void *b,
                          const void *c,
                          void *d,
                          void *stream);

// Waits until all work is done that this GEMM was given before, on any stream and by any thread.
// The streams that it was run on since the last call must still exist, and none may be being
// captured.
pgemm_status pgemm_sync(const struct pgemm_gemm *gemm);

// Prepares a problem and describes its plan: the kernel, the tiles, their split and order, and the
// reason. Writes at most capacity bytes including the final zero. If length is not null, the
// length of the whole text without the zero is written to *length. text may be null if capacity is
// 0.
pgemm_status pgemm_plan_describe(const struct pgemm_gemm *gemm,
                                 const struct pgemm_problem *problem,
                                 char *text,
                                 size_t capacity,
                                 size_t *length);

// Describes the plan without a GEMM or a GPU, for a device with sm_count multiprocessors. 0 stands
// for 132, as an H100 SXM or H200 has, and the memory is that of an H200. Results of the
// autotuner are ignored.
pgemm_status pgemm_config_describe(const struct pgemm_config *config,
                                   const struct pgemm_problem *problem,
                                   uint32_t sm_count,
                                   char *text,
                                   size_t capacity,
                                   size_t *length);

// Finds the fastest kernel for a problem of the GEMM's types by measuring, and writes it to a
// results file. An existing file is continued. A GEMM created with this file as autotune_file and
// without knobs uses the result. At most trials candidates are measured for seconds seconds; 0
// leaves either to the tuner. The device should be idle otherwise. Fails with
// PGEMM_ERROR_NOT_SUPPORTED if the library was built without the tuner.
pgemm_status pgemm_autotune(const struct pgemm_gemm *gemm,
                            const struct pgemm_problem *problem,
                            uint32_t trials,
                            double seconds,
                            const char *file);

// Sets all fields of an engine's options to their defaults. size is sizeof(pgemm_engine_options).
pgemm_status pgemm_engine_options_init(struct pgemm_engine_options *options, size_t size);

// Makes an engine for jobs like typical, in the GEMM's types, with its epilogue and on its device;
// the GEMM may be destroyed before it. Its kernel is compiled now, up to some tenths of a second,
// and launched with the first job. options may be null: all defaults. *engine is null after a
// failure.
pgemm_status pgemm_engine_create(const struct pgemm_gemm *gemm,
                                 const struct pgemm_problem *typical,
                                 const struct pgemm_engine_options *options,
                                 struct pgemm_engine **engine);

// Finishes the submitted jobs, destroys an engine and sets *engine to null. Does nothing if
// *engine is null. No other thread may be using it. Its jobs may be destroyed before or after.
// Callbacks may still be called shortly after it returns.
pgemm_status pgemm_engine_destroy(struct pgemm_engine **engine);

// Checks a problem at these addresses and makes it a job. The job may be submitted to this engine
// any number of times. The call takes the time of a small copy to the device. a, b, c, d are as
// for pgemm_run_ex. Their addresses and the bytes from line to line must be multiples of 16, and D
// must be row-major. If the epilogue of the engine's GEMM adds a bias, it is at problem.bias. An
// engine has at most 2048 jobs at a time. *job is null after a failure.
pgemm_status pgemm_job_prepare(const struct pgemm_engine *engine,
                               const struct pgemm_problem *problem,
                               const void *a,
                               const void *b,
                               const void *c,
                               void *d,
                               struct pgemm_job **job);

// Destroys a job and sets *job to null. Does nothing if *job is null. Its submissions are still
// completed.
pgemm_status pgemm_job_destroy(struct pgemm_job **job);

// Submits a job that begins when the after_count jobs of after are done. There may be at most two;
// after may be null if there are none. Returns at once, but waits for a slot while 1024 jobs are
// pending. A, B and C must have been written by completed work or by the jobs of after. All
// matrices must not be used otherwise until the job is done. ticket may be null. If after contains
// a job of a stream that is not done, the call fails with PGEMM_ERROR_INVALID_STATE: wait for that
// job first, or submit on that stream.
pgemm_status pgemm_engine_submit(const struct pgemm_engine *engine,
                                 const struct pgemm_job *job,
                                 const pgemm_ticket *after,
                                 size_t after_count,
                                 pgemm_ticket *ticket);

// Submits count jobs that do not depend on each other, and writes a ticket of each to tickets,
// which may be null. Otherwise as pgemm_engine_submit, and cheaper for each.
pgemm_status pgemm_engine_submit_many(const struct pgemm_engine *engine,
                                      const struct pgemm_job *const *jobs,
                                      size_t count,
                                      pgemm_ticket *tickets);

// Enqueues a job on a stream (as for pgemm_run) like other work. It begins when earlier work of
// the stream is done, and later work waits for it. This costs the host more than a launch. At most
// two streams may have pending jobs at a time. Until the job is done, only this library may
// allocate or free device memory. Its own calls wait for such jobs up to one second and then fail
// with PGEMM_ERROR_INVALID_STATE. ticket may be null.
pgemm_status pgemm_engine_submit_on(const struct pgemm_engine *engine,
                                    const struct pgemm_job *job,
                                    void *stream,
                                    pgemm_ticket *ticket);

// Waits until a job is done, for at most this number of microseconds. After that time it fails
// with PGEMM_ERROR_TIMEOUT. A negative number stands for no limit. When the job is done, its
// results are visible to copies by the host and to work enqueued from then on. A ticket is valid
// for 2^31 further jobs.
pgemm_status pgemm_engine_wait(const struct pgemm_engine *engine,
                               pgemm_ticket ticket,
                               int64_t timeout_microseconds);

// Writes to *done whether a job is done, as 1 or 0. Fails if the job will never be done, because
// the engine failed or was aborted.
pgemm_status pgemm_engine_is_done(const struct pgemm_engine *engine, pgemm_ticket ticket, int32_t *done);

// Registers a callback and returns at once. callback(status, context) is called once when the job
// is done or has failed, with the status that pgemm_engine_wait would return. It is called on a
// thread of the engine. Callbacks run one after another, so a slow one delays the others. A
// callback may call functions of this engine, and may destroy it. It is not called if this call
// fails.
pgemm_status pgemm_engine_on_done(const struct pgemm_engine *engine,
                                  pgemm_ticket ticket,
                                  pgemm_callback callback,
                                  void *context);

// Waits until all jobs are done that were submitted.
pgemm_status pgemm_engine_drain(const struct pgemm_engine *engine);

// Accepts no more jobs, finishes the submitted ones, and leaves the device.
pgemm_status pgemm_engine_stop(const struct pgemm_engine *engine);

// Accepts no more jobs and abandons those that have not begun. Their tickets then fail, their
// results are undefined, and streams that wait for them continue.
pgemm_status pgemm_engine_abort(const struct pgemm_engine *engine);

// Sets all fields of the info of a pack to their defaults. size is sizeof(pgemm_pack_info).
pgemm_status pgemm_pack_info_init(struct pgemm_pack_info *info, size_t size);

// Loads a pack that the command "pgemm pack" has written, for this process: kernels that were
// assembled in advance, which then need no compilation, and results of the autotuner. GEMMs use
// its kernels for what they prepare from now on. GEMMs that are created later without an
// autotune_file also use its results, if these were found on a device and driver like theirs. A
// pack is trusted as a library is, since its kernels run on the device. What it has is written to
// *info, which may be null; after a failure its numbers are 0. Fails with PGEMM_ERROR_FILE if the
// file cannot be read, is no pack, is damaged, or was written by a version of the library that
// generates kernels differently. No GPU is needed.
pgemm_status pgemm_load_pack(const char *path, struct pgemm_pack_info *info);

// Opens a program: a kernel in its text form in a file, as Program::save in Rust writes it. The
// kernel is checked against the rules of the language. No device is needed. A program runs on the
// device with all that its caller may access, so open only files that you would load a library
// from. Fails with PGEMM_ERROR_FILE if the file cannot be read, is no kernel, or breaks a rule;
// the message has the line. *program is null after a failure.
pgemm_status pgemm_program_open(const char *path, struct pgemm_program **program);

// The same for the text of such a file. A text that is no kernel is PGEMM_ERROR_INVALID_ARGUMENT.
pgemm_status pgemm_program_parse(const char *source, struct pgemm_program **program);

// Destroys a program and sets *program to null. Does nothing if *program is null. Waits for the
// device if the program is loaded. No other thread may be using the program, nor a graph that
// captured launches of it. Its arguments may be destroyed before or after.
pgemm_status pgemm_program_destroy(struct pgemm_program **program);

// Describes a program on a page: parameters, roles, shared memory, occupancy, operations. The text
// is written as by pgemm_plan_describe.
pgemm_status pgemm_program_describe(const struct pgemm_program *program,
                                    char *text,
                                    size_t capacity,
                                    size_t *length);

// Sets all fields of a parameter to 0. size is sizeof(pgemm_parameter).
pgemm_status pgemm_parameter_init(struct pgemm_parameter *parameter, size_t size);

// Writes the number of parameters of a program.
pgemm_status pgemm_program_parameter_count(const struct pgemm_program *program, size_t *count);

// Describes the parameter of this index, from 0, in the order of their declaration.
pgemm_status pgemm_program_parameter(const struct pgemm_program *program,
                                     size_t index,
                                     struct pgemm_parameter *parameter);

// Compiles a program and loads it on a device, an ordinal or PGEMM_CURRENT_DEVICE, as pgemm_create
// does. Otherwise the first launch does this on the current device. It takes up to some tenths of
// a second, and is not possible while a stream is being captured. A program is loaded on one
// device; open it again for another.
pgemm_status pgemm_program_load(const struct pgemm_program *program, int32_t device);

// Makes arguments for launches of a program, of which none has a value yet. *arguments is null
// after a failure.
pgemm_status pgemm_arguments_create(const struct pgemm_program *program, struct pgemm_arguments **arguments);

// Destroys arguments and sets *arguments to null. Does nothing if *arguments is null. Launches
// that were enqueued with them are not affected.
pgemm_status pgemm_arguments_destroy(struct pgemm_arguments **arguments);

// Gives the parameter of this name a 32-bit number, in place of an earlier value. An unknown name
// and a parameter of another type are PGEMM_ERROR_INVALID_ARGUMENT.
pgemm_status pgemm_arguments_set_u32(struct pgemm_arguments *arguments, const char *name, uint32_t value);

// The same for a 64-bit number.
pgemm_status pgemm_arguments_set_u64(struct pgemm_arguments *arguments, const char *name, uint64_t value);

// The same for binary32.
pgemm_status pgemm_arguments_set_f32(struct pgemm_arguments *arguments, const char *name, float value);

// The same for binary64.
pgemm_status pgemm_arguments_set_f64(struct pgemm_arguments *arguments, const char *name, double value);

// The same for an address of device memory, whose parameter is a 64-bit number. What the kernel
// does with the address is not checked.
pgemm_status pgemm_arguments_set_pointer(struct pgemm_arguments *arguments,
                                         const char *name,
                                         const void *address);

// The same for a tensor map of a tensor in device memory. Its rank is that of the parameter.
// extents has rank numbers: elements along each dimension, the contiguous one first. strides has
// rank - 1: bytes from one index of each other dimension to the next, multiples of 16. Null stands
// for a tensor without gaps. The address is a multiple of 16.
pgemm_status pgemm_arguments_set_tensor_map(struct pgemm_arguments *arguments,
                                            const char *name,
                                            const void *address,
                                            uint32_t rank,
                                            const uint64_t *extents,
                                            const uint64_t *strides);

// Enqueues a launch of grid_x by grid_y by grid_z CTAs on a stream (a CUstream or cudaStream_t;
// null is the legacy default stream) and returns. Loads the program on the current device if it is
// not loaded; the context must outlive the program. The arguments must be of this program, with a
// value for each parameter, and are copied. What goes wrong while the kernel runs is reported by a
// later call of the driver.
pgemm_status pgemm_program_launch(const struct pgemm_program *program,
                                  const struct pgemm_arguments *arguments,
                                  uint32_t grid_x,
                                  uint32_t grid_y,
                                  uint32_t grid_z,
                                  void *stream);

// Sets all fields of the result of a warm-up to their defaults. size is
// sizeof(pgemm_warm_up_result).
pgemm_status pgemm_warm_up_result_init(struct pgemm_warm_up_result *result, size_t size);

// Prepares count problems, as pgemm_prepare does for one, so that their first runs only launch.
// Kernels that have to be compiled are compiled in several processes if the command pgemm is on
// PATH or named by the environment variable PGEMM_PROGRAM. If progress is not null,
// progress(done, all, context) is called before each problem that was not prepared yet, and at the
// end. problems may be null if count is 0. What was done is written to *result, which may be null;
// after a failure its numbers are 0, and the problems before the one that failed are prepared. The
// GEMM remembers its last 4096 problems.
pgemm_status pgemm_warm_up(const struct pgemm_gemm *gemm,
                           const struct pgemm_problem *problems,
                           size_t count,
                           pgemm_progress progress,
                           void *context,
                           struct pgemm_warm_up_result *result);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PERSISTENT_GEMM_H */

#if defined(__cplusplus) && __cplusplus >= 201703L && !defined(PERSISTENT_GEMM_CPP)
#define PERSISTENT_GEMM_CPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// A GEMM on one device. Failures are thrown as PersistentGemm::Error. May be used by many threads at once.
//
//   PersistentGemm::Config cfg;
//   cfg.dtypeA = PersistentGemm::FP32; cfg.dtypeB = PersistentGemm::FP32;
//   auto gemm = PersistentGemm::create(cfg);
//   gemm->run(A, B, C, M, N, K, stream);
//   gemm->sync();
class PersistentGemm {
public:
  // Types of matrix elements, as the constants of the same names (PGEMM_FP16 and so on).
  enum Dtype : pgemm_dtype {
    Unspecified = PGEMM_UNSPECIFIED,
    FP16 = PGEMM_FP16,
    BF16 = PGEMM_BF16,
    FP32 = PGEMM_FP32,
    TF32 = PGEMM_TF32,
    FP64 = PGEMM_FP64,
    E4M3 = PGEMM_E4M3,
    E5M2 = PGEMM_E5M2,
    S8 = PGEMM_S8,
    U8 = PGEMM_U8,
    S32 = PGEMM_S32,
  };

  // How accurately products are added up, as PGEMM_PRECISION_FULL and so on.
  enum class Precision : pgemm_precision {
    Full = PGEMM_PRECISION_FULL,
    Fast = PGEMM_PRECISION_FAST,
    Exact = PGEMM_PRECISION_EXACT,
    Tf32x3 = PGEMM_PRECISION_TF32X3,
    F16x3 = PGEMM_PRECISION_F16X3,
    Bf16x6 = PGEMM_PRECISION_BF16X6,
    Bf16x9 = PGEMM_PRECISION_BF16X9,
    F16 = PGEMM_PRECISION_F16,
  };

  // How a matrix lies in memory.
  enum class Layout : pgemm_layout { RowMajor = PGEMM_ROW_MAJOR, ColumnMajor = PGEMM_COLUMN_MAJOR };

  // How the warps of a CTA share its tiles.
  enum class Schedule : pgemm_schedule {
    Auto = PGEMM_SCHEDULE_AUTO,
    Cooperative = PGEMM_SCHEDULE_COOPERATIVE,
    PingPong = PGEMM_SCHEDULE_PING_PONG,
  };

  // When kernels are compiled that have to be, as PGEMM_COMPILE_NOW and PGEMM_COMPILE_BEHIND.
  enum class Compile : pgemm_compile { Now = PGEMM_COMPILE_NOW, Behind = PGEMM_COMPILE_BEHIND };

  // For a leading dimension or a batch stride: no gaps.
  static constexpr std::int64_t Tight = PGEMM_TIGHT;
  // For a leading dimension of A, B or C, or a batch stride of these: all lines or all matrices are the same one.
  static constexpr std::int64_t Same = PGEMM_SAME;

  // What a GEMM is made for. dtypeA must be given; every knob that is 0, empty or absent is left to the planner. What
  // the fields mean is said at pgemm_config.
  struct Config {
    Dtype dtypeA = Unspecified;
    Dtype dtypeB = Unspecified;
    Dtype dtypeC = Unspecified;
    Precision precision = Precision::Full;
    std::uint32_t tileM = 0;
    std::uint32_t tileN = 0;
    std::uint32_t tileK = 0;
    bool persistent = true;
    std::uint32_t clusterM = 0;
    std::uint32_t clusterN = 0;
    std::uint32_t warpsPerBlock = 0;
    std::uint32_t prefetchDepth = 0;
    std::uint32_t rasterRows = 0;
    Schedule schedule = Schedule::Auto;
    std::optional<bool> swapped;
    bool unordered = false;
    std::optional<bool> dependentLaunch;
    std::uint32_t sms = 0;
    std::int32_t device = PGEMM_CURRENT_DEVICE;
    std::string split;
    std::string kernel;
    std::string autotuneFile;
    std::string epilogue;
  };

  // D = alpha * A*B + beta * C, or a batch of such products. What the fields mean is said at pgemm_problem.
  struct Problem {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    std::int64_t lda = Tight;
    std::int64_t ldb = Tight;
    std::int64_t ldc = Tight;
    std::int64_t ldd = Tight;
    Layout layoutA = Layout::RowMajor;
    Layout layoutB = Layout::RowMajor;
    Layout layoutC = Layout::RowMajor;
    double alpha = 1.0;
    double beta = 0.0;
    std::int64_t batch = 1;
    std::int64_t batchStrideA = Tight;
    std::int64_t batchStrideB = Tight;
    std::int64_t batchStrideC = Tight;
    std::int64_t batchStrideD = Tight;
    const void *bias = nullptr;

    Problem() = default;
    Problem(std::int64_t rows, std::int64_t columns, std::int64_t depth) : m(rows), n(columns), k(depth) {}
  };

  class Engine;
  class Program;

  // What the jobs of an engine are wanted for.
  enum class Goal : pgemm_goal { Throughput = PGEMM_GOAL_THROUGHPUT, Latency = PGEMM_GOAL_LATENCY };

  // How an engine works. What the fields mean is said at pgemm_engine_options.
  struct EngineOptions {
    Goal goal = Goal::Throughput;
    std::uint32_t sms = 0;
    std::chrono::microseconds idle{1000};
    std::chrono::microseconds watchdog{10000000};
  };

  // What a warm-up did. What the fields mean is said at pgemm_warm_up_result.
  struct WarmUpResult {
    std::size_t problems = 0;
    std::size_t kernels = 0;
    std::size_t assembled = 0;
  };

  // What a pack has. What the fields mean is said at pgemm_pack_info.
  struct PackInfo {
    std::size_t kernels = 0;
    std::size_t problems = 0;
  };

  // What failed: what() says what was asked, what the limit is and what to do.
  class Error : public std::runtime_error {
  public:
    Error(pgemm_status status, const char *message) : std::runtime_error(message), status_(status) {}

    // PGEMM_ERROR_INVALID_ARGUMENT and so on.
    pgemm_status status() const noexcept { return status_; }

  private:
    pgemm_status status_;
  };

  // Loads a pack of kernels and tuned results for this process. Load it before objects are created that use its
  // results. As pgemm_load_pack.
  static PackInfo loadPack(const std::string &path) {
    pgemm_pack_info info;
    check(pgemm_pack_info_init(&info, sizeof info));
    check(pgemm_load_pack(path.c_str(), &info));
    return {info.kernels, info.problems};
  }

  // As pgemm_create.
  static std::unique_ptr<PersistentGemm> create(const Config &config) {
    const pgemm_config asked = toC(config);
    pgemm_gemm *handle = nullptr;
    check(pgemm_create(&asked, &handle));
    Owner owner(handle);
    return std::unique_ptr<PersistentGemm>(new PersistentGemm(std::move(owner)));
  }

  PersistentGemm(const PersistentGemm &) = delete;
  PersistentGemm &operator=(const PersistentGemm &) = delete;

  // Queues C = A*B and returns. A is M x K, B is K x N, C is M x N, all in device memory, row-major and without gaps.
  // As pgemm_run.
  void run(const void *A, const void *B, void *C, std::int64_t M, std::int64_t N, std::int64_t K,
           void *stream = nullptr) {
    check(pgemm_run(handle_.get(), A, B, C, M, N, K, stream));
  }

  // Queues D = alpha * A*B + beta * C and returns. C may be null where beta is 0, and may be D. As pgemm_run_ex.
  void run(const Problem &problem, const void *A, const void *B, const void *C, void *D, void *stream = nullptr) {
    const pgemm_problem asked = toC(problem);
    check(pgemm_run_ex(handle_.get(), &asked, A, B, C, D, stream));
  }

  // Compiles and loads what a problem needs, so that running it only launches. As pgemm_prepare.
  void prepare(const Problem &problem) {
    const pgemm_problem asked = toC(problem);
    check(pgemm_prepare(handle_.get(), &asked));
  }

  // Prepares problems, with several processes that compile. progress, which may be empty, is called with the number of
  // problems that are prepared and of all. If it throws, it is not called again, and the exception leaves warmUp when
  // all problems are prepared. As pgemm_warm_up.
  WarmUpResult warmUp(const std::vector<Problem> &problems,
                      const std::function<void(std::size_t, std::size_t)> &progress = {}) {
    std::vector<pgemm_problem> asked;
    asked.reserve(problems.size());
    for (const Problem &problem : problems) {
      asked.push_back(toC(problem));
    }
    pgemm_warm_up_result result;
    check(pgemm_warm_up_result_init(&result, sizeof result));
    Progress shown{progress, nullptr};
    const pgemm_status status = pgemm_warm_up(handle_.get(), asked.data(), asked.size(),
                                              progress ? &PersistentGemm::show : nullptr, &shown, &result);
    if (shown.thrown) {
      std::rethrow_exception(shown.thrown);
    }
    check(status);
    return {result.problems, result.kernels, result.assembled};
  }

  // Says when kernels are compiled that have to be. As pgemm_set_compile.
  void setCompile(Compile compile) { check(pgemm_set_compile(handle_.get(), static_cast<pgemm_compile>(compile))); }

  // Waits until all work is done that this GEMM was given. As pgemm_sync.
  void sync() { check(pgemm_sync(handle_.get())); }

  // How a problem is computed, and why. As pgemm_plan_describe.
  std::string describe(const Problem &problem) {
    const pgemm_problem asked = toC(problem);
    return text([&](char *room, std::size_t capacity, std::size_t *length) {
      return pgemm_plan_describe(handle_.get(), &asked, room, capacity, length);
    });
  }

  // The same without a GPU, for a device with so many multiprocessors. As pgemm_config_describe.
  static std::string describe(const Config &config, const Problem &problem, std::uint32_t smCount = 0) {
    const pgemm_config knobs = toC(config);
    const pgemm_problem asked = toC(problem);
    return text([&](char *room, std::size_t capacity, std::size_t *length) {
      return pgemm_config_describe(&knobs, &asked, smCount, room, capacity, length);
    });
  }

  // Finds the fastest kernel by measuring, and writes it to a file for Config::autotuneFile. As pgemm_autotune.
  void autotune(const Problem &problem, const std::string &file, std::uint32_t trials = 0, double seconds = 0.0) {
    const pgemm_problem asked = toC(problem);
    check(pgemm_autotune(handle_.get(), &asked, trials, seconds, file.c_str()));
  }

  // For calls of the C API.
  pgemm_gemm *handle() const noexcept { return handle_.get(); }

private:
  struct Destroy {
    void operator()(pgemm_gemm *handle) const noexcept { pgemm_destroy(&handle); }
  };
  using Owner = std::unique_ptr<pgemm_gemm, Destroy>;

  // The progress of a warm-up, and what it has thrown.
  struct Progress {
    const std::function<void(std::size_t, std::size_t)> &function;
    std::exception_ptr thrown;
  };

  // What pgemm_warm_up calls.
  static void show(std::size_t done, std::size_t all, void *context) noexcept {
    auto &progress = *static_cast<Progress *>(context);
    if (progress.thrown) {
      return;
    }
    try {
      progress.function(done, all);
    } catch (...) {
      progress.thrown = std::current_exception();
    }
  }

  explicit PersistentGemm(Owner handle) noexcept : handle_(std::move(handle)) {}

  static void check(pgemm_status status) {
    if (status != PGEMM_SUCCESS) {
      throw Error(status, pgemm_last_error());
    }
  }

  static pgemm_switch toC(const std::optional<bool> &choice) noexcept {
    return choice ? (*choice ? PGEMM_ON : PGEMM_OFF) : PGEMM_AUTO;
  }

  static const char *toC(const std::string &words) noexcept { return words.empty() ? nullptr : words.c_str(); }

  // The strings stay the config's.
  static pgemm_config toC(const Config &from) {
    pgemm_config to;
    check(pgemm_config_init(&to, sizeof to));
    to.dtype_a = from.dtypeA;
    to.dtype_b = from.dtypeB;
    to.dtype_c = from.dtypeC;
    to.precision = static_cast<pgemm_precision>(from.precision);
    to.tile_m = from.tileM;
    to.tile_n = from.tileN;
    to.tile_k = from.tileK;
    to.persistent = from.persistent ? 1 : 0;
    to.cluster_m = from.clusterM;
    to.cluster_n = from.clusterN;
    to.warps_per_block = from.warpsPerBlock;
    to.prefetch_depth = from.prefetchDepth;
    to.raster_rows = from.rasterRows;
    to.schedule = static_cast<pgemm_schedule>(from.schedule);
    to.swapped = toC(from.swapped);
    to.unordered = from.unordered ? 1 : 0;
    to.dependent_launch = toC(from.dependentLaunch);
    to.sms = from.sms;
    to.device = from.device;
    to.split = toC(from.split);
    to.kernel = toC(from.kernel);
    to.autotune_file = toC(from.autotuneFile);
    to.epilogue = toC(from.epilogue);
    return to;
  }

  static std::uint64_t toC(std::chrono::microseconds time, const char *what) {
    if (time.count() < 0) {
      throw Error(PGEMM_ERROR_INVALID_ARGUMENT, what);
    }
    return static_cast<std::uint64_t>(time.count());
  }

  static pgemm_engine_options toC(const EngineOptions &from) {
    pgemm_engine_options to;
    check(pgemm_engine_options_init(&to, sizeof to));
    to.goal = static_cast<pgemm_goal>(from.goal);
    to.sms = from.sms;
    to.idle_microseconds = toC(from.idle, "idle is negative: it must be 0 or more");
    to.watchdog_microseconds = toC(from.watchdog, "watchdog is negative: give 0 for none, or more");
    return to;
  }

  static pgemm_problem toC(const Problem &from) {
    pgemm_problem to;
    check(pgemm_problem_init(&to, sizeof to));
    to.m = from.m;
    to.n = from.n;
    to.k = from.k;
    to.lda = from.lda;
    to.ldb = from.ldb;
    to.ldc = from.ldc;
    to.ldd = from.ldd;
    to.layout_a = static_cast<pgemm_layout>(from.layoutA);
    to.layout_b = static_cast<pgemm_layout>(from.layoutB);
    to.layout_c = static_cast<pgemm_layout>(from.layoutC);
    to.alpha = from.alpha;
    to.beta = from.beta;
    to.batch = from.batch;
    to.batch_stride_a = from.batchStrideA;
    to.batch_stride_b = from.batchStrideB;
    to.batch_stride_c = from.batchStrideC;
    to.batch_stride_d = from.batchStrideD;
    to.bias = from.bias;
    return to;
  }

  // A text of the C API, whose length a first call tells.
  template <typename Write> static std::string text(Write write) {
    std::size_t length = 0;
    check(write(nullptr, 0, &length));
    std::string room(length + 1, '\0');
    check(write(&room[0], room.size(), &length));
    room.resize(length < room.size() ? length : room.size() - 1);
    return room;
  }

  Owner handle_;
};

// A kernel that stays on the device and works through jobs as they come in. May be used by many threads at once. Its
// end waits for the jobs that were submitted.
//
//   PersistentGemm::Engine engine(*gemm, {M, N, K});
//   auto job = engine.prepare({M, N, K}, A, B, C);
//   engine.wait(engine.submit(job));
class PersistentGemm::Engine {
public:
  // A job that was submitted.
  using Ticket = pgemm_ticket;

  // A problem at addresses, ready to be submitted to the engine that prepared it, as often as wanted.
  class Job {
  public:
    // For calls of the C API.
    pgemm_job *handle() const noexcept { return handle_.get(); }

  private:
    friend class Engine;
    struct Destroy {
      void operator()(pgemm_job *handle) const noexcept { pgemm_job_destroy(&handle); }
    };

    explicit Job(pgemm_job *handle) noexcept : handle_(handle) {}

    std::unique_ptr<pgemm_job, Destroy> handle_;
  };

  // For jobs like the typical one, in the GEMM's types and on its device. As pgemm_engine_create.
  Engine(const PersistentGemm &gemm, const Problem &typical, const EngineOptions &options) {
    const pgemm_problem asked = toC(typical);
    const pgemm_engine_options how = toC(options);
    pgemm_engine *handle = nullptr;
    check(pgemm_engine_create(gemm.handle(), &asked, &how, &handle));
    handle_.reset(handle);
  }

  Engine(const PersistentGemm &gemm, const Problem &typical) : Engine(gemm, typical, EngineOptions()) {}

  // D = A*B, or with C alpha * A*B + beta * C, at these addresses, as a job. As pgemm_job_prepare.
  Job prepare(const Problem &problem, const void *A, const void *B, void *D) const {
    return prepare(problem, A, B, nullptr, D);
  }

  Job prepare(const Problem &problem, const void *A, const void *B, const void *C, void *D) const {
    const pgemm_problem asked = toC(problem);
    pgemm_job *handle = nullptr;
    check(pgemm_job_prepare(handle_.get(), &asked, A, B, C, D, &handle));
    return Job(handle);
  }

  // Submits a job. As pgemm_engine_submit.
  Ticket submit(const Job &job) { return submitAfter(job, nullptr, 0); }

  // Submits a job that begins when one, or two, others are done. Those of streams have to be done already.
  Ticket submit(const Job &job, Ticket after) { return submitAfter(job, &after, 1); }
  Ticket submit(const Job &job, Ticket after, Ticket other) {
    const Ticket both[] = {after, other};
    return submitAfter(job, both, 2);
  }

  // Submits jobs that do not depend on each other. As pgemm_engine_submit_many.
  std::vector<Ticket> submit(const std::vector<const Job *> &jobs) {
    std::vector<const pgemm_job *> handles;
    handles.reserve(jobs.size());
    for (const Job *job : jobs) {
      handles.push_back(job == nullptr ? nullptr : job->handle());
    }
    std::vector<Ticket> tickets(jobs.size());
    check(pgemm_engine_submit_many(handle_.get(), handles.data(), handles.size(), tickets.data()));
    return tickets;
  }

  // Enqueues a job on a stream. As pgemm_engine_submit_on.
  Ticket submitOn(void *stream, const Job &job) {
    Ticket ticket = 0;
    check(pgemm_engine_submit_on(handle_.get(), job.handle(), stream, &ticket));
    return ticket;
  }

  // Waits until a job is done. As pgemm_engine_wait.
  void wait(Ticket ticket) const { check(pgemm_engine_wait(handle_.get(), ticket, -1)); }

  // Waits until a job is done, or for so long: whether it is done.
  bool waitFor(Ticket ticket, std::chrono::microseconds timeout) const {
    const auto most = timeout.count() < 0 ? 0 : timeout.count();
    const pgemm_status status = pgemm_engine_wait(handle_.get(), ticket, static_cast<std::int64_t>(most));
    if (status == PGEMM_ERROR_TIMEOUT) {
      return false;
    }
    check(status);
    return true;
  }

  // Whether a job is done. As pgemm_engine_is_done.
  bool isDone(Ticket ticket) const {
    std::int32_t done = 0;
    check(pgemm_engine_is_done(handle_.get(), ticket, &done));
    return done != 0;
  }

  // Calls a function once when a job is done, with nullptr, or will not be, with why: on a thread of the engine. As
  // pgemm_engine_on_done. An exception that leaves it ends the program.
  void onDone(Ticket ticket, std::function<void(const Error *)> callback) const {
    auto kept = std::make_unique<std::function<void(const Error *)>>(std::move(callback));
    check(pgemm_engine_on_done(handle_.get(), ticket, &Engine::call, kept.get()));
    // The call owns it from now on: it is not made where that failed.
    static_cast<void>(kept.release());
  }

  // Waits until all jobs are done that were submitted. As pgemm_engine_drain.
  void drain() const { check(pgemm_engine_drain(handle_.get())); }

  // Takes no more jobs and finishes those that were submitted. As pgemm_engine_stop.
  void stop() { check(pgemm_engine_stop(handle_.get())); }

  // Takes no more jobs and gives up those that have not begun. As pgemm_engine_abort.
  void abort() { check(pgemm_engine_abort(handle_.get())); }

  // For calls of the C API.
  pgemm_engine *handle() const noexcept { return handle_.get(); }

private:
  struct Destroy {
    void operator()(pgemm_engine *handle) const noexcept { pgemm_engine_destroy(&handle); }
  };

  // What the C API calls, with a function that is its own.
  static void call(pgemm_status status, void *context) noexcept {
    const std::unique_ptr<std::function<void(const Error *)>> callback(
        static_cast<std::function<void(const Error *)> *>(context));
    if (status == PGEMM_SUCCESS) {
      (*callback)(nullptr);
    } else {
      const Error error(status, pgemm_last_error());
      (*callback)(&error);
    }
  }

  Ticket submitAfter(const Job &job, const Ticket *after, std::size_t count) {
    Ticket ticket = 0;
    check(pgemm_engine_submit(handle_.get(), job.handle(), after, count, &ticket));
    return ticket;
  }

  std::unique_ptr<pgemm_engine, Destroy> handle_;
};

// A kernel of one's own, from a file. May be used by many threads at once.
//
//   PersistentGemm::Program saxpy("saxpy.kernel");
//   auto arguments = saxpy.arguments();
//   arguments.set("x", x).set("y", y).set("n", 300u).set("alpha", 2.0f);
//   saxpy.launch(arguments, {3}, stream);
class PersistentGemm::Program {
public:
  // CTAs of a launch.
  struct Grid {
    std::uint32_t x = 1;
    std::uint32_t y = 1;
    std::uint32_t z = 1;
  };

  // Values for the parameters of a program, by name. Each set replaces the parameter's former value. To be used by one
  // thread at a time.
  class Arguments {
  public:
    // As pgemm_arguments_set_u32, _u64, _f32, _f64 and _pointer. The type of the value must be that of the parameter.
    Arguments &set(const std::string &name, std::uint32_t value) {
      return checked(pgemm_arguments_set_u32(handle_.get(), name.c_str(), value));
    }
    Arguments &set(const std::string &name, std::uint64_t value) {
      return checked(pgemm_arguments_set_u64(handle_.get(), name.c_str(), value));
    }
    Arguments &set(const std::string &name, float value) {
      return checked(pgemm_arguments_set_f32(handle_.get(), name.c_str(), value));
    }
    Arguments &set(const std::string &name, double value) {
      return checked(pgemm_arguments_set_f64(handle_.get(), name.c_str(), value));
    }
    Arguments &set(const std::string &name, const void *address) {
      return checked(pgemm_arguments_set_pointer(handle_.get(), name.c_str(), address));
    }

    // A tensor map of a tensor with these extents in elements, the contiguous dimension first, and these strides in
    // bytes of the other dimensions. Without strides there are no gaps. As pgemm_arguments_set_tensor_map.
    Arguments &setTensorMap(const std::string &name, const void *address, const std::vector<std::uint64_t> &extents,
                            const std::vector<std::uint64_t> &strides = {}) {
      if (!strides.empty() && strides.size() + 1 != extents.size()) {
        throw Error(PGEMM_ERROR_INVALID_ARGUMENT, "strides must have one number fewer than extents, or none");
      }
      return checked(pgemm_arguments_set_tensor_map(handle_.get(), name.c_str(), address,
                                                    static_cast<std::uint32_t>(extents.size()), extents.data(),
                                                    strides.empty() ? nullptr : strides.data()));
    }

    // For calls of the C API.
    pgemm_arguments *handle() const noexcept { return handle_.get(); }

  private:
    friend class Program;
    struct Destroy {
      void operator()(pgemm_arguments *handle) const noexcept { pgemm_arguments_destroy(&handle); }
    };

    explicit Arguments(pgemm_arguments *handle) noexcept : handle_(handle) {}

    Arguments &checked(pgemm_status status) {
      check(status);
      return *this;
    }

    std::unique_ptr<pgemm_arguments, Destroy> handle_;
  };

  // The program in a file. As pgemm_program_open.
  explicit Program(const std::string &path) {
    pgemm_program *handle = nullptr;
    check(pgemm_program_open(path.c_str(), &handle));
    handle_.reset(handle);
  }

  // The program of a text. As pgemm_program_parse.
  static Program parse(const std::string &source) {
    pgemm_program *handle = nullptr;
    check(pgemm_program_parse(source.c_str(), &handle));
    return Program(handle);
  }

  // A page about the program. As pgemm_program_describe.
  std::string describe() const {
    return text([&](char *room, std::size_t capacity, std::size_t *length) {
      return pgemm_program_describe(handle_.get(), room, capacity, length);
    });
  }

  // The parameters in the order of their declaration. Their names are valid as long as the program.
  std::vector<pgemm_parameter> parameters() const {
    std::size_t count = 0;
    check(pgemm_program_parameter_count(handle_.get(), &count));
    std::vector<pgemm_parameter> found(count);
    for (std::size_t index = 0; index < count; ++index) {
      check(pgemm_parameter_init(&found[index], sizeof found[index]));
      check(pgemm_program_parameter(handle_.get(), index, &found[index]));
    }
    return found;
  }

  // Compiles and loads the program, so that launches only launch. As pgemm_program_load.
  void load(std::int32_t device = PGEMM_CURRENT_DEVICE) { check(pgemm_program_load(handle_.get(), device)); }

  // Arguments without values. As pgemm_arguments_create.
  Arguments arguments() const {
    pgemm_arguments *handle = nullptr;
    check(pgemm_arguments_create(handle_.get(), &handle));
    return Arguments(handle);
  }

  // Enqueues a launch and returns. As pgemm_program_launch.
  void launch(const Arguments &arguments, const Grid &grid, void *stream = nullptr) {
    check(pgemm_program_launch(handle_.get(), arguments.handle(), grid.x, grid.y, grid.z, stream));
  }

  // For calls of the C API.
  pgemm_program *handle() const noexcept { return handle_.get(); }

private:
  struct Destroy {
    void operator()(pgemm_program *handle) const noexcept { pgemm_program_destroy(&handle); }
  };

  explicit Program(pgemm_program *handle) noexcept : handle_(handle) {}

  std::unique_ptr<pgemm_program, Destroy> handle_;
};

#endif // C++17
