#include <cmath>

namespace detail {
const char* where() { return __FILE__; }
}  // namespace detail

extern "C" __attribute__((visibility("default"))) void roots(const float* input,
                                                             float* output,
                                                             long count) {
  if (count < 0) throw detail::where();
  for (long i = 0; i < count; ++i) output[i] = std::sqrt(input[i]);
}
