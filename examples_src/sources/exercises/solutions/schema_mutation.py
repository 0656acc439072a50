SCHEMA = "accumulate(Tensor(a!) total, Tensor x) -> ()"
