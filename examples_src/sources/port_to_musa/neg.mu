// neg for Moore Threads GPUs: the kernel and its launcher are the ones of csrc/neg.

// [names] What portable.h takes from CUDA or HIP, taken from MUSA.
#include <musa_runtime.h>
#define OPBOOK_GPU 1
using cudaStream_t = musaStream_t;
#define cudaDeviceGetAttribute musaDeviceGetAttribute
#define cudaDevAttrMultiProcessorCount musaDevAttrMultiProcessorCount
#define cudaGetDevice musaGetDevice
#define cudaGetLastError musaGetLastError
#define cudaGetErrorString musaGetErrorString
#define cudaSuccess musaSuccess

#include "neg/neg.cu"
// [/names]

#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/neg.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstdlib>
#include <string_view>

#include "torch_musa/csrc/aten/musa/MUSAContext.h"

namespace {

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "1";
}

// [override]
at::Tensor neg_musa(const at::Tensor& self) {
  const auto dtype = self.scalar_type();
  const bool ours = dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16;
  if (!ours || !self.is_contiguous()) {
    at::Tensor output = at::empty({0}, self.options());
    return at::neg_out(output, self);  // another operator, so it does not come back
  }
  const c10::DeviceGuard guard(self.device());
  const musaStream_t stream = at::musa::getCurrentMUSAStream();
  at::Tensor output = at::empty_like(self, at::MemoryFormat::Contiguous);
  AT_DISPATCH_SWITCH(
      dtype, "neg_musa",
      AT_DISPATCH_CASE_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, [&] {
        const char* error = opbook::launch_neg(self.const_data_ptr<scalar_t>(),
                                               output.mutable_data_ptr<scalar_t>(),
                                               self.numel(), stream);
        TORCH_CHECK(error == nullptr, "aten::neg: kernel launch failed: ", error);
      }));
  return output;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  if (is_set("OPBOOK_ENABLE_OVERRIDES") && !is_set("OPBOOK_DISABLE_OVERRIDE_neg")) {
    m.impl("neg", &neg_musa);
  }
}
// [/override]

}  // namespace
