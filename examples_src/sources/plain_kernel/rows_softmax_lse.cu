// The kernel of the starter's rows.h, with the arguments of the plain one.
#include "softmax_lse.h"

namespace plain {

template <typename T>
const char* launch_rows_softmax_lse(const T* scores, const bool* mask, T* probs,
                                    float* lse, int64_t rows, int64_t columns,
                                    float scale, void* stream) {
  starter::softmax_lse_args<T> args;
  args.scores = {scores, 1, 1, {rows}, {columns}};
  if (mask) args.mask = {mask, 1, 1, {rows}, {columns}};
  args.probs = probs;
  args.lse = lse;
  args.rows = rows;
  args.columns = columns;
  args.scale = scale;
  return starter::launch_rows(args, stream);
}

template const char* launch_rows_softmax_lse(const c10::BFloat16*, const bool*,
                                             c10::BFloat16*, float*, int64_t, int64_t,
                                             float, void*);

}  // namespace plain
