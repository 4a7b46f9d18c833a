// Measures one GEMM through the C++ interface. Bursts of runs on one stream are timed by two CUDA
// events; operands are random, and C is row-major. `pgemm bench --against cublaslt` also compares
// with cuBLASLt at steady power and verifies the results.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda_driver.h"
#include "persistent_gemm.h"

namespace {

constexpr const char *USAGE =
    "usage: bench_gemm [--size N | --m M --n N --k K] [--dtype TYPE] [--b-major n|k] [--precision P] [--seconds S]\n"
    "  TYPE: bf16 (default), fp16, tf32, fp32, fp64, e4m3, e5m2, s8, u8\n"
    "  P: full (default), fast, exact, tf32x3, f16x3, bf16x6, bf16x9\n"
    "prints milliseconds and TFLOP/s of the median burst; `pgemm bench --against cublaslt` compares with cuBLASLt\n";

// An operand type: bytes per element, bits of exponent and fraction, and bytes per element of the
// result. Integers have 0 exponent bits.
struct Type {
  const char *name;
  PersistentGemm::Dtype dtype;
  unsigned bytes, exponent, fraction, result_bytes;
};

constexpr std::array<Type, 9> TYPES = {{
    {"bf16", PersistentGemm::BF16, 2, 8, 7, 2},
    {"fp16", PersistentGemm::FP16, 2, 5, 10, 2},
    {"tf32", PersistentGemm::TF32, 4, 8, 23, 4},
    {"fp32", PersistentGemm::FP32, 4, 8, 23, 4},
    {"fp64", PersistentGemm::FP64, 8, 11, 52, 8},
    {"e4m3", PersistentGemm::E4M3, 1, 4, 3, 2},
    {"e5m2", PersistentGemm::E5M2, 1, 5, 2, 2},
    {"s8", PersistentGemm::S8, 1, 0, 8, 4},
    {"u8", PersistentGemm::U8, 1, 0, 8, 4},
}};

constexpr std::array<const char *, 7> PRECISIONS = {"full", "fast", "exact", "tf32x3", "f16x3", "bf16x6", "bf16x9"};

// Prints a usage error and exits with status 2.
[[noreturn]] void usage_error(const std::string &message) {
  std::fprintf(stderr, "bench_gemm: %s\n%s", message.c_str(), USAGE);
  std::exit(2);
}

struct Options {
  std::int64_t m = 4096, n = 4096, k = 4096;
  const Type *type = &TYPES[0];
  PersistentGemm::Precision precision = PersistentGemm::Precision::Full;
  PersistentGemm::Layout layoutB = PersistentGemm::Layout::RowMajor;
  double seconds = 2.0;
};

double positive_number(const std::string &option, const char *text, double largest) {
  char *end = nullptr;
  const double value = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(value > 0.0) || value > largest) {
    usage_error(option + " " + text + " is not valid: give a number above 0 and at most " +
                std::to_string(static_cast<long long>(largest)));
  }
  return value;
}

Options parse(int count, char **arguments) {
  Options options;
  for (int i = 1; i < count; i += 2) {
    const std::string option = arguments[i];
    if (option == "--help" || option == "-h") {
      std::fputs(USAGE, stdout);
      std::exit(0);
    }
    if (i + 1 == count) {
      usage_error(option + " needs a value");
    }
    const char *value = arguments[i + 1];
    const auto extent = [&] { return static_cast<std::int64_t>(positive_number(option, value, 1e9)); };
    if (option == "--size") {
      options.m = options.n = options.k = extent();
    } else if (option == "--m") {
      options.m = extent();
    } else if (option == "--n") {
      options.n = extent();
    } else if (option == "--k") {
      options.k = extent();
    } else if (option == "--seconds") {
      options.seconds = positive_number(option, value, 3600.0);
    } else if (option == "--dtype") {
      const auto named = [&](const Type &type) { return std::strcmp(type.name, value) == 0; };
      options.type = std::find_if(TYPES.begin(), TYPES.end(), named);
      if (options.type == TYPES.end()) {
        usage_error(std::string("unknown type ") + value);
      }
    } else if (option == "--precision") {
      const auto named = [&](const char *name) { return std::strcmp(name, value) == 0; };
      const auto found = std::find_if(PRECISIONS.begin(), PRECISIONS.end(), named);
      if (found == PRECISIONS.end()) {
        usage_error(std::string("unknown precision ") + value);
      }
      options.precision = static_cast<PersistentGemm::Precision>(found - PRECISIONS.begin());
    } else if (option == "--b-major" && (*value == 'n' || *value == 'k') && value[1] == '\0') {
      options.layoutB = *value == 'n' ? PersistentGemm::Layout::RowMajor : PersistentGemm::Layout::ColumnMajor;
    } else {
      usage_error("unknown option " + option + " " + value);
    }
  }
  return options;
}

// Returns random elements: floats with magnitudes in [1/8, 1), or integers of the whole range of
// the type.
std::vector<unsigned char> random_elements(const Type &type, std::size_t elements, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<unsigned char> bytes(elements * type.bytes);
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint64_t random = generator();
    std::uint64_t pattern = random;
    if (type.exponent != 0) {
      const std::uint64_t bias = (std::uint64_t{1} << (type.exponent - 1)) - 1;
      const std::uint64_t sign = random >> 63, exponent = bias - 1 - (random >> 56 & 0x7f) % 3;
      const std::uint64_t fraction = random & ((std::uint64_t{1} << type.fraction) - 1);
      pattern = ((sign << type.exponent | exponent) << type.fraction) | fraction;
    }
    // Host and device are little-endian.
    std::memcpy(&bytes[i * type.bytes], &pattern, type.bytes);
  }
  return bytes;
}

void measure(const cuda_driver &cuda, const Options &options) {
  const Type &type = *options.type;
  PersistentGemm::Config config;
  config.dtypeA = type.dtype;
  config.precision = options.precision;
  PersistentGemm::Problem problem(options.m, options.n, options.k);
  problem.layoutB = options.layoutB;
  const auto gemm = PersistentGemm::create(config);
  gemm->prepare(problem);

  const auto upload = [&](std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
    const auto bytes = random_elements(type, static_cast<std::size_t>(rows * columns), seed);
    void *memory = cuda_allocate(&cuda, bytes.size());
    cuda_to_device(&cuda, memory, bytes.data(), bytes.size());
    return memory;
  };
  void *a = upload(options.m, options.k, 1), *b = upload(options.k, options.n, 2);
  void *d = cuda_allocate(&cuda, static_cast<std::size_t>(options.m * options.n) * type.result_bytes);
  void *stream = nullptr, *begin = nullptr, *end = nullptr;
  cuda_check(cuda.stream_create(&stream, 1), "cuStreamCreate");
  cuda_check(cuda.event_create(&begin, 0), "cuEventCreate");
  cuda_check(cuda.event_create(&end, 0), "cuEventCreate");

  const auto burst = [&](int runs) {
    cuda_check(cuda.event_record(begin, stream), "cuEventRecord");
    for (int i = 0; i < runs; ++i) {
      gemm->run(problem, a, b, nullptr, d, stream);
    }
    cuda_check(cuda.event_record(end, stream), "cuEventRecord");
    cuda_check(cuda.event_synchronize(end), "cuEventSynchronize");
    float milliseconds = 0.0F;
    cuda_check(cuda.event_elapsed_ms(&milliseconds, begin, end), "cuEventElapsedTime");
    return static_cast<double>(milliseconds) / runs;
  };
  burst(3);
  // A burst takes about 50 ms. The first quarter of the time is the warm-up.
  const int runs = std::clamp(static_cast<int>(50.0 / burst(10)), 1, 10000);
  const auto started = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  };
  while (elapsed() < 0.25 * options.seconds) {
    burst(runs);
  }
  std::vector<double> milliseconds;
  do {
    milliseconds.push_back(burst(runs));
  } while (elapsed() < options.seconds);
  std::sort(milliseconds.begin(), milliseconds.end());
  const double median = milliseconds[milliseconds.size() / 2];
  const double operations =
      2.0 * static_cast<double>(options.m) * static_cast<double>(options.n) * static_cast<double>(options.k);
  std::printf("%lldx%lldx%lld %s: %.4f ms, %.1f TFLOP/s (median of %zu bursts of %d runs)\nplan: %s\n",
              static_cast<long long>(options.m), static_cast<long long>(options.n), static_cast<long long>(options.k),
              type.name, median, operations / median * 1e-9, milliseconds.size(), runs,
              gemm->describe(problem).c_str());

  cuda_check(cuda.event_destroy(begin), "cuEventDestroy");
  cuda_check(cuda.event_destroy(end), "cuEventDestroy");
  cuda_check(cuda.stream_destroy(stream), "cuStreamDestroy");
  for (void *memory : {a, b, d}) {
    cuda_release(&cuda, memory);
  }
}

} // namespace

int main(int count, char **arguments) try {
  const Options options = parse(count, arguments);
  cuda_driver cuda;
  if (!cuda_open(&cuda)) {
    // There is no CUDA driver or no device: create throws an error that names the cause.
    PersistentGemm::Config config;
    config.dtypeA = options.type->dtype;
    PersistentGemm::create(config);
    return 1;
  }
  measure(cuda, options);
} catch (const PersistentGemm::Error &error) {
  std::fprintf(stderr, "bench_gemm: %s\n", error.what());
  return error.status() == PGEMM_ERROR_NO_DEVICE ? 77 : 1;
}
