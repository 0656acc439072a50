// Where the elements of a tensor are, how a GPU thread moves 16 bytes of them, and how
// the threads of a CPU share them.
#pragma once

#include <algorithm>

#include "portable.h"
#if !defined(STARTER_GPU)  // a GPU compiler reads nothing of PyTorch's tensors
#include "tensors.h"
#endif

namespace starter {

// Elements that lie side by side, or rows of `columns` such elements, `stride` apart.
template <typename T>
struct View {
  const T* data;
  int64_t columns, stride;

  STARTER_HOST_DEVICE bool is_contiguous() const { return columns == stride; }
  STARTER_HOST_DEVICE const T* at(int64_t i) const {
    return data + (is_contiguous() ? i : i / columns * stride + i % columns);
  }
};

#if defined(STARTER_GPU)
// Whether it can be read with the widest loads.
template <typename T>
bool is_aligned(View<T> view) {
  constexpr int kWidth = kVectorBytes / sizeof(T);
  return reinterpret_cast<std::uintptr_t>(view.data) % kVectorBytes == 0 &&
         (view.is_contiguous() ||
          (view.columns % kWidth == 0 && view.stride % kWidth == 0));
}

// N neighbouring elements, aligned so that one instruction loads or stores all of them.
// Where fewer are left of the `count` elements of a tensor, those move one by one.
template <typename T, int N>
struct alignas(sizeof(T) * N) Vector {
  T data[N];
};

template <int N, typename T>
__device__ Vector<T, N> load(View<T> view, int64_t i, int64_t count) {
  if (i + N <= count) return *reinterpret_cast<const Vector<T, N>*>(view.at(i));
  Vector<T, N> tail = {};
  for (int j = 0; j < N && i + j < count; ++j) tail.data[j] = *view.at(i + j);
  return tail;
}

template <int N, typename T>
__device__ void store(T* output, int64_t i, int64_t count, Vector<T, N> vector) {
  Vector<T, N>* place = reinterpret_cast<Vector<T, N>*>(output + i);
  if (i + N <= count) return void(*place = vector);
  for (int j = 0; j < N && i + j < count; ++j) place->data[j] = vector.data[j];
}
#else
// The tensor itself if a View can describe it (rows equally far apart), or else a copy.
inline Tensor viewable(const Tensor& tensor) {
  const int64_t last = tensor.dim() - 1;
  bool regular = last >= 1 && tensor.stride(last) == 1;
  for (int64_t d = 0; d + 1 < last; ++d) {
    regular = regular && tensor.stride(d) == tensor.size(d + 1) * tensor.stride(d + 1);
  }
  return regular ? tensor : torch::stable::contiguous(tensor);
}

template <typename T>
View<T> view_of(const Tensor& viewable) {
  if (viewable.is_contiguous()) return {data_of<T>(viewable), 1, 1};
  const int64_t last = viewable.dim() - 1;
  return {data_of<T>(viewable), viewable.size(last), viewable.stride(last - 1)};
}

// Compiled for three generations of CPUs; the loader takes the newest that runs here.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define STARTER_VECTORS \
  __attribute__((flatten, target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define STARTER_VECTORS
#endif

// Calls `compute(i, n, p...)` for all elements from `i` on, n of them at a time, which
// lie side by side at the pointers p, one for each view.
template <typename Compute, typename... Views>
STARTER_VECTORS void for_pieces(int64_t i, int64_t end, Compute compute,
                                Views... views) {
  const int64_t row = std::min({end, (views.is_contiguous() ? end : views.columns)...});
  for (int64_t n; i < end; i += n) {
    n = std::min(end, i - i % row + row) - i;
    compute(i, n, views.at(i)...);
  }
}

// The same for `count` elements, on several threads of the CPU.
template <typename Compute, typename... Views>
void for_each(int64_t count, Compute compute, Views... views) {
  constexpr int64_t kElementsPerThread = 4096;  // fewer are not worth another thread
  torch::stable::parallel_for(
      0, count, kElementsPerThread,
      [&](int64_t begin, int64_t end) { for_pieces(begin, end, compute, views...); });
}
#endif

}  // namespace starter
