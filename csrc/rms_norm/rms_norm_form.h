// Which form of the kernel that rms_norm and add_rms_norm share is right for which
// rows.
#pragma once

#include <algorithm>

#include "rms_norm.h"

namespace opbook {

// [form_of]
// A kernel and its block.
template <typename Kernel>
struct Launch {
  Kernel kernel;
  dim3 block;
};

// Which kernel rows of so many vectors take, in which form, and with which block. With
// vectors of one element, any row is right.
template <typename scalar_t, typename weight_t, int kWidth, typename Added>
auto rms_norm_form(int64_t rows, int64_t vectors, bool has_weight) {
  const auto in_form = [&]<typename Form>(Form) {
    constexpr int kKept = std::max(Form::kKept, 1);
    return Launch{rms_norm_kernel<Form, scalar_t, weight_t, kWidth, Added>,
                  block_of_rows((vectors + kKept - 1) / kKept, kShortRowThreads)};
  };
  if constexpr (kWidth == 1) {
    return in_form(AnyRows{});
  } else {
    constexpr int kFew = 256, kMore = 512;
    if (rows <= kFewRows && has_weight && vectors <= kFewRowsKept * kMore) {
      return vectors <= kFewRowsKept * kFew
                 ? Launch{rms_norm_few_rows_kernel<kFew, scalar_t, weight_t, kWidth,
                                                   Added>,
                          dim3(kFew)}
                 : Launch{rms_norm_few_rows_kernel<kMore, scalar_t, weight_t, kWidth,
                                                   Added>,
                          dim3(kMore)};
    }
    if (vectors <= ShortRows::kVectors) return in_form(ShortRows{});
    if constexpr (std::is_empty_v<Added>) {  // a residual would not fit the registers
      if (rows > kFewRows && vectors > ManyLongRows::kLongerThan &&
          vectors <= ManyLongRows::kVectors) {
        return in_form(ManyLongRows{});
      }
    }
    return vectors <= LongRows::kVectors ? in_form(LongRows{}) : in_form(AnyRows{});
  }
}
// [/form_of]

}  // namespace opbook
