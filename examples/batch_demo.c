/* Computes D = alpha * A*B + beta * C for a batch of FP32 products, in C11.
   B is column-major, all products share A, and D overwrites C. The CPU verifies every element.
   The exit status is 77 if the machine has no Hopper GPU. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_driver.h"
#include "persistent_gemm.h"

enum { M = 200, N = 120, K = 300, BATCH = 3 };

static const double ALPHA = 2.0, BETA = -0.5;

/* Returns a matrix of integers from -4 to 3, whose sums of products are exact in binary32. */
static float *integer_matrix(size_t elements, unsigned seed) {
  float *values = malloc(elements * sizeof *values);
  if (values == NULL) {
    fputs("out of host memory\n", stderr);
    exit(1);
  }
  for (size_t i = 0; i < elements; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)(int)(seed >> 29) - 4.0f;
  }
  return values;
}

static size_t wrong_elements(const float *a, const float *b, const float *c, const float *d) {
  size_t wrong = 0;
  for (size_t product = 0; product < BATCH; ++product) {
    for (size_t row = 0; row < M; ++row) {
      for (size_t column = 0; column < N; ++column) {
        const size_t index = (product * M + row) * N + column;
        double sum = 0.0;
        for (size_t k = 0; k < K; ++k) {
          sum += (double)a[row * K + k] * (double)b[(product * N + column) * K + k];
        }
        wrong += (double)d[index] != ALPHA * sum + BETA * (double)c[index];
      }
    }
  }
  return wrong;
}

static void *upload(const cuda_driver *cuda, const float *values, size_t elements) {
  void *memory = cuda_allocate(cuda, elements * sizeof *values);
  cuda_to_device(cuda, memory, values, elements * sizeof *values);
  return memory;
}

int main(void) {
  const size_t a_elements = (size_t)M * K, b_elements = (size_t)BATCH * K * N, d_elements = (size_t)BATCH * M * N;
  cuda_driver cuda;
  const int has_device = cuda_open(&cuda);
  pgemm_config config;
  pgemm_problem problem;
  pgemm_gemm *gemm = NULL;
  pgemm_status status = pgemm_config_init(&config, sizeof config);
  config.dtype_a = PGEMM_FP32;
  if (status == PGEMM_SUCCESS) {
    status = pgemm_create(&config, &gemm);
  }
  if (status != PGEMM_SUCCESS || !has_device) {
    fprintf(stderr, "persistent_gemm: %s: %s\n", pgemm_status_string(status), pgemm_last_error());
    pgemm_destroy(&gemm);
    return status == PGEMM_ERROR_NO_DEVICE ? 77 : 1;
  }

  float *a = integer_matrix(a_elements, 1), *b = integer_matrix(b_elements, 2), *c = integer_matrix(d_elements, 3);
  float *d = integer_matrix(d_elements, 4);
  void *a_device = upload(&cuda, a, a_elements), *b_device = upload(&cuda, b, b_elements);
  void *c_device = upload(&cuda, c, d_elements);

  status = pgemm_problem_init(&problem, sizeof problem);
  problem.m = M;
  problem.n = N;
  problem.k = K;
  problem.layout_b = PGEMM_COLUMN_MAJOR;
  problem.alpha = ALPHA;
  problem.beta = BETA;
  problem.batch = BATCH;
  problem.batch_stride_a = PGEMM_SAME;
  if (status == PGEMM_SUCCESS) {
    status = pgemm_run_ex(gemm, &problem, a_device, b_device, c_device, c_device, NULL);
  }
  if (status == PGEMM_SUCCESS) {
    status = pgemm_sync(gemm);
  }
  if (status != PGEMM_SUCCESS) {
    fprintf(stderr, "persistent_gemm: %s: %s\n", pgemm_status_string(status), pgemm_last_error());
    return 1;
  }
  cuda_to_host(&cuda, d, c_device, d_elements * sizeof *d);
  const size_t wrong = wrong_elements(a, b, c, d);
  printf("%d products of %dx%dx%d: %zu of %zu elements are wrong\n", BATCH, M, N, K, wrong, d_elements);

  pgemm_destroy(&gemm);
  cuda_release(&cuda, a_device);
  cuda_release(&cuda, b_device);
  cuda_release(&cuda, c_device);
  free(a);
  free(b);
  free(c);
  free(d);
  return wrong == 0 ? 0 : 1;
}
