// Copies of lines between pinned host memory and an H200: what a line takes, by kind of host memory, streams at once,
// and by kernels.
#define _GNU_SOURCE
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#define CK(x)                                                                                                          \
  do {                                                                                                                 \
    CUresult r_ = (x);                                                                                                 \
    if (r_) {                                                                                                          \
      const char *s_;                                                                                                  \
      cuGetErrorString(r_, &s_);                                                                                       \
      printf("FAILED %s: %s\n", #x, s_);                                                                               \
      fflush(stdout);                                                                                                  \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}
static CUstream st[6];
static CUevent ev[12];
static CUdeviceptr dev;
static const size_t PITCH = 65536;
enum { UP, DOWN };
static void copy(int s, int way, char *host, CUdeviceptr d, size_t width, size_t lines, size_t pitch) {
  if (width == pitch) {
    if (way == UP)
      CK(cuMemcpyHtoDAsync(d, host, width * lines, st[s]));
    else
      CK(cuMemcpyDtoHAsync(host, d, width * lines, st[s]));
    return;
  }
  CUDA_MEMCPY2D c;
  memset(&c, 0, sizeof c);
  c.WidthInBytes = width;
  c.Height = lines;
  if (way == UP) {
    c.srcMemoryType = CU_MEMORYTYPE_HOST;
    c.srcHost = host;
    c.srcPitch = pitch;
    c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c.dstDevice = d;
    c.dstPitch = width;
  } else {
    c.dstMemoryType = CU_MEMORYTYPE_HOST;
    c.dstHost = host;
    c.dstPitch = pitch;
    c.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    c.srcDevice = d;
    c.srcPitch = width;
  }
  CK(cuMemcpy2DAsync(&c, st[s]));
}
static void sync(void) {
  for (int i = 0; i < 6; i++)
    CK(cuStreamSynchronize(st[i]));
}
static const char *PTX =
    ".version 7.8\n.target sm_90\n.address_size 64\n"
    ".visible .entry pull(.param .u64 s, .param .u64 d, .param .u32 w, .param .u32 lines, .param .u64 pitch) {\n"
    ".reg .u64 %s,%d,%p,%a,%b,%o,%t; .reg .u32 %w,%n,%l,%c,%i,%g,%x,%y; .reg .b32 %v<16>; .reg .pred %q;\n"
    "ld.param.u64 %s,[s]; ld.param.u64 %d,[d]; ld.param.u32 %w,[w]; ld.param.u32 %n,[lines]; ld.param.u64 %p,[pitch];\n"
    "mov.u32 %c,%ctaid.x; mov.u32 %g,%nctaid.x; mov.u32 %i,%tid.x;\n"
    // a warp takes 2 KiB: 4 loads of 16 bytes a lane. units = w/2048 * lines
    "shr.u32 %x,%i,5; mad.lo.u32 %l,%c,32,%x; mul.lo.u32 %g,%g,32; and.b32 %i,%i,31; shr.u32 %y,%w,11; mul.lo.u32 "
    "%n,%n,%y;\n"
    "LOOP: setp.ge.u32 %q,%l,%n; @%q bra DONE;\n"
    "div.u32 %x,%l,%y; mul.wide.u32 %o,%x,%w; cvt.u64.u32 %t,%x; mul.lo.u64 %a,%t,%p; mul.lo.u32 %x,%x,%y; sub.u32 "
    "%x,%l,%x; shl.b32 %x,%x,11; shl.b32 %c,%i,4; add.u32 %x,%x,%c; cvt.u64.u32 %t,%x; add.u64 %a,%a,%t; add.u64 "
    "%a,%a,%s; add.u64 %b,%o,%t; add.u64 %b,%b,%d;\n"
    "ld.global.cs.v4.b32 {%v0,%v1,%v2,%v3},[%a]; ld.global.cs.v4.b32 {%v4,%v5,%v6,%v7},[%a+512]; ld.global.cs.v4.b32 "
    "{%v8,%v9,%v10,%v11},[%a+1024]; ld.global.cs.v4.b32 {%v12,%v13,%v14,%v15},[%a+1536];\n"
    "st.global.v4.b32 [%b],{%v0,%v1,%v2,%v3}; st.global.v4.b32 [%b+512],{%v4,%v5,%v6,%v7}; st.global.v4.b32 "
    "[%b+1024],{%v8,%v9,%v10,%v11}; st.global.v4.b32 [%b+1536],{%v12,%v13,%v14,%v15};\n"
    "add.u32 %l,%l,%g; bra LOOP; DONE: ret; }\n";
static CUfunction pull;
int main(void) {
  CK(cuInit(0));
  CUdevice d;
  CK(cuDeviceGet(&d, 0));
  CUcontext c;
  CK(cuDevicePrimaryCtxRetain(&c, d));
  CK(cuCtxSetCurrent(c));
  int engines;
  CK(cuDeviceGetAttribute(&engines, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, d));
  printf("async engines %d\n", engines);
  for (int i = 0; i < 6; i++)
    CK(cuStreamCreate(&st[i], CU_STREAM_NON_BLOCKING));
  size_t whole = (size_t)2 << 30;
  CK(cuMemAlloc(&dev, whole * 2));
  char *h[4];
  const char *name[4] = {"registered, 4 KiB pages", "registered, huge pages", "allocated by the driver",
                         "registered, huge pages (downloads)"};
  for (int k = 0; k < 4; k++) {
    double t = now();
    if (k == 2)
      CK(cuMemHostAlloc((void **)&h[k], whole, CU_MEMHOSTALLOC_PORTABLE));
    else {
      h[k] = mmap(NULL, whole + (2 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      h[k] = (char *)(((uintptr_t)h[k] + (2 << 20) - 1) & ~(uintptr_t)((2 << 20) - 1));
      int m = madvise(h[k], whole, k == 0 ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
      if (m)
        printf("madvise failed for %s\n", name[k]);
      memset(h[k], 1, whole);
      CK(cuMemHostRegister(h[k], whole, CU_MEMHOSTREGISTER_PORTABLE));
    }
    printf("%s: %.2f s to make\n", name[k], now() - t);
  }
  fflush(stdout);
  FILE *f = fopen("/proc/self/smaps_rollup", "r");
  char line[256];
  if (f) {
    while (fgets(line, 256, f))
      if (strstr(line, "AnonHuge"))
        fputs(line, stdout);
    fclose(f);
  }
  f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
  if (f) {
    if (fgets(line, 256, f))
      printf("thp: %s", line);
    fclose(f);
  }
  size_t L = 32768;
  double t;
#define TIME(what, bytes, ...)                                                                                         \
  do {                                                                                                                 \
    double best = 1e9;                                                                                                 \
    for (int rep_ = 0; rep_ < 3; rep_++) {                                                                             \
      sync();                                                                                                          \
      t = now();                                                                                                       \
      __VA_ARGS__;                                                                                                     \
      sync();                                                                                                          \
      t = now() - t;                                                                                                   \
      if (t < best)                                                                                                    \
        best = t;                                                                                                      \
    }                                                                                                                  \
    printf("  %-62s %7.2f ms %6.1f GB/s\n", what, best * 1e3, (bytes) / best / 1e9);                                   \
    fflush(stdout);                                                                                                    \
  } while (0)
  char text[200];
  for (int k = 0; k < 3; k++) {
    printf("%s\n", name[k]);
    TIME("up, 2 GiB in one piece", (double)whole, copy(0, UP, h[k], dev, PITCH, L, PITCH));
    TIME("down, 2 GiB in one piece", (double)whole, copy(0, DOWN, h[k], dev, PITCH, L, PITCH));
    for (size_t w = 1024; w <= 32768; w *= 2) {
      double bytes = (double)w * L;
      sprintf(text, "up, 32768 lines of %zu", w);
      TIME(text, bytes, copy(0, UP, h[k], dev, w, L, PITCH));
      sprintf(text, "up, the same, halves on two streams");
      TIME(text, bytes, copy(0, UP, h[k], dev, w, L / 2, PITCH),
           copy(1, UP, h[k] + L / 2 * PITCH, dev + w * L / 2, w, L / 2, PITCH));
      sprintf(text, "up, the same, quarters on four streams");
      TIME(text, bytes,
           for (int q = 0; q < 4; q++) copy(q, UP, h[k] + L / 4 * q * PITCH, dev + w * L / 4 * q, w, L / 4, PITCH));
      sprintf(text, "down, 32768 lines of %zu", w);
      TIME(text, bytes, copy(0, DOWN, h[k], dev, w, L, PITCH));
      sprintf(text, "down, halves on two streams");
      TIME(text, bytes, copy(0, DOWN, h[k], dev, w, L / 2, PITCH),
           copy(1, DOWN, h[k] + L / 2 * PITCH, dev + w * L / 2, w, L / 2, PITCH));
    }
    // A in one piece beside lines of B, on another stream; h[3] for A.
    double two = 2.0 * 8192 * L * 2;
    TIME("up, 32768 lines of 16 KiB, then as many bytes in one piece", two, copy(0, UP, h[k], dev, 16384, L, PITCH),
         copy(0, UP, h[3], dev + whole, PITCH, L / 4, PITCH));
    TIME("up, the same on two streams", two, copy(0, UP, h[k], dev, 16384, L, PITCH),
         copy(1, UP, h[3], dev + whole, PITCH, L / 4, PITCH));
    two = 2.0 * 2048 * L * 2;
    TIME("up, 32768 lines of 4 KiB, then as many bytes in one piece", two, copy(0, UP, h[k], dev, 4096, L, PITCH),
         copy(0, UP, h[3], dev + whole, PITCH, L / 16, PITCH));
    TIME("up, the same on two streams", two, copy(0, UP, h[k], dev, 4096, L, PITCH),
         copy(1, UP, h[3], dev + whole, PITCH, L / 16, PITCH));
    // Both ways at once.
    double up_bytes = 32768.0 * L;
    TIME("up 1 GiB in one piece, while lines of 16 KiB go down (up's rate)", up_bytes,
         copy(0, UP, h[k], dev, PITCH, L / 2, PITCH), copy(1, DOWN, h[3], dev + whole, 16384, L, PITCH));
    TIME("up lines of 16 KiB, while lines of 16 KiB go down (up's rate)", 16384.0 * L,
         copy(0, UP, h[k], dev, 16384, L, PITCH), copy(1, DOWN, h[3], dev + whole, 16384, L, PITCH));
    TIME("up halves on two, down halves on two, 16 KiB (up's rate)", 16384.0 * L,
         copy(0, UP, h[k], dev, 16384, L / 2, PITCH),
         copy(1, UP, h[k] + L / 2 * PITCH, dev + 8192 * L, 16384, L / 2, PITCH),
         copy(2, DOWN, h[3], dev + whole, 16384, L / 2, PITCH),
         copy(3, DOWN, h[3] + L / 2 * PITCH, dev + whole + 8192 * L, 16384, L / 2, PITCH));
  }
  CUmodule m;
  CUresult r = cuModuleLoadData(&m, PTX);
  if (r) {
    printf("no kernel: %d\n", r);
    return 0;
  }
  CK(cuModuleGetFunction(&pull, m, "pull"));
  for (int k = 0; k < 3; k++)
    for (unsigned ctas = 1; ctas <= 32; ctas *= 2)
      for (unsigned w = 4096; w <= 16384; w *= 4) {
        unsigned lines = 8192;
        size_t pitch = PITCH;
        CUdeviceptr src;
        CK(cuMemHostGetDevicePointer(&src, h[k], 0));
        void *args[] = {&src, &dev, &w, &lines, &pitch};
        sprintf(text, "kernel of %u CTAs of 1024, 8192 lines of %u", ctas, w);
        if (w == 4096)
          printf("%s\n", name[k]);
        TIME(text, (double)w * lines, CK(cuLaunchKernel(pull, ctas, 1, 1, 1024, 1, 1, 0, st[0], args, NULL)));
      }
  return 0;
}
