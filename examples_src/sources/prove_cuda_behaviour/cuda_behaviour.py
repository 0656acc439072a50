"""What an operator owes the CUDA runtime: each rule broken, and kept.

    python3 examples_src/sources/prove_cuda_behaviour/cuda_behaviour.py NAME...

runs stream, device (two GPUs), graph, index, alignment, order or launch. The exit
status is 1 if a wrong operator did not fail, or a right one did.
"""

import multiprocessing
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import nvcc
import torch

HERE = Path(__file__).resolve().parent
SHAPE = (64, 4096)
CHUNKS = 64
RUNS = 20
SECONDS = 120  # after which a process is stopped


class Outcome(NamedTuple):
    """Whether an operator did right, and what was seen."""

    right: bool
    words: str


# ---- Calling the launchers of cuda_behaviour.cu


def build(folder: str) -> dict[str, Callable]:
    """Compile the launchers and load them."""
    source = HERE / "cuda_behaviour.cu"
    # A runtime of its own would keep its errors from PyTorch's.
    library = nvcc.library(source, Path(folder), "-cudart", "shared")
    return nvcc.launchers(library)


# [call]
def call(name: str, input: torch.Tensor, *rest, stream: int) -> torch.Tensor:
    """Launch a kernel that writes a new tensor of the input's shape."""
    output = torch.empty_like(input)
    launchers[name](input, output, input.numel(), *rest, stream=stream)
    return output


def current_stream(device: torch.device | None = None) -> int:
    """The current stream of a device; of the current device, if none is named."""
    return torch.cuda.current_stream(device).cuda_stream


# [/call]


def launching(name: str, *rest: float | int) -> Callable:
    """An operator that calls one launcher, on the current stream."""
    return lambda input: call(name, input, *rest, stream=current_stream())


def compare(output: torch.Tensor, expected: torch.Tensor) -> Outcome:
    """Count the elements that differ."""
    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)
    wrong = (~torch.isclose(output, expected, rtol=1e-4)).sum().item()
    return Outcome(wrong == 0, f"{wrong} of {output.numel()} elements wrong")


# ---- The current stream, and the device of the input


# [stream]
def scale_on_the_null_stream(input):
    """Wrong: 0 is the default stream, whichever is current."""
    with torch.cuda.device(input.device):
        return call("scale", input, 2.0, stream=0)


def scale(input, factor=2.0):
    """Right: on the input's device, on the stream that is current there."""
    with torch.cuda.device(input.device):
        return call("scale", input, factor, stream=current_stream())


def late_input(operator: Callable, device: int = 0, side: bool = True) -> Outcome:
    """Call with an input that the current stream of `device` has still to write.

    Device 0 is current for the call, wherever the input is.
    """
    late = torch.randn(SHAPE, device=f"cuda:{device}")
    input = torch.zeros_like(late)
    with torch.cuda.device(device):
        expected = operator(late)  # in peace: it also loads the kernels
        torch.cuda._sleep(1)
        torch.cuda.synchronize()
    stream = torch.cuda.Stream(device) if side else torch.cuda.default_stream(device)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # cycles: about 0.1 s
        input.copy_(late)
        with torch.cuda.device(0):
            output = operator(input)
    return compare(output, expected)


# [/stream]


# [device]
def scale_on_the_current_device(input):
    """Wrong: another device may be current than the input's."""
    return call("scale", input, 2.0, stream=current_stream())


def scale_with_a_stream_but_no_guard(input):
    """Wrong: every device's default stream has the handle 0."""
    return call("scale", input, 2.0, stream=current_stream(input.device))


# [/device]


# ---- Graphs


# [graph]
def scale_by_on_the_null_stream(input, factor):
    """Wrong: the capture does not see this launch."""
    return call("scale_by", input, factor, stream=0)


def scale_by_and_wait(input, factor):
    """Wrong: nothing runs in a capture, so nobody can wait for it."""
    return call("scale_by_and_wait", input, factor, stream=current_stream())


def scale_by(input, factor):
    """Right: one launch on the current stream, which reads the factor when it runs."""
    return call("scale_by", input, factor, stream=current_stream())


def replayed(operator: Callable, factor: float | torch.Tensor) -> Outcome:
    """Capture on old data, then change input and factor, and replay."""
    input = torch.randn(SHAPE, device="cuda")
    operator(input, factor)  # loads the kernel
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = operator(input, factor)
    input.copy_(torch.randn_like(input))
    factor *= 3  # a tensor changes in place, a float is another float
    graph.replay()
    return compare(output, operator(input, factor))


# [/graph]


def replayed_with_tensor(operator: Callable) -> Outcome:
    """Like `replayed`, with the factor on the device."""
    return replayed(operator, torch.full(SHAPE[1:], 2.0, device="cuda"))


# ---- More than an int can count; a pointer that is not aligned


# [large]
def large(operator: Callable) -> Outcome:
    """Call on 2^31 + 4096 elements; look at the last 4096."""
    columns = 4096
    rows = 2**31 // columns + 1
    input = torch.zeros(rows, columns, device="cuda")
    input[-1].normal_()
    expected = operator(input[-1:].clone())
    return compare(operator(input)[-1:], expected)


# [/large]


def offset(operator: Callable) -> Outcome:
    """Call on a tensor that begins one element into its storage."""
    rows, columns = SHAPE
    input = torch.randn(rows * columns + 1, device="cuda")[1:].view(SHAPE)
    expected = operator(input.clone())
    return compare(operator(input), expected)


# ---- The order of a sum


# [order]
def sums_by_atomics(grad):
    """Wrong where the same bits are asked for: who comes first is added first."""
    sums = grad.new_zeros(grad.shape[1])
    arguments = (grad, *grad.shape, sums)
    launchers["column_sums_atomic"](*arguments, stream=current_stream())
    return sums


def sums_in_order(grad):
    """Right: sums of chunks of rows, then the sum of those."""
    chunks = grad.new_empty(CHUNKS, grad.shape[1])
    sums = grad.new_empty(grad.shape[1])
    arguments = (grad, *grad.shape, chunks, CHUNKS, sums)
    launchers["column_sums"](*arguments, stream=current_stream())
    return sums


def repeated(operator: Callable) -> Outcome:
    """Add the same rows up again and again; count results that differ in a bit."""
    torch.use_deterministic_algorithms(True)
    grad = torch.randn(2**16, 256, device="cuda")
    results = {operator(grad).cpu().numpy().tobytes() for _ in range(RUNS)}
    return Outcome(len(results) == 1, f"{RUNS} runs, {len(results)} different results")


# [/order]


# ---- A launch that the device refuses


def refused(operator: Callable) -> Outcome:
    """Ask for 2048 threads a block, then make a call that nothing is wrong with."""
    input = torch.randn(SHAPE, device="cuda")
    expected = 2 * input
    output = error = None
    try:
        output = operator(input)
    except nvcc.LaunchError as raised:
        error = raised
    try:
        torch.ones(3, device="cuda")
        later = "torch.ones works"
    except RuntimeError as innocent:
        later = f"torch.ones raises {first_line(innocent)!r}"
    words = f"raises {str(error)!r}" if error else compare(output, expected).words
    return Outcome(bool(error) and later.endswith("works"), f"{words}, then {later}")


# ---- The cases


class Case(NamedTuple):
    """An experiment with one operator; `right` is what it must come to."""

    right: bool
    name: str
    experiment: Callable
    operator: Callable


WRONG, RIGHT = False, True
elsewhere = partial(late_input, device=1, side=False)
CASES = {
    "stream": [
        Case(WRONG, "null stream", late_input, scale_on_the_null_stream),
        Case(RIGHT, "current stream", late_input, scale),
    ],
    "device": [
        Case(WRONG, "current device", elsewhere, scale_on_the_current_device),
        Case(WRONG, "stream, no guard", elsewhere, scale_with_a_stream_but_no_guard),
        Case(RIGHT, "guard", elsewhere, scale),
    ],
    "graph": [
        Case(WRONG, "null stream", replayed_with_tensor, scale_by_on_the_null_stream),
        Case(WRONG, "waits", replayed_with_tensor, scale_by_and_wait),
        Case(WRONG, "float", partial(replayed, factor=2.0), scale),
        Case(RIGHT, "tensor", replayed_with_tensor, scale_by),
    ],
    "index": [
        Case(WRONG, "int", large, launching("scale_int", 2.0)),
        Case(RIGHT, "int64_t", large, scale),
    ],
    "alignment": [
        Case(WRONG, "not checked", offset, launching("scale_unaligned", 2.0)),
        Case(RIGHT, "checked", offset, launching("scale_aligned", 2.0)),
    ],
    "order": [
        Case(WRONG, "atomicAdd", repeated, sums_by_atomics),
        Case(RIGHT, "fixed order", repeated, sums_in_order),
    ],
    "launch": [
        Case(WRONG, "not asked", refused, launching("scale_unchecked", 2.0, 2048)),
        Case(RIGHT, "asked", refused, launching("scale_checked", 2.0, 2048)),
    ],
}


# ---- One process a case: an illegal access ends all work of a process on the GPU


def first_line(error: BaseException) -> str:
    """What went wrong, without the advice that follows."""
    return str(error).splitlines()[0]


def judge(case: Case) -> Outcome:
    """Run an experiment; an error that CUDA reports is an outcome too."""
    try:
        return case.experiment(case.operator)
    except RuntimeError as error:
        # A capture that ends after a failed launch raises an error of its own.
        failed = isinstance(error.__context__, nvcc.LaunchError)
        first = error.__context__ if failed else error
        if not isinstance(first, nvcc.LaunchError) and "CUDA error" not in str(first):
            raise
        return Outcome(False, first_line(first))


def child(case: Case, sender) -> None:
    """Send the outcome, or print why there is none."""
    warnings.simplefilter("ignore")  # a graph without a kernel is what is shown
    try:
        sender.send(judge(case))
    except Exception:
        traceback.print_exc()


def outcome(case: Case) -> Outcome | None:
    """The outcome of a case in a process of its own; None if it does not come."""
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=child, args=(case, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(SECONDS) else None
    except EOFError:
        return None
    finally:
        process.kill()
        process.join()


def run(name: str) -> bool:
    """Run the cases of one name; return whether each came out as it must."""
    print(name, flush=True)
    good = True
    for case in CASES[name]:
        seen = outcome(case)
        expected = seen is not None and seen.right == case.right
        good &= expected
        kind = "right" if case.right else "wrong"
        words = seen.words if seen else "no outcome"
        mark = "" if expected else "   <- UNEXPECTED"
        print(f"  {kind}  {case.name:18}{words}{mark}", flush=True)
    return good


if __name__ == "__main__":
    names = sys.argv[1:] or list(CASES)
    if unknown := set(names) - set(CASES):
        raise SystemExit(f"no {', '.join(unknown)}: choose of {', '.join(CASES)}")
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        launchers = build(folder)
        good = [run(name) for name in names]
    raise SystemExit(not all(good))
