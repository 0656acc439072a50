// A naive matmul in a library of its own. The command line gives the namespace, the
// name of the operator, and the macro that opens the namespace.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>

#define AS_TEXT(word) #word
#define TEXT(macro) AS_TEXT(macro)
#define OPERATOR TEXT(NAMESPACE) "::" TEXT(NAME)

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

const float* values_of(const Tensor& matrix) {
  STD_TORCH_CHECK(matrix.dim() == 2, OPERATOR ": expected matrices, but got ",
                  matrix.dim(), " dimensions");
  STD_TORCH_CHECK(matrix.scalar_type() == ScalarType::Float && matrix.is_contiguous(),
                  OPERATOR ": expected contiguous float32 matrices, but got dtype ",
                  matrix.scalar_type(), " and strides ", matrix.stride(0), ", ",
                  matrix.stride(1));
  return static_cast<const float*>(matrix.const_data_ptr());
}

Tensor matmul(const Tensor& left, const Tensor& right) {
  const float *a = values_of(left), *b = values_of(right);
  const int64_t rows = left.size(0), inner = left.size(1), columns = right.size(1);
  STD_TORCH_CHECK(inner == right.size(0), OPERATOR ": expected right with ", inner,
                  " rows, as many as left has columns, but got ", right.size(0));
  const std::array<int64_t, 2> shape{rows, columns};
  Tensor output = torch::stable::new_empty(left, shape);
  auto* c = static_cast<float*>(output.mutable_data_ptr());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < inner; ++k) sum += a[i * inner + k] * b[k * columns + j];
      c[i * columns + j] = sum;
    }
  }
  return output;
}

}  // namespace

// [register]
OPEN_NAMESPACE(NAMESPACE, m) {
  m.def(TEXT(NAME) "(Tensor left, Tensor right) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(NAMESPACE, CPU, m) { m.impl(TEXT(NAME), TORCH_BOX(&matmul)); }
// [/register]
