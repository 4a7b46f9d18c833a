// The ceilings of a card, measured apart from `pgemm roofline`: with CUDA C++ and its compiler, plain loads and copies
// instead of tensor maps, and libraries' generators instead of the project's. Prints a line for each: memory (2 GiB
// read with 16-byte loads, and with bulk copies into shared memory), L2 (16 MiB, likewise), and the tensor cores by
// type: two warpgroups on each SM multiply 64x256 each from shared memory that is filled once, in f64 eight warps
// multiply fragments in registers. Operands are N(0,1), or all bytes in s8. Each is warmed up for 0.7 s and then timed
// for 1.3 s, as `pgemm roofline` does.
//   nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a ceilings.cu
//   ./a.out [memory|l2|bf16|f16|tf32|e4m3|s8|f64]...
// nvcc must not say that wgmma is serialised (C7514): that costs 3 to 4 % of the rate.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <functional>
#include <random>
#include <vector>

constexpr int STAGES = 4, LINE = 128, M = 128, N = 256, STAGE = (M + N) * LINE;
constexpr double WARM = 0.7, TIMED = 1.3;

static void check(cudaError_t error, int line) {
  if (error != cudaSuccess) {
    fprintf(stderr, "line %d: %s\n", line, cudaGetErrorString(error));
    exit(1);
  }
}
#define CHECK(call) check(call, __LINE__)

// An operand in shared memory of lines of 128 bytes, in the swizzle of 128 bytes.
__device__ uint64_t descriptor(const void *p) {
  uint64_t a = __cvta_generic_to_shared(p);
  return ((a & 0x3FFFF) >> 4) | (uint64_t(1) << 16) | (uint64_t(64) << 32) | (uint64_t(1) << 62);
}

#define R4(c, d, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define R16(c, d, i) R4(c, d, i), R4(c, d, i + 4), R4(c, d, i + 8), R4(c, d, i + 12)
#define R64(c, d, i) R16(c, d, i), R16(c, d, i + 16), R16(c, d, i + 32), R16(c, d, i + 48)
#define SUMS                                                                                                           \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"    \
  "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,"   \
  "%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,"   \
  "%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,"    \
  "%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}"
// `wait` takes the sums as operands, so that none is read before.
#define WGMMA(Name, bytes, Sum, constraint, instruction, immediates)                                                   \
  struct Name {                                                                                                        \
    using Register = Sum;                                                                                              \
    static constexpr int BYTES = bytes;                                                                                \
    static __device__ void wait(Sum *d) {                                                                              \
      asm volatile("wgmma.wait_group.sync.aligned 0;" : R64(constraint, d, 0), R64(constraint, d, 64)::"memory");      \
    }                                                                                                                  \
    static __device__ void multiply(Sum *d, uint64_t a, uint64_t b, int add) {                                         \
      asm volatile("{.reg .pred p; setp.ne.b32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256" instruction SUMS      \
                   ", %128, %129, p" immediates ";}"                                                                   \
                   : R64(constraint, d, 0), R64(constraint, d, 64)                                                     \
                   : "l"(a), "l"(b), "r"(add));                                                                        \
    }                                                                                                                  \
  };
WGMMA(Bf16, 2, float, "+f", "k16.f32.bf16.bf16 ", ", 1, 1, 0, 0")
WGMMA(F16, 2, float, "+f", "k16.f32.f16.f16 ", ", 1, 1, 0, 0")
WGMMA(Tf32, 4, float, "+f", "k8.f32.tf32.tf32 ", ", 1, 1")
WGMMA(E4m3, 1, float, "+f", "k32.f32.e4m3.e4m3 ", ", 1, 1")
WGMMA(S8, 1, int, "+r", "k32.s32.s8.s8 ", "")

template <class Mma>
__global__ void __launch_bounds__(256, 1)
    wgmma_kernel(const uint4 *operands, typename Mma::Register *sums, int rounds) {
  extern __shared__ __align__(1024) unsigned char smem[];
  for (int i = threadIdx.x; i < STAGES * STAGE / 16; i += 256)
    reinterpret_cast<uint4 *>(smem)[i] = operands[i];
  asm volatile("fence.proxy.async;");
  __syncthreads();
  typename Mma::Register d[N / 2];
  for (auto &x : d)
    x = 0;
#pragma unroll 1
  for (int step = 0; step < rounds * STAGES; step++) {
    unsigned char *base = smem + step % STAGES * STAGE;
    uint64_t a = descriptor(base + threadIdx.x / 128 * 64 * LINE), b = descriptor(base + M * LINE);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int part = 0; part < 4; part++) // 32 bytes of k
      Mma::multiply(d, a + 2 * part, b + 2 * part, 1);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
  }
  Mma::wait(d);
  typename Mma::Register sum = 0;
  for (auto x : d)
    sum += x;
  sums[blockIdx.x * 256 + threadIdx.x] = sum;
}

// Each warp multiplies 2x4 blocks of m16n8k16 whose operands stay in its registers.
__global__ void __launch_bounds__(256, 1) f64_kernel(const double *operands, double *sums, int rounds) {
  double a[2][8], b[4][4], d[2][4][4] = {};
  int lane = threadIdx.x % 32;
  for (int i = 0; i < 16; i++)
    a[i / 8][i % 8] = operands[i * 32 + lane];
  for (int i = 0; i < 16; i++)
    b[i / 4][i % 4] = operands[(16 + i) * 32 + lane];
  for (int round = 0; round < rounds; round++)
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int j = 0; j < 4; j++)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7,%8,%9,%10,%11}, "
                     "{%12,%13,%14,%15}, {%0,%1,%2,%3};"
                     : R4("+d", d[i][j], 0)
                     : R4("d", a[i], 0), R4("d", a[i], 4), R4("d", b[j], 0));
  double sum = 0;
  for (int i = 0; i < 32; i++)
    sum += d[i / 16][i / 4 % 4][i % 4];
  sums[blockIdx.x * 256 + threadIdx.x] = sum;
}

// Each CTA reads `blocks` blocks of 16 KiB times LOADS. There are `present` ones, and each CTA takes others in each
// round: always the same ones would be further away for some CTAs than for others, and take longer (docs/results.md).
// LOADS loads of a thread are under way at once, and none of them stays in L1.
template <int LOADS>
__global__ void __launch_bounds__(1024, 2)
    read_kernel(const uint4 *data, uint32_t present, uint32_t blocks, uint32_t *sums) {
  uint32_t sum = 0, next = blockIdx.x;
  for (uint32_t block = 0; block < blocks; block++) {
    const uint4 *begin = data + size_t(next) * (1024 * LOADS) + threadIdx.x;
    next = (next + gridDim.x) % present;
    uint4 loaded[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; i++)
      asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(loaded[i].x), "=r"(loaded[i].y), "=r"(loaded[i].z), "=r"(loaded[i].w)
                   : "l"(begin + i * 1024));
#pragma unroll
    for (int i = 0; i < LOADS; i++)
      sum += loaded[i].x ^ loaded[i].y ^ loaded[i].z ^ loaded[i].w;
  }
  sums[blockIdx.x * 1024 + threadIdx.x] = sum;
}

// The same by bulk copies into shared memory. Each CTA has a ring of RING blocks of COPY bytes, and one thread copies.
constexpr int RING = 6, COPY = 32 << 10;
__global__ void __launch_bounds__(32, 1) copy_kernel(const uint4 *data, uint32_t present, uint32_t blocks) {
  extern __shared__ __align__(128) unsigned char ring[];
  __shared__ uint64_t full[RING];
  if (threadIdx.x != 0)
    return;
  uint32_t barriers = uint32_t(__cvta_generic_to_shared(full)), to = uint32_t(__cvta_generic_to_shared(ring));
  for (int stage = 0; stage < RING; stage++)
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barriers + stage * 8) : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  uint32_t next = blockIdx.x;
  for (uint32_t block = 0; block < blocks + RING; block++) {
    uint32_t stage = block % RING, barrier = barriers + stage * 8, done = block < RING || block - RING >= blocks;
    for (int tries = 0; !done; tries++) {
      if (tries == 1 << 26)
        __trap();
      asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                   : "=r"(done)
                   : "r"(barrier), "r"((block / RING + 1) % 2)
                   : "memory");
    }
    if (block >= blocks)
      continue;
    const char *from = reinterpret_cast<const char *>(data) + size_t(next) * COPY;
    next = (next + gridDim.x) % present;
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(COPY) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     to + stage * COPY),
                 "l"(from), "r"(COPY), "r"(barrier)
                 : "memory");
  }
}

// Launches for WARM seconds, then for TIMED seconds, and returns units per second, of which a launch has `units`.
static double rate(double units, const std::function<void()> &launch) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  auto seconds_of = [&](int launches) {
    CHECK(cudaEventRecord(begin));
    for (int i = 0; i < launches; i++)
      launch();
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaGetLastError());
    float ms;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    return ms * 1e-3;
  };
  launch();
  double once = seconds_of(10) / 10;
  seconds_of(int(WARM / once) + 1);
  int launches = int(TIMED / once) + 1;
  return units * launches / seconds_of(launches);
}

static int sms;

template <class Mma> static void tensor_cores(const char *name, const std::vector<unsigned char> &bytes) {
  void *operands, *sums;
  CHECK(cudaMalloc(&operands, bytes.size()));
  CHECK(cudaMalloc(&sums, sms * 256 * 4));
  CHECK(cudaMemcpy(operands, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  CHECK(cudaFuncSetAttribute(wgmma_kernel<Mma>, cudaFuncAttributeMaxDynamicSharedMemorySize, STAGES * STAGE));
  const int rounds = 500;
  double operations = 2.0 * M * N * (LINE / Mma::BYTES) * STAGES * rounds * sms;
  printf("%s %.2f TFLOP/s\n", name,
         rate(operations, [&] {
           wgmma_kernel<Mma><<<sms, 256, STAGES * STAGE>>>(static_cast<const uint4 *>(operands),
                                                           static_cast<typename Mma::Register *>(sums), rounds);
         }) * 1e-12);
  CHECK(cudaFree(operands));
  CHECK(cudaFree(sums));
}

template <class T> static std::vector<unsigned char> normals(T (*rounded)(float)) {
  std::mt19937 generator(7);
  std::normal_distribution<float> normal;
  std::vector<unsigned char> bytes(STAGES * STAGE);
  for (size_t i = 0; i < bytes.size(); i += sizeof(T)) {
    T value = rounded(normal(generator));
    memcpy(&bytes[i], &value, sizeof(T));
  }
  return bytes;
}

static void f64() {
  std::mt19937_64 generator(7);
  std::normal_distribution<double> normal;
  std::vector<double> values(32 * 32);
  for (auto &value : values)
    value = normal(generator);
  double *operands, *sums;
  CHECK(cudaMalloc(&operands, values.size() * 8));
  CHECK(cudaMalloc(&sums, sms * 256 * 8));
  CHECK(cudaMemcpy(operands, values.data(), values.size() * 8, cudaMemcpyHostToDevice));
  const int rounds = 2000;
  double operations = 2.0 * 16 * 8 * 16 * 8 * 8 * rounds * sms; // of 8 blocks in each of 8 warps
  printf("f64 %.2f TFLOP/s\n", rate(operations, [&] { f64_kernel<<<sms, 256>>>(operands, sums, rounds); }) * 1e-12);
}

// Bytes per second with one or two CTAs on an SM, if there is a block for each of them.
template <int LOADS> static double reads_of(const uint4 *data, size_t bytes, size_t read, uint32_t *sums) {
  size_t block = 16384 * LOADS;
  double fastest = 0;
  for (int ctas : {sms, 2 * sms}) {
    uint32_t present = uint32_t(bytes / block), blocks = uint32_t(read / block / ctas);
    if (present >= uint32_t(ctas))
      fastest = std::max(fastest, rate(double(blocks) * ctas * block,
                                       [&] { read_kernel<LOADS><<<ctas, 1024>>>(data, present, blocks, sums); }));
  }
  return fastest;
}

// Bytes per second by bulk copies.
static double copies_of(const uint4 *data, size_t bytes, size_t read) {
  CHECK(cudaFuncSetAttribute(copy_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, RING * COPY));
  uint32_t present = uint32_t(bytes / COPY), blocks = uint32_t(read / COPY / sms);
  return rate(double(blocks) * sms * COPY, [&] { copy_kernel<<<sms, 32, RING * COPY>>>(data, present, blocks); });
}

// The fastest of several depths, and bulk copies.
static void reads(const char *name, size_t bytes) {
  const size_t read = size_t(2) << 30; // in a launch
  uint4 *data;
  uint32_t *sums;
  CHECK(cudaMalloc(&data, bytes));
  CHECK(cudaMalloc(&sums, size_t(sms) * 2 * 1024 * 4));
  std::mt19937 generator(7);
  std::vector<uint32_t> words(1 << 20);
  for (auto &word : words)
    word = generator();
  for (size_t done = 0; done < bytes; done += words.size() * 4)
    CHECK(cudaMemcpy(reinterpret_cast<char *>(data) + done, words.data(), words.size() * 4, cudaMemcpyHostToDevice));
  double fastest = std::max({reads_of<1>(data, bytes, read, sums), reads_of<2>(data, bytes, read, sums),
                             reads_of<4>(data, bytes, read, sums)});
  printf("%s %.1f GB/s by loads, %.1f GB/s by bulk copies\n", name, fastest * 1e-9,
         copies_of(data, bytes, read) * 1e-9);
  CHECK(cudaFree(data));
  CHECK(cudaFree(sums));
}

int main(int argc, char **argv) {
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  sms = properties.multiProcessorCount;
  auto asked = [&](const char *name) {
    for (int i = 1; i < argc; i++)
      if (!strcmp(argv[i], name))
        return true;
    return argc == 1;
  };
  if (asked("memory"))
    reads("memory", size_t(2) << 30);
  if (asked("l2"))
    reads("l2", size_t(16) << 20);
  if (asked("bf16"))
    tensor_cores<Bf16>("bf16", normals<__nv_bfloat16>(__float2bfloat16));
  if (asked("f16"))
    tensor_cores<F16>("f16", normals<__half>(__float2half));
  if (asked("tf32"))
    tensor_cores<Tf32>("tf32", normals<uint32_t>([](float x) {
                         uint32_t bits;
                         memcpy(&bits, &x, 4);
                         return (bits + 0x1000) & ~0x1FFFu; // the 10 bits of the significand that count
                       }));
  if (asked("e4m3"))
    tensor_cores<E4m3>(
        "e4m3", normals<uint8_t>([](float x) { return uint8_t(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3)); }));
  if (asked("s8")) {
    std::mt19937 generator(7);
    std::vector<unsigned char> bytes(STAGES * STAGE);
    for (auto &byte : bytes)
      byte = generator();
    tensor_cores<S8>("s8", bytes);
  }
  if (asked("f64"))
    f64();
}
