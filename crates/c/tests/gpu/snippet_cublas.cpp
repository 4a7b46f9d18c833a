// The usage that docs/c.md shows, word for word, on a Hopper GPU, beside cuBLAS. It is for trying
// what was installed: cuBLAS is opened at run time, so that any compiler makes it where there is no
// CUDA toolkit. Ends with status 77 where there is no Hopper GPU.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <persistent_gemm.h>

#include "cuda_driver.h"

namespace {

void multiply(const void *A_device, const void *B_device, void *C_device, int M, int N, int K, void *stream) {
  PersistentGemm::Config cfg;
  cfg.dtypeA = PersistentGemm::FP32;
  cfg.dtypeB = PersistentGemm::FP32;
  cfg.tileM = 256;
  cfg.tileN = 256;
  cfg.tileK = 32;
  cfg.persistent = true;
  auto gemm = PersistentGemm::create(cfg);
  gemm->run(A_device, B_device, C_device, M, N, K, stream); // A: MxK, B: KxN, C: MxN, row-major; returns at once
  gemm->sync();                                             // until all queued work is done
}

// What cublas_v2.h has of what is called here, and its numbers.
struct Cublas {
  int (*create)(void **handle) = nullptr;
  int (*destroy)(void *handle) = nullptr;
  int (*gemm)(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *A, int type_a,
              int lda, const void *B, int type_b, int ldb, const void *beta, void *C, int type_c, int ldc, int compute,
              int algorithm) = nullptr;
};
constexpr int NOT_TRANSPOSED = 0, FLOAT32 = 0, FLOAT32_PEDANTIC = 69, ANY_ALGORITHM = -1;

// Whether there is one, in LD_LIBRARY_PATH or where the system looks.
bool open_cublas(Cublas &cublas) {
  void *library = nullptr;
  for (const char *name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
    library = library != nullptr ? library : dlopen(name, RTLD_NOW);
  }
  if (library == nullptr) {
    return false;
  }
  cuda_symbol(library, "cublasCreate_v2", &cublas.create, sizeof cublas.create);
  cuda_symbol(library, "cublasDestroy_v2", &cublas.destroy, sizeof cublas.destroy);
  cuda_symbol(library, "cublasGemmEx", &cublas.gemm, sizeof cublas.gemm);
  return true;
}

void check(int status, const char *call) {
  if (status != 0) {
    std::fprintf(stderr, "%s failed: status %d\n", call, status);
    std::exit(1);
  }
}

// The root mean square of the differences over that of cuBLAS's values. What is no number makes it
// none.
double difference(const std::vector<float> &ours, const std::vector<float> &theirs) {
  double errors = 0.0, values = 0.0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double error = static_cast<double>(ours[i]) - theirs[i];
    errors += error * error;
    values += static_cast<double>(theirs[i]) * theirs[i];
  }
  return std::sqrt(errors / values);
}

bool compare(const cuda_driver &cuda, const Cublas &cublas, int M, int N, int K) {
  const auto elements = [](int rows, int columns) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
  };
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  const auto upload = [&](std::size_t count) {
    std::vector<float> values(count);
    for (float &value : values) {
      value = normal(generator);
    }
    void *memory = cuda_allocate(&cuda, count * sizeof(float));
    cuda_to_device(&cuda, memory, values.data(), count * sizeof(float));
    return memory;
  };
  const auto download = [&](const void *memory) {
    std::vector<float> values(elements(M, N));
    cuda_to_host(&cuda, values.data(), memory, values.size() * sizeof(float));
    return values;
  };
  void *A = upload(elements(M, K)), *B = upload(elements(K, N)), *C = upload(elements(M, N)),
       *peer_C = upload(elements(M, N));
  void *stream = nullptr;
  cuda_check(cuda.stream_create(&stream, 0), "cuStreamCreate");
  multiply(A, B, C, M, N, K, stream);

  // Row-major matrices are transposed ones to cuBLAS: of C = A*B it computes the transpose from B
  // and A in each other's place.
  void *handle = nullptr;
  const float one = 1.0F, zero = 0.0F;
  check(cublas.create(&handle), "cublasCreate");
  check(cublas.gemm(handle, NOT_TRANSPOSED, NOT_TRANSPOSED, N, M, K, &one, B, FLOAT32, N, A, FLOAT32, K, &zero, peer_C,
                    FLOAT32, N, FLOAT32_PEDANTIC, ANY_ALGORITHM),
        "cublasGemmEx");
  const double apart = difference(download(C), download(peer_C));
  check(cublas.destroy(handle), "cublasDestroy");
  cuda_check(cuda.stream_destroy(stream), "cuStreamDestroy");
  for (void *memory : {A, B, C, peer_C}) {
    cuda_release(&cuda, memory);
  }
  const double tolerance = 3e-6;
  std::printf("%s  %dx%dx%d in FP32: %.2e from cuBLAS (at most %.0e)\n", apart <= tolerance ? "ok    " : "FAILED", M, N,
              K, apart, tolerance);
  return apart <= tolerance;
}

} // namespace

int main() try {
  cuda_driver cuda;
  Cublas cublas;
  if (!cuda_open(&cuda)) {
    // Says why, by throwing.
    multiply(nullptr, nullptr, nullptr, 1, 1, 1, nullptr);
    return 1;
  }
  if (!open_cublas(cublas)) {
    std::fprintf(stderr, "there is no cuBLAS: put the CUDA toolkit's lib64 into LD_LIBRARY_PATH\n");
    return 1;
  }
  bool holds = true;
  for (const auto &[M, N, K] : {std::array{1024, 1024, 1024}, {1000, 600, 500}, {37, 4096, 2049}}) {
    holds &= compare(cuda, cublas, M, N, K);
  }
  return holds ? 0 : 1;
} catch (const PersistentGemm::Error &error) {
  std::fprintf(stderr, "persistent_gemm: %s\n", error.what());
  return error.status() == PGEMM_ERROR_NO_DEVICE ? 77 : 1;
}
