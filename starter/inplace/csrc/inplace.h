// What operators that write to an argument share: where the elements of the tensor that
// is written are, where those of one that is read, and whether the two overlap.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

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

// Describes two tensors with as few dimensions as it can; of more than kDims if it
// cannot.
inline Places places_of(int64_t dims, const int64_t* sizes, const int64_t* written,
                        const int64_t* read) {
  std::vector<std::array<int64_t, 3>> found;  // stride of the written one, size, other
  for (int64_t d = 0; d < dims; ++d) {
    if (sizes[d] != 1) found.push_back({written[d], sizes[d], read[d]});
  }
  std::sort(found.rbegin(), found.rend());
  Places places;
  for (const auto& [to, size, from] : found) {
    int d = places.dims - 1;
    if (d >= 0 && places.written[d] == size * to && places.read[d] == size * from) {
      places.sizes[d] *= size;  // one stride describes both dimensions
    } else {
      d = places.dims++;
      if (places.dims > Places::kDims) return places;
      places.sizes[d] = size;
    }
    places.written[d] = to;
    places.read[d] = from;
  }
  return places;
}

// How far the last element is from the first, along dimension `from` and smaller ones.
inline int64_t reach(const Places& places, const int64_t* strides, int from = 0) {
  int64_t last = 0;
  for (int d = from; d < places.dims; ++d) last += (places.sizes[d] - 1) * strides[d];
  return last;
}

// Whether two elements may be the same memory: a step in some dimension does not lead
// past all that smaller steps reach. It is always found, as in an expanded tensor.
inline bool overlaps_itself(const Places& places) {
  for (int d = 0; d < places.dims; ++d) {
    if (places.written[d] <= reach(places, places.written, d + 1)) return true;
  }
  return false;
}

// Whether two elements of the written tensor are `distance` apart, which is exact if it
// does not overlap itself.
inline bool has_distance(const Places& places, int64_t distance, int d = 0) {
  distance = distance < 0 ? -distance : distance;  // from the one, or from the other
  if (d >= std::min(places.dims, Places::kDims)) return distance == 0;
  for (const int64_t steps :
       {distance / places.written[d], distance / places.written[d] + 1}) {
    const int64_t rest = distance - steps * places.written[d];
    if (steps < places.sizes[d] && has_distance(places, rest, d + 1)) return true;
  }
  return false;
}

// Whether a write may change what another element still has to read. `distance`: from
// the written tensor to the one that is read, in bytes.
inline bool overlap(const Places& places, int64_t distance, int64_t element_size) {
  if (distance > reach(places, places.written) * element_size) return false;
  if (-distance > reach(places, places.read) * element_size) return false;
  const int64_t* end = places.written + places.dims;
  if (!std::equal(places.written, end, places.read)) return true;
  if (distance == 0) return false;  // the same tensor: each element reads its own
  return distance % element_size != 0 || has_distance(places, distance / element_size);
}

}  // namespace starter
