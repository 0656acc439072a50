// Numbers from PyTorch's own stream, with ATen: a build serves one version of PyTorch.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <torch/library.h>

#include <mutex>
#include <optional>

// The CPU's generator is a Mersenne twister, which has no offset: draw both numbers.
at::Tensor reserve_cpu(const at::Tensor&, std::optional<at::Generator> generator) {
  auto* found = at::get_generator_or_default<at::CPUGeneratorImpl>(
      generator, at::detail::getDefaultCPUGenerator());
  const std::lock_guard<std::mutex> lock(found->mutex_);
  const auto draw = [&] { return static_cast<int64_t>(found->random64() >> 1); };
  const int64_t seed = draw(), offset = draw();
  return at::tensor({seed, offset}, at::kLong);
}

TORCH_LIBRARY_FRAGMENT(draw, m) {
  m.def("reserve(Tensor like, Generator? generator=None) -> Tensor",
        {at::Tag::nondeterministic_seeded});
}

TORCH_LIBRARY_IMPL(draw, CPU, m) { m.impl("reserve", &reserve_cpu); }
