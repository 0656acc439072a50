#include <torch/csrc/stable/accelerator.h>

// Stream::nativeHandle is new in PyTorch 2.13.
void* current_stream(int32_t device) {
  return torch::stable::accelerator::getCurrentStream(device).nativeHandle();
}
