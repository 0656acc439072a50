// The kernel: the sum of each row of a contiguous float matrix.

// [kernel]
void sum_rows(const float* input, float* output, long rows, long hidden) {
  for (long row = 0; row < rows; ++row) {
    output[row] = 0;
    for (long i = 0; i < hidden; ++i) output[row] += input[row * hidden + i];
  }
}
// [/kernel]
