def rms_norm(x, eps):
    wide = x.float()
    mean = wide.square().mean(-1, keepdim=True)
    return (wide * torch.rsqrt(mean + eps)).to(x.dtype)
