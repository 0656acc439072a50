"""The starter's GPU kernels, run on the CPU by the emulator: see gpu_emulator.h."""

import shutil
from pathlib import Path

import pytest
import torch

from gpu import needs_emulator
from operands import not_written, sum_dtype

STARTER = Path(__file__).parents[1] / "starter"
# The emulator passes pointers and numbers, and no structs.
ELEMENTWISE = """
namespace starter {
template <typename T>
const char* launch_plain(const T* gate, const T* up, int64_t columns, int64_t stride,
                         T* output, int64_t count, void* stream) {
  return launch_elements(swiglu_args<T>{{gate, columns, stride},
                                        {up, columns, stride},
                                        output, count, INFINITY}, stream);
}
template <typename T>
const char* launch_plain_backward(const T* grad, const T* gate, const T* up,
                                  T* grad_gate, T* grad_up, int64_t count,
                                  void* stream) {
  return launch_elements(swiglu_backward_args<T>{{grad, 1, 1}, {gate, 1, 1}, {up, 1, 1},
                                                 grad_gate, grad_up, count, INFINITY},
                         stream);
}
#define PLAIN(T)                                         \\
  template decltype(launch_plain<T>) launch_plain<T>;    \\
  template decltype(launch_plain_backward<T>) launch_plain_backward<T>;
PLAIN(c10::BFloat16)
PLAIN(float)
PLAIN(double)
}  // namespace starter
"""
ROWS = """
namespace starter {
template <typename T, typename C>
const char* launch_plain(const T* scores, const bool* mask, T* probs,
                         C* lse, int64_t rows, int64_t columns, int64_t stride,
                         int64_t mask_stride, void* stream) {
  softmax_lse_args<T> args = {{scores, 1, 1, {rows}, {stride}}, {}, probs, lse};
  if (mask) args.mask = {mask, 1, 1, {rows}, {mask_stride}};
  args.rows = rows, args.columns = columns, args.scale = 0.5;
  return launch_rows(args, stream);
}
template <typename T, typename C>
const char* launch_plain_backward(const T* grad, const C* grad_lse,
                                  const T* probs, T* result, int64_t rows,
                                  int64_t columns, void* stream) {
  softmax_lse_backward_args<T> args = {{}, {probs, 1, 1, {rows}, {columns}}};
  if (grad) args.grad_probs = {grad, 1, 1, {rows}, {columns}};
  if (grad_lse) args.grad_lse = {grad_lse, 0, 1, {rows}, {1}};
  args.grad_scores = result, args.rows = rows, args.columns = columns, args.scale = 0.5;
  return launch_rows(args, stream);
}
#define PLAIN(launch, T, C) template decltype(launch<T, C>) launch<T, C>;
#define PLAIN_OF(launch)                \\
  PLAIN(launch, c10::BFloat16, float)   \\
  PLAIN(launch, float, float)           \\
  PLAIN(launch, double, double)
PLAIN_OF(launch_plain)
PLAIN_OF(launch_plain_backward)
}  // namespace starter
"""
INPLACE = """
namespace starter {
template <typename T>
const char* launch_plain(T* state, const T* x, int64_t rows, int64_t columns,
                         int64_t stride, int64_t x_stride, int64_t x_column_stride,
                         void* stream) {
  Places places = {2, {rows, columns}, {stride, 1}, {x_stride, x_column_stride}};
  if (stride == columns && x_stride == columns && x_column_stride == 1) {
    places = {1, {rows * columns}, {1}, {1}};
  }
  return launch_ema_update<T>(state, x, places, rows * columns, 0.9, stream);
}
template decltype(launch_plain<c10::BFloat16>) launch_plain<c10::BFloat16>;
template decltype(launch_plain<float>) launch_plain<float>;
template decltype(launch_plain<double>) launch_plain<double>;
}  // namespace starter
"""
KINDS = {
    "elementwise": ("cpp", "swiglu", ELEMENTWISE),
    "rows": ("rows", "softmax_lse", ROWS),
    "inplace": ("inplace", "ema_update", INPLACE),
}
DTYPES = [torch.bfloat16, torch.float32, torch.float64]
COUNTS = [1, 7, 8, 9, 2047, 2048, 2050]  # of vectors with and without a tail

pytest_plugins = "emulator_fixtures"
pytestmark = needs_emulator


@pytest.fixture(scope="session")
def kernels_of(built, tmp_path_factory):
    """Compile the kernels of a kind, with launchers that take no structs."""

    def kernels(kind, warp_size=32):
        folder, operator, plain = KINDS[kind]
        project = folder_of[kind]
        for place in {"cpp", folder}:
            shutil.copytree(STARTER / place / "csrc", project, dirs_exist_ok=True)
        return built(project / f"{operator}.cu", warp_size, plain)

    folder_of = {kind: tmp_path_factory.mktemp(kind) for kind in KINDS}
    return kernels


@pytest.fixture
def gpu(kernels_of):
    return kernels_of("elementwise")


def expected(gate, up):
    gate, up = gate.double(), up.double()
    return torch.nn.functional.silu(gate) * up


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("offset", [0, 1])  # 1: no vector is aligned
def test_contiguous_tensors(gpu, offset, count, dtype):
    gate, up = torch.randn(2, 4096, dtype=dtype)[:, offset : offset + count]
    output = not_written(count, dtype=dtype)
    gpu.launch("launch_plain", gate, up, 1, 1, output, count)
    torch.testing.assert_close(output, expected(gate, up).to(dtype))


@pytest.mark.parametrize("columns", [16, 15])  # odd rows are not aligned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_halves_of_rows(gpu, dtype, columns):
    gate, up = torch.randn(5, 2 * columns, dtype=dtype).chunk(2, dim=1)
    output = not_written(5, columns, dtype=dtype)
    gpu.launch("launch_plain", gate, up, columns, 2 * columns, output, output.numel())
    torch.testing.assert_close(output, expected(gate, up).to(dtype))


@pytest.mark.parametrize("needed", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("count", COUNTS)
def test_gradients(gpu, count, needed):
    grad, gate, up = torch.randn(3, 4096, dtype=torch.float64)[:, :count]
    results = [
        not_written(count, dtype=grad.dtype) if need else None for need in needed
    ]
    gpu.launch("launch_plain_backward", grad, gate, up, *results, count)
    inputs = gate.requires_grad_(), up.requires_grad_()
    right = torch.autograd.grad(expected(*inputs), inputs, grad)
    for result, gradient in zip(results, right, strict=True):
        if result is not None:
            torch.testing.assert_close(result, gradient)


# Columns: parts of a warp, whole ones, rows that share a block or have one, and loops.
@pytest.mark.parametrize("columns", [1, 3, 8, 24, 64, 129, 264, 1032, 2100])
@pytest.mark.parametrize("padding", [1, 8])  # 1: not every row is aligned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows(kernels_of, dtype, padding, columns, warp_size):
    rows, order = 37 if columns < 200 else 3, ["ascending", "random"][columns % 2]
    scores = torch.randn(rows, columns + padding, dtype=dtype)[:, :columns]
    kept = torch.rand(1, columns) < 0.6
    for mask in (None, kept, kept & (torch.arange(rows) > 0)[:, None]):
        probs = not_written(rows, columns, dtype=dtype)
        lse = not_written(rows, dtype=sum_dtype(dtype))
        strides = (
            columns + padding,
            0 if mask is None or len(mask) == 1 else mask.stride(0),
        )
        arguments = scores, mask, probs, lse, rows, columns, *strides
        kernels_of("rows", warp_size).launch("launch_plain", *arguments, order=order)
        x = scores.double() * 0.5
        x = x if mask is None else x.masked_fill(~mask, -torch.inf)
        right = x.logsumexp(-1)
        torch.testing.assert_close(lse, right.to(lse.dtype))
        right = (x - right.masked_fill(right == -torch.inf, 0)[:, None]).exp()
        torch.testing.assert_close(probs, right.to(dtype))


@pytest.mark.parametrize("given", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("columns", [1, 3, 24, 129, 264, 2100])
def test_gradient_of_rows(kernels_of, columns, given, warp_size):
    rows = 37 if columns < 200 else 3
    scores = torch.randn(rows, columns).double().requires_grad_()
    outputs = (scores * 0.5).softmax(-1), (scores * 0.5).logsumexp(-1)
    grads = [
        torch.randn_like(y) if use else None
        for y, use in zip(outputs, given, strict=True)
    ]
    result = not_written(rows, columns, dtype=scores.dtype)
    arguments = *grads, outputs[0].detach(), result, rows, columns
    kernels_of("rows", warp_size).launch("launch_plain_backward", *arguments)
    used = [place for place, grad in enumerate(grads) if grad is not None]
    outputs, grads = ([some[place] for place in used] for some in (outputs, grads))
    (right,) = torch.autograd.grad(outputs, scores, grads)
    torch.testing.assert_close(result, right)


@pytest.mark.parametrize("columns", [1, 16, 33])
@pytest.mark.parametrize("offset", [0, 1])  # 1: no vector is aligned
@pytest.mark.parametrize("x_column_stride", [0, 1])
@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_in_place(kernels_of, dtype, padding, x_column_stride, offset, columns):
    around = torch.randn(5 * (columns + padding) + 1, dtype=dtype)
    state = around[offset:][: 5 * (columns + padding)].view(5, -1)[:, :columns]
    x = torch.randn(5, columns, dtype=dtype)
    x = x if x_column_stride else x[:, :1].expand(5, columns)
    expected = around.clone()
    written = expected[offset:][: 5 * (columns + padding)].view(5, -1)[:, :columns]
    written.copy_(0.9 * state.double() + 0.1 * x.double())
    strides = columns + padding, columns, x.stride(1)
    arguments = state, x, 5, columns, *strides
    kernels_of("inplace").launch("launch_plain", *arguments)
    torch.testing.assert_close(around, expected)
