// The C API without a GPU: every error that C can provoke.

#include "check.h"

static pgemm_config config_of(pgemm_dtype dtype) {
  pgemm_config config;
  CHECK(pgemm_config_init(&config, sizeof config) == PGEMM_SUCCESS);
  CHECK(config.struct_size == sizeof config && config.persistent == 1);
  config.dtype_a = dtype;
  return config;
}

static pgemm_problem problem_of(int64_t m, int64_t n, int64_t k) {
  pgemm_problem problem;
  CHECK(pgemm_problem_init(&problem, sizeof problem) == PGEMM_SUCCESS);
  CHECK(problem.alpha == 1.0 && problem.beta == 0.0 && problem.lda == PGEMM_TIGHT);
  problem.m = m;
  problem.n = n;
  problem.k = k;
  return problem;
}

// The status of creating, of which there is nothing to destroy.
static pgemm_status created(const pgemm_config *config) {
  pgemm_gemm *gemm = (pgemm_gemm *)(void *)&gemm;
  const pgemm_status status = pgemm_create(config, &gemm);
  CHECK(gemm == NULL);
  return status;
}

static void versions(void) {
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", PGEMM_VERSION_MAJOR, PGEMM_VERSION_MINOR, PGEMM_VERSION_PATCH);
  CHECK(strcmp(version, pgemm_version()) == 0);
  CHECK(strcmp(pgemm_status_string(PGEMM_SUCCESS), "success") == 0);
  CHECK(strcmp(pgemm_status_string(-7), "unknown status") == 0);
  CHECK(strcmp(pgemm_last_error(), "") == 0);
}

static void no_gpu(void) {
  const pgemm_config config = config_of(PGEMM_BF16);
  CHECK(created(&config) == PGEMM_ERROR_NO_DEVICE);
  CHECK(SAYS("no CUDA driver") || SAYS("sees no GPU"));
  CHECK(SAYS("use the cpu backend"));
}

static void nulls(void) {
  const pgemm_config config = config_of(PGEMM_BF16);
  const pgemm_problem problem = problem_of(8, 8, 8);
  pgemm_gemm *none = NULL;
  CHECK(pgemm_config_init(NULL, sizeof(pgemm_config)) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(pgemm_problem_init(NULL, sizeof(pgemm_problem)) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(created(NULL) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("config is null"));
  CHECK(pgemm_create(&config, NULL) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("gemm is null"));
  CHECK(pgemm_run(NULL, NULL, NULL, NULL, 1, 1, 1, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(pgemm_run_ex(NULL, &problem, NULL, NULL, NULL, NULL, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(pgemm_prepare(NULL, &problem) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(pgemm_sync(NULL) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("gemm is null"));
  CHECK(pgemm_plan_describe(NULL, &problem, NULL, 0, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(pgemm_config_describe(&config, NULL, 0, NULL, 0, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("problem is null"));
  CHECK(pgemm_autotune(NULL, &problem, 0, 0.0, "file") == PGEMM_ERROR_INVALID_ARGUMENT);
  // Destroying nothing, as often as one likes.
  CHECK(pgemm_destroy(&none) == PGEMM_SUCCESS && pgemm_destroy(&none) == PGEMM_SUCCESS);
  CHECK(pgemm_destroy(NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
}

static void never(pgemm_status status, void *context) {
  (void)status, (void)context;
  CHECK(0 && "it is called");
}

static void not_shown(size_t done, size_t all, void *context) {
  (void)done, (void)all, (void)context;
  CHECK(0 && "it is called");
}

static void warm_ups(void) {
  const pgemm_problem problems[] = {problem_of(8, 8, 8), problem_of(16, 8, 8)};
  pgemm_warm_up_result result;
  memset(&result, 0xff, sizeof result);
  CHECK(pgemm_warm_up(NULL, problems, 2, not_shown, NULL, &result) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("pgemm_warm_up_result_init"));
  CHECK(pgemm_warm_up_result_init(NULL, sizeof result) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("result is null"));
  CHECK(pgemm_warm_up_result_init(&result, 8) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(pgemm_warm_up_result_init(&result, sizeof result) == PGEMM_SUCCESS);
  CHECK(result.struct_size == sizeof result && result.problems == 0 && result.kernels == 0 && result.assembled == 0);
  result.problems = 7;
  CHECK(pgemm_warm_up(NULL, problems, 2, not_shown, NULL, &result) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("gemm is null") && result.problems == 0 && result.struct_size == sizeof result);
  CHECK(pgemm_warm_up(NULL, NULL, 0, NULL, NULL, NULL) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("gemm is null"));
}

// path is that of a pack with one kernel, or null; program is a file that is no pack.
static void packs(const char *program, const char *path) {
  pgemm_pack_info info;
  memset(&info, 0xff, sizeof info);
  CHECK(pgemm_load_pack("none.pgemm", &info) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("pgemm_pack_info_init"));
  CHECK(pgemm_pack_info_init(NULL, sizeof info) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("info is null"));
  CHECK(pgemm_pack_info_init(&info, 8) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(pgemm_pack_info_init(&info, sizeof info) == PGEMM_SUCCESS);
  CHECK(info.struct_size == sizeof info && info.kernels == 0 && info.problems == 0);
  info.kernels = 7;
  CHECK(pgemm_load_pack(NULL, &info) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("path is null"));
  CHECK(info.kernels == 0 && info.struct_size == sizeof info);
  CHECK(pgemm_load_pack("\xff", NULL) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("path is no UTF-8"));
  CHECK(pgemm_load_pack("none.pgemm", NULL) == PGEMM_ERROR_FILE && SAYS("none.pgemm: No such file"));
  CHECK(pgemm_load_pack("", &info) == PGEMM_ERROR_FILE);
  CHECK(pgemm_load_pack("/", &info) == PGEMM_ERROR_FILE && SAYS("is a directory"));
  CHECK(pgemm_load_pack("/dev/null", &info) == PGEMM_ERROR_FILE && SAYS("not a regular file"));
  CHECK(pgemm_load_pack(program, &info) == PGEMM_ERROR_FILE && SAYS("it is no pack of kernels"));
  CHECK(info.kernels == 0 && info.problems == 0);
  if (path != NULL) {
    CHECK(pgemm_load_pack(path, &info) == PGEMM_SUCCESS && pgemm_load_pack(path, NULL) == PGEMM_SUCCESS);
    CHECK(info.kernels == 1 && info.problems == 0 && info.struct_size == sizeof info);
  }
  CHECK(pgemm_set_compile(NULL, PGEMM_COMPILE_BEHIND) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("gemm is null"));
}

static void engines(void) {
  const pgemm_problem problem = problem_of(128, 128, 128);
  pgemm_engine_options options;
  pgemm_engine *engine = (pgemm_engine *)(void *)&options;
  pgemm_job *job = (pgemm_job *)(void *)&options;
  const pgemm_job *jobs[] = {NULL};
  pgemm_ticket ticket = 7;
  int32_t done = 7;
  CHECK(pgemm_engine_options_init(&options, sizeof options) == PGEMM_SUCCESS);
  CHECK(options.goal == PGEMM_GOAL_THROUGHPUT && options.sms == 0 && options.idle_microseconds == 1000);
  CHECK(pgemm_engine_options_init(NULL, sizeof options) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("options is null"));
  CHECK(pgemm_engine_create(NULL, &problem, &options, &engine) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("gemm is null") && engine == NULL);
  CHECK(pgemm_engine_create(NULL, &problem, NULL, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("engine is null"));
  CHECK(pgemm_job_prepare(NULL, &problem, NULL, NULL, NULL, NULL, &job) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("engine is null") && job == NULL);
  CHECK(pgemm_job_prepare(NULL, &problem, NULL, NULL, NULL, NULL, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("job is null"));
  CHECK(pgemm_engine_submit(NULL, NULL, NULL, 0, &ticket) == PGEMM_ERROR_INVALID_ARGUMENT && ticket == 7);
  CHECK(pgemm_engine_submit_many(NULL, jobs, 1, &ticket) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(pgemm_engine_submit_on(NULL, NULL, NULL, &ticket) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(pgemm_engine_wait(NULL, ticket, -1) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("engine is null"));
  CHECK(pgemm_engine_is_done(NULL, ticket, &done) == PGEMM_ERROR_INVALID_ARGUMENT && done == 7);
  CHECK(pgemm_engine_on_done(NULL, ticket, never, NULL) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("engine is null"));
  CHECK(pgemm_engine_drain(NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(pgemm_engine_stop(NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(pgemm_engine_abort(NULL) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("engine is null"));
  CHECK(pgemm_engine_destroy(&engine) == PGEMM_SUCCESS && pgemm_job_destroy(&job) == PGEMM_SUCCESS);
  CHECK(pgemm_engine_destroy(NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(pgemm_job_destroy(NULL) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("job is null"));
  CHECK(strcmp(pgemm_status_string(PGEMM_ERROR_TIMEOUT), "timeout") == 0);
}

static void programs(const char *executable) {
  static const char *const nothing = "kernel \"nothing\", cluster 1\nparam0 = \"n\": u32\n"
                                     "role0 = \"all\": 1 warpgroups, 32 registers\n{ roles[role0] { yield } }\n";
  pgemm_program *program = (pgemm_program *)(void *)&nothing;
  pgemm_arguments *arguments = (pgemm_arguments *)(void *)&nothing;
  pgemm_parameter parameter;
  size_t count = 7;
  char text[2000];
  CHECK(pgemm_program_open(NULL, &program) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("path is null") && program == NULL);
  CHECK(pgemm_program_open("none.kernel", NULL) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("program is null"));
  CHECK(pgemm_program_open("none.kernel", &program) == PGEMM_ERROR_FILE && SAYS("none.kernel: No such file"));
  CHECK(pgemm_program_open("/dev/null", &program) == PGEMM_ERROR_FILE && SAYS("not a regular file"));
  CHECK(pgemm_program_open(executable, &program) == PGEMM_ERROR_FILE && SAYS("not UTF-8"));
  CHECK(pgemm_program_parse(NULL, &program) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("source is null"));
  CHECK(pgemm_program_parse("kernel\n7", &program) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("the text is not a kernel: 2:1: found '7', expected a name") && program == NULL);
  CHECK(pgemm_program_parameter_count(NULL, &count) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("program is null"));
  CHECK(pgemm_arguments_create(NULL, &arguments) == PGEMM_ERROR_INVALID_ARGUMENT && arguments == NULL);
  CHECK(pgemm_program_load(NULL, 0) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("program is null"));

  CHECK(pgemm_program_parse(nothing, &program) == PGEMM_SUCCESS);
  CHECK(pgemm_program_parameter_count(program, NULL) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("count is null"));
  CHECK(pgemm_program_parameter_count(program, &count) == PGEMM_SUCCESS && count == 1);
  memset(&parameter, 0xff, sizeof parameter);
  CHECK(pgemm_program_parameter(program, 0, &parameter) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("pgemm_parameter_init"));
  CHECK(pgemm_program_parameter(program, 0, NULL) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("parameter is null"));
  CHECK(pgemm_parameter_init(&parameter, sizeof parameter) == PGEMM_SUCCESS && parameter.name == NULL);
  CHECK(pgemm_program_parameter(program, 0, &parameter) == PGEMM_SUCCESS && strcmp(parameter.name, "n") == 0);
  CHECK(pgemm_program_describe(program, text, sizeof text, &count) == PGEMM_SUCCESS && strlen(text) == count);
  CHECK(strncmp(text, "nothing(n: u32)\n", 16) == 0);
  CHECK(pgemm_program_load(program, -2) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("device = -2"));
  CHECK(pgemm_program_load(program, 0) == PGEMM_ERROR_NO_DEVICE);
  CHECK(pgemm_arguments_create(program, NULL) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("arguments is null"));
  CHECK(pgemm_arguments_create(program, &arguments) == PGEMM_SUCCESS);
  CHECK(pgemm_arguments_set_u32(NULL, "n", 1) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("arguments is null"));
  CHECK(pgemm_arguments_set_u32(arguments, NULL, 1) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("name is null"));
  CHECK(pgemm_arguments_set_u32(arguments, "\xff", 1) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("name is no UTF-8"));
  CHECK(pgemm_arguments_set_u32(arguments, "n", 1) == PGEMM_SUCCESS);
  CHECK(pgemm_program_launch(program, NULL, 1, 1, 1, NULL) == PGEMM_ERROR_INVALID_ARGUMENT &&
        SAYS("arguments is null"));
  CHECK(pgemm_program_launch(program, arguments, 1, 1, 1, NULL) == PGEMM_ERROR_NO_DEVICE);
  CHECK(pgemm_program_destroy(NULL) == PGEMM_ERROR_INVALID_ARGUMENT &&
        pgemm_program_destroy(&program) == PGEMM_SUCCESS);
  CHECK(pgemm_program_destroy(&program) == PGEMM_SUCCESS && pgemm_arguments_destroy(&arguments) == PGEMM_SUCCESS);
  CHECK(pgemm_arguments_destroy(NULL) == PGEMM_ERROR_INVALID_ARGUMENT && arguments == NULL);
}

static void nonsense(void) {
  pgemm_config config = config_of(PGEMM_BF16);
  config.dtype_b = 77;
  CHECK(created(&config) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("dtype_b = 77 is unknown"));
  config = config_of(PGEMM_UNSPECIFIED);
  CHECK(created(&config) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("dtype_a is not given"));
  config = config_of(PGEMM_BF16);
  config.tile_m = 100;
  CHECK(created(&config) == PGEMM_ERROR_NOT_SUPPORTED && SAYS("tile_m"));
  config = config_of(PGEMM_BF16);
  config.kernel = "no such kernel";
  CHECK(created(&config) == PGEMM_ERROR_NOT_SUPPORTED && SAYS("no such kernel"));
  config = config_of(PGEMM_BF16);
  config.split = "\xff";
  CHECK(created(&config) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("split is no UTF-8"));
  // Nobody has initialised it.
  memset(&config, 0, sizeof config);
  CHECK(created(&config) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("pgemm_config_init"));
  memset(&config, 0xff, sizeof config);
  CHECK(created(&config) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("pgemm_config_init"));
}

static void plans(void) {
  pgemm_config config = config_of(PGEMM_FP32);
  pgemm_problem problem = problem_of(4096, 4096, 4096);
  char text[400];
  char little[9];
  size_t length = 0;
  config.tile_m = 256;
  config.tile_n = 256;
  config.tile_k = 32;
  CHECK(pgemm_config_describe(&config, &problem, 0, text, sizeof text, &length) == PGEMM_SUCCESS);
  CHECK(length == strlen(text) && strncmp(text, "f32-kn-f32-", 11) == 0);
  CHECK(strstr(text, "macro-tile 256x256 as 2x1 CTA tiles of 128x256") != NULL);
  // Cut, with the same length.
  CHECK(pgemm_config_describe(&config, &problem, 0, little, sizeof little, &length) == PGEMM_SUCCESS);
  CHECK(strcmp(little, "f32-kn-f") == 0 && length == strlen(text));
  CHECK(pgemm_config_describe(&config, &problem, 0, NULL, 9, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  // Layouts, a batch, and what cannot be.
  problem.layout_b = PGEMM_COLUMN_MAJOR;
  problem.batch = 3;
  problem.batch_stride_a = PGEMM_SAME;
  CHECK(pgemm_config_describe(&config, &problem, 66, text, sizeof text, NULL) == PGEMM_SUCCESS);
  CHECK(strncmp(text, "f32-kk-f32-", 11) == 0 && strstr(text, "on 66 CTAs") != NULL);
  problem.batch_stride_d = 5;
  CHECK(pgemm_config_describe(&config, &problem, 0, NULL, 0, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("would overlap"));
  problem = problem_of(-4, 4, 4);
  CHECK(pgemm_config_describe(&config, &problem, 0, NULL, 0, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("m is -4"));
}

int main(int count, char **arguments) {
  versions();
  no_gpu();
  nulls();
  warm_ups();
  packs(arguments[0], count > 1 ? arguments[1] : NULL);
  engines();
  programs(arguments[0]);
  nonsense();
  plans();
  puts("c: all as it should be");
  return 0;
}
