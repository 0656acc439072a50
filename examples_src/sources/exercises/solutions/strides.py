KERNEL = r"""
Tensor twice(const Tensor& x) {
  STD_TORCH_CHECK(x.scalar_type() == torch::headeronly::ScalarType::Float,
                  "twice: expected x in fp32");
  const Tensor dense = torch::stable::contiguous(x);
  const Tensor y = torch::stable::new_empty(x, x.sizes());
  const float* from = static_cast<const float*>(dense.data_ptr());
  float* to = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = 2 * from[i];
  return y;
}
"""
