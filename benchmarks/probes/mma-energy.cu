// What the MMAs of an 8192x8192x8192 bf16 GEMM need alone: every SM issues wgmma from shared memory that holds N(0,1)
// data and is never refilled: no loads, no epilogue, no barriers. Prints time, power, clock and joules for the
// multiply-adds of one such GEMM. nvcc -O3 -arch=sm_90a mma-energy.cu -lnvidia-ml -lcurand && ./a.out
#include <cstdint>
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <nvml.h>

constexpr int STAGES = 4, K_STEPS = 512; // of 16: the depth after which accumulators begin at 0 again

__device__ uint64_t descriptor(const void *p) {
  uint64_t a = __cvta_generic_to_shared(p);
  return ((a & 0x3FFFF) >> 4) | (uint64_t(1) << 16) | (uint64_t(64) << 32) | (uint64_t(1) << 62);
}
__device__ __nv_bfloat16 normal(uint32_t seed) {
  float s = 0; // sum of 12 uniforms less 6
  uint64_t x = seed * 0x9E3779B97F4A7C15ull + 12345;
  for (int i = 0; i < 12; i++) {
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    s += ((x * 0x2545F4914F6CDD1Dull) >> 40) * (1.0f / (1 << 24));
  }
  return __float2bfloat16(s - 6);
}
#define R8(i)                                                                                                          \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),          \
      "+f"(d[i + 7])
#define R32(i) R8(i), R8(i + 8), R8(i + 16), R8(i + 24)
#define R64(i) R32(i), R32(i + 32)
template <int N> struct Mma;
template <> struct Mma<256> {
  static __device__ void go(float *d, uint64_t a, uint64_t b, int keep) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%"
                 "27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%"
                 "52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%"
                 "77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,"
                 "%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%"
                 "122,%123,%124,%125,%126,%127}, %128, %129, p, 1, 1, 0, 0;}"
                 : R64(0), R64(64)
                 : "l"(a), "l"(b), "r"(keep));
  }
};
template <> struct Mma<192> {
  static __device__ void go(float *d, uint64_t a, uint64_t b, int keep) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %98, 0; wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%"
        "29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%"
        "56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%"
        "83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95}, %96, %97, p, 1, 1, 0, 0;}"
        : R64(0), R32(64)
        : "l"(a), "l"(b), "r"(keep));
  }
};
template <> struct Mma<128> {
  static __device__ void go(float *d, uint64_t a, uint64_t b, int keep) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%"
                 "27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%"
                 "52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1, 0, 0;}"
                 : R64(0)
                 : "l"(a), "l"(b), "r"(keep));
  }
};

// BLOCKS m64 blocks of each of two warpgroups, N columns.
__device__ unsigned long long ticks[2];
template <int N, int BLOCKS> __global__ void __launch_bounds__(256, 1) kernel(float *out, int passes) {
  extern __shared__ __align__(1024) unsigned char smem[];
  constexpr int A = 128 * BLOCKS * 128, B = N * 128; // bytes of a stage: 128-byte rows
  auto *words = reinterpret_cast<__nv_bfloat16 *>(smem);
  for (int i = threadIdx.x; i < STAGES * (A + B) / 2; i += 256)
    words[i] = normal(i * 132 + blockIdx.x);
  asm volatile("fence.proxy.async;");
  __syncthreads();
  unsigned long long c0 = clock64(), t0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t0));
  float d[BLOCKS][N / 2];
  for (auto &block : d)
    for (float &x : block)
      x = 0;
  int warpgroup = threadIdx.x / 128;
  for (int pass = 0; pass < passes; pass++)
    for (int step = 0; step < K_STEPS / 4; step++) {
      int stage = step % STAGES;
      uint64_t a = descriptor(smem + stage * (A + B) + warpgroup * 64 * BLOCKS * 128),
               b = descriptor(smem + stage * (A + B) + A);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int k = 0; k < 4; k++)
#pragma unroll
        for (int block = 0; block < BLOCKS; block++)
          Mma<N>::go(d[block], a + 2 * k + block * (64 * 128 >> 4), b + 2 * k, step + k);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
  unsigned long long t1;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t1));
  if (blockIdx.x == 5 && threadIdx.x == 0) {
    ticks[0] = clock64() - c0;
    ticks[1] = t1 - t0;
  }
  float sum = 0;
  for (auto &block : d)
    for (float x : block)
      sum += x;
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}

template <int N, int BLOCKS> void measure(nvmlDevice_t card, float *out, double seconds) {
  int bytes = STAGES * (128 * BLOCKS + N) * 128;
  cudaFuncSetAttribute(kernel<N, BLOCKS>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  double per_pass = 132.0 * 128 * BLOCKS * N * 16 * K_STEPS, gemm = 8192.0 * 8192 * 8192;
  int passes = int(0.02 * 330e12 / per_pass) + 1;
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  auto run = [&](double s) {
    for (int i = 0; i < s / 0.02; i++)
      kernel<N, BLOCKS><<<132, 256, bytes>>>(out, passes);
  };
  run(1.0);
  unsigned long long before = 0, after = 0;
  unsigned clock = 0, sum = 0, count = 0;
  cudaDeviceSynchronize();
  nvmlDeviceGetTotalEnergyConsumption(card, &before);
  cudaEventRecord(begin);
  int launches = 0;
  for (; launches < seconds / 0.02; launches++) {
    kernel<N, BLOCKS><<<132, 256, bytes>>>(out, passes);
    if (launches % 10 == 9) {
      cudaStreamSynchronize(0);
      nvmlDeviceGetClockInfo(card, NVML_CLOCK_SM, &clock);
      sum += clock;
      count++;
    }
  }
  cudaEventRecord(end);
  cudaEventSynchronize(end);
  nvmlDeviceGetTotalEnergyConsumption(card, &after);
  float ms;
  cudaEventElapsedTime(&ms, begin, end);
  double gemms = launches * (passes * per_pass / gemm);
  unsigned long long t[2];
  cudaMemcpyFromSymbol(t, ticks, 16);
  double mhz = t[0] * 1e3 / t[1];
  printf("SM clock by its own counter %.0f MHz, tensor cores busy %.4f of its cycles; ", mhz,
         passes * per_pass / 132 / 1024.0 / 2 / t[0] * 1.0);
  printf("2 warpgroups of %d x m64n%dk16: %.1f us, %.1f W, %.3f J per 8192^3, %.1f TFLOP/s, %u MHz, %s\n", BLOCKS, N,
         ms * 1e3 / gemms, (after - before) / double(ms), (after - before) * 1e-3 / gemms, 2 * gemm * gemms / ms * 1e-9,
         sum / (count ? count : 1), cudaGetErrorString(cudaGetLastError()));
}

int main(int argc, char **argv) {
  nvmlInit();
  nvmlDevice_t card;
  char id[32];
  cudaDeviceGetPCIBusId(id, 32, 0);
  nvmlDeviceGetHandleByPciBusId(id, &card);
  float *out;
  cudaMalloc(&out, 132 * 256 * 4);
  for (int round = 0; round < 3; round++) {
    measure<256, 1>(card, out, 2.0);
    measure<192, 2>(card, out, 2.0);
    measure<128, 2>(card, out, 2.0);
  }
}
