// Computes C = A*B in FP32 on the GPU and verifies every element on the CPU.
// The exit status is 77 if the machine has no Hopper GPU.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "cuda_driver.h"
#include "persistent_gemm.h"

namespace {

constexpr int M = 1000, N = 600, K = 500;

std::vector<float> random_matrix(std::size_t elements, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> matrix(elements);
  std::generate(matrix.begin(), matrix.end(), [&] { return normal(generator); });
  return matrix;
}

// Returns the largest error as a fraction of its bound. The bound of an element is K roundings of
// binary32 (2^-24 each), relative to the sum of the magnitudes of its products. The result is NaN
// if any element is NaN.
double largest_error(const std::vector<float> &A, const std::vector<float> &B, const std::vector<float> &C) {
  double largest = 0.0;
  for (std::size_t row = 0; row < M; ++row) {
    std::vector<double> sums(N), magnitudes(N);
    for (std::size_t k = 0; k < K; ++k) {
      for (std::size_t column = 0; column < N; ++column) {
        const double product = static_cast<double>(A[row * K + k]) * B[k * N + column];
        sums[column] += product;
        magnitudes[column] += std::fabs(product);
      }
    }
    for (std::size_t column = 0; column < N; ++column) {
      const double error = std::fabs(C[row * N + column] - sums[column]);
      const double ratio = error / (K * std::ldexp(1.0, -24) * magnitudes[column]);
      if (std::isnan(ratio)) {
        return ratio;
      }
      largest = std::max(largest, ratio);
    }
  }
  return largest;
}

int multiply(const cuda_driver &cuda) {
  const auto A = random_matrix(static_cast<std::size_t>(M) * K, 1);
  const auto B = random_matrix(static_cast<std::size_t>(K) * N, 2);
  std::vector<float> C(static_cast<std::size_t>(M) * N);
  const auto upload = [&](const std::vector<float> &matrix) {
    void *memory = cuda_allocate(&cuda, matrix.size() * sizeof(float));
    cuda_to_device(&cuda, memory, matrix.data(), matrix.size() * sizeof(float));
    return memory;
  };
  void *A_device = upload(A), *B_device = upload(B), *C_device = upload(C);
  void *stream = nullptr;
  cuda_check(cuda.stream_create(&stream, 1), "cuStreamCreate");

  PersistentGemm::Config cfg;
  cfg.dtypeA = PersistentGemm::FP32;
  cfg.dtypeB = PersistentGemm::FP32;
  cfg.tileM = 256;
  cfg.tileN = 256;
  cfg.tileK = 32;
  cfg.persistent = true;
  auto gemm = PersistentGemm::create(cfg);
  std::printf("plan: %s\n", gemm->describe({M, N, K}).c_str());
  gemm->run(A_device, B_device, C_device, M, N, K, stream);
  gemm->sync();

  cuda_to_host(&cuda, C.data(), C_device, C.size() * sizeof(float));
  gemm.reset();
  cuda_check(cuda.stream_destroy(stream), "cuStreamDestroy");
  for (void *memory : {A_device, B_device, C_device}) {
    cuda_release(&cuda, memory);
  }
  const double ratio = largest_error(A, B, C);
  std::printf("%dx%dx%d in FP32: the largest error is %.3f times its bound\n", M, N, K, ratio);
  return ratio <= 1.0 ? 0 : 1;
}

} // namespace

int main() try {
  cuda_driver cuda;
  if (!cuda_open(&cuda)) {
    // There is no CUDA driver or no device: create throws an error that names the cause.
    PersistentGemm::Config cfg;
    cfg.dtypeA = PersistentGemm::FP32;
    PersistentGemm::create(cfg);
    return 1;
  }
  return multiply(cuda);
} catch (const PersistentGemm::Error &error) {
  std::fprintf(stderr, "persistent_gemm: %s\n", error.what());
  return error.status() == PGEMM_ERROR_NO_DEVICE ? 77 : 1;
}
