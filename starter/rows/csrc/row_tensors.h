// What the registration of every operator over rows needs: where the rows of a tensor
// are, results of one number for each row, and the rows of a CPU and of a GPU.
#pragma once

#include <algorithm>
#include <optional>

#include "rows.h"
#include "tensors.h"

namespace starter {

// Where the rows of a tensor are, once it is broadcast to the shape of `model`. It has
// to be of type T. Of an optional tensor that is not there, `data` is null.
template <typename T>
Rows<T> rows_of(const char* op, const char* name, const std::optional<Tensor>& given,
                const Tensor& model) {
  Rows<T> rows;
  if (!given) return rows;
  const Tensor& tensor = *given;
  constexpr auto kType = torch::headeronly::CppTypeToScalarType<T>::value;
  STARTER_CHECK(tensor.scalar_type() == kType, op, "expected ", name, " of dtype ",
                kType, ", but got ", tensor.scalar_type());
  STARTER_CHECK(tensor.device() == model.device(), op, "expected ", name,
                " on the device of the other arguments");
  const int64_t dims = model.dim(), missing = dims - tensor.dim();
  bool fits = missing >= 0;
  for (int64_t d = 0; fits && d < dims; ++d) {
    const int64_t own = d < missing ? 1 : tensor.size(d - missing);
    const int64_t stride = own == 1 ? 0 : tensor.stride(d - missing);
    const int64_t size = model.size(d);
    fits = own == 1 || own == size;
    if (d == dims - 1) {
      rows.column_stride = stride;
    } else if (rows.dims > 0 && rows.strides[rows.dims - 1] == size * stride) {
      rows.sizes[rows.dims - 1] *= size;  // one stride describes both dimensions
      rows.strides[rows.dims - 1] = stride;
    } else if (size != 1) {
      STARTER_CHECK(rows.dims < Rows<T>::kDims, op, "the strides of ", name,
                    " are too irregular; call contiguous() first");
      rows.sizes[rows.dims] = size;
      rows.strides[rows.dims++] = stride;
    }
  }
  STARTER_CHECK(fits, op, "expected ", name, " that broadcasts to shape ",
                shape_of(model), ", but got ", shape_of(tensor));
  rows.data = data_of<T>(tensor);
  return rows;
}

// One number for each row, in fp64 if the tensor is, and else in fp32.
inline Tensor new_for_rows(const Tensor& tensor) {
  const decltype(tensor.sizes()) sizes(tensor.sizes().data(), tensor.dim() - 1);
  const bool is_double = tensor.scalar_type() == ScalarType::Double;
  return torch::stable::new_empty(tensor, sizes,
                                  is_double ? ScalarType::Double : ScalarType::Float);
}

struct RowsOnCpu {
  explicit RowsOnCpu(const Tensor&) {}

  // Merges 1024 columns at a time, because a long sum in fp32 would lose digits.
  template <typename Args>
  static void compute(const Args& args, int64_t row) {
    auto all =
        args.template part<1>(row, {0, std::min<int64_t>(1024, args.columns), 1});
    for (int64_t begin = 1024; begin < args.columns; begin += 1024) {
      const Share share = {begin, std::min(begin + 1024, args.columns), 1};
      all = Args::merge(all, args.template part<1>(row, share));
    }
    args.template write<1>(row, {0, args.columns, 1}, all);
  }

  template <typename Args>
  void operator()(const char*, const Args& args) const {
    const int64_t columns = std::max<int64_t>(args.columns, 1);
    const int64_t rows_per_thread = 4096 / columns + 1;  // of fewer elements, no gain
    torch::stable::parallel_for(0, args.rows, rows_per_thread,
                                [&](int64_t row, int64_t end) {
                                  for (; row < end; ++row) compute(args, row);
                                });
  }
};

#if defined(USE_CUDA)
struct RowsOnGpu : GpuOf {
  using GpuOf::GpuOf;

  template <typename Args>
  void operator()(const char* op, const Args& args) const {
    if (args.rows > 0) check_launch(op, launch_rows(args, stream));
  }
};
#endif

}  // namespace starter
