// The functions of the CUDA driver API that the examples call. They are loaded from libcuda.so.1 at
// run time, so the examples compile without a CUDA toolkit. A program that has the toolkit can use
// the CUDA runtime instead, because the library accepts pointers and streams of both APIs.
#ifndef CUDA_DRIVER_H
#define CUDA_DRIVER_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct cuda_driver {
  int (*init)(unsigned flags);
  int (*device_get)(int *device, int ordinal);
  int (*context_retain)(void **context, int device);
  int (*context_set)(void *context);
  int (*allocate)(uint64_t *address, size_t bytes);
  int (*release)(uint64_t address);
  int (*to_device)(uint64_t target, const void *source, size_t bytes);
  int (*to_host)(void *target, uint64_t source, size_t bytes);
  int (*stream_create)(void **stream, unsigned flags);
  int (*stream_destroy)(void *stream);
  int (*event_create)(void **event, unsigned flags);
  int (*event_record)(void *event, void *stream);
  int (*event_synchronize)(void *event);
  int (*event_elapsed_ms)(float *milliseconds, void *begin, void *end);
  int (*event_destroy)(void *event);
} cuda_driver;

// Prints the error of a failed driver call and exits.
static inline void cuda_check(int result, const char *call) {
  if (result != 0) {
    fprintf(stderr, "%s failed: CUresult %d\n", call, result);
    exit(1);
  }
}

// Loads one function of the driver, or exits if the driver does not have it.
static inline void cuda_symbol(void *library, const char *name, void *function, size_t size) {
  void *symbol = dlsym(library, name);
  if (symbol == NULL) {
    fprintf(stderr, "libcuda.so.1 has no %s: update the NVIDIA driver\n", name);
    exit(1);
  }
  memcpy(function, &symbol, size);
}

// Opens the driver and makes the primary context of device 0 current, which the CUDA runtime also
// uses. Returns 0 if there is no driver or no device; pgemm_create then reports the cause.
static inline int cuda_open(cuda_driver *cuda) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  int device = 0;
  void *context = NULL;
  if (library == NULL) {
    return 0;
  }
#define CUDA_SYMBOL(field, name) cuda_symbol(library, name, &cuda->field, sizeof cuda->field)
  CUDA_SYMBOL(init, "cuInit");
  CUDA_SYMBOL(device_get, "cuDeviceGet");
  CUDA_SYMBOL(context_retain, "cuDevicePrimaryCtxRetain");
  CUDA_SYMBOL(context_set, "cuCtxSetCurrent");
  CUDA_SYMBOL(allocate, "cuMemAlloc_v2");
  CUDA_SYMBOL(release, "cuMemFree_v2");
  CUDA_SYMBOL(to_device, "cuMemcpyHtoD_v2");
  CUDA_SYMBOL(to_host, "cuMemcpyDtoH_v2");
  CUDA_SYMBOL(stream_create, "cuStreamCreate");
  CUDA_SYMBOL(stream_destroy, "cuStreamDestroy_v2");
  CUDA_SYMBOL(event_create, "cuEventCreate");
  CUDA_SYMBOL(event_record, "cuEventRecord");
  CUDA_SYMBOL(event_synchronize, "cuEventSynchronize");
  CUDA_SYMBOL(event_elapsed_ms, "cuEventElapsedTime");
  CUDA_SYMBOL(event_destroy, "cuEventDestroy_v2");
#undef CUDA_SYMBOL
  if (cuda->init(0) != 0 || cuda->device_get(&device, 0) != 0) {
    return 0;
  }
  cuda_check(cuda->context_retain(&context, device), "cuDevicePrimaryCtxRetain");
  cuda_check(cuda->context_set(context), "cuCtxSetCurrent");
  return 1;
}

// Allocates device memory and returns it as the pointer type that the library accepts.
static inline void *cuda_allocate(const cuda_driver *cuda, size_t bytes) {
  uint64_t address = 0;
  cuda_check(cuda->allocate(&address, bytes), "cuMemAlloc");
  return (void *)(uintptr_t)address;
}

static inline void cuda_release(const cuda_driver *cuda, void *memory) {
  cuda_check(cuda->release((uint64_t)(uintptr_t)memory), "cuMemFree");
}

static inline void cuda_to_device(const cuda_driver *cuda, void *target, const void *source, size_t bytes) {
  cuda_check(cuda->to_device((uint64_t)(uintptr_t)target, source, bytes), "cuMemcpyHtoD");
}

static inline void cuda_to_host(const cuda_driver *cuda, void *target, const void *source, size_t bytes) {
  cuda_check(cuda->to_host(target, (uint64_t)(uintptr_t)source, bytes), "cuMemcpyDtoH");
}

#endif
