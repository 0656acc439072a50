"""Functions of PyTorch, in which nothing may be found."""

import torch
import torch.nn.functional as F

_generator = torch.Generator().manual_seed(0)
X = torch.randn(4, 6, generator=_generator)
Y = torch.randn(4, 6, generator=_generator)
W = torch.randn(5, 6, generator=_generator)
IMAGE = torch.randn(2, 3, 6, 6, generator=_generator)
INDEX = torch.tensor([0, 3, 1])
SQUARE = X @ X.t() + 4 * torch.eye(4)
LABELS = torch.tensor([1, 0, 5, 2])

FUNCTIONS = {
    "mm": (torch.mm, (X, W.t())),
    "bmm": (torch.bmm, (X[None], W.t()[None])),
    "addmm": (torch.addmm, (torch.ones(5), X, W.t())),
    "linear": (F.linear, (X, W, torch.ones(5))),
    "softmax": (lambda x: F.softmax(x, -1), (X,)),
    "log_softmax": (lambda x: F.log_softmax(x, -1), (X,)),
    "layer_norm": (lambda x, w: F.layer_norm(x, (6,), w), (X, torch.rand(6))),
    "rms_norm": (lambda x, w: F.rms_norm(x, (6,), w), (X, torch.rand(6))),
    "batch_norm in training": (
        lambda x, m, v: F.batch_norm(x, m, v, training=True),
        (X, torch.zeros(6), torch.ones(6)),
    ),
    "gelu": (F.gelu, (X,)),
    "relu": (torch.relu, (X,)),
    "add_ in place": (lambda x, y: x.add_(y), (X, Y)),
    "where": (torch.where, (X > 0, X, Y)),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), (X,)),
    "cumsum": (lambda x: x.cumsum(-1), (X,)),
    "logsumexp": (lambda x: x.logsumexp(-1), (X,)),
    "var": (lambda x: x.var(-1), (X,)),
    "norm": (lambda x: x.norm(dim=-1), (X,)),
    "prod": (lambda x: x.prod(-1), (X,)),
    "sort": (lambda x: x.sort(-1), (X,)),
    "topk": (lambda x: x.topk(2), (X,)),
    "argmax": (lambda x: x.argmax(-1), (X,)),
    # Not median: PyTorch 2.13 returns garbage for a row that expand made of one number.
    "kthvalue": (lambda x: x.kthvalue(2), (X,)),
    "round": (torch.round, (X,)),
    "index_select": (lambda x, i: x.index_select(0, i), (X, INDEX)),
    "embedding": (F.embedding, (INDEX, X)),
    "gather": (lambda x, i: x.gather(1, i), (X, INDEX[None].expand(4, 3))),
    "index_add": (lambda x, i, y: x.index_add(0, i, y), (X, INDEX, Y[:3])),
    "cat": (lambda x: torch.cat(x), ([X, Y],)),
    "chunk": (lambda x: x.chunk(2), (X,)),
    "conv2d": (F.conv2d, (IMAGE, torch.randn(4, 3, 3, 3, generator=_generator))),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (IMAGE,)),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2.0), (IMAGE,)),
    "grid_sample": (
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        (IMAGE, torch.rand(2, 4, 4, 2, generator=_generator) * 1.8 - 0.9),
    ),
    "pad": (lambda x: F.pad(x, (1, 2)), (X,)),
    "cross_entropy": (F.cross_entropy, (X, LABELS)),
    "attention": (F.scaled_dot_product_attention, (IMAGE, IMAGE + 1, IMAGE - 1)),
    "cholesky": (torch.linalg.cholesky, (SQUARE,)),
    "solve": (torch.linalg.solve, (SQUARE, X)),
    "svdvals": (torch.linalg.svdvals, (X,)),
    "einsum": (lambda x, y: torch.einsum("ij,kj->ik", x, y), (X, Y)),
    "fft": (torch.fft.fft, (X,)),
    "complex product": (torch.mul, (torch.complex(X, Y), torch.complex(Y, X))),
    "nonzero": (torch.nonzero, (X > 0,)),
    "unique": (torch.unique, (LABELS,)),
    "dropout": (F.dropout, (X,)),
    "bernoulli": (lambda x: torch.bernoulli(x.sigmoid()), (X,)),
    "multinomial": (lambda x: torch.multinomial(x.softmax(-1), 2), (X,)),
    "randn_like": (torch.randn_like, (X,)),
    "bincount": (torch.bincount, (LABELS,)),
    "searchsorted": (torch.searchsorted, (X.sort(-1).values.contiguous(), Y)),
    "integer division": (lambda i: i // 2, (LABELS,)),
    "mean of integers": (lambda i: i / 2, (LABELS,)),
    "view": (lambda x: x.reshape(-1), (X,)),
    "expand_as": (lambda x, y: x[:1].expand_as(y), (X, Y)),
    "masked with -inf": (lambda x: x.masked_fill(x < 0, -float("inf")), (X,)),
    "sparse result": (lambda x: x.relu().to_sparse(), (X,)),
    "sparse argument": (torch.mm, (X.relu().to_sparse(), W.t())),
    "cdist": (torch.cdist, (X, Y)),
    "atan2": (torch.atan2, (X, Y)),
    "mse_loss": (F.mse_loss, (X, Y)),
    "ctc": (lambda x: F.kl_div(x.log_softmax(-1), Y_SOFT), (X,)),
}
Y_SOFT = Y.softmax(-1)
