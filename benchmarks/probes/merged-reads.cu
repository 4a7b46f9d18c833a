// Which reads of L2 a Hopper GPU merges on their way to the SMs. Each SM copies blocks of 8 KiB to
// shared memory, eight ahead, from a stream of its own, of its GPC, or of all SMs. Prints a line for
// each launch; ncu counts what L2 sends and what SMs get:
// nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a merged-reads.cu -o merged-reads
// ncu --clock-control none --cache-control none -k regex:read_ --csv --metrics
//     lrc__lts2lrc_sectors_op_read.sum,lrc__xbar2gpc_sectors_op_read.sum ./merged-reads
#include <cstdint>
#include <cstdio>
#include <map>
#include <numeric>
#include <vector>

constexpr int SMS = 132, AHEAD = 8, BLOCK = 8192, BLOCKS = 512, STREAM = 256 << 10, SHARED = 150 << 10;

__device__ uint32_t address(const void *p) { return uint32_t(__cvta_generic_to_shared(p)); }
__device__ unsigned sm() {
  unsigned id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}
__device__ void meet() { asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory"); }
// Waits for a phase, though not for ever.
__device__ void wait(uint32_t barrier, uint32_t phase) {
  uint32_t done = 0;
  for (long long start = clock64(); !done && clock64() - start < 2000000;)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(barrier), "r"(phase)
                 : "memory");
}

// Reads `streams[sm]`, from `delays[sm]` cycles after all SMs have begun. Pairs of CTAs copy half of
// each block to both.
template <bool PAIRS> __device__ void read(const char *data, const int *streams, const int *delays, unsigned *begun) {
  extern __shared__ __align__(128) char blocks[];
  __shared__ uint64_t full[AHEAD];
  uint32_t rank = 0;
  bool first = threadIdx.x == 0;
  if (PAIRS)
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (first) {
    for (auto &barrier : full)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&barrier)));
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  __syncwarp();
  if (PAIRS)
    meet();
  if (first) {
    long long start = clock64();
    for (atomicAdd(begun, 1); *(volatile unsigned *)begun < SMS && clock64() - start < 5000000;) {
    }
    for (start = clock64(); clock64() - start < delays[sm()];) {
    }
  }
  __syncwarp();
  const char *source = data + size_t(streams[sm()]) * STREAM;
  for (int i = 0; i < BLOCKS; i++) {
    uint32_t barrier = address(&full[i % AHEAD]), to = address(blocks) + i % AHEAD * BLOCK;
    if (i >= AHEAD)
      wait(barrier, (i / AHEAD - 1) & 1);
    if (PAIRS)
      meet();
    const char *from = source + i * BLOCK % STREAM;
    if (first) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(BLOCK) : "memory");
      if (PAIRS) {
        int half = rank * BLOCK / 2;
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], "
                     "%2, [%3], %4;" ::"r"(to + half),
                     "l"(from + half), "r"(BLOCK / 2), "r"(barrier), "h"(uint16_t(3))
                     : "memory");
      } else {
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
            "l"(from), "r"(BLOCK), "r"(barrier)
            : "memory");
      }
    }
    __syncwarp();
  }
  for (int i = BLOCKS - AHEAD; i < BLOCKS; i++)
    wait(address(&full[i % AHEAD]), i / AHEAD & 1);
  if (PAIRS)
    meet();
}
__global__ void read_alone(const char *d, const int *s, const int *w, unsigned *b) { read<false>(d, s, w, b); }
__global__ void __cluster_dims__(2) read_in_pairs(const char *d, const int *s, const int *w, unsigned *b) {
  read<true>(d, s, w, b);
}
__global__ void place(int *sms) {
  if (threadIdx.x == 0)
    sms[blockIdx.x] = sm();
  for (long long start = clock64(); clock64() - start < 100000;) {
  }
}

int main() {
  // SMs of a cluster belong to the same GPC. Some are in none of four or more, and count as GPCs
  // of their own.
  std::vector<int> root(SMS), gpc(SMS), rank(SMS);
  std::iota(root.begin(), root.end(), 0);
  auto find = [&](int sm) {
    while (root[sm] != sm)
      sm = root[sm];
    return sm;
  };
  int *sms, *streams, *delays;
  unsigned *begun;
  char *data;
  cudaMalloc(&sms, SMS * 4), cudaMalloc(&streams, SMS * 4), cudaMalloc(&delays, SMS * 4), cudaMalloc(&begun, 4);
  cudaMalloc(&data, size_t(SMS) * STREAM), cudaMemset(data, 1, size_t(SMS) * STREAM);
  cudaFuncSetAttribute(place, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10);
  cudaFuncSetAttribute(place, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  for (int size : {16, 8, 4, 2})
    for (int launch = 0; launch < 6; launch++) {
      int ctas = 112;
      std::vector<int> at(ctas);
      cudaLaunchAttribute cluster{cudaLaunchAttributeClusterDimension};
      cluster.val.clusterDim = {unsigned(size), 1, 1};
      cudaLaunchConfig_t config{dim3(ctas), dim3(64), 200 << 10, 0, &cluster, 1};
      cudaLaunchKernelEx(&config, place, sms);
      cudaMemcpy(at.data(), sms, ctas * 4, cudaMemcpyDeviceToHost);
      for (int i = 0; !cudaGetLastError() && i < ctas; i++)
        root[find(at[i])] = find(at[i / size * size]);
    }
  std::map<int, std::vector<int>> members;
  for (int i = 0; i < SMS; i++)
    members[find(i)].push_back(i);
  int number = 0;
  for (auto &[_, of_gpc] : members) {
    for (int i = 0; i < int(of_gpc.size()); i++)
      gpc[of_gpc[i]] = number, rank[of_gpc[i]] = i;
    number++;
  }
  cudaFuncSetAttribute(read_alone, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
  cudaFuncSetAttribute(read_in_pairs, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
  auto launch = [&](const char *name, bool pairs, auto stream, int delay) {
    std::vector<int> of(SMS), after(SMS);
    for (int i = 0; i < SMS; i++)
      of[i] = stream(pairs ? i / 2 * 2 : i), after[i] = rank[i] / (pairs ? 2 : 1) % 8 * delay;
    cudaMemcpy(streams, of.data(), SMS * 4, cudaMemcpyHostToDevice),
        cudaMemcpy(delays, after.data(), SMS * 4, cudaMemcpyHostToDevice);
    cudaMemset(begun, 0, 4);
    (pairs ? read_in_pairs : read_alone)<<<SMS, 32, SHARED>>>(data, streams, delays, begun);
    printf("%s, %s, SMs %d cycles after each other: %s\n", name, pairs ? "in pairs" : "alone", delay,
           cudaGetErrorString(cudaDeviceSynchronize()));
  };
  for (bool pairs : {false, true}) {
    launch("a stream for each", pairs, [&](int i) { return i; }, 0);
    launch("one stream for all", pairs, [&](int) { return 0; }, 0);
    launch("one for SMs of the same number in their GPC", pairs, [&](int i) { return rank[i]; }, 0);
    for (int delay : {0, 50, 100, 200, 400, 800})
      launch("one for each GPC", pairs, [&](int i) { return gpc[i]; }, delay);
  }
}
