// The class PersistentGemm without a GPU: what is thrown, and what is planned.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <type_traits>

#include "check.h"
// Included twice, as large programs do.
#include "persistent_gemm.h"

namespace {

// What creating throws.
PersistentGemm::Error thrown(const PersistentGemm::Config &config) {
  try {
    PersistentGemm::create(config);
  } catch (const PersistentGemm::Error &error) {
    return error;
  }
  CHECK(false && "it throws");
  std::abort();
}

bool says(const PersistentGemm::Error &error, const char *words) { return std::strstr(error.what(), words) != nullptr; }

PersistentGemm::Config fp32() {
  PersistentGemm::Config config;
  config.dtypeA = PersistentGemm::FP32;
  return config;
}

void errors() {
  const auto absent = thrown(fp32());
  CHECK(absent.status() == PGEMM_ERROR_NO_DEVICE);
  CHECK(says(absent, "no CUDA driver") || says(absent, "sees no GPU"));
  CHECK(std::strcmp(absent.what(), pgemm_last_error()) == 0);

  CHECK(says(thrown({}), "dtype_a is not given"));
  auto config = fp32();
  config.dtypeB = PersistentGemm::BF16;
  CHECK(thrown(config).status() == PGEMM_ERROR_NOT_SUPPORTED);
  config = fp32();
  config.persistent = false;
  CHECK(says(thrown(config), "all kernels are persistent"));
  config = fp32();
  config.swapped = true;
  CHECK(thrown(config).status() == PGEMM_ERROR_NOT_SUPPORTED);
  config = fp32();
  config.split = "in two";
  CHECK(says(thrown(config), "'in two' is no split"));
  config = fp32();
  config.epilogue = "bias_n|swish";
  CHECK(says(thrown(config), "'swish'"));
  config.epilogue = "clamp(6,0)";
  CHECK(thrown(config).status() == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(says(thrown(config), "lower = 6 and upper = 0"));
}

void errors_belong_to_their_thread() {
  CHECK(pgemm_sync(nullptr) == PGEMM_ERROR_INVALID_ARGUMENT);
  std::thread([] {
    CHECK(std::strcmp(pgemm_last_error(), "") == 0);
    CHECK(pgemm_destroy(nullptr) == PGEMM_ERROR_INVALID_ARGUMENT);
  }).join();
  CHECK(SAYS("gemm is null"));
}

void plans() {
  auto config = fp32();
  const PersistentGemm::Problem problem(4096, 4096, 4096);
  CHECK(PersistentGemm::describe(config, problem).rfind("f32-kn-f32-", 0) == 0);
  config.precision = PersistentGemm::Precision::Tf32x3;
  CHECK(PersistentGemm::describe(config, problem).rfind("tf32x3-", 0) == 0);
  config.kernel = "f32-kn-f32-128x256x16-s8-t8x16-w2x4";
  config.precision = PersistentGemm::Precision::Full;
  config.split = "split-2";
  const auto text = PersistentGemm::describe(config, problem);
  CHECK(text.rfind(config.kernel + ": ", 0) == 0);
  CHECK(text.find("split along k") != std::string::npos);
  config.epilogue = "bias_n|gelu";
  CHECK(PersistentGemm::describe(config, problem).rfind(config.kernel + "-ebias_n.gelu: ", 0) == 0);
  // One kernel, whatever the bounds are.
  for (const char *clamp : {"bias_n|clamp(0,6)", "bias_n|clamp(-inf,0.5)"}) {
    config.epilogue = clamp;
    CHECK(PersistentGemm::describe(config, problem).rfind(config.kernel + "-ebias_n.clamp: ", 0) == 0);
  }
  config.epilogue.clear();
  auto transposed = problem;
  transposed.layoutC = PersistentGemm::Layout::ColumnMajor;
  transposed.lda = 5;
  try {
    PersistentGemm::describe(fp32(), transposed);
    CHECK(false && "it throws");
  } catch (const std::runtime_error &error) {
    CHECK(std::strstr(error.what(), "leading dimension of") != nullptr);
  }
}

// A warm-up in each form, on a machine that makes no GEMM.
void warm_ups() {
  const auto use = [](PersistentGemm &gemm) {
    const auto warm = gemm.warmUp({{8, 8, 8}, {16, 8, 8}});
    const auto again = gemm.warmUp({}, [](std::size_t done, std::size_t all) { CHECK(done <= all); });
    return warm.problems == 2 && warm.assembled <= warm.kernels && again.problems == 0;
  };
  try {
    CHECK(use(*PersistentGemm::create(fp32())));
    CHECK(false && "it throws");
  } catch (const PersistentGemm::Error &error) {
    CHECK(error.status() == PGEMM_ERROR_NO_DEVICE);
  }
}

// path is that of a pack with one kernel, or null.
void packs(const char *path) {
  try {
    PersistentGemm::loadPack("none.pgemm");
    CHECK(false && "it throws");
  } catch (const PersistentGemm::Error &error) {
    CHECK(error.status() == PGEMM_ERROR_FILE && says(error, "none.pgemm"));
  }
  if (path != nullptr) {
    const auto pack = PersistentGemm::loadPack(path);
    CHECK(pack.kernels == 1 && pack.problems == 0);
  }
}

// When kernels are compiled, on a machine that makes no GEMM.
void compilation() {
  try {
    auto gemm = PersistentGemm::create(fp32());
    gemm->setCompile(PersistentGemm::Compile::Behind);
    gemm->setCompile(PersistentGemm::Compile::Now);
    CHECK(false && "it throws");
  } catch (const PersistentGemm::Error &error) {
    CHECK(error.status() == PGEMM_ERROR_NO_DEVICE);
  }
}

// Every member of an engine, on a machine that makes none.
void engines() {
  using Engine = PersistentGemm::Engine;
  const auto use = [](const PersistentGemm &gemm, const PersistentGemm::Problem &problem, void *memory) {
    PersistentGemm::EngineOptions options;
    options.goal = PersistentGemm::Goal::Latency;
    options.idle = std::chrono::milliseconds(2);
    Engine engine(gemm, problem, options);
    engine = Engine(gemm, {8, 8, 8});
    auto job = engine.prepare(problem, memory, memory, memory, memory);
    job = engine.prepare(problem, memory, memory, memory);
    const Engine::Ticket first = engine.submit(job), second = engine.submit(job, first);
    const auto third = engine.submit(job, first, second);
    for (const auto ticket : engine.submit({&job, &job})) {
      engine.wait(ticket);
    }
    engine.wait(engine.submitOn(nullptr, job));
    CHECK(engine.waitFor(third, std::chrono::seconds(1)) && engine.isDone(first));
    engine.onDone(third, [](const PersistentGemm::Error *error) { CHECK(error == nullptr); });
    engine.drain();
    engine.stop();
    engine.abort();
    return engine.handle() != nullptr && job.handle() != nullptr;
  };
  try {
    CHECK(use(*PersistentGemm::create(fp32()), {8, 8, 8}, nullptr));
    CHECK(false && "it throws");
  } catch (const PersistentGemm::Error &error) {
    CHECK(error.status() == PGEMM_ERROR_NO_DEVICE);
  }
}

static_assert(!std::is_copy_constructible_v<PersistentGemm>);
static_assert(!std::is_copy_constructible_v<PersistentGemm::Engine>);
static_assert(std::is_nothrow_move_constructible_v<PersistentGemm::Engine>);
static_assert(std::is_nothrow_move_assignable_v<PersistentGemm::Engine::Job>);
static_assert(std::is_same_v<decltype(PersistentGemm::create({})), std::unique_ptr<PersistentGemm>>);

} // namespace

int main(int count, char **arguments) {
  errors();
  errors_belong_to_their_thread();
  plans();
  warm_ups();
  packs(count > 1 ? arguments[1] : nullptr);
  compilation();
  engines();
  std::puts("c++: all as it should be");
}
