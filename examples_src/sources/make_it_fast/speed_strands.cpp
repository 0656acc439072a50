// The sum of squares of a row, added up in one chain and in sixteen strands.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

float in_one_chain(const std::vector<float>& row) {
  float sum = 0;
  for (const float value : row) sum += value * value;
  return sum;
}

float in_strands(const std::vector<float>& row) {
  constexpr size_t kStrands = 16;
  std::array<float, kStrands> strands{};
  for (size_t i = 0; i + kStrands <= row.size(); i += kStrands) {
    for (size_t s = 0; s < kStrands; ++s) strands[s] += row[i + s] * row[i + s];
  }
  float sum = 0;
  for (const float strand : strands) sum += strand;
  return sum;
}

// Prints the time for an element, best of many runs, and how far off the sum is.
template <typename Sum>
double measure(const char* name, const Sum& sum, const std::vector<float>& row) {
  double exact = 0;
  for (const double value : row) exact += value * value;
  volatile float result = 0;  // written in each run, so that no run is left out
  double best = 1;
  for (int run = 0; run < 500; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    result = sum(row);
    const auto end = std::chrono::steady_clock::now();
    best = std::min(best, std::chrono::duration<double>(end - begin).count());
  }
  std::printf("%-15s %5.3f ns an element, relative error %.0e\n", name,
              1e9 * best / row.size(), std::abs(result / exact - 1));
  return best;
}

int main() {
  std::vector<float> row(1 << 16);
  for (size_t i = 0; i < row.size(); ++i) row[i] = std::sin(static_cast<float>(i));
  const double chain = measure("one chain", in_one_chain, row);
  const double strands = measure("sixteen strands", in_strands, row);
  std::printf("%.1f times faster\n", chain / strands);
}
