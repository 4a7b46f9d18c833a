// The usage that the README shows, word for word: it compiles, and without a GPU it throws.

#include <cstdio>
#include <cstring>

#include "persistent_gemm.h"

void multiply(const float *A_device, const float *B_device, float *C_device, int M, int N, int K, void *stream) {
  PersistentGemm::Config cfg;
  cfg.dtypeA = PersistentGemm::FP32;
  cfg.dtypeB = PersistentGemm::FP32;
  cfg.tileM = 256;
  cfg.tileN = 256;
  cfg.tileK = 32;
  cfg.persistent = true;
  auto gemm = PersistentGemm::create(cfg);
  gemm->run(A_device, B_device, C_device, M, N, K, stream);
  gemm->sync();
}

int main() {
  try {
    multiply(nullptr, nullptr, nullptr, 1, 1, 1, nullptr);
  } catch (const PersistentGemm::Error &error) {
    const bool absent = error.status() == PGEMM_ERROR_NO_DEVICE;
    std::printf("%s\n", error.what());
    return absent && std::strstr(error.what(), "CUDA driver") != nullptr ? 0 : 1;
  }
  return 1;
}
