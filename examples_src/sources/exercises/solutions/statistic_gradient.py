def backward(ctx, grad):
    (x,) = ctx.saved_tensors
    r = torch.rsqrt(x.square().mean(-1, keepdim=True))
    return r * (grad - x * r**2 * (grad * x).mean(-1, keepdim=True))
