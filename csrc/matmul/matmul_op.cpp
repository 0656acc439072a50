// opbook::matmul for PyTorch: schema, checks, CPU kernel, and the calls into the GPU
// launchers.
#include <algorithm>
#include <array>
#include <vector>

#include "../tensors.h"
#include "matmul.h"

namespace opbook {

namespace {

constexpr auto kName = "opbook::matmul";

void check(const Tensor& input, const Tensor& other) {
  check_floating(kName, input);
  OPBOOK_CHECK(input.dim() == 2 && other.dim() == 2, kName,
               "expected input and other to be matrices, but got shapes ",
               shape_of(input), " and ", shape_of(other));
  OPBOOK_CHECK(input.size(1) == other.size(0), kName, "expected other with ",
               input.size(1), " rows, as many as input of shape ", shape_of(input),
               " has columns, but got shape ", shape_of(other));
  OPBOOK_CHECK(input.scalar_type() == other.scalar_type(), kName,
               "expected other with input's dtype ", input.scalar_type(), ", but got ",
               other.scalar_type());
  check_same_device(kName, "other", other, input);
}

// A row of the output at a time: the inner loop runs along rows of `other`.
template <typename scalar_t>
void matmul_row(const Matrix<scalar_t>& left, const scalar_t* right, scalar_t* output,
                int64_t row, int64_t inner, int64_t columns) {
  using acc_t = accumulate_t<scalar_t>;
  std::vector<acc_t> sums(columns, acc_t(0));
  for (int64_t k = 0; k < inner; ++k) {
    const acc_t factor = left.at(row, k);
    for (int64_t j = 0; j < columns; ++j) {
      sums[j] += factor * static_cast<acc_t>(right[k * columns + j]);
    }
  }
  for (int64_t j = 0; j < columns; ++j) {
    output[row * columns + j] = static_cast<scalar_t>(sums[j]);
  }
}

struct Cpu {
  explicit Cpu(const Tensor&) {}

  template <typename scalar_t>
  void operator()(const Tensor& input, const Tensor& other, scalar_t* output) const {
    const Matrix<scalar_t> left{data_of<scalar_t>(input), input.stride(0),
                                input.stride(1)};
    const Tensor rows_of_other = contiguous(kName, other);
    const auto* right = data_of<scalar_t>(rows_of_other);
    const int64_t inner = input.size(1), columns = other.size(1);
    const int64_t work = std::max<int64_t>(1, inner * columns);
    const int64_t rows_per_task = std::max<int64_t>(1, 32768 / work);
    torch::stable::parallel_for(
        0, input.size(0), rows_per_task, [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            matmul_row(left, right, output, row, inner, columns);
          }
        });
  }
};

#if defined(USE_CUDA)
template <bool kNaive>
struct Gpu : GpuOf {
  using GpuOf::GpuOf;

  template <typename scalar_t>
  void operator()(const Tensor& input, const Tensor& other, scalar_t* output) const {
    const auto launch =
        kNaive ? launch_matmul_naive<scalar_t> : launch_matmul<scalar_t>;
    const char* error =
        launch(data_of<scalar_t>(input), input.stride(0), input.stride(1),
               data_of<scalar_t>(other), other.stride(0), other.stride(1), output,
               input.size(0), input.size(1), other.size(1), stream);
    check_launch(kName, error);
  }
};
#endif

// [run]
template <typename Device>
Tensor matmul(const Tensor& input, const Tensor& other) {
  check(input, other);
  const Device device(input);
  const std::array<int64_t, 2> shape{input.size(0), other.size(1)};
  Tensor output = new_empty(kName, input, shape);
  THO_DISPATCH_V2(input.scalar_type(), kName, AT_WRAP([&] {
                    if (output.numel() == 0) return;
                    device(input, other, mutable_data_of<scalar_t>(output));
                  }),
                  AT_FLOATING_TYPES, ScalarType::Half, ScalarType::BFloat16);
  return output;
}
// [/run]

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(opbook, m) {
  m.def("matmul(Tensor input, Tensor other) -> Tensor");
  m.def("matmul_naive(Tensor input, Tensor other) -> Tensor");  // to compare with
}

STABLE_TORCH_LIBRARY_IMPL(opbook, CPU, m) {
  m.impl("matmul", TORCH_BOX(&matmul<Cpu>));
  m.impl("matmul_naive", TORCH_BOX(&matmul<Cpu>));
}

#if defined(USE_CUDA)
STABLE_TORCH_LIBRARY_IMPL(opbook, CUDA, m) {
  m.impl("matmul", TORCH_BOX(&matmul<Gpu<false>>));
  m.impl("matmul_naive", TORCH_BOX(&matmul<Gpu<true>>));
}
#endif

}  // namespace opbook
