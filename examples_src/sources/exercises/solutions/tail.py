KERNEL = r"""
float row_sum(const float* x, int64_t count) {
  float sums[4] = {0, 0, 0, 0};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int k = 0; k < 4; ++k) sums[k] += x[i + k];
  }
  for (; i < count; ++i) sums[0] += x[i];
  return sums[0] + sums[1] + sums[2] + sums[3];
}
"""
