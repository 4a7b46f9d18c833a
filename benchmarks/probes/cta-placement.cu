// On which SMs an H200 puts 264 CTAs of which two fit on an SM: each CTA stores its SM, then runs
// for about a millisecond. Prints the SMs in the order of the CTAs, for three launches.
// nvcc -arch=sm_90 cta-placement.cu -o cta-placement
#include <cstdio>

constexpr int CTAS = 264, SHARED_BYTES = 113000, CYCLES = 2000000;

__global__ void place(unsigned *sms) {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (threadIdx.x == 0) {
    sms[blockIdx.x] = sm;
    for (long long start = clock64(); clock64() - start < CYCLES;) {
    }
  }
}

int main() {
  unsigned *on_device, sms[CTAS];
  cudaMalloc(&on_device, sizeof sms);
  cudaFuncSetAttribute(place, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
  for (int launch = 0; launch < 3; launch++) {
    place<<<CTAS, 256, SHARED_BYTES>>>(on_device);
    cudaMemcpy(sms, on_device, sizeof sms, cudaMemcpyDeviceToHost);
    printf("launch %d: %s\n", launch, cudaGetErrorString(cudaGetLastError()));
    for (int cta = 0; cta < CTAS; cta++)
      printf("%u%s", sms[cta], cta % 44 == 43 ? "\n" : " ");
  }
}
