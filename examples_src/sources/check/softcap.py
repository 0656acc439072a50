"""An operator with a fake kernel, and no gradient."""

import torch


@torch.library.custom_op("mine::softcap", mutates_args=())
def softcap(x: torch.Tensor, cap: float) -> torch.Tensor:
    """Keep x between -cap and cap."""
    return cap * torch.tanh(x / cap)


softcap.register_fake(lambda x, cap: torch.empty_like(x))
