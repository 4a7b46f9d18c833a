// Programs on the emulated device. The arguments are the files of the kernels saxpy and transpose.

#include "cuda_driver.h"

#include "check.h"

enum { COUNT = 300, ROWS = 20, COLUMNS = 32, LINES = 24 };

static void parameters(const pgemm_program *saxpy, const pgemm_program *transpose) {
  static const char *const names[] = {"x", "y", "n", "alpha"};
  static const pgemm_parameter_type kinds[] = {PGEMM_PARAMETER_U64, PGEMM_PARAMETER_U64, PGEMM_PARAMETER_U32,
                                               PGEMM_PARAMETER_F32};
  pgemm_parameter parameter;
  size_t count = 0;
  CHECK(pgemm_parameter_init(&parameter, sizeof parameter) == PGEMM_SUCCESS);
  CHECK(pgemm_program_parameter_count(saxpy, &count) == PGEMM_SUCCESS && count == 4);
  for (size_t index = 0; index < count; ++index) {
    CHECK(pgemm_program_parameter(saxpy, index, &parameter) == PGEMM_SUCCESS);
    CHECK(strcmp(parameter.name, names[index]) == 0 && parameter.kind == kinds[index] && parameter.rank == 0);
  }
  CHECK(pgemm_program_parameter(saxpy, 4, &parameter) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("has 4 parameters"));
  CHECK(pgemm_program_parameter(transpose, 0, &parameter) == PGEMM_SUCCESS);
  CHECK(parameter.kind == PGEMM_PARAMETER_TENSOR_MAP && parameter.dtype == PGEMM_FP32 && parameter.rank == 2);
  CHECK(parameter.box_extents[0] == 16 && parameter.box_extents[1] == 8 && parameter.box_extents[2] == 0);
}

static void vectors(const cuda_driver *cuda, const pgemm_program *saxpy) {
  float host[COUNT];
  const size_t bytes = sizeof host;
  void *x = cuda_allocate(cuda, bytes), *y = cuda_allocate(cuda, bytes);
  for (int at = 0; at < COUNT; ++at) {
    host[at] = (float)at;
  }
  cuda_to_device(cuda, x, host, bytes);
  cuda_to_device(cuda, y, host, bytes);
  pgemm_arguments *arguments = NULL;
  CHECK(pgemm_arguments_create(saxpy, &arguments) == PGEMM_SUCCESS);
  CHECK(pgemm_arguments_set_pointer(arguments, "x", x) == PGEMM_SUCCESS);
  CHECK(pgemm_arguments_set_pointer(arguments, "z", y) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("no parameter 'z'") && SAYS("'alpha' (an f32)"));
  CHECK(pgemm_arguments_set_u64(arguments, "n", COUNT) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("'n'") && SAYS("a u32"));
  CHECK(pgemm_arguments_set_u32(arguments, "n", COUNT) == PGEMM_SUCCESS);
  CHECK(pgemm_arguments_set_f64(arguments, "alpha", 2.0) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("an f32"));
  CHECK(pgemm_arguments_set_f32(arguments, "alpha", 3.0f) == PGEMM_SUCCESS);
  CHECK(pgemm_program_launch(saxpy, arguments, 3, 1, 1, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("is launched without 'y'"));
  CHECK(pgemm_arguments_set_u64(arguments, "y", (uint64_t)(uintptr_t)y) == PGEMM_SUCCESS);
  CHECK(pgemm_program_launch(saxpy, arguments, 0, 1, 1, NULL) == PGEMM_ERROR_INVALID_ARGUMENT &&
        SAYS("grid of [0, 1, 1]"));
  CHECK(pgemm_program_launch(saxpy, arguments, 3, 1, 1, NULL) == PGEMM_SUCCESS);
  // A later value replaces the first one.
  CHECK(pgemm_arguments_set_f32(arguments, "alpha", -1.0f) == PGEMM_SUCCESS);
  CHECK(pgemm_program_launch(saxpy, arguments, 3, 1, 1, NULL) == PGEMM_SUCCESS);
  CHECK(pgemm_arguments_destroy(&arguments) == PGEMM_SUCCESS && arguments == NULL);
  cuda_to_host(cuda, host, y, bytes);
  for (int at = 0; at < COUNT; ++at) {
    CHECK(host[at] == 3.0f * (float)at);
  }
  cuda_release(cuda, x);
  cuda_release(cuda, y);
}

static void matrices(const cuda_driver *cuda, const pgemm_program *saxpy, const pgemm_program *transpose) {
  static float source[ROWS * COLUMNS], target[COLUMNS * LINES];
  const uint64_t extents[] = {COLUMNS, ROWS}, strides[] = {COLUMNS * sizeof(float)},
                 odd[] = {COLUMNS * sizeof(float) + 4};
  for (int at = 0; at < ROWS * COLUMNS; ++at) {
    source[at] = (float)at;
  }
  void *from = cuda_allocate(cuda, sizeof source), *to = cuda_allocate(cuda, sizeof target);
  cuda_to_device(cuda, from, source, sizeof source);
  pgemm_arguments *arguments = NULL;
  CHECK(pgemm_arguments_create(transpose, &arguments) == PGEMM_SUCCESS);
  CHECK(pgemm_arguments_set_pointer(arguments, "target", to) == PGEMM_SUCCESS);
  CHECK(pgemm_arguments_set_u32(arguments, "rows", LINES) == PGEMM_SUCCESS);
  CHECK(pgemm_arguments_set_f64(arguments, "factor", 2.0) == PGEMM_SUCCESS);
  CHECK(pgemm_arguments_set_pointer(arguments, "source", from) == PGEMM_ERROR_INVALID_ARGUMENT && SAYS("a tensor map"));
  CHECK(pgemm_arguments_set_tensor_map(arguments, "source", from, 0, extents, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("rank = 0"));
  CHECK(pgemm_arguments_set_tensor_map(arguments, "source", from, 2, NULL, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("extents is null"));
  CHECK(pgemm_arguments_set_tensor_map(arguments, "source", from, 1, extents, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("'source'"));
  CHECK(pgemm_arguments_set_tensor_map(arguments, "source", from, 2, extents, odd) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("132"));
  CHECK(pgemm_arguments_set_tensor_map(arguments, "rows", from, 2, extents, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("a u32"));
  for (int gaps = 0; gaps < 2; ++gaps) {
    memset(target, 0, sizeof target);
    cuda_to_device(cuda, to, target, sizeof target);
    CHECK(pgemm_arguments_set_tensor_map(arguments, "source", from, 2, extents, gaps ? strides : NULL) ==
          PGEMM_SUCCESS);
    CHECK(pgemm_program_launch(transpose, arguments, COLUMNS / 16, LINES / 8, 1, NULL) == PGEMM_SUCCESS);
    cuda_to_host(cuda, target, to, sizeof target);
    for (int column = 0; column < COLUMNS; ++column) {
      for (int row = 0; row < LINES; ++row) {
        CHECK(target[column * LINES + row] == (row < ROWS ? 2.0f * source[row * COLUMNS + column] : 0.0f));
      }
    }
  }
  // Those of another kernel.
  CHECK(pgemm_program_launch(saxpy, arguments, 1, 1, 1, NULL) == PGEMM_ERROR_INVALID_ARGUMENT);
  CHECK(SAYS("belong to kernel 'transpose'"));
  CHECK(pgemm_arguments_destroy(&arguments) == PGEMM_SUCCESS);
  cuda_release(cuda, from);
  cuda_release(cuda, to);
}

int main(int argc, char **argv) {
  cuda_driver cuda;
  pgemm_program *saxpy = NULL, *transpose = NULL;
  CHECK(argc == 3 && cuda_open(&cuda));
  CHECK(pgemm_program_open(argv[1], &saxpy) == PGEMM_SUCCESS);
  CHECK(pgemm_program_open(argv[2], &transpose) == PGEMM_SUCCESS);
  parameters(saxpy, transpose);
  CHECK(pgemm_program_load(saxpy, 99) == PGEMM_ERROR_NO_DEVICE);
  CHECK(pgemm_program_load(saxpy, PGEMM_CURRENT_DEVICE) == PGEMM_SUCCESS);
  CHECK(pgemm_program_load(saxpy, PGEMM_CURRENT_DEVICE) == PGEMM_SUCCESS);
  vectors(&cuda, saxpy);
  matrices(&cuda, saxpy, transpose);
  CHECK(pgemm_program_destroy(&saxpy) == PGEMM_SUCCESS && saxpy == NULL);
  CHECK(pgemm_program_destroy(&transpose) == PGEMM_SUCCESS);
  puts("all is as it should be");
  return 0;
}
