// The GPU launcher of add_one: raw pointers and a stream, no PyTorch.
#include "add_one.h"

namespace opbook {

template <typename scalar_t>
const char* launch_add_one(const scalar_t* input, scalar_t* output, int64_t count,
                           void* stream) {
  constexpr int kThreads = 256;
  add_one_kernel<scalar_t>
      <<<blocks_for(count, kThreads), kThreads, 0, static_cast<gpuStream_t>(stream)>>>(
          input, output, count);
  return launch_error();
}

#define OPBOOK_INSTANTIATE(scalar_t) \
  template const char* launch_add_one(const scalar_t*, scalar_t*, int64_t, void*)
OPBOOK_INSTANTIATE(c10::Half);
OPBOOK_INSTANTIATE(c10::BFloat16);
OPBOOK_INSTANTIATE(float);
OPBOOK_INSTANTIATE(double);
#undef OPBOOK_INSTANTIATE

}  // namespace opbook
