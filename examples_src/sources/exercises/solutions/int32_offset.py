@triton.jit
def first_kernel(x, y, stride):
    row = tl.program_id(0).to(tl.int64)
    tl.store(y + row, tl.load(x + row * stride))
