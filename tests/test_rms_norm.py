"""opbook.rms_norm against torch.nn.functional.rms_norm and against fp64."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import opbook
from eager import Sample, assert_close, assert_same_outcome, outcome
from gpu import needs_gpu, needs_two_gpus, on_a_busy_stream
from layouts import FEW_LAYOUTS, LAYOUTS, layouts

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
HIDDEN = (1, 3, 127, 128, 4096, 4097, 65536, 65537)
NAN, INF = float("nan"), float("inf")


def eager(input, weight=None, eps=None):
    """Ask PyTorch: the shape argument is always the last dimension."""
    return F.rms_norm(input, input.shape[-1:], weight, eps)


# [samples]
ARGUMENTS = {"input": ("rows", "hidden"), "weight": ("hidden",), "eps": 0.1}
SAMPLES = {
    "rms_norm": Sample(eager, **ARGUMENTS),
    "rms_norm_": Sample(
        lambda input, *more: input.copy_(eager(input, *more)), **ARGUMENTS
    ),
}
# [/samples]


# [correct]
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("with_weight", [False, True])
def test_equals_eager(device, dtype, hidden, with_weight):
    input = torch.randn(5, hidden, device=device, dtype=dtype)
    weight = torch.randn(hidden, device=device, dtype=dtype) if with_weight else None
    assert_close(opbook.rms_norm(input, weight), eager(input, weight))


# [/correct]


# With an odd number of elements, rows begin anywhere in a vector.
ALIGNED = [8, 200, 256, 1024, 5120, 8192, 16384, 18432, 40960]
ANYWHERE = [9, 643, 1203, 7503, 20001, 40961]


@pytest.mark.parametrize("rows", [3, 600])
@pytest.mark.parametrize("hidden", ALIGNED + ANYWHERE)
def test_shapes_with_a_gpu_kernel_of_their_own(device, rows, hidden):
    input = torch.randn(rows, hidden, device=device, dtype=torch.bfloat16)
    weight = torch.randn(hidden, device=device, dtype=torch.bfloat16)
    assert_close(opbook.rms_norm(input, weight), eager(input, weight))


@pytest.mark.parametrize("shape", [(), (7,), (0, 5), (3, 0), (2, 3, 1), (2, 3, 4, 5)])
def test_any_rank_or_the_same_error(device, shape):
    input = torch.randn(shape, device=device)
    weight = torch.randn(shape[-1:], device=device)
    assert_same_outcome(outcome(opbook.rms_norm, input), outcome(eager, input))
    assert_same_outcome(
        outcome(opbook.rms_norm, input, weight), outcome(eager, input, weight)
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout(device, layout, dtype):
    input = layouts(device, dtype)[layout]
    weight = torch.randn(2 * input.shape[-1], device=device, dtype=dtype)[::2]
    assert_close(opbook.rms_norm(input, weight), eager(input, weight))


@pytest.mark.parametrize("input_dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "weight_dtype",
    [*DTYPES, torch.int32, torch.bool, torch.complex64, torch.float8_e4m3fn],
    ids=str,
)
def test_weight_of_another_dtype(device, input_dtype, weight_dtype):
    input = torch.randn(4, 24, device=device, dtype=input_dtype)
    weight = torch.randn(24, device=device).to(weight_dtype)
    assert_same_outcome(
        outcome(opbook.rms_norm, input, weight), outcome(eager, input, weight)
    )


@pytest.mark.parametrize(
    "dtype",
    [
        torch.int32,
        torch.uint8,
        torch.bool,
        torch.complex64,
        torch.complex128,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
    ],
    ids=str,
)
def test_input_of_another_dtype(device, dtype):
    input = torch.ones(4, 24, device=device).to(dtype)
    assert_same_outcome(outcome(opbook.rms_norm, input), outcome(eager, input))


EPS = (None, 0.0, 1e-5, 1, True, -1.0, -1e-9, NAN, INF, torch.tensor(1e-3))


@pytest.mark.parametrize("eps", EPS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_eps(device, eps, dtype):
    rows = [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [1e-4, 1e-4, 1e-4]]
    input = torch.tensor(rows, device=device, dtype=dtype)
    assert_close(opbook.rms_norm(input, None, eps), eager(input, None, eps))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_with_nan_inf_and_overflowing_squares(device, dtype):
    largest = torch.finfo(dtype).max
    rows = [[NAN, 1, 2], [INF, 1, 2], [-INF, INF, 2], [largest, 1, 2], [300, 400, 500]]
    input = torch.tensor(rows, dtype=dtype)
    # Eager's CPU kernel follows the formula: inf / inf is NaN, 1 / inf is 0. Its fused
    # CUDA kernel (seen in torch 2.11) makes every element of such a row NaN.
    assert_close(opbook.rms_norm(input.to(device)), eager(input).to(device))


BAD_CALLS = {
    "weight_too_short": lambda x: (x, x.new_ones(4)),
    "weight_2d": lambda x: (x, x.new_ones(1, 24)),
    "weight_0d": lambda x: (x, x.new_ones(())),
    "weight_on_meta": lambda x: (x, torch.ones(24, device="meta")),
    "input_on_meta": lambda x: (x.to("meta"), x.new_ones(24)),
    "meta_weight_too_short": lambda x: (x.to("meta"), torch.ones(4, device="meta")),
    "input_list": lambda x: (x.tolist(),),
    "weight_list": lambda x: (x, [1.0] * 24),
    "eps_str": lambda x: (x, None, "1e-5"),
    "eps_complex": lambda x: (x, None, 1j),
    "eps_of_two": lambda x: (x, None, x.new_ones(2)),
    "eps_with_gradient": lambda x: (x, None, x.new_ones(()).requires_grad_()),
    "sparse_coo": lambda x: (x.to_sparse(),),
    "sparse_csr": lambda x: (x.to_sparse_csr(),),
    "sparse_weight": lambda x: (x, x.new_ones(24).to_sparse()),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("call", BAD_CALLS)
def test_bad_call_raises_and_a_good_call_still_works(device, call):
    input = torch.randn(4, 24, device=device)
    args = BAD_CALLS[call](input)
    # Eager gets the shape from the good input: a list has none.
    expected = outcome(lambda x, *rest: F.rms_norm(x, (24,), *rest), *args)
    assert isinstance(expected, Exception)
    assert_same_outcome(outcome(opbook.rms_norm, *args), expected)
    assert_close(opbook.rms_norm(input), eager(input))


@needs_gpu
def test_weight_on_another_device_raises():
    input = torch.randn(4, 24)
    for args in (
        (input, torch.ones(24, device="cuda")),
        (input.cuda(), torch.ones(24)),
    ):
        assert_same_outcome(outcome(opbook.rms_norm, *args), outcome(eager, *args))


def test_errors_name_operator_argument_and_values():
    with pytest.raises(RuntimeError, match=r"opbook::rms_norm.*weight.*\[5\].*\[4\]"):
        opbook.rms_norm(torch.ones(3, 5), torch.ones(4))
    with pytest.raises(RuntimeError, match=r"opbook::rms_norm.*input.*\[\]"):
        opbook.rms_norm(torch.tensor(1.0))
    with pytest.raises(NotImplementedError, match=r"opbook.rms_norm: input.*int32"):
        opbook.rms_norm(torch.ones(3, dtype=torch.int32))
    with pytest.raises(TypeError, match=r"opbook.rms_norm: eps.*str"):
        opbook.rms_norm(torch.ones(3), eps="small")


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.float8_e4m3fn], ids=str)
def test_an_8_bit_weight_raises_without_data_too(device, dtype):
    args = torch.ones(3, 5, device=device), torch.ones(5, device=device).to(dtype)
    assert isinstance(outcome(eager, *args), RuntimeError)
    fake = map(torch._subclasses.FakeTensorMode().from_tensor, args)
    for arguments in (args, fake):
        with pytest.raises(RuntimeError, match="opbook::rms_norm: weight of an 8-bit"):
            opbook.rms_norm(*arguments)


def test_the_operator_itself_rejects_what_the_interface_rejects(device):
    with pytest.raises(RuntimeError, match=r"opbook::rms_norm.*Int"):
        torch.ops.opbook.rms_norm(torch.ones(3, device=device, dtype=torch.int32))


# [precise]
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_error_is_no_worse_than_eagers(device, dtype):
    input = torch.randn(64, 4096, device=device, dtype=dtype)
    weight = torch.randn(4096, device=device, dtype=dtype)
    exact = eager(input.double(), weight.double(), torch.finfo(torch.float32).eps)

    def error(result):
        return (result.double() - exact).abs().mean().item()

    # Both round once; of 262144 roundings a few ties in fp32 fall the other way.
    assert error(opbook.rms_norm(input, weight)) <= 1.001 * error(eager(input, weight))


# [/precise]


@pytest.mark.parametrize("layout", FEW_LAYOUTS)
def test_opcheck(device, layout):
    input = layouts(device)[layout]
    weight = torch.randn(input.shape[-1], device=device)
    for args in ((input,), (input, weight), (input, weight, 1e-5)):
        torch.library.opcheck(torch.ops.opbook.rms_norm.default, args)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fake_strides_equal_real_strides(device, layout):
    input = layouts(device)[layout]
    with torch._subclasses.FakeTensorMode() as mode:
        fake = opbook.rms_norm(mode.from_tensor(input))
    real = opbook.rms_norm(input)
    assert (fake.shape, fake.stride(), fake.dtype) == (
        real.shape,
        real.stride(),
        real.dtype,
    )


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiles_without_a_graph_break(device, backend):
    def gate(input, weight):
        return torch.sigmoid(opbook.rms_norm(input, weight)) * input

    compiled = torch.compile(gate, backend=backend, fullgraph=True, dynamic=True)
    for rows, hidden in ((6, 40), (9, 24)):  # sizes are symbols: compiled once
        input = torch.randn(rows, hidden, device=device)
        weight = torch.randn(hidden, device=device)
        torch.testing.assert_close(compiled(input, weight), gate(input, weight))


@pytest.mark.parametrize("eps_of", [lambda n: n, lambda n: n / 7], ids=["int", "float"])
def test_exports_an_eps_made_from_a_size(device, eps_of):
    class Normalize(torch.nn.Module):
        def forward(self, input):
            return opbook.rms_norm(input, None, eps_of(input.shape[0]))

    input = torch.randn(6, 40, device=device)
    sizes = {0: torch.export.Dim.AUTO}
    exported = torch.export.export(Normalize(), (input,), dynamic_shapes=(sizes,))
    assert_close(exported.module()(input), eager(input, None, eps_of(6)))


LAST_ROW_OF_A_LARGE_TENSOR = """
import sys, torch, opbook
rows, hidden = 65537, 32768  # 2^31 + 32768 elements
input = torch.zeros(rows, hidden, dtype=torch.bfloat16, device=sys.argv[1])
input[-1] = torch.randn(hidden).to(input)
expected = torch.nn.functional.rms_norm(input[-1], (hidden,))
torch.testing.assert_close(opbook.rms_norm(input)[-1], expected)
"""


def free_bytes(device: str) -> int:
    """Memory left on the device, so that a large test is skipped and not killed."""
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    with open("/proc/meminfo") as meminfo:
        available = next(line for line in meminfo if line.startswith("MemAvailable"))
    return 1024 * int(available.split()[1])


@pytest.mark.all  # it fills 8 GiB
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/meminfo")
def test_more_than_2_to_the_31_elements(device):
    if free_bytes(device) < 12 * 2**30:
        pytest.skip("needs 12 GiB of free memory")
    # In a process of its own: a wrong index ends in a segmentation fault.
    command = [sys.executable, "-c", LAST_ROW_OF_A_LARGE_TENSOR, device]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr[-2000:]


@needs_gpu
def test_runs_on_the_current_stream():
    late = torch.randn(64, 4096, device="cuda")
    assert_close(on_a_busy_stream(opbook.rms_norm, late), eager(late))


@needs_gpu
def test_replays_in_a_cuda_graph():
    input = torch.randn(8, 4096, device="cuda")
    opbook.rms_norm(input)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = opbook.rms_norm(input)
    input.copy_(torch.randn_like(input))
    graph.replay()
    assert_close(output, eager(input))


@needs_two_gpus
def test_runs_on_the_device_of_its_input():
    input = torch.randn(8, 4096, device="cuda:1")
    with torch.cuda.device(0):
        output = opbook.rms_norm(input)
    assert output.device == input.device
    assert_close(output, eager(input))
