"""A small transformer in plain PyTorch, and data that it can learn."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """Causal attention of several heads, without a bias."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Mix each position with those before it."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        heads = (part.transpose(1, 2) for part in (q, k, v))
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    """Linear, GELU, linear."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position by itself."""
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    """Attention and MLP, each after a norm and added to what came in."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(hidden, eps=1e-6)
        self.attention = Attention(hidden, heads)
        self.norm2 = nn.RMSNorm(hidden, eps=1e-6)
        self.mlp = MLP(hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Add attention, then add the MLP."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Tokens to logits of the next token."""

    def __init__(self, tokens: int, hidden: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, hidden)
        self.blocks = nn.Sequential(*(Block(hidden, heads) for _ in range(layers)))
        self.norm = nn.RMSNorm(hidden, eps=1e-6)
        self.head = nn.Linear(hidden, tokens, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Predict the token that follows each position."""
        return self.head(self.norm(self.blocks(self.embed(tokens))))


def batches(
    tokens: int, rows: int, length: int, device: str = "cpu", seed: int = 0
) -> Tensor:
    """Yield sequences in which a token decides, with noise, which one follows."""
    generator = torch.Generator(device).manual_seed(seed)
    options = {"generator": generator, "device": device}
    likely = 3 * torch.randn(tokens, tokens, **options)
    while True:
        sequence = [torch.randint(tokens, (rows,), **options)]
        for _ in range(length):
            odds = likely[sequence[-1]].softmax(-1)
            drawn = torch.multinomial(odds, 1, generator=generator)
            sequence.append(drawn.squeeze(1))
        yield torch.stack(sequence, 1)


def loss_of(model: nn.Module, batch: Tensor) -> Tensor:
    """Cross entropy of the next token."""
    logits = model(batch[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())


# [train]
def train(model: nn.Module, data: list[Tensor], lr: float = 3e-3) -> list[float]:
    """Take a step of AdamW for each batch; return the losses."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    losses = []
    for batch in data:
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


# [/train]
