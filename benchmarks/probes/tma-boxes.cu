// How fast TMA takes small boxes, and whether a box may begin at any element: matrices of bf16 whose lines are not
// aligned are read through eight tensor maps, each of which holds every eighth row. nvcc -arch=sm_90a -O3 tma-boxes.cu
// -lcuda -o tma-boxes
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cuda_runtime.h>
#include <vector>

#define CHECK(x)                                                                                                       \
  do {                                                                                                                 \
    auto status = (x);                                                                                                 \
    if (status != 0) {                                                                                                 \
      printf("%s:%d: %d\n", __FILE__, __LINE__, (int)status);                                                          \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

struct Maps {
  CUtensorMap map[16];
  int shift[16];
};

__device__ inline uint32_t address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ inline void load(uint32_t to, const CUtensorMap *map, int x, int y, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
          "r"(to),
      "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
__device__ inline void expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ inline bool wait(uint32_t barrier, uint32_t parity) {
  for (int i = 0; i < 1000000; ++i) {
    uint32_t done;
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    if (done)
      return true;
  }
  return false;
}

// Warp w of `warps` loads the boxes b with b % warps == w of each stage; a stage is `boxes` boxes of A and as many of
// B.
__global__ void __launch_bounds__(128)
    rates(const __grid_constant__ Maps a, const __grid_constant__ Maps b, int boxes, int box_rows, int stages,
          int steps, int k, int row_blocks, unsigned long long *cycles) {
  extern __shared__ __align__(1024) unsigned char raw[];
  __shared__ uint64_t full[16];
  unsigned char *shared = (unsigned char *)(((uintptr_t)raw + 1023) & ~(uintptr_t)1023);
  int warps = blockDim.x / 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(&full[s])), "r"(warps));
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  __syncthreads();
  if (threadIdx.x % 32 != 0)
    return;
  uint32_t box_bytes = box_rows * 128, stage_bytes = 2 * boxes * box_bytes;
  uint32_t base = address(shared);
  int mine = (boxes + warps - 1 - warp) / warps;
  int row_a = (blockIdx.x % row_blocks) * box_rows, row_b = (blockIdx.x / row_blocks % row_blocks) * box_rows;
  long long begin = clock64();
  for (int step = 0; step < steps + stages; ++step) {
    int s = step % stages;
    uint32_t barrier = address(&full[s]);
    if (step >= stages && !wait(barrier, (step / stages - 1) & 1)) {
      printf("timed out\n");
      return;
    }
    if (step < steps) {
      expect(barrier, 2 * mine * box_bytes);
      int x = (step * 64) % k;
      uint32_t to = base + s * stage_bytes;
      for (int i = warp; i < boxes; i += warps) {
        load(to + i * box_bytes, &a.map[i], x + a.shift[i], row_a, barrier);
        load(to + (boxes + i) * box_bytes, &b.map[i], x + b.shift[i], row_b, barrier);
      }
    }
  }
  if (threadIdx.x == 0)
    cycles[blockIdx.x] = clock64() - begin;
}

__global__ void one_stage(const __grid_constant__ Maps a, int boxes, int box_rows, int x, int y, uint16_t *out) {
  extern __shared__ __align__(1024) unsigned char raw[];
  __shared__ uint64_t full;
  unsigned char *shared = (unsigned char *)(((uintptr_t)raw + 1023) & ~(uintptr_t)1023);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&full)));
    asm volatile("fence.mbarrier_init.release.cluster;");
    expect(address(&full), boxes * box_rows * 128);
    for (int i = 0; i < boxes; ++i)
      load(address(shared) + i * box_rows * 128, &a.map[i], x + a.shift[i], y, address(&full));
    if (!wait(address(&full), 0))
      printf("timed out\n");
  }
  __syncthreads();
  for (int i = threadIdx.x; i < boxes * box_rows * 64; i += blockDim.x)
    out[i] = ((uint16_t *)shared)[i];
}

static Maps encode(uint16_t *matrix, long rows, long k, long pitch, int residues, int box_rows) {
  Maps maps;
  for (int r = 0; r < residues; ++r) {
    uintptr_t line = (uintptr_t)matrix + r * pitch * 2, floor = line & ~(uintptr_t)15;
    maps.shift[r] = (int)(line - floor) / 2;
    cuuint64_t extents[2] = {(cuuint64_t)(k + maps.shift[r]), (cuuint64_t)((rows - r + residues - 1) / residues)};
    cuuint64_t strides[1] = {(cuuint64_t)(residues * pitch * 2)};
    cuuint32_t box[2] = {64, (cuuint32_t)box_rows}, ones[2] = {1, 1};
    CHECK(cuTensorMapEncodeTiled(&maps.map[r], CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)floor, extents, strides,
                                 box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  }
  return maps;
}

int main() {
  CHECK(cudaSetDevice(0));
  CHECK(cudaFree(0));
  const long rows = 1024;
  uint16_t *matrix;
  CHECK(cudaMalloc(&matrix, rows * 2048 * 2 + 64));
  std::vector<uint16_t> host(rows * 2048 + 32);
  for (size_t i = 0; i < host.size(); ++i)
    host[i] = (uint16_t)(i * 40503u >> 3);
  CHECK(cudaMemcpy(matrix, host.data(), host.size() * 2, cudaMemcpyHostToDevice));
  uint16_t *out;
  unsigned long long *cycles;
  CHECK(cudaMalloc(&out, 1 << 20));
  CHECK(cudaMalloc(&cycles, 132 * 8));
  CHECK(cudaFuncSetAttribute(rates, cudaFuncAttributeMaxDynamicSharedMemorySize, 225 * 1024));
  CHECK(cudaFuncSetAttribute(one_stage, cudaFuncAttributeMaxDynamicSharedMemorySize, 128 * 1024));

  // Right bytes: any pitch, any base, any beginning, ends filled with zeros.
  long wrong = 0, checked = 0;
  for (long pitch : {1023L, 1021L, 1025L, 1022L, 1020L, 1000L, 2047L})
    for (int base : {0, 1, 5, 7})
      for (int box_rows : {8, 16, 32})
        for (int x : {0, 64, 960}) {
          long k = pitch < 1024 ? pitch : 1013, height = 1000 * 1024 / (pitch > 1024 ? 2048 : 1024);
          Maps maps = encode(matrix + base, height, k, pitch, 8, box_rows);
          int y = box_rows;
          one_stage<<<1, 128, 8 * box_rows * 128 + 1024>>>(maps, 8, box_rows, x, y, out);
          std::vector<uint16_t> got(8 * box_rows * 64);
          CHECK(cudaMemcpy(got.data(), out, got.size() * 2, cudaMemcpyDeviceToHost));
          for (int r = 0; r < 8; ++r)
            for (int j = 0; j < box_rows; ++j)
              for (int c = 0; c < 64; ++c) {
                int line = r * box_rows + j;
                uint16_t value = got[line * 64 + ((c / 8) ^ (line % 8)) * 8 + c % 8];
                long row = (y + j) * 8 + r, column = x + c;
                uint16_t right = row < height && column < k ? host[base + row * pitch + column] : 0;
                wrong += value != right;
                ++checked;
              }
        }
  printf("right bytes: %ld of %ld elements wrong\n", wrong, checked);

  struct Form {
    const char *name;
    long pitch;
    int residues, box_rows, warps;
  };
  for (Form form :
       {Form{"64-row operands, whole, lines of 2048 bytes", 1024, 1, 64, 1}, Form{"64, whole, 2000", 1000, 1, 64, 1},
        Form{"64, eighths, 2048", 1024, 8, 8, 1}, Form{"64, eighths, 2048", 1024, 8, 8, 2},
        Form{"64, eighths, 2048", 1024, 8, 8, 4}, Form{"64, eighths, 2046", 1023, 8, 8, 1},
        Form{"64, eighths, 2046", 1023, 8, 8, 2}, Form{"64, eighths, 2046", 1023, 8, 8, 4},
        Form{"128, whole, 2048", 1024, 1, 128, 1}, Form{"128, whole, 2000", 1000, 1, 128, 1},
        Form{"128, eighths, 2046", 1023, 8, 16, 1}, Form{"128, eighths, 2046", 1023, 8, 16, 4},
        Form{"256, eighths, 2046", 1023, 8, 32, 1}, Form{"256, whole, 2000", 1000, 1, 256, 1}}) {
    long height = 1000;
    Maps maps = encode(matrix, height, form.pitch < 1000 ? form.pitch : 1000, form.pitch, form.residues, form.box_rows);
    int stage = 2 * form.residues * form.box_rows * 128, stages = 200 * 1024 / stage, steps = 1500;
    if (stages > 12)
      stages = 12;
    int row_blocks = height / (form.residues * form.box_rows);
    double best = 0;
    for (int blocks : {1, 132}) {
      double rate = 0;
      for (int run = 0; run < 3; ++run) {
        rates<<<blocks, 32 * form.warps, stages * stage + 1024>>>(maps, maps, form.residues, form.box_rows, stages,
                                                                  steps, 1000, row_blocks, cycles);
        CHECK(cudaDeviceSynchronize());
        unsigned long long taken[132];
        CHECK(cudaMemcpy(taken, cycles, blocks * 8, cudaMemcpyDeviceToHost));
        double mean = 0;
        for (int i = 0; i < blocks; ++i)
          mean += (double)taken[i] / blocks;
        rate = (double)stage * steps / mean;
      }
      best = rate;
      printf("%-48s %d warps, %3d SMs: %6.1f bytes a cycle and SM, %6.1f cycles a box of %d bytes\n", form.name,
             form.warps, blocks, best, form.box_rows * 128 / best, form.box_rows * 128);
    }
  }
}
