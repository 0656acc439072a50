// How far normal_distribution of linear_gelu.h is from the exact one.
#include <cmath>
#include <cstdio>

#include "../../../csrc/linear_gelu/linear_gelu.h"

int main() {
  double largest = 0, where = 0;
  for (int step = -80000; step <= 80000; ++step) {
    const float x = step / 10000.0f;
    const double exact = std::erfc(-double{x} / std::sqrt(2.0)) / 2;
    const double error = std::abs(opbook::normal_distribution(x) - exact) / exact;
    if (error > largest) largest = error, where = x;
  }
  std::printf("largest relative error %.1e, at x = %.2f\n", largest, where);
}
