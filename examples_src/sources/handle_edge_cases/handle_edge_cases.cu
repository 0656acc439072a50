// A launcher that takes grid and stream from its caller, right or wrong, and returns
// what the runtime said.
#include "neg/neg.h"

// [launch]
extern "C" const char* negate(const float* input, float* output, int64_t count,
                              int blocks, int threads, void* stream) {
  opbook::neg_kernel<float, 4>
      <<<blocks, threads, 0, static_cast<gpuStream_t>(stream)>>>(input, output, 0,
                                                                 count);
  return opbook::launch_error();
}
// [/launch]
