def double(x):
    y = torch.full_like(x, float("nan"))
    grid = (triton.cdiv(x.numel(), BLOCK),)
    if x.numel() > 0:  # a GPU refuses a grid of no programs
        double_kernel[grid](x, y, x.numel(), BLOCK=BLOCK)
    return y
