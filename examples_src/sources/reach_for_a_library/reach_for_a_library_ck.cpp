#include "ck/tensor_operation/gpu/device/device_gemm.hpp"

using DeviceGemm = ck::tensor_operation::device::DeviceGemm<>;
