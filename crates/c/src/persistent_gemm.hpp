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
