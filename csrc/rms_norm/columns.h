// The elements of a row as vectors, for a row that may begin anywhere in memory.
#pragma once

#include <type_traits>

#include "../vectors.h"

namespace opbook {

// Elements of a vector that a thread loads or stores at once.
template <typename T>
constexpr int kElements = kVectorBytes / sizeof(T);

// The bytes at whose multiples every row of a matrix begins and ends: a power of two,
// at most kVectorBytes.
template <typename T>
int alignment_of(View<T> matrix, int64_t rows, int64_t hidden) {
  const uint64_t steps = (hidden | (rows == 1 ? 0 : matrix.stride)) * sizeof(T);
  const uint64_t bits =
      reinterpret_cast<std::uintptr_t>(matrix.data) | steps | kVectorBytes;
  return static_cast<int>(bits & ~(bits - 1));
}

#if defined(OPBOOK_GPU)

// [columns]
// Cuts a row into vectors where memory has them: at multiples of kVectorBytes. Aligned
// rows (kAligned) begin and end there. Of other rows, the first and the last vector may
// lie in part outside the row, in the rows beside it. Where these two may be loaded
// whole all the same, all loads of the row are in flight together. Otherwise their
// elements are loaded one by one.
template <int kWidth, bool kAligned>
struct Columns {
  int64_t count;  // elements of the row
  int shift;      // elements of the first vector that lie in front of the row

  template <typename T>
  __device__ Columns(const T* row, int64_t count)
      : count(count),
        shift(kAligned || count == 0
                  ? 0
                  : reinterpret_cast<uintptr_t>(row) % kVectorBytes / sizeof(T)) {}

  __device__ int64_t vectors() const { return (shift + count + kWidth - 1) / kWidth; }

  // The most vectors that a row of `count` elements has, wherever it begins.
  static int64_t most_vectors(int64_t count) {
    return (count + (kAligned ? 0 : 2 * (kWidth - 1))) / kWidth;
  }

  // Whether all vectors of a row of a matrix may be loaded whole. The row has to lie
  // between other rows, without gaps, so that its vectors hold elements of the matrix
  // only. Its vectors must be aligned, which they may not be if another matrix was cut.
  // The caller has to know whether the rows beside it are written at the same time, as
  // an in-place operator does.
  template <typename T>
  __device__ bool may_load_whole(View<const T> matrix, int64_t row,
                                 int64_t rows) const {
    return kAligned || (row > 0 && row < rows - 1 && matrix.stride == count &&
                        count >= kWidth && is_vector_aligned(matrix.row(row) - shift));
  }

  // Where vector i of a row is, in any tensor. Its elements outside the row are those
  // of the rows beside it.
  template <typename T, typename Index>
  __device__ const Vector<T, kWidth>* at(const T* row, Index i) const {
    return reinterpret_cast<const Vector<T, kWidth>*>(row - shift) + i;
  }

  // Whether vector i of any row lies inside it and is aligned.
  template <typename T, typename Index>
  __device__ bool has_whole(const T* row, Index i) const {
    return is_inside_whole(i) && (kAligned || is_vector_aligned(row + first_of(i)));
  }

  // Vector i of any row. If rows are not aligned, its elements come one by one; outside
  // the row it has zeros.
  template <typename T, typename Index>
  __device__ Vector<T, kWidth> elements(const T* row, Index i) const {
    if constexpr (kAligned) {
      return *at(row, i);
    } else {
      Vector<T, kWidth> vector;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const Index column = first_of(i) + j;
        vector.data[j] = is_inside(column) ? row[column] : static_cast<T>(0.0f);
      }
      return vector;
    }
  }

  template <typename T, typename Index>
  __device__ Vector<T, kWidth> load(const T* row, Index i, bool whole) const {
    return whole || has_whole(row, i) ? *at(row, i) : elements(row, i);
  }

  // The same vector, with zeros outside the row.
  template <typename T, typename Index>
  __device__ Vector<T, kWidth> only_inside(Index i, Vector<T, kWidth> vector) const {
    if (!is_inside_whole(i)) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        if (!is_inside(first_of(i) + j)) vector.data[j] = static_cast<T>(0.0f);
      }
    }
    return vector;
  }

  // Stores a vector in global memory, but none of its elements outside the row: another
  // thread writes those. `row` may begin in another place of a vector than the row that
  // was cut. Compilers would join a plain store with those of single elements.
  template <typename T, typename Index>
  __device__ void store(T* row, Index i, Vector<T, kWidth> vector) const {
    if constexpr (!kAligned) {
      if (has_whole(row, i)) {
        T* to = row + first_of(i);
        return store_at_once(reinterpret_cast<Vector<T, kWidth>*>(to), vector);
      }
    }
    store_plainly(row, i, vector);
  }

  // The same in any memory. If rows are not aligned, its elements go one by one.
  template <typename T, typename Index>
  __device__ void store_plainly(T* row, Index i, Vector<T, kWidth> vector) const {
    if constexpr (kAligned) {
      reinterpret_cast<Vector<T, kWidth>*>(row)[i] = vector;
    } else {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        if (is_inside(first_of(i) + j)) row[first_of(i) + j] = vector.data[j];
      }
    }
  }

 private:
  template <typename Index>
  __device__ Index first_of(Index i) const {
    return i * kWidth - shift;
  }

  template <typename Index>
  __device__ bool is_inside(Index column) const {
    return static_cast<std::make_unsigned_t<Index>>(column) <
           static_cast<std::make_unsigned_t<Index>>(count);
  }

  template <typename Index>
  __device__ bool is_inside_whole(Index i) const {
    return kAligned ||
           (first_of(i) >= 0 && first_of(i) + kWidth <= static_cast<Index>(count));
  }
};
// [/columns]

#endif  // OPBOOK_GPU

}  // namespace opbook
