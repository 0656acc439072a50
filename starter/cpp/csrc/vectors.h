// Where the elements of a tensor are, and how a GPU thread moves 16 bytes of them.
#pragma once

#include "portable.h"

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
// The widest load or store of one GPU thread is 16 bytes, at a multiple of 16.
constexpr int kVectorBytes = 16;

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
#endif

}  // namespace starter
