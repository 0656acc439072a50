#include <torch/csrc/inductor/aoti_torch/c/shim.h>

// The C function that works in every PyTorch from 2.11 on; for CUDA builds only.
void* current_stream(int32_t device) {
  void* stream = nullptr;
  return aoti_torch_get_current_cuda_stream(device, &stream) ? nullptr : stream;
}
