// GELU(x w^T + bias) in one kernel of CUTLASS 4, for Hopper (sm_90a). The launcher
// takes pointers and a stream: this file alone needs CUTLASS's headers.
#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>

#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "../../../starter/cpp/csrc/portable.h"

namespace cutlass_linear {

using cute::_0, cute::_1, cute::_2, cute::_64, cute::_128, cute::_256;
using cute::Shape, cute::Stride;
using Bf16 = cutlass::bfloat16_t;
using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;
using Hopper = cutlass::arch::Sm90;
using TensorCores = cutlass::arch::OpClassTensorOp;
namespace epilogue = cutlass::epilogue;
namespace fusion = epilogue::fusion;
namespace gemm = cutlass::gemm;
constexpr auto kRound = cutlass::FloatRoundStyle::round_to_nearest;

// x * Phi(x) for a bf16 result. Phi, the distribution function of the standard normal
// distribution, has the form of Abramowitz and Stegun, 7.1.26. Its relative error is
// below 2e-4 where bf16 still has a result, and erfc would take twice the instructions.
__device__ inline float gelu(float x) {
  const float t = __fdividef(1.0f, 1.0f + 0.30052038f * std::fabs(x));
  float series = -0.08214584f;
  series = series * t + 0.23000233f;
  series = series * t - 0.03370519f;
  series = series * t + 0.15394582f;
  series = series * t + 0.11135593f;
  series = series * t + 0.12054613f;
  const float tail = series * t * __expf(-0.5f * x * x);
  return x * (x < 0 ? tail : 1.0f - tail);
}

// [kernel]
using Tile = Shape<_128, _256, _64>;  // rows, columns and k-step of a block
using Cluster = Shape<_2, _1, _1>;    // blocks that share what they load
constexpr int kAligned = 8;           // elements in 16 bytes, which a copy starts at

// What happens to the sums while they are in registers: a function of our own.
template <typename T>
struct ExactGelu {};
template <int kCount>
struct ExactGelu<cutlass::Array<float, kCount>> {
  using Values = cutlass::Array<float, kCount>;
  __device__ Values operator()(Values values) const {
    for (float& value : values) value = gelu(value);
    return values;
  }
};

// A tree, read from inside: the sums, plus the bias of their column, then GELU.
using Bias = fusion::Sm90RowBroadcast<0, Tile, Bf16, float, Stride<_0, _1, int64_t>>;
using Add = fusion::Sm90Compute<cutlass::plus, float, float, kRound>;
using Activate = fusion::Sm90Compute<ExactGelu, Bf16, float, kRound>;
using Tree =
    fusion::Sm90EVT<Activate, fusion::Sm90EVT<Add, fusion::Sm90AccFetch, Bias>>;

// Element, layout and alignment of each matrix; ColumnMajor: the weight is transposed.
using Epilogue = epilogue::collective::CollectiveBuilder<
    Hopper, TensorCores, Tile, Cluster, epilogue::collective::EpilogueTileAuto, float,
    float, void, RowMajor, kAligned, Bf16, RowMajor, kAligned,
    epilogue::TmaWarpSpecializedCooperative, Tree>::CollectiveOp;
using Stages = gemm::collective::StageCountAutoCarveout<static_cast<int>(
    sizeof(Epilogue::SharedStorage))>;
using Product = gemm::collective::CollectiveBuilder<
    Hopper, TensorCores, Bf16, RowMajor, kAligned, Bf16, ColumnMajor, kAligned, float,
    Tile, Cluster, Stages, gemm::KernelTmaWarpSpecializedCooperative>::CollectiveOp;
using Gemm = gemm::device::GemmUniversalAdapter<
    gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Product, Epilogue>>;
// [/kernel]

// Returns null, or what went wrong. `bias` may be null.
const char* launch_cutlass_linear(const c10::BFloat16* input,
                                  const c10::BFloat16* weight,
                                  const c10::BFloat16* bias, c10::BFloat16* output,
                                  int rows, int columns, int depth, void* stream) {
  const auto in = [](const c10::BFloat16* p) {
    return reinterpret_cast<const Bf16*>(p);
  };
  cutlass::KernelHardwareInfo hardware;
  int major = 0;
  const auto processors = cudaDevAttrMultiProcessorCount;
  cudaGetDevice(&hardware.device_id);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, hardware.device_id);
  if (major != 9) return "compiled for compute capability 9.0, and for no other";
  cudaDeviceGetAttribute(&hardware.sm_count, processors, hardware.device_id);
  const typename Gemm::Arguments arguments{
      gemm::GemmUniversalMode::kGemm,
      {rows, columns, depth, 1},
      {in(input), {depth, _1{}, 0}, in(weight), {depth, _1{}, 0}},
      {{{{}, {in(bias)}, {}}, {}},  // of the tree's nodes, only the bias has arguments
       nullptr,
       {},
       reinterpret_cast<Bf16*>(output),
       {columns, _1{}, 0}},
      hardware};
  if (Gemm::get_workspace_size(arguments) != 0) return "it asks for a workspace";
  Gemm product;
  auto status = Gemm::can_implement(arguments);
  if (status == cutlass::Status::kSuccess) {
    status = product.run(arguments, nullptr, static_cast<cudaStream_t>(stream));
  }
  return status == cutlass::Status::kSuccess ? nullptr
                                             : cutlass::cutlassGetStatusString(status);
}

}  // namespace cutlass_linear
