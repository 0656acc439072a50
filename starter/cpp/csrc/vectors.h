// Where the elements of a tensor are, and how a GPU thread moves 16 bytes of them at
// once.
#pragma once

#include "portable.h"

namespace starter {

// Elements that are neighbours in memory, or rows of `columns` neighbours: each row
// begins `stride` elements after the row before it.
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

// The widest load or store of one GPU thread is 16 bytes. Its address is a multiple
// of 16.
constexpr int kVectorBytes = 16;

template <typename T>
bool is_aligned(const T* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kVectorBytes == 0;
}

template <typename T>
bool is_aligned(View<T> view) {
  constexpr int kElements = kVectorBytes / sizeof(T);
  return is_aligned(view.data) &&
         (view.is_contiguous() ||
          (view.columns % kElements == 0 && view.stride % kElements == 0));
}

// N neighbouring elements. Because the struct is aligned, the compiler moves all of
// them in one instruction.
template <typename T, int N>
struct alignas(sizeof(T) * N) Vector {
  T data[N];
};

// Loads or stores N elements; only `count` if fewer are left at the end of the tensor.
template <int N, typename T>
__device__ Vector<T, N> load(const T* from, int64_t count) {
  if (count >= N) return *reinterpret_cast<const Vector<T, N>*>(from);
  Vector<T, N> vector{};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < count) vector.data[i] = from[i];
  }
  return vector;
}

template <int N, typename T>
__device__ void store(T* to, const Vector<T, N>& vector, int64_t count) {
  if (count >= N) {
    *reinterpret_cast<Vector<T, N>*>(to) = vector;
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < count) to[i] = vector.data[i];
  }
}

#endif  // STARTER_GPU

}  // namespace starter
