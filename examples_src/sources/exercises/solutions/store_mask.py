@triton.jit
def relu_kernel(x, y, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    values = tl.load(x + place, mask=inside, other=0.0)
    tl.store(y + place, tl.where(values < 0, 0.0, values), mask=inside)
