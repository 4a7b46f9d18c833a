// Computes many small GEMMs with the resident engine, whose kernel stays on the device and
// receives jobs without kernel launches. The CPU verifies every element.
// The exit status is 77 if the machine has no Hopper GPU.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <future>
#include <vector>

#include "cuda_driver.h"
#include "persistent_gemm.h"

namespace {

constexpr int N = 256, LAYERS = 16, ROUNDS = 200;

// Returns an N x N matrix of BF16 integers from -2 to 2. Sums of their products are exact in FP32,
// the type of D.
std::vector<std::uint16_t> integer_matrix(unsigned seed) {
  static constexpr std::uint16_t VALUES[] = {0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000};
  std::vector<std::uint16_t> matrix(static_cast<std::size_t>(N) * N);
  for (auto &value : matrix) {
    seed = seed * 1664525u + 1013904223u;
    value = VALUES[(seed >> 16) % 5];
  }
  return matrix;
}

int value_of(std::uint16_t bits) {
  const int magnitude = (bits & 0x7fff) == 0 ? 0 : (bits & 0x7fff) == 0x3f80 ? 1 : 2;
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

std::size_t wrong_elements(const std::vector<std::uint16_t> &A, const std::vector<std::uint16_t> &B,
                           const std::vector<float> &D) {
  std::size_t wrong = 0;
  for (std::size_t row = 0; row < N; ++row) {
    for (std::size_t column = 0; column < N; ++column) {
      int sum = 0;
      for (std::size_t k = 0; k < N; ++k) {
        sum += value_of(A[row * N + k]) * value_of(B[column * N + k]);
      }
      wrong += D[row * N + column] != static_cast<float>(sum);
    }
  }
  return wrong;
}

// One product: A (row-major) and B (column-major) on the host, and A, B and D on the device.
struct Layer {
  std::vector<std::uint16_t> A, B;
  void *A_device, *B_device, *D_device;
};

Layer make_layer(const cuda_driver &cuda, unsigned seed) {
  Layer layer{integer_matrix(2 * seed + 1), integer_matrix(2 * seed + 2), nullptr, nullptr, nullptr};
  const std::size_t elements = layer.A.size();
  layer.A_device = cuda_allocate(&cuda, elements * sizeof(std::uint16_t));
  layer.B_device = cuda_allocate(&cuda, elements * sizeof(std::uint16_t));
  layer.D_device = cuda_allocate(&cuda, elements * sizeof(float));
  cuda_to_device(&cuda, layer.A_device, layer.A.data(), elements * sizeof(std::uint16_t));
  cuda_to_device(&cuda, layer.B_device, layer.B.data(), elements * sizeof(std::uint16_t));
  return layer;
}

double microseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

void submit_all(const std::vector<Layer> &layers) {
  PersistentGemm::Config cfg;
  cfg.dtypeA = PersistentGemm::BF16;
  cfg.dtypeC = PersistentGemm::FP32;
  auto gemm = PersistentGemm::create(cfg);
  PersistentGemm::Problem problem(N, N, N);
  problem.layoutB = PersistentGemm::Layout::ColumnMajor;
  PersistentGemm::EngineOptions options;
  options.goal = PersistentGemm::Goal::Latency;
  PersistentGemm::Engine engine(*gemm, problem, options);

  std::vector<PersistentGemm::Engine::Job> jobs;
  std::vector<const PersistentGemm::Engine::Job *> all;
  for (const Layer &layer : layers) {
    jobs.push_back(engine.prepare(problem, layer.A_device, layer.B_device, layer.D_device));
  }
  for (const auto &job : jobs) {
    all.push_back(&job);
  }
  // The first job launches the kernel, so it is excluded from the measurement.
  engine.wait(engine.submit(jobs[0]));

  auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < ROUNDS; ++round) {
    engine.wait(engine.submit(jobs[static_cast<std::size_t>(round) % LAYERS]));
  }
  std::printf("latency: %.2f us per job, each job awaited before the next\n", microseconds_since(begin) / ROUNDS);

  begin = std::chrono::steady_clock::now();
  for (int round = 0; round < ROUNDS; ++round) {
    engine.submit(all);
  }
  engine.drain();
  std::printf("throughput: %.2f us per job, all jobs submitted at once\n",
              microseconds_since(begin) / (ROUNDS * LAYERS));

  // The second job starts when the first job is complete.
  const auto first = engine.submit(jobs[0]);
  const auto second = engine.submit(jobs[1], first);
  while (!engine.waitFor(second, std::chrono::milliseconds(100))) {
  }
  // A thread of the engine calls this function when the third job is complete.
  std::promise<void> done;
  engine.onDone(engine.submit(jobs[2], second), [&done](const PersistentGemm::Error *error) {
    if (error == nullptr) {
      done.set_value();
    } else {
      done.set_exception(std::make_exception_ptr(*error));
    }
  });
  done.get_future().get();
  engine.stop();
}

int multiply(const cuda_driver &cuda) {
  std::vector<Layer> layers;
  for (unsigned seed = 0; seed < LAYERS; ++seed) {
    layers.push_back(make_layer(cuda, seed));
  }
  submit_all(layers);
  std::size_t wrong = 0;
  for (const Layer &layer : layers) {
    std::vector<float> D(layer.A.size());
    cuda_to_host(&cuda, D.data(), layer.D_device, D.size() * sizeof(float));
    wrong += wrong_elements(layer.A, layer.B, D);
    for (void *memory : {layer.A_device, layer.B_device, layer.D_device}) {
      cuda_release(&cuda, memory);
    }
  }
  std::printf("%d products of %dx%dx%d in BF16: %zu elements are wrong\n", LAYERS, N, N, N, wrong);
  return wrong == 0 ? 0 : 1;
}

} // namespace

int main() try {
  cuda_driver cuda;
  if (!cuda_open(&cuda)) {
    // There is no CUDA driver or no device: create throws an error that names the cause.
    PersistentGemm::Config cfg;
    cfg.dtypeA = PersistentGemm::BF16;
    PersistentGemm::create(cfg);
    return 1;
  }
  return multiply(cuda);
} catch (const PersistentGemm::Error &error) {
  std::fprintf(stderr, "persistent_gemm: %s\n", error.what());
  return error.status() == PGEMM_ERROR_NO_DEVICE ? 77 : 1;
}
