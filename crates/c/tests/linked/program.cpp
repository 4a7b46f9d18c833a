// The class PersistentGemm::Program on the emulated device. The arguments are the files of the kernels saxpy and
// transpose.

#include <cstring>
#include <type_traits>
#include <vector>

#include "cuda_driver.h"

#include "check.h"

namespace {

using Program = PersistentGemm::Program;

template <typename Call> bool throws(pgemm_status status, const char *words, Call call) {
  try {
    call();
  } catch (const PersistentGemm::Error &error) {
    return error.status() == status && std::strstr(error.what(), words) != nullptr;
  }
  return false;
}

void vectors(const cuda_driver &cuda, Program &saxpy) {
  std::vector<float> values(300, 1.0f);
  const auto bytes = values.size() * sizeof(float);
  void *x = cuda_allocate(&cuda, bytes);
  void *y = cuda_allocate(&cuda, bytes);
  cuda_to_device(&cuda, x, values.data(), bytes);
  cuda_to_device(&cuda, y, values.data(), bytes);
  auto arguments = saxpy.arguments();
  arguments.set("x", x).set("y", y).set("n", 300u);
  CHECK(throws(PGEMM_ERROR_INVALID_ARGUMENT, "without 'alpha'", [&] { saxpy.launch(arguments, {3}); }));
  CHECK(throws(PGEMM_ERROR_INVALID_ARGUMENT, "an f32", [&] { arguments.set("alpha", 2.0); }));
  saxpy.launch(arguments.set("alpha", 2.0f), {3});
  cuda_to_host(&cuda, values.data(), y, bytes);
  for (const float value : values) {
    CHECK(value == 3.0f);
  }
  cuda_release(&cuda, x);
  cuda_release(&cuda, y);
}

void matrices(const cuda_driver &cuda, Program &transpose) {
  std::vector<float> values(8 * 16);
  for (std::size_t at = 0; at < values.size(); ++at) {
    values[at] = static_cast<float>(at);
  }
  const auto bytes = values.size() * sizeof(float);
  void *source = cuda_allocate(&cuda, bytes);
  void *target = cuda_allocate(&cuda, bytes);
  cuda_to_device(&cuda, source, values.data(), bytes);
  auto arguments = transpose.arguments();
  arguments.set("target", target).set("rows", 8u).set("factor", 1.0);
  CHECK(throws(PGEMM_ERROR_INVALID_ARGUMENT, "one number fewer",
               [&] { arguments.setTensorMap("source", source, {16, 8}, {64, 64}); }));
  arguments.setTensorMap("source", source, {16, 8}, {64});
  transpose.launch(arguments, {1, 1, 1});
  std::vector<float> found(values.size());
  cuda_to_host(&cuda, found.data(), target, bytes);
  for (std::size_t row = 0; row < 8; ++row) {
    for (std::size_t column = 0; column < 16; ++column) {
      CHECK(found[column * 8 + row] == values[row * 16 + column]);
    }
  }
  cuda_release(&cuda, source);
  cuda_release(&cuda, target);
}

static_assert(!std::is_copy_constructible_v<Program>);
static_assert(std::is_nothrow_move_constructible_v<Program>);
static_assert(std::is_nothrow_move_constructible_v<Program::Arguments>);

} // namespace

int main(int argc, char **argv) {
  cuda_driver cuda;
  CHECK(argc == 3 && cuda_open(&cuda));
  Program saxpy(argv[1]), transpose(argv[2]);
  CHECK(saxpy.describe().find("saxpy(x: u64, y: u64, n: u32, alpha: f32)\n") == 0);
  CHECK(saxpy.parameters().size() == 4 && std::strcmp(saxpy.parameters()[3].name, "alpha") == 0);
  CHECK(throws(PGEMM_ERROR_FILE, "No such file", [] { Program("none.kernel"); }));
  CHECK(throws(PGEMM_ERROR_INVALID_ARGUMENT, "1:7", [] { Program::parse("kernel"); }));
  saxpy.load();
  vectors(cuda, saxpy);
  matrices(cuda, transpose);
  std::puts("all is as it should be");
}
