// Calls that need a device, for the emulated one: layouts, gaps, scalars and epilogues, plans, warm-up, engines, and
// the autotuner, whose file of results is the argument.

#include <time.h>

#include "cuda_driver.h"

#include "check.h"

enum { M = 20, N = 24, K = 17, GAP = 3 };

// Integers from -2 to 2, whose products and sums are exact in binary32.
static float value(size_t row, size_t column, unsigned seed) {
  const unsigned mixed = (unsigned)(row * 31 + column * 17 + seed) * 2654435761u;
  return (float)(int)((mixed >> 16) % 5) - 2.0f;
}

// A matrix of rows x columns on the device, with GAP elements between its lines.
static void *matrix(const cuda_driver *cuda, size_t rows, size_t columns, pgemm_layout layout, unsigned seed) {
  const size_t lines = layout == PGEMM_ROW_MAJOR ? rows : columns;
  const size_t width = layout == PGEMM_ROW_MAJOR ? columns : rows;
  const size_t bytes = lines * (width + GAP) * sizeof(float);
  float *host = malloc(bytes);
  CHECK(host != NULL);
  for (size_t line = 0; line < lines; ++line) {
    for (size_t at = 0; at < width + GAP; ++at) {
      const int is_row = layout == PGEMM_ROW_MAJOR;
      host[line * (width + GAP) + at] = at < width ? value(is_row ? line : at, is_row ? at : line, seed) : 1e30f;
    }
  }
  void *device = cuda_allocate(cuda, bytes);
  cuda_to_device(cuda, device, host, bytes);
  free(host);
  return device;
}

static int64_t leading_dimension(size_t rows, size_t columns, pgemm_layout layout) {
  return (int64_t)(layout == PGEMM_ROW_MAJOR ? columns : rows) + GAP;
}

static double expected(const pgemm_problem *problem, int has_epilogue, size_t row, size_t column) {
  double sum = 0.0;
  for (size_t k = 0; k < K; ++k) {
    sum += (double)value(row, k, 1) * (double)value(k, column, 2);
  }
  double result = problem->alpha * sum + problem->beta * (double)value(row, column, 3);
  if (has_epilogue) {
    result += (double)value(0, column, 4);
    result = result > 0.0 ? result : 0.0;
  }
  return result;
}

// Multiplies in each layout, and compares every element.
static void products(const cuda_driver *cuda, const char *epilogue) {
  pgemm_config config;
  pgemm_gemm *gemm = NULL;
  CHECK(pgemm_config_init(&config, sizeof config) == PGEMM_SUCCESS);
  config.dtype_a = PGEMM_FP32;
  config.epilogue = epilogue;
  CHECK(pgemm_create(&config, &gemm) == PGEMM_SUCCESS);
  void *bias = matrix(cuda, 1, N, PGEMM_ROW_MAJOR, 4);
  for (int layouts = 0; layouts < 8; ++layouts) {
    const pgemm_layout of_a = layouts & 1 ? PGEMM_COLUMN_MAJOR : PGEMM_ROW_MAJOR;
    const pgemm_layout of_b = layouts & 2 ? PGEMM_COLUMN_MAJOR : PGEMM_ROW_MAJOR;
    const pgemm_layout of_c = layouts & 4 ? PGEMM_COLUMN_MAJOR : PGEMM_ROW_MAJOR;
    void *a = matrix(cuda, M, K, of_a, 1), *b = matrix(cuda, K, N, of_b, 2);
    void *c = matrix(cuda, M, N, of_c, 3), *d = matrix(cuda, M, N, of_c, 5);
    pgemm_problem problem;
    CHECK(pgemm_problem_init(&problem, sizeof problem) == PGEMM_SUCCESS);
    problem.m = M;
    problem.n = N;
    problem.k = K;
    problem.layout_a = of_a;
    problem.layout_b = of_b;
    problem.layout_c = of_c;
    problem.lda = leading_dimension(M, K, of_a);
    problem.ldb = leading_dimension(K, N, of_b);
    problem.ldc = problem.ldd = leading_dimension(M, N, of_c);
    problem.alpha = 2.0;
    problem.beta = layouts & 2 ? -1.0 : 0.0;
    problem.bias = epilogue == NULL ? NULL : bias;
    CHECK(pgemm_prepare(gemm, &problem) == PGEMM_SUCCESS);
    CHECK(pgemm_run_ex(gemm, &problem, a, b, c, d, NULL) == PGEMM_SUCCESS);
    CHECK(pgemm_sync(gemm) == PGEMM_SUCCESS);
    const size_t lines = of_c == PGEMM_ROW_MAJOR ? M : N, width = (size_t)problem.ldd;
    float *found = malloc(lines * width * sizeof *found);
    CHECK(found != NULL);
    cuda_to_host(cuda, found, d, lines * width * sizeof *found);
    for (size_t row = 0; row < M; ++row) {
      for (size_t column = 0; column < N; ++column) {
        const size_t index = of_c == PGEMM_ROW_MAJOR ? row * width + column : column * width + row;
        CHECK((double)found[index] == expected(&problem, epilogue != NULL, row, column));
      }
    }
    // The gaps are as they were.
    for (size_t line = 0; line < lines; ++line) {
      for (size_t at = width - GAP; at < width; ++at) {
        CHECK(found[line * width + at] == 1e30f);
      }
    }
    free(found);
    // What is missing is named.
    CHECK(pgemm_run_ex(gemm, &problem, NULL, b, c, d, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
    CHECK(pgemm_run_ex(gemm, &problem, a, b, c, NULL, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
    cuda_release(cuda, a);
    cuda_release(cuda, b);
    cuda_release(cuda, c);
    cuda_release(cuda, d);
  }
  cuda_release(cuda, bias);
  CHECK(pgemm_destroy(&gemm) == PGEMM_SUCCESS && gemm == NULL);
}

static void count(size_t done, size_t all, void *context) {
  size_t *told = context;
  told[0] += 1;
  told[1] = done;
  told[2] = all;
}

static void warm_up(void) {
  pgemm_config config;
  pgemm_gemm *gemm = NULL;
  pgemm_problem problems[3];
  pgemm_warm_up_result result;
  size_t told[3] = {0, 0, 0};
  CHECK(pgemm_config_init(&config, sizeof config) == PGEMM_SUCCESS);
  config.dtype_a = PGEMM_BF16;
  CHECK(pgemm_create(&config, &gemm) == PGEMM_SUCCESS);
  for (int i = 0; i < 3; ++i) {
    CHECK(pgemm_problem_init(&problems[i], sizeof problems[i]) == PGEMM_SUCCESS);
    // The last two are one problem.
    problems[i].m = i == 0 ? 8 : 64;
    problems[i].n = problems[i].k = 32;
  }
  CHECK(pgemm_warm_up_result_init(&result, sizeof result) == PGEMM_SUCCESS);
  CHECK(pgemm_warm_up(gemm, problems, 3, count, told, &result) == PGEMM_SUCCESS);
  CHECK(result.problems == 2 && result.kernels >= 1 && result.assembled <= result.kernels);
  CHECK(told[0] >= 2 && told[1] == told[2]);
  CHECK(pgemm_warm_up(gemm, problems, 3, NULL, NULL, &result) == PGEMM_SUCCESS && result.problems == 0);
  CHECK(pgemm_warm_up(gemm, NULL, 0, NULL, NULL, NULL) == PGEMM_SUCCESS);
  CHECK(pgemm_warm_up(gemm, NULL, 1, NULL, NULL, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(pgemm_set_compile(gemm, PGEMM_COMPILE_BEHIND) == PGEMM_SUCCESS);
  CHECK(pgemm_set_compile(gemm, 77) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(pgemm_destroy(&gemm) == PGEMM_SUCCESS);
}

// Matrices of f16 with 64 rows and columns, all elements of which are the same, and an f32 result.
enum { SIDE = 64, F16_ONE = 0x3c00, F16_TWO = 0x4000 };

static void *constant(const cuda_driver *cuda, unsigned short f16) {
  unsigned short host[SIDE * SIDE];
  for (size_t at = 0; at < SIDE * SIDE; ++at) {
    host[at] = f16;
  }
  void *device = cuda_allocate(cuda, sizeof host);
  cuda_to_device(cuda, device, host, sizeof host);
  return device;
}

static int holds(const cuda_driver *cuda, const void *device, float value) {
  float host[SIDE * SIDE];
  cuda_to_host(cuda, host, device, sizeof host);
  for (size_t at = 0; at < SIDE * SIDE; ++at) {
    if (host[at] != value) {
      return 0;
    }
  }
  return 1;
}

static void pause_for_a_millisecond(void) {
  const struct timespec millisecond = {0, 1000000};
  nanosleep(&millisecond, NULL);
}

static void say(pgemm_status status, void *context) { *(volatile pgemm_status *)context = status; }

static void engine(const cuda_driver *cuda) {
  pgemm_config config;
  pgemm_engine_options options;
  pgemm_problem problem;
  pgemm_gemm *gemm = NULL;
  pgemm_engine *engine = NULL;
  pgemm_job *once = NULL, *again = NULL, *apart = NULL, *none = NULL;
  pgemm_ticket first = 0, second = 0, many[2] = {0, 0};
  int32_t done = 7;
  volatile pgemm_status said = 77;
  CHECK(pgemm_config_init(&config, sizeof config) == PGEMM_SUCCESS);
  config.dtype_a = PGEMM_FP16;
  config.dtype_c = PGEMM_FP32;
  CHECK(pgemm_create(&config, &gemm) == PGEMM_SUCCESS);
  CHECK(pgemm_engine_options_init(&options, sizeof options) == PGEMM_SUCCESS);
  CHECK(pgemm_problem_init(&problem, sizeof problem) == PGEMM_SUCCESS);
  problem.m = problem.n = problem.k = SIDE;
  problem.layout_b = PGEMM_COLUMN_MAJOR;
  options.goal = 77;
  CHECK(pgemm_engine_create(gemm, &problem, &options, &engine) == PGEMM_ERROR_INVALID_ARGUMENT && engine == NULL);
  options.goal = PGEMM_GOAL_LATENCY;
  options.sms = 1000;
  CHECK(pgemm_engine_create(gemm, &problem, &options, &engine) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(strstr(pgemm_last_error(), "1000 SMs") != NULL && engine == NULL);
  options.sms = 2;
  CHECK(pgemm_engine_create(gemm, &problem, &options, &engine) == PGEMM_SUCCESS && engine != NULL);
  // The engine has what it needs of the GEMM.
  CHECK(pgemm_destroy(&gemm) == PGEMM_SUCCESS);

  void *a = constant(cuda, F16_ONE), *b = constant(cuda, F16_TWO);
  void *d = cuda_allocate(cuda, SIDE * SIDE * sizeof(float)), *other = cuda_allocate(cuda, SIDE * SIDE * sizeof(float));
  CHECK(pgemm_job_prepare(engine, &problem, a, b, NULL, d, &once) == PGEMM_SUCCESS && once != NULL);
  CHECK(pgemm_job_prepare(engine, &problem, a, b, NULL, other, &apart) == PGEMM_SUCCESS);
  problem.beta = 0.5;
  CHECK(pgemm_job_prepare(engine, &problem, a, b, d, d, &again) == PGEMM_SUCCESS && again != NULL);
  CHECK(pgemm_job_prepare(engine, &problem, a, b, NULL, d, &none) == PGEMM_ERROR_INVALID_ARGUMENT && none == NULL);
  CHECK(pgemm_job_prepare(engine, &problem, NULL, b, d, d, &none) == PGEMM_ERROR_INVALID_ARGUMENT);
  problem.layout_b = PGEMM_ROW_MAJOR;
  CHECK(pgemm_job_prepare(engine, &problem, a, b, d, d, &none) != PGEMM_SUCCESS && none == NULL);

  CHECK(pgemm_engine_submit(engine, once, NULL, 0, &first) == PGEMM_SUCCESS && first != 0);
  CHECK(pgemm_engine_submit(engine, again, &first, 1, &second) == PGEMM_SUCCESS && second != first);
  CHECK(pgemm_engine_wait(engine, second, 60 * 1000000) == PGEMM_SUCCESS);
  CHECK(pgemm_engine_is_done(engine, first, &done) == PGEMM_SUCCESS && done == 1);
  CHECK(holds(cuda, d, 192.0f));
  CHECK(pgemm_engine_wait(engine, first, 0) == PGEMM_SUCCESS && pgemm_engine_wait(engine, first, -1) == PGEMM_SUCCESS);
  const pgemm_ticket three[3] = {first, first, second};
  CHECK(pgemm_engine_submit(engine, once, three, 3, &first) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(pgemm_engine_submit(engine, once, NULL, 1, &first) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(pgemm_engine_submit(engine, NULL, NULL, 0, &first) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(pgemm_engine_wait(engine, 1u << 30, 0) == PGEMM_ERROR_INVALID_ARGUMENT);

  const struct pgemm_job *jobs[2] = {once, apart};
  CHECK(pgemm_engine_submit_many(engine, jobs, 2, many) == PGEMM_SUCCESS && many[0] != 0 && many[1] != many[0]);
  CHECK(pgemm_engine_submit_many(engine, jobs, 0, NULL) == PGEMM_SUCCESS);
  CHECK(pgemm_engine_submit_many(engine, NULL, 1, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  jobs[1] = NULL;
  CHECK(pgemm_engine_submit_many(engine, jobs, 2, many) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(pgemm_engine_drain(engine) == PGEMM_SUCCESS && holds(cuda, d, 128.0f) && holds(cuda, other, 128.0f));
  CHECK(pgemm_engine_on_done(engine, many[1], say, (void *)&said) == PGEMM_SUCCESS);
  for (int waits = 0; said == 77 && waits < 60000; ++waits) {
    CHECK(pgemm_engine_wait(engine, many[1], 1000) == PGEMM_SUCCESS);
    pause_for_a_millisecond();
  }
  CHECK(said == PGEMM_SUCCESS);

  CHECK(pgemm_engine_submit_on(engine, again, NULL, &first) == PGEMM_SUCCESS);
  CHECK(pgemm_engine_wait(engine, first, -1) == PGEMM_SUCCESS && holds(cuda, d, 192.0f));
  CHECK(pgemm_engine_stop(engine) == PGEMM_SUCCESS);
  CHECK(pgemm_engine_submit(engine, once, NULL, 0, &first) == PGEMM_ERROR_INVALID_STATE);
  CHECK(pgemm_engine_abort(engine) == PGEMM_SUCCESS);
  CHECK(pgemm_job_destroy(&once) == PGEMM_SUCCESS && once == NULL && pgemm_job_destroy(&apart) == PGEMM_SUCCESS);
  CHECK(pgemm_engine_destroy(&engine) == PGEMM_SUCCESS && engine == NULL);
  // Jobs may be destroyed after their engine.
  CHECK(pgemm_job_destroy(&again) == PGEMM_SUCCESS && again == NULL);
  cuda_release(cuda, a);
  cuda_release(cuda, b);
  cuda_release(cuda, d);
  cuda_release(cuda, other);
}

// The tuner's result is used, and a second problem goes into the same file.
static void tuner(const char *file) {
  pgemm_config config;
  pgemm_gemm *gemm = NULL;
  pgemm_problem problem;
  char text[2000];
  size_t length = 0;
  CHECK(pgemm_config_init(&config, sizeof config) == PGEMM_SUCCESS);
  config.dtype_a = PGEMM_BF16;
  CHECK(pgemm_create(&config, &gemm) == PGEMM_SUCCESS);
  CHECK(pgemm_problem_init(&problem, sizeof problem) == PGEMM_SUCCESS);
  problem.n = problem.k = 32;
  // Of two problems, the second with a single trial.
  for (problem.m = 16; problem.m <= 32; problem.m += 16) {
    CHECK(pgemm_autotune(gemm, &problem, problem.m == 16 ? 2 : 1, 0.1, file) == PGEMM_SUCCESS);
  }
  CHECK(pgemm_destroy(&gemm) == PGEMM_SUCCESS);
  config.autotune_file = file;
  CHECK(pgemm_create(&config, &gemm) == PGEMM_SUCCESS);
  for (problem.m = 16; problem.m <= 32; problem.m += 16) {
    CHECK(pgemm_plan_describe(gemm, &problem, text, sizeof text, &length) == PGEMM_SUCCESS);
    CHECK(strstr(text, "tuned on") != NULL && strlen(text) == length);
  }
  problem.m = 48;
  CHECK(pgemm_plan_describe(gemm, &problem, text, sizeof text, NULL) == PGEMM_SUCCESS);
  CHECK(strstr(text, "tuned on") == NULL);
  // A file is no folder.
  CHECK(snprintf(text, sizeof text, "%s/results.json", file) > 0);
  CHECK(pgemm_autotune(gemm, &problem, 2, 0.1, text) == PGEMM_ERROR_FILE);
  CHECK(pgemm_destroy(&gemm) == PGEMM_SUCCESS);
}

int main(int argc, char **argv) {
  cuda_driver cuda;
  CHECK(argc == 2 && cuda_open(&cuda));
  products(&cuda, NULL);
  products(&cuda, "bias_n|relu");
  warm_up();
  engine(&cuda);
  tuner(argv[1]);
  puts("all is as it should be");
  return 0;
}
