#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include "square.h"

using tvm::ffi::TensorView;

// [function] the caller allocates, and tensors of any framework that has DLPack may
// come
void square(TensorView input, TensorView output) {
  for (TensorView tensor : {input, output}) {
    TVM_FFI_CHECK(tensor.dtype() == DLDataType({kDLFloat, 32, 1}), TypeError)
        << "square: expected float32";
    TVM_FFI_CHECK(tensor.IsContiguous() && tensor.device().device_type == kDLCPU,
                  ValueError)
        << "square: expected contiguous tensors of the CPU";
  }
  TVM_FFI_CHECK(input.numel() == output.numel(), ValueError)
      << "square: expected an output of " << input.numel() << " elements, not "
      << output.numel();
  square_values(static_cast<const float*>(input.data_ptr()),
                static_cast<float*>(output.data_ptr()), input.numel());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(square, square);
// [/function]
