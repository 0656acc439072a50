@row_sum.register_fake
def row_sum_fake(x):
    return x.new_empty(x.shape[:-1], dtype=torch.float32)
