#include <c10/util/Exception.h>

extern "C" void check_rows(int64_t rows) {
  TORCH_CHECK(rows > 0, "expected a row, but got none");
}
