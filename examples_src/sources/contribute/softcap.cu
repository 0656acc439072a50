// The GPU launchers of softcap, which take pointers and a stream, and no tensors.
#include "softcap.h"

namespace opbook {

namespace {

constexpr int kThreads = 256;

}  // namespace

template <typename T>
const char* launch_softcap(const T* input, T* output, int64_t count, double cap,
                           void* stream) {
  softcap_kernel<T>
      <<<blocks_for(count, kThreads), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
          input, output, count, cap);
  return launch_error();
}

template <typename T>
const char* launch_softcap_backward(const T* grad, const T* input, T* output,
                                    int64_t count, double cap, void* stream) {
  softcap_backward_kernel<T>
      <<<blocks_for(count, kThreads), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
          grad, input, output, count, cap);
  return launch_error();
}

#define OPBOOK_INSTANTIATE(T)                                                   \
  template const char* launch_softcap(const T*, T*, int64_t, double, void*);    \
  template const char* launch_softcap_backward(const T*, const T*, T*, int64_t, \
                                               double, void*)
OPBOOK_INSTANTIATE(c10::Half);
OPBOOK_INSTANTIATE(c10::BFloat16);
OPBOOK_INSTANTIATE(float);
OPBOOK_INSTANTIATE(double);
#undef OPBOOK_INSTANTIATE

}  // namespace opbook
