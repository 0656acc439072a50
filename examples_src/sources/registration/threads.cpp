// threads::inside says how many calls of it ran at the same time.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace {

std::atomic<int64_t> now = 0;
std::mutex mutex;  // of `most`: std::max reads and writes in two steps
int64_t most = 0;

int64_t inside(const torch::stable::Tensor& x) {
  const int64_t count = ++now;
  {
    const std::lock_guard lock(mutex);
    most = std::max(most, count);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  --now;
  const std::lock_guard lock(mutex);
  return most;
}

}  // namespace

STABLE_TORCH_LIBRARY(threads, m) { m.def("inside(Tensor x) -> int"); }
STABLE_TORCH_LIBRARY_IMPL(threads, CPU, m) { m.impl("inside", TORCH_BOX(&inside)); }
