// starter::ema_update_ for PyTorch: schema, checks, CPU kernel, call of the launcher.
#include "ema_update.h"
#include "tensors.h"

namespace starter {
namespace {

constexpr auto kName = "starter::ema_update_";

struct Cpu {
  explicit Cpu(const Tensor&) {}

  template <typename T>
  void ema_update(T* state, const T* x, const Places& places, int64_t count,
                  double decay) const {
    const compute_t<T> keep = decay, take = 1 - decay;
    for_each(count, [=](int64_t i, int64_t n) {
      for (const int64_t end = i + n; i < end; ++i) {
        const auto [to, from] = places.at(i);
        state[to] = ema_update_value(state[to], x[from], keep, take);
      }
    });
  }
};

#if defined(USE_CUDA)
struct Gpu : GpuOf {
  using GpuOf::GpuOf;

  template <typename... Args>
  void ema_update(Args... args) const {
    check_launch(kName, launch_ema_update(args..., stream));
  }
};
#endif

template <typename Device>
void ema_update(const Tensor& state, const Tensor& x, double decay) {
  check_like(kName, "x", x, state);
  STARTER_CHECK(decay >= 0 && decay <= 1, kName,
                "expected decay to be from 0 to 1, but got ", decay);
  const Device device(state);
  with_type_of(kName, "state", state, [&](auto zero) {
    using T = decltype(zero);
    if (state.numel() == 0) return;
    T *written = data_of<T>(state), *read = data_of<T>(x);
    const Places places = places_of(state.dim(), state.sizes().data(),
                                    state.strides().data(), x.strides().data());
    STARTER_CHECK(places.dims <= Places::kDims, kName,
                  "the strides of state and x are ",
                  "too irregular; make them contiguous first");
    STARTER_CHECK(!overlaps_itself(places), kName,
                  "several elements of state, of shape ", shape_of(state),
                  ", are the same memory; clone() it first");
    const auto distance =
        reinterpret_cast<char*>(read) - reinterpret_cast<char*>(written);
    STARTER_CHECK(!overlap(places, distance, sizeof(T)), kName,
                  "x and state overlap in memory; clone() x first");
    device.ema_update(written, static_cast<const T*>(read), places, state.numel(),
                      decay);
  });
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(starter, m) {
  m.def("ema_update_(Tensor(a!) state, Tensor x, float decay) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(starter, CPU, m) {
  m.impl("ema_update_", TORCH_BOX(&ema_update<Cpu>));
}

#if defined(USE_CUDA)  // PyTorch says CUDA for AMD GPUs too
STABLE_TORCH_LIBRARY_IMPL(starter, CUDA, m) {
  m.impl("ema_update_", TORCH_BOX(&ema_update<Gpu>));
}
#endif

}  // namespace starter
