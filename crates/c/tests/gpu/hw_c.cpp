// The C and C++ library on a Hopper GPU, beside cuBLAS: scripts/gpu-bundle.sh takes this to a
// machine with a CUDA toolkit, where run.sh compiles it with g++. Every check prints a line; the
// exit status is 0 where all hold.

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "persistent_gemm.h"

namespace {

int failures = 0;

void report(bool holds, const std::string &what) {
  std::printf("%s  %s\n", holds ? "ok    " : "FAILED", what.c_str());
  failures += holds ? 0 : 1;
}

void cuda(cudaError_t result, const char *call) {
  if (result != cudaSuccess) {
    std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(result));
    std::exit(1);
  }
}
#define CUDA(call) cuda((call), #call)

void cublas(cublasStatus_t result, const char *call) {
  if (result != CUBLAS_STATUS_SUCCESS) {
    std::fprintf(stderr, "%s: status %d\n", call, static_cast<int>(result));
    std::exit(1);
  }
}
#define CUBLAS(call) cublas((call), #call)

// ---- elements ----

// A float's bits in fewer: rounded to nearest even, which is exact for the small integers here. No
// subnormal number is made.
std::uint32_t narrowed(float value, unsigned exponent_bits, unsigned fraction_bits) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint32_t sign = bits >> 31;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const unsigned dropped = 23 - fraction_bits;
  const std::uint32_t rounded = (bits & 0x7fffffffU) + (1U << (dropped - 1)) - 1 + (bits >> dropped & 1);
  const int exponent = static_cast<int>(rounded >> 23) - 127 + bias;
  std::uint32_t magnitude = 0;
  if (exponent > 0) {
    magnitude =
        static_cast<std::uint32_t>(exponent) << fraction_bits | (rounded >> dropped & ((1U << fraction_bits) - 1));
  }
  return sign << (exponent_bits + fraction_bits) | magnitude;
}

float widened(std::uint32_t bits, unsigned exponent_bits, unsigned fraction_bits) {
  const std::uint32_t sign = bits >> (exponent_bits + fraction_bits) & 1;
  const std::uint32_t exponent = bits >> fraction_bits & ((1U << exponent_bits) - 1);
  const std::uint32_t fraction = bits & ((1U << fraction_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double mantissa = std::ldexp(static_cast<double>(fraction), -static_cast<int>(fraction_bits));
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, 1 - bias) : std::ldexp(1.0 + mantissa, static_cast<int>(exponent) - bias);
  return static_cast<float>(sign != 0 ? -magnitude : magnitude);
}

// A type: how elements of it are made and read. No exponent for integers, 32 bits and more as they
// are.
struct Type {
  const char *name;
  PersistentGemm::Dtype dtype;
  unsigned bytes, exponent, fraction;

  void write(unsigned char *to, double value) const {
    const float single = static_cast<float>(value);
    const auto integer = static_cast<std::int32_t>(value);
    std::uint32_t bits = 0;
    if (bytes == 8) {
      std::memcpy(to, &value, 8);
      return;
    }
    if (exponent == 0) {
      std::memcpy(&bits, &integer, sizeof bits);
    } else if (bytes == 4) {
      std::memcpy(&bits, &single, sizeof bits);
    } else {
      bits = narrowed(single, exponent, fraction);
    }
    std::memcpy(to, &bits, bytes);
  }

  double read(const unsigned char *from) const {
    double value = 0.0;
    std::uint32_t bits = 0;
    if (bytes == 8) {
      std::memcpy(&value, from, 8);
      return value;
    }
    std::memcpy(&bits, from, bytes);
    if (exponent == 0) {
      return bytes == 1 ? static_cast<std::int8_t>(bits) : static_cast<std::int32_t>(bits);
    }
    if (bytes == 4) {
      float single = 0.0F;
      std::memcpy(&single, &bits, sizeof single);
      return single;
    }
    return widened(bits, exponent, fraction);
  }
};

const Type FP64{"fp64", PersistentGemm::FP64, 8, 11, 52}, FP32{"fp32", PersistentGemm::FP32, 4, 8, 23},
    TF32{"tf32", PersistentGemm::TF32, 4, 8, 23}, FP16{"fp16", PersistentGemm::FP16, 2, 5, 10},
    BF16{"bf16", PersistentGemm::BF16, 2, 8, 7}, E4M3{"e4m3", PersistentGemm::E4M3, 1, 4, 3},
    S8{"s8", PersistentGemm::S8, 1, 0, 8}, S32{"s32", PersistentGemm::S32, 4, 0, 32};

enum class Fill { Integers, Normal };

// Elements on the device, which are also known as doubles.
struct Matrix {
  const Type &type;
  std::vector<double> values;
  void *device = nullptr;

  Matrix(const Type &of, std::size_t elements, Fill fill, unsigned seed) : type(of), values(elements) {
    std::mt19937 generator(seed);
    std::uniform_int_distribution<int> integer(-3, 3);
    std::normal_distribution<double> normal;
    std::vector<unsigned char> bytes(elements * type.bytes);
    for (std::size_t i = 0; i < elements; ++i) {
      type.write(&bytes[i * type.bytes], fill == Fill::Integers ? integer(generator) : normal(generator));
      values[i] = type.read(&bytes[i * type.bytes]);
    }
    CUDA(cudaMalloc(&device, bytes.size()));
    CUDA(cudaMemcpy(device, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  }
  // Full of a NaN pattern.
  Matrix(const Type &of, std::size_t elements) : type(of), values(elements) {
    CUDA(cudaMalloc(&device, elements * type.bytes));
    poison();
  }
  // The same values in another type that holds them.
  Matrix(const Type &of, const Matrix &other) : type(of), values(other.values) {
    std::vector<unsigned char> bytes(values.size() * type.bytes);
    for (std::size_t i = 0; i < values.size(); ++i) {
      type.write(&bytes[i * type.bytes], values[i]);
    }
    CUDA(cudaMalloc(&device, bytes.size()));
    CUDA(cudaMemcpy(device, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  }
  Matrix(const Matrix &) = delete;
  ~Matrix() { cudaFree(device); }

  void poison() { CUDA(cudaMemset(device, 0xff, values.size() * type.bytes)); }

  const std::vector<double> &download() {
    std::vector<unsigned char> bytes(values.size() * type.bytes);
    CUDA(cudaMemcpy(bytes.data(), device, bytes.size(), cudaMemcpyDeviceToHost));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = type.read(&bytes[i * type.bytes]);
    }
    return values;
  }
};

// The root mean square of the differences over that of the values; NaN where there is one.
double difference(const std::vector<double> &ours, const std::vector<double> &theirs) {
  double errors = 0.0, values = 0.0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    errors += (ours[i] - theirs[i]) * (ours[i] - theirs[i]);
    values += theirs[i] * theirs[i];
  }
  return std::sqrt(errors / values);
}

// ---- the README's usage, type by type ----

struct Case {
  const Type &operands, &result;
  // What cuBLAS multiplies the same values in.
  const Type &peer;
  cudaDataType_t peer_type, peer_result;
  cublasComputeType_t compute;
  // Of normal samples; 0 where only integers are compared.
  double tolerance;
};

const Case CASES[] = {
    {FP32, FP32, FP32, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC, 3e-6},
    {TF32, FP32, TF32, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 2e-3},
    {BF16, BF16, BF16, CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 6e-3},
    {FP16, FP16, FP16, CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, 8e-4},
    {FP64, FP64, FP64, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, 1e-14},
    {E4M3, BF16, BF16, CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 8e-3},
    {S8, S32, BF16, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 0.0},
};

// Row-major C = A*B by cuBLAS, for which row-major matrices are transposed ones.
void multiply_by_cublas(cublasHandle_t handle, const Case &of, const Matrix &A, const Matrix &B, Matrix &C, int M,
                        int N, int K) {
  const float one = 1.0F, zero = 0.0F;
  const double one64 = 1.0, zero64 = 0.0;
  const bool wide = of.compute == CUBLAS_COMPUTE_64F;
  const void *alpha = wide ? static_cast<const void *>(&one64) : &one,
             *beta = wide ? static_cast<const void *>(&zero64) : &zero;
  CUBLAS(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, M, K, alpha, B.device, of.peer_type, N, A.device,
                      of.peer_type, K, beta, C.device, of.peer_result, N, of.compute, CUBLAS_GEMM_DEFAULT));
  CUDA(cudaDeviceSynchronize());
}

void snippet(cublasHandle_t handle, cudaStream_t stream, const Case &of, int M, int N, int K, Fill fill) {
  const auto count = [](int rows, int columns) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
  };
  Matrix A(of.operands, count(M, K), fill, 1), B(of.operands, count(K, N), fill, 2), C(of.result, count(M, N));
  void *A_device = A.device, *B_device = B.device, *C_device = C.device;

  PersistentGemm::Config cfg;
  cfg.dtypeA = of.operands.dtype;
  cfg.dtypeB = of.operands.dtype;
  // A stage of 8-bit types is 64 deep at least, one of binary64 is 16 deep.
  cfg.tileM = 256;
  cfg.tileN = 256;
  cfg.tileK = of.operands.bytes == 1 ? 64 : of.operands.bytes == 8 ? 16 : 32;
  cfg.persistent = true;
  auto gemm = PersistentGemm::create(cfg);
  gemm->run(A_device, B_device, C_device, M, N, K, stream);
  gemm->sync();
  const bool done = cudaStreamQuery(stream) == cudaSuccess;

  const Type &peer_result = of.peer_result == CUDA_R_32F ? FP32 : of.peer;
  Matrix peer_A(of.peer, A), peer_B(of.peer, B), peer_C(peer_result, count(M, N));
  multiply_by_cublas(handle, of, peer_A, peer_B, peer_C, M, N, K);
  const double apart = difference(C.download(), peer_C.download());
  const double tolerance = fill == Fill::Integers ? 0.0 : of.tolerance;
  char line[160];
  std::snprintf(line, sizeof line, "snippet %s -> %s %dx%dx%d, %s: %.2e from cuBLAS (at most %.0e)", of.operands.name,
                of.result.name, M, N, K, fill == Fill::Integers ? "integers" : "normal", apart, tolerance);
  report(apart <= tolerance && done, line);
}

// ---- layouts, leading dimensions, scalars and batches ----

void problems(cublasHandle_t handle, const Type &type, cudaDataType_t cuda_type, int bits) {
  using Layout = PersistentGemm::Layout;
  const int M = 192, N = 136, K = 200, batch = 3;
  const auto layout = [&](int bit) { return (bits >> bit & 1) != 0 ? Layout::ColumnMajor : Layout::RowMajor; };
  PersistentGemm::Problem problem(M, N, K);
  problem.layoutA = layout(0);
  problem.layoutB = layout(1);
  problem.layoutC = layout(2);
  const auto lines = [](Layout of, int rows, int columns) { return of == Layout::RowMajor ? rows : columns; };
  problem.lda = lines(problem.layoutA, K, M) + 8;
  problem.ldb = lines(problem.layoutB, N, K) + 16;
  problem.ldc = problem.ldd = lines(problem.layoutC, N, M) + 24;
  problem.alpha = 2.0;
  problem.beta = -1.0;
  problem.batch = batch;
  const std::int64_t a_step = problem.lda * lines(problem.layoutA, M, K),
                     b_step = problem.ldb * lines(problem.layoutB, K, N);
  const std::int64_t d_step = problem.ldd * lines(problem.layoutC, M, N);
  const bool shared = (bits & 1) != 0;
  problem.batchStrideA = shared ? PersistentGemm::Same : a_step;

  const auto of_batch = [&](std::int64_t elements) { return static_cast<std::size_t>(elements * batch); };
  Matrix A(type, of_batch(a_step), Fill::Integers, 3), B(type, of_batch(b_step), Fill::Integers, 4);
  Matrix D(FP32, of_batch(d_step), Fill::Integers, 5), peer_D(FP32, D);
  PersistentGemm::Config cfg;
  cfg.dtypeA = type.dtype;
  cfg.dtypeC = PersistentGemm::FP32;
  auto gemm = PersistentGemm::create(cfg);
  gemm->prepare(problem);
  gemm->run(problem, A.device, B.device, D.device, D.device);
  gemm->sync();

  // cuBLAS computes column-major results: of a row-major one the transpose, from B and A in each
  // other's place.
  const float alpha = 2.0F, beta = -1.0F;
  const bool turned = problem.layoutC == Layout::RowMajor;
  const auto op = [&](Layout of) { return (of == Layout::ColumnMajor) != turned ? CUBLAS_OP_N : CUBLAS_OP_T; };
  const auto ld = [](std::int64_t elements) { return static_cast<int>(elements); };
  const std::int64_t a_stride = shared ? 0 : a_step;
  if (turned) {
    CUBLAS(cublasGemmStridedBatchedEx(handle, op(problem.layoutB), op(problem.layoutA), N, M, K, &alpha, B.device,
                                      cuda_type, ld(problem.ldb), b_step, A.device, cuda_type, ld(problem.lda),
                                      a_stride, &beta, peer_D.device, CUDA_R_32F, ld(problem.ldd), d_step, batch,
                                      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  } else {
    CUBLAS(cublasGemmStridedBatchedEx(handle, op(problem.layoutA), op(problem.layoutB), M, N, K, &alpha, A.device,
                                      cuda_type, ld(problem.lda), a_stride, B.device, cuda_type, ld(problem.ldb),
                                      b_step, &beta, peer_D.device, CUDA_R_32F, ld(problem.ldd), d_step, batch,
                                      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }
  CUDA(cudaDeviceSynchronize());
  // Gaps between lines count too: nobody may write there.
  const bool same = D.download() == peer_D.download();
  const auto name = [&](Layout of) { return of == Layout::RowMajor ? "row" : "column"; };
  report(same, std::string("batch of ") + type.name + ", A " + name(problem.layoutA) + (shared ? " (shared)" : "") +
                   ", B " + name(problem.layoutB) + ", C and D " + name(problem.layoutC) +
                   "-major, alpha 2, beta -1: as cuBLAS has it");
}

// ---- epilogues ----

double activated(const std::string &activation, double x) {
  if (activation == "relu")
    return x > 0.0 ? x : 0.0;
  if (activation == "gelu")
    return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  if (activation == "silu")
    return x / (1.0 + std::exp(-x));
  if (activation == "clamp(-0.5,1.25)")
    return std::fmin(std::fmax(x, -0.5), 1.25);
  return x;
}

// Beside three loops on the host. The bias has D's type.
void epilogue(const Type &type, const Type &result, const std::string &bias, const std::string &activation,
              double tolerance) {
  const int M = 200, N = 136, K = 192;
  const auto count = [](int rows, int columns) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
  };
  Matrix A(type, count(M, K), Fill::Normal, 11), B(type, count(K, N), Fill::Normal, 12),
      C(result, count(M, N), Fill::Normal, 13);
  Matrix D(result, count(M, N)), added(result, static_cast<std::size_t>(bias == "bias_m" ? M : N), Fill::Normal, 14);
  PersistentGemm::Config cfg;
  cfg.dtypeA = type.dtype;
  cfg.dtypeC = result.dtype;
  cfg.epilogue = bias.empty() || activation.empty() ? bias + activation : bias + "|" + activation;
  auto gemm = PersistentGemm::create(cfg);
  PersistentGemm::Problem problem(M, N, K);
  problem.alpha = 0.125;
  problem.beta = 0.5;
  problem.bias = added.device;
  gemm->prepare(problem);
  gemm->run(problem, A.device, B.device, C.device, D.device);
  gemm->sync();
  std::vector<double> expected(count(M, N));
  for (int i = 0; i < M; ++i) {
    for (int j = 0; j < N; ++j) {
      double sum = 0.0;
      for (int k = 0; k < K; ++k)
        sum += A.values[count(i, K) + k] * B.values[count(k, N) + j];
      const std::size_t at = count(i, N) + j;
      const double offset = bias.empty() ? 0.0 : added.values[static_cast<std::size_t>(bias == "bias_m" ? i : j)];
      expected[at] = activated(activation, 0.125 * sum + 0.5 * C.values[at] + offset);
    }
  }
  const double apart = difference(D.download(), expected);
  char line[160];
  std::snprintf(line, sizeof line, "epilogue %s, %s -> %s: %.2e from the host (at most %.0e)", cfg.epilogue.c_str(),
                type.name, result.name, apart, tolerance);
  report(apart <= tolerance, line);
  if (!bias.empty()) {
    problem.bias = nullptr;
    bool refused = false;
    try {
      gemm->run(problem, A.device, B.device, C.device, D.device);
    } catch (const PersistentGemm::Error &error) {
      refused = error.status() == PGEMM_ERROR_INVALID_ARGUMENT && std::strstr(error.what(), "the bias") != nullptr;
    }
    report(refused, "epilogue " + cfg.epilogue + " without a bias is refused");
  }
}

void epilogues() {
  for (const char *activation : {"relu", "gelu", "silu", "clamp(-0.5,1.25)", ""}) {
    epilogue(BF16, BF16, "bias_n", activation, 6e-3);
    epilogue(FP16, FP32, "bias_m", activation, 1e-5);
    epilogue(FP32, FP32, "bias_n", activation, 3e-6);
    epilogue(FP64, FP64, "bias_n", activation, 1e-13);
  }
  epilogue(BF16, BF16, "", "silu", 6e-3);
}

// ---- what returns at once and what waits ----

// Some tens of milliseconds of work.
void occupy(cublasHandle_t handle, cudaStream_t stream, Matrix &X, int size) {
  const float one = 1.0F, zero = 0.0F;
  CUBLAS(cublasSetStream(handle, stream));
  for (int i = 0; i < 40; ++i) {
    CUBLAS(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, size, size, size, &one, X.device, CUDA_R_32F, size, X.device,
                        CUDA_R_32F, size, &zero, static_cast<float *>(X.device) + X.values.size() / 2, CUDA_R_32F, size,
                        CUBLAS_COMPUTE_32F_PEDANTIC, CUBLAS_GEMM_DEFAULT));
  }
  CUBLAS(cublasSetStream(handle, nullptr));
}

void waiting(cublasHandle_t handle) {
  const int size = 2048, small = 256;
  const auto elements = static_cast<std::size_t>(size) * size;
  Matrix X(FP32, 2 * elements, Fill::Integers, 6);
  Matrix A(BF16, small * small, Fill::Integers, 7), B(BF16, small * small, Fill::Integers, 8), C(BF16, small * small);
  cudaStream_t ours = nullptr, others = nullptr;
  CUDA(cudaStreamCreateWithFlags(&ours, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&others, cudaStreamNonBlocking));
  PersistentGemm::Config cfg;
  cfg.dtypeA = PersistentGemm::BF16;
  auto gemm = PersistentGemm::create(cfg);
  gemm->prepare({small, small, small});

  occupy(handle, ours, X, size);
  gemm->run(A.device, B.device, C.device, small, small, small, ours);
  report(cudaStreamQuery(ours) == cudaErrorNotReady, "run returns before its work is done");
  gemm->sync();
  report(cudaStreamQuery(ours) == cudaSuccess, "sync waits for the stream that was run on");

  CUDA(cudaDeviceSynchronize());
  occupy(handle, others, X, size);
  gemm->run(A.device, B.device, C.device, small, small, small, ours);
  gemm->sync();
  report(cudaStreamQuery(others) == cudaErrorNotReady, "sync does not wait for other streams");
  CUDA(cudaDeviceSynchronize());

  // The streams of all threads' own have one handle: work that another thread put on its own is
  // waited for.
  std::promise<void> queued, waited;
  std::thread other([&] {
    occupy(handle, cudaStreamPerThread, X, size);
    gemm->run(A.device, B.device, C.device, small, small, small, cudaStreamPerThread);
    queued.set_value();
    // Its end would wait too.
    waited.get_future().wait();
  });
  queued.get_future().wait();
  gemm->sync();
  const auto begun = std::chrono::steady_clock::now();
  CUDA(cudaDeviceSynchronize());
  const double left = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  waited.set_value();
  other.join();
  report(left < 0.002, "sync waits for the per-thread stream of another thread");

  // Nothing is queued: a stream that was waited for may be destroyed.
  CUDA(cudaStreamDestroy(ours));
  gemm->sync();
  report(true, "sync without work, after the stream is gone");
  CUDA(cudaStreamDestroy(others));
}

// ---- graphs ----

void graphs() {
  const int size = 512;
  Matrix A(BF16, size * size, Fill::Integers, 9), B(BF16, size * size, Fill::Integers, 10);
  Matrix C(BF16, size * size), expected(BF16, size * size);
  cudaStream_t stream = nullptr;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  PersistentGemm::Config cfg;
  cfg.dtypeA = PersistentGemm::BF16;
  auto gemm = PersistentGemm::create(cfg);
  pgemm_status unprepared = PGEMM_SUCCESS, waited = PGEMM_SUCCESS;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  unprepared = pgemm_run(gemm->handle(), A.device, B.device, C.device, size, size, size, stream);
  CUDA(cudaStreamEndCapture(stream, &graph));
  CUDA(cudaGraphDestroy(graph));
  gemm->prepare({size, size, size});
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  gemm->run(A.device, B.device, C.device, size, size, size, stream);
  waited = pgemm_sync(gemm->handle());
  CUDA(cudaStreamEndCapture(stream, &graph));
  report(unprepared == PGEMM_ERROR_INVALID_STATE, "a capture refuses what is not prepared");
  report(waited == PGEMM_ERROR_INVALID_STATE, "sync refuses to wait for a capture, which goes on");
  CUDA(cudaGraphInstantiate(&executable, graph, 0));
  CUDA(cudaGraphLaunch(executable, stream));
  CUDA(cudaStreamSynchronize(stream));
  gemm->run(A.device, B.device, expected.device, size, size, size);
  gemm->sync();
  report(C.download() == expected.download(), "a graph replays what was captured");
  CUDA(cudaGraphExecDestroy(executable));
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaStreamDestroy(stream));
}

// ---- warm-ups ----

void warm_ups() {
  const int size = 488;
  Matrix A(BF16, size * size, Fill::Integers, 15), B(BF16, size * size, Fill::Integers, 16);
  Matrix C(BF16, size * size), expected(BF16, size * size);
  PersistentGemm::Config cfg;
  cfg.dtypeA = PersistentGemm::BF16;
  auto gemm = PersistentGemm::create(cfg);
  PersistentGemm::Problem batch(72, 88, 104);
  batch.layoutB = PersistentGemm::Layout::ColumnMajor;
  batch.batch = 3;
  const std::vector<PersistentGemm::Problem> problems{{size, size, size}, batch, {size, size, size}};
  std::vector<std::array<std::size_t, 2>> steps;
  const auto warm = gemm->warmUp(problems, [&](std::size_t done, std::size_t all) { steps.push_back({done, all}); });
  const std::vector<std::array<std::size_t, 2>> told{{0, 2}, {1, 2}, {2, 2}};
  report(warm.problems == 2 && warm.kernels >= 1 && warm.kernels <= 2 && warm.assembled <= warm.kernels &&
             steps == told,
         "a warm-up prepares each problem once and tells its progress");
  const auto again = gemm->warmUp(problems);
  report(again.problems == 0 && again.kernels == 0, "a second warm-up finds everything prepared");

  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  gemm->run(A.device, B.device, C.device, size, size, size, stream);
  CUDA(cudaStreamEndCapture(stream, &graph));
  CUDA(cudaGraphInstantiate(&executable, graph, 0));
  CUDA(cudaGraphLaunch(executable, stream));
  CUDA(cudaStreamSynchronize(stream));
  PersistentGemm::create(cfg)->run(A.device, B.device, expected.device, size, size, size);
  CUDA(cudaDeviceSynchronize());
  report(C.download() == expected.download(), "a capture takes what a warm-up has prepared");
  CUDA(cudaGraphExecDestroy(executable));
  CUDA(cudaGraphDestroy(graph));
  CUDA(cudaStreamDestroy(stream));

  int calls = 0, thrown = 0;
  const std::vector<PersistentGemm::Problem> others{{104, 72, 88}, {104, 72, 96}};
  try {
    gemm->warmUp(others, [&](std::size_t, std::size_t) { throw ++calls; });
  } catch (int call) {
    thrown = call;
  }
  report(thrown == 1 && calls == 1 && gemm->warmUp(others).problems == 0,
         "an exception of the progress leaves the warm-up when all is prepared");
  pgemm_problem wrong[2];
  pgemm_warm_up_result result;
  for (pgemm_problem &problem : wrong) {
    pgemm_problem_init(&problem, sizeof problem);
    problem.m = problem.n = problem.k = 120;
  }
  wrong[1].lda = 7;
  pgemm_warm_up_result_init(&result, sizeof result);
  result.problems = 9;
  report(pgemm_warm_up(gemm->handle(), wrong, 2, nullptr, nullptr, &result) == PGEMM_ERROR_INVALID_ARGUMENT &&
             result.problems == 0 &&
             pgemm_warm_up(gemm->handle(), nullptr, 1, nullptr, nullptr, nullptr) == PGEMM_ERROR_INVALID_ARGUMENT &&
             pgemm_warm_up(gemm->handle(), nullptr, 0, nullptr, nullptr, &result) == PGEMM_SUCCESS,
         "a warm-up refuses problems that are wrong or null");
}

// ---- kernels that are compiled while others compute ----

void compilation() {
  const int M = 184, N = 360, K = 712;
  Matrix A(BF16, M * K, Fill::Normal, 17), B(BF16, K * N, Fill::Normal, 18), C(BF16, M * N), expected(BF16, M * N);
  PersistentGemm::Config cfg;
  cfg.dtypeA = PersistentGemm::BF16;
  auto gemm = PersistentGemm::create(cfg);
  gemm->setCompile(PersistentGemm::Compile::Behind);
  gemm->run(A.device, B.device, C.device, M, N, K);
  // A stand-in makes way for the kernel that it stands in for.
  gemm->setCompile(PersistentGemm::Compile::Now);
  gemm->run(A.device, B.device, expected.device, M, N, K);
  gemm->sync();
  report(C.download() == expected.download(),
         "a kernel that computes while a better one is compiled gives the same bits");
  report(pgemm_set_compile(gemm->handle(), 2) == PGEMM_ERROR_INVALID_ARGUMENT,
         "an unknown time of compilation is refused");
}

// ---- threads, contexts, errors ----

void surroundings() {
  const int size = 384;
  Matrix A(FP32, size * size, Fill::Integers, 11), B(FP32, size * size, Fill::Integers, 12);
  Matrix C(FP32, size * size), expected(FP32, size * size);
  PersistentGemm::Config cfg;
  cfg.dtypeA = PersistentGemm::FP32;
  PersistentGemm::create(cfg)->run(A.device, B.device, expected.device, size, size, size);
  CUDA(cudaDeviceSynchronize());
  // No context is current on a new thread.
  std::thread([&] {
    auto gemm = PersistentGemm::create(cfg);
    gemm->run(A.device, B.device, C.device, size, size, size);
    gemm->sync();
  }).join();
  report(C.download() == expected.download(), "a thread without a context gets device 0");

  auto gemm = PersistentGemm::create(cfg);
  const auto status = [&](const void *a, std::int64_t m) {
    return pgemm_run(gemm->handle(), a, B.device, C.device, m, size, size, nullptr);
  };
  report(status(nullptr, size) == PGEMM_ERROR_INVALID_ARGUMENT &&
             std::strstr(pgemm_last_error(), "must not be null") != nullptr,
         "a null matrix is refused");
  report(status(static_cast<char *>(A.device) + 1, size) == PGEMM_ERROR_INVALID_ARGUMENT,
         "an address between elements is refused");
  report(status(A.device, -1) == PGEMM_ERROR_INVALID_ARGUMENT, "negative extents are refused");
  report(status(nullptr, 0) == PGEMM_SUCCESS, "nothing to compute is nothing to refuse");
  cfg.autotuneFile = "/nowhere/results.json";
  try {
    PersistentGemm::create(cfg);
    report(false, "a results file that is not there is refused");
  } catch (const PersistentGemm::Error &error) {
    report(error.status() == PGEMM_ERROR_FILE, "a results file that is not there is refused");
  }
  cfg.autotuneFile = "off";
  PersistentGemm::create(cfg);
  cfg.autotuneFile.clear();
  cfg.device = 1 << 20;
  try {
    PersistentGemm::create(cfg);
    report(false, "a device that is not there is refused");
  } catch (const PersistentGemm::Error &error) {
    report(error.status() == PGEMM_ERROR_NO_DEVICE, "a device that is not there is refused");
  }
  std::printf("        plan: %s\n", gemm->describe({size, size, size}).c_str());
}

void tuning() {
  PersistentGemm::Config cfg;
  cfg.dtypeA = PersistentGemm::BF16;
  const std::string file = "hw_c_autotune.json";
  std::remove(file.c_str());
  auto gemm = PersistentGemm::create(cfg);
  try {
    gemm->autotune({1024, 1024, 1024}, file, 3, 2.0);
  } catch (const PersistentGemm::Error &error) {
    report(error.status() == PGEMM_ERROR_NOT_SUPPORTED, std::string("no tuner: ") + error.what());
    return;
  }
  cfg.autotuneFile = file;
  const auto plan = PersistentGemm::create(cfg)->describe({1024, 1024, 1024});
  report(plan.find("tuned on") != std::string::npos, "what was tuned is used: " + plan);
  std::remove(file.c_str());
}

// ---- what a call costs ----

// The driver's functions, through the runtime: nothing else is linked.
template <typename Function> Function driver(const char *name) {
  void *function = nullptr;
  CUDA(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, nullptr));
  Function typed = nullptr;
  std::memcpy(&typed, &function, sizeof typed);
  return typed;
}

// Median microseconds of one call, over bursts that the queue holds.
template <typename Call> double microseconds(cudaStream_t stream, Call call) {
  const int burst = 200;
  std::vector<double> costs;
  for (int round = 0; round < 60; ++round) {
    CUDA(cudaStreamSynchronize(stream));
    const auto begun = std::chrono::steady_clock::now();
    for (int i = 0; i < burst; ++i) {
      call();
    }
    costs.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun).count() /
                    burst);
  }
  CUDA(cudaStreamSynchronize(stream));
  std::sort(costs.begin(), costs.end());
  return costs[costs.size() / 2];
}

void cost_of_a_call() {
  const int size = 128;
  Matrix A(BF16, size * size, Fill::Integers, 13), B(BF16, size * size, Fill::Integers, 14), C(BF16, size * size);
  cudaStream_t stream = nullptr;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  PersistentGemm::Config cfg;
  cfg.dtypeA = PersistentGemm::BF16;
  auto gemm = PersistentGemm::create(cfg);
  PersistentGemm::Problem problem(size, size, size);
  gemm->prepare(problem);

  // As many bytes of parameters as the kernel has tensor maps.
  const char *ptx =
      ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry empty(.param .align 64 .b8 maps[640]) { ret; }\n";
  void *module = nullptr, *function = nullptr;
  const int loaded = driver<int (*)(void **, const void *)>("cuModuleLoadData")(&module, ptx);
  const int found = driver<int (*)(void **, void *, const char *)>("cuModuleGetFunction")(&function, module, "empty");
  using Launch =
      int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
  const auto launch = driver<Launch>("cuLaunchKernel");
  alignas(64) static unsigned char maps[640];
  void *parameters[] = {maps};
  report(loaded == 0 && found == 0, "an empty kernel is loaded");

  std::vector<double> empty, run, run_ex;
  for (int round = 0; round < 5; ++round) {
    empty.push_back(
        microseconds(stream, [&] { launch(function, 4, 1, 1, 384, 1, 1, 0, stream, parameters, nullptr); }));
    run.push_back(microseconds(stream, [&] { gemm->run(A.device, B.device, C.device, size, size, size, stream); }));
    run_ex.push_back(microseconds(stream, [&] { gemm->run(problem, A.device, B.device, nullptr, C.device, stream); }));
  }
  for (auto *costs : {&empty, &run, &run_ex}) {
    std::sort(costs->begin(), costs->end());
  }
  char line[160];
  std::snprintf(line, sizeof line,
                "a call costs %.2f us, with a problem %.2f us, an empty launch %.2f us (at most 1 us more)", run[2],
                run_ex[2], empty[2]);
  report(run[2] - empty[2] <= 1.0 && run_ex[2] - empty[2] <= 1.0, line);
  gemm->sync();
  CUDA(cudaStreamDestroy(stream));
}

} // namespace

int main() try {
  std::printf("persistent_gemm %s\n", pgemm_version());
  CUDA(cudaSetDevice(0));
  CUDA(cudaFree(nullptr));
  cublasHandle_t handle = nullptr;
  CUBLAS(cublasCreate(&handle));
  cudaStream_t stream = nullptr;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const Case &of : CASES) {
    for (const auto &[M, N, K] : {std::array<int, 3>{1024, 1024, 1024}, std::array<int, 3>{1000, 520, 264}}) {
      snippet(handle, stream, of, M, N, K, Fill::Integers);
      if (of.tolerance > 0.0) {
        snippet(handle, stream, of, M, N, K, Fill::Normal);
      }
    }
  }
  for (int bits = 0; bits < 8; ++bits) {
    problems(handle, FP32, CUDA_R_32F, bits);
    problems(handle, BF16, CUDA_R_16BF, bits);
  }
  epilogues();
  waiting(handle);
  graphs();
  warm_ups();
  compilation();
  surroundings();
  tuning();
  cost_of_a_call();
  CUDA(cudaStreamDestroy(stream));
  CUBLAS(cublasDestroy(handle));
  std::printf("%d checks failed\n", failures);
  return failures == 0 ? 0 : 1;
} catch (const PersistentGemm::Error &error) {
  std::fprintf(stderr, "persistent_gemm: %s\n", error.what());
  return 1;
}
