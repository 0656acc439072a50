"""Who takes part: for every task a table of functions with the same arguments.

An entry is called once to get its function. It raises where the contender cannot take
part, and the benchmark reports why.
"""

import importlib.metadata
from collections.abc import Callable

import clock
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor import select_algorithm

import opbook

EPS = 1e-6
COMPILED = {"torch.compile": None, "torch.compile max": "max-autotune-no-cudagraphs"}
PEERS = ("liger-kernel", "quack-kernels", "nvidia-cutlass-dsl")
Table = dict[str, Callable[[], Callable]]


def versions() -> dict[str, str]:
    """Versions of torch, Triton and the peers that are installed."""
    found = {}
    for name in ("torch", "triton", *PEERS):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def needs_gpu() -> None:
    if not clock.GPU:
        raise RuntimeError("needs a GPU")


def compiled(function: Callable, modes=tuple(COMPILED)) -> Table:
    """The function under ``torch.compile``, once for each mode."""

    def maker(mode):
        return lambda: torch.compile(function, mode=mode, dynamic=False)

    return {name: maker(COMPILED[name]) for name in modes}


def ours_in_triton(name: str) -> Callable:
    needs_gpu()
    return getattr(opbook.triton, name)


# RMSNorm ----------------------------------------------------------------------------


def eager_rms_norm(x: Tensor, w: Tensor) -> Tensor:
    return F.rms_norm(x, w.shape, w, EPS)


def triton_rms_norm() -> Callable:
    function = ours_in_triton("rms_norm")
    return lambda x, w: function(x, w, EPS)


def liger_rms_norm() -> Callable:
    needs_gpu()
    from liger_kernel.transformers.functional import liger_rms_norm

    # Not in place: its backward would write over the gradient that it is given.
    return lambda x, w: liger_rms_norm(x, w, EPS, in_place=False)


def quack_rms_norm() -> Callable:
    needs_gpu()
    import quack

    return lambda x, w: quack.rmsnorm(x, w, eps=EPS)


RMS_NORM: Table = {
    "opbook": lambda: lambda x, w: opbook.rms_norm(x, w, EPS),
    "opbook.triton": triton_rms_norm,
    "eager": lambda: eager_rms_norm,
    **compiled(eager_rms_norm),
    "Liger": liger_rms_norm,
    "QuACK": quack_rms_norm,
}


def eager_in_place(x: Tensor, w: Tensor) -> Tensor:
    return x.copy_(F.rms_norm(x, w.shape, w, EPS))


IN_PLACE: Table = {
    "opbook": lambda: lambda x, w: opbook.rms_norm_(x, w, EPS),
    "eager": lambda: eager_in_place,
    **compiled(eager_in_place),
}


def eager_add(x: Tensor, residual: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    total = x + residual
    return F.rms_norm(total, w.shape, w, EPS), total


def our_add() -> Callable:
    function = opbook.add_rms_norm
    return lambda x, residual, w: function(x, residual, w, EPS)


def liger_add() -> Callable:
    needs_gpu()
    from liger_kernel.transformers.functional import liger_fused_add_rms_norm

    return lambda x, residual, w: liger_fused_add_rms_norm(x, residual, w, EPS)


def quack_add() -> Callable:
    needs_gpu()
    import quack

    return lambda x, residual, w: quack.rmsnorm(
        x, w, residual=residual, eps=EPS, prenorm=True
    )


ADD: Table = {
    "opbook": our_add,
    "eager": lambda: eager_add,
    **compiled(eager_add),
    "Liger": liger_add,
    "QuACK": quack_add,
}

# Linear and GELU --------------------------------------------------------------------


def quiet() -> None:
    """Keep the search for the fastest product from printing all it tried."""
    select_algorithm.PRINT_AUTOTUNE = False


def linear_gelu(form: str, modes=tuple(COMPILED)) -> Table:
    """Contenders of ``linear_gelu`` for one form of GELU, ``"none"`` or ``"tanh"``."""

    def eager(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.gelu(F.linear(x, w, b), approximate=form)

    ours = {"opbook": lambda: lambda x, w, b: opbook.linear_gelu(x, w, b, form)}
    if form == "tanh":
        others = {"addmm_activation": addmm_activation}
    else:
        others = {"opbook.triton": lambda: ours_in_triton("linear_gelu")}
    peers = {"eager": lambda: eager, **compiled(eager, modes)}
    return ours | others | peers | {"QuACK": lambda: quack_linear_gelu(form)}


def quack_linear_gelu(form: str) -> Callable:
    """Forward only, with the configuration that QuACK takes when it does not search."""
    needs_gpu()
    from quack.gemm_interface import gemm_act

    kind = {"tanh": "gelu_tanh_approx", "none": "gelu_erf"}[form]
    options = {"activation": kind, "store_preact": False, "tuned": False}
    return lambda x, w, b: gemm_act(x, w.t(), bias=b, **options)[1]


def addmm_activation() -> Callable:
    return lambda x, w, b: torch._addmm_activation(b, x, w.t(), use_gelu=True)
