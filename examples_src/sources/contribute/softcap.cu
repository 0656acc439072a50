// The GPU launchers of softcap, which take pointers and a stream, and no tensors.
#include "softcap.h"

namespace opbook {

namespace {

constexpr int kThreads = 256;

}  // namespace

template <typename scalar_t>
const char* launch_softcap(const scalar_t* input, scalar_t* output, int64_t count,
                           double cap, void* stream) {
  softcap_kernel<scalar_t>
      <<<blocks_for(count, kThreads), kThreads, 0, static_cast<gpuStream_t>(stream)>>>(
          input, output, count, cap);
  return launch_error();
}

template <typename scalar_t>
const char* launch_softcap_backward(const scalar_t* grad, const scalar_t* input,
                                    scalar_t* output, int64_t count, double cap,
                                    void* stream) {
  softcap_backward_kernel<scalar_t>
      <<<blocks_for(count, kThreads), kThreads, 0, static_cast<gpuStream_t>(stream)>>>(
          grad, input, output, count, cap);
  return launch_error();
}

#define OPBOOK_INSTANTIATE(scalar_t)                                               \
  template const char* launch_softcap(const scalar_t*, scalar_t*, int64_t, double, \
                                      void*);                                      \
  template const char* launch_softcap_backward(const scalar_t*, const scalar_t*,   \
                                               scalar_t*, int64_t, double, void*)
OPBOOK_INSTANTIATE(c10::Half);
OPBOOK_INSTANTIATE(c10::BFloat16);
OPBOOK_INSTANTIATE(float);
OPBOOK_INSTANTIATE(double);
#undef OPBOOK_INSTANTIATE

}  // namespace opbook
