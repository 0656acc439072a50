// What operators that write to an argument share: where the elements of the tensor that
// is written are, where those of one that is read, and whether the two overlap.
#pragma once

#include "vectors.h"

namespace starter {

// Dimensions of two tensors of one shape, from the largest stride of the written one to
// the smallest.
struct Places {
  static constexpr int kDims = 6;  // where no stride fits several
  int dims = 0;
  int64_t sizes[kDims] = {}, written[kDims] = {}, read[kDims] = {};

  struct Offsets {
    int64_t written, read;
  };
  STARTER_HOST_DEVICE Offsets at(int64_t i) const {
    Offsets offsets = {0, 0};
    for (int d = kDims - 1; d >= 0; --d) {  // a GPU indexes no array at run time
      if (d >= dims) continue;
      const int64_t index = d > 0 ? i % sizes[d] : i;
      offsets.written += index * written[d];
      offsets.read += index * read[d];
      i /= sizes[d];
    }
    return offsets;
  }

  // Both tensors fill memory, in the same order.
  bool is_contiguous() const {
    return dims == 0 || (dims == 1 && written[0] == 1 && read[0] == 1);
  }
};

// How far the last element is from the first, along dimension `first` and smaller ones.
inline int64_t reach(int dims, const int64_t* sizes, const int64_t* strides) {
  int64_t last = 0;
  for (int d = 0; d < dims; ++d) last += (sizes[d] - 1) * strides[d];
  return last;
}

// Whether two elements may be the same memory: a step in some dimension does not lead
// past all that smaller steps reach. It is always found, as in an expanded tensor.
inline bool overlaps_itself(const Places& places) {
  for (int d = 0; d < places.dims; ++d) {
    const int smaller = places.dims - d - 1;
    const auto *sizes = places.sizes + d + 1, *strides = places.written + d + 1;
    if (places.written[d] <= reach(smaller, sizes, strides)) return true;
  }
  return false;
}

// Whether two elements of the written tensor are `distance` apart, which is exact if it
// does not overlap itself.
inline bool has_distance(const Places& places, int64_t distance, int d = 0) {
  distance = distance < 0 ? -distance : distance;  // from the one, or from the other
  if (d == places.dims) return distance == 0;
  for (const int64_t steps :
       {distance / places.written[d], distance / places.written[d] + 1}) {
    const int64_t rest = distance - steps * places.written[d];
    if (steps < places.sizes[d] && has_distance(places, rest, d + 1)) return true;
  }
  return false;
}

}  // namespace starter
