// starter::ema_update_ for PyTorch: schema, checks, CPU kernel, call of the launcher.
#include <algorithm>
#include <array>
#include <vector>

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
    for_each(count, [&](int64_t i) {
      const auto [to, from] = places.at(i);
      state[to] = ema_update_value(state[to], x[from], keep, take);
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

// Describes the elements of both tensors, with as few dimensions as it can.
Places places_of(const Tensor& state, const Tensor& x) {
  std::vector<std::array<int64_t, 3>> dims;  // stride of state, size, stride of x
  for (int64_t d = 0; d < state.dim(); ++d) {
    if (state.size(d) == 1) continue;
    dims.push_back({state.stride(d), state.size(d), x.stride(d)});
  }
  std::sort(dims.rbegin(), dims.rend());
  Places places;
  for (const auto& [written, size, read] : dims) {
    const int before = places.dims - 1;
    if (before >= 0 && places.written[before] == size * written &&
        places.read[before] == size * read) {
      places.sizes[before] *= size;  // one stride describes both dimensions
      places.written[before] = written;
      places.read[before] = read;
      continue;
    }
    STARTER_CHECK(places.dims < Places::kDims, kName, "the strides of state and x are ",
                  "too irregular; make them contiguous first");
    places.sizes[places.dims] = size;
    places.written[places.dims] = written;
    places.read[places.dims++] = read;
  }
  return places;
}

// A write must not change what is still to be read or written.
void check_overlap(const Tensor& state, const Tensor& x, const Places& places) {
  STARTER_CHECK(!overlaps_itself(places), kName, "several elements of state, of shape ",
                shape_of(state), ", are the same memory; clone() it first");
  const auto size = static_cast<int64_t>(state.element_size());
  const int64_t distance =
      static_cast<char*>(x.data_ptr()) - static_cast<char*>(state.data_ptr());
  const int dims = places.dims;
  const bool is_apart = distance > reach(dims, places.sizes, places.written) * size ||
                        -distance > reach(dims, places.sizes, places.read) * size;
  const bool same_strides =
      std::equal(places.written, places.written + dims, places.read);
  const bool is_state = same_strides && distance == 0;  // each element reads its own
  const bool is_between =
      same_strides && distance % size == 0 && !has_distance(places, distance / size);
  STARTER_CHECK(is_apart || is_state || is_between, kName,
                "x and state overlap in memory; clone() x first");
}

template <typename Device>
void ema_update(const Tensor& state, const Tensor& x, double decay) {
  check_like(kName, "x", x, state);
  STARTER_CHECK(decay >= 0 && decay <= 1, kName,
                "expected decay to be from 0 to 1, but got ", decay);
  const Device device(state);
  with_type_of(kName, "state", state, [&](auto zero) {
    using T = decltype(zero);
    if (state.numel() == 0) return;
    const Places places = places_of(state, x);
    check_overlap(state, x, places);
    const T* read = data_of<T>(x);
    device.ema_update(data_of<T>(state), read, places, state.numel(), decay);
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
