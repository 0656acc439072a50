"""What CUDA graphs do with the operators of operators.py, on a GPU.

    python3 examples_src/sources/cuda_graphs/record.py NAME...

runs speed, streams, skips, memory or seeds. The exit status is 1 if a right operator
was wrong in a replay, or a wrong one was right.
"""

import logging
import sys
import time
import warnings
from collections.abc import Callable

import operators as ops
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.utils import counters

COUNT = 64 * 1024
CALLS = 24
surprises = []


def expect(name: str, right: bool, seen: bool, words: str) -> None:
    """Print one outcome, and remember it if it is not what it must be."""
    mark = "" if right == seen else "   <- UNEXPECTED"
    surprises.extend([name] if mark else [])
    print(f"  {'right' if right else 'wrong'}  {name:22}{words}{mark}", flush=True)


# [capture]
def captured(function: Callable, *static: Tensor) -> tuple[Callable, Tensor]:
    """Capture a call; return a function that replays it, and the captured output."""
    warm_up = torch.cuda.Stream()
    warm_up.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm_up):  # compiles kernels, which a capture cannot
        function(*static)
    torch.cuda.current_stream().wait_stream(warm_up)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = function(*static)

    def replay(*new: Tensor) -> None:
        """Copy to the captured inputs, which this function keeps alive, and replay."""
        for tensor, value in zip(static, new, strict=False):
            tensor.copy_(value)
        graph.replay()

    return replay, output


# [/capture]


def compiled(function: Callable, **options) -> Callable:
    """Compile anew, with the counters at zero."""
    torch._dynamo.reset()
    counters.clear()
    return torch.compile(function, fullgraph=True, **options)


# ---- What a graph saves


# [chain]
def chain(x: Tensor) -> Tensor:
    """Call an operator again and again, on a tensor too small to keep a GPU busy."""
    for _ in range(CALLS):
        x = ops.scale(x, 1.01)
    return x


# [/chain]


def microseconds(call: Callable, rounds: int = 200) -> float:
    """Time a call as a loop of calls sees it, launches included."""
    for _ in range(20):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(rounds):
        call()
    torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - start) / rounds


def speed() -> None:
    """Time the same chain by each way to call it."""
    x = torch.randn(COUNT, device="cuda")
    expected = chain(x)
    replay, output = captured(chain, x)
    replay()
    torch.testing.assert_close(output, expected)
    graphed = torch.cuda.make_graphed_callables(chain, (x,))
    reduce = compiled(chain, mode="reduce-overhead")
    calls = {
        "eager": lambda: chain(x),
        "a graph, by hand": replay,
        "make_graphed_callables": lambda: graphed(x),
    }
    print(f"{CALLS} operators on {COUNT} fp32, microseconds for all")
    with torch.inference_mode():
        for name, call in calls.items():
            print(f"  {name:26}{microseconds(call):8.1f}")
        default = compiled(chain)
        print(f"  {'torch.compile':26}{microseconds(lambda: default(x)):8.1f}")
        reduce = compiled(chain, mode="reduce-overhead")
        torch.testing.assert_close(reduce(x), expected)
        print(f"  {'mode=reduce-overhead':26}{microseconds(lambda: reduce(x)):8.1f}")


# ---- Streams


# [replayed]
def by_hand(op: Callable) -> float:
    """Capture on ones, replay on fives; the share of elements that are right."""
    x = torch.ones(COUNT, device="cuda")
    replay, output = captured(lambda x: op(x, 2.0), x)
    replay(torch.full_like(x, 5))
    torch.cuda.synchronize()
    return (output == 10).float().mean().item()


def by_compiler(op: Callable) -> float:
    """The same with mode="reduce-overhead", which captures at the second call."""
    run = compiled(lambda x: op(x, 2.0) + 1, mode="reduce-overhead")
    for value in (1.0, 2.0, 5.0):
        output = run(torch.full((COUNT,), value, device="cuda"))
        torch.cuda.synchronize()
    return (output == 11).float().mean().item()


# [/replayed]


def streams() -> None:
    """Compare what replays compute."""
    print("share of the elements that are right after a replay")
    for right, op in (
        (True, ops.scale),
        (False, ops.scale_aside),
        (True, ops.scale_forked),
    ):
        for way in (by_hand, by_compiler):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                share = way(op)
            words = f"{way.__name__:12}{share:5.0%}"
            if any("CUDA Graph is empty" in str(w.message) for w in caught):
                words += ", with a warning: the graph is empty"
            expect(op._name, right, share == 1.0, words)


# ---- What makes Inductor skip


# [heard]
class Heard(logging.Handler):
    """Keep what Inductor logs about CUDA graphs; TORCH_LOGS=perf_hints prints it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first line, without the stack that follows."""
        line = record.getMessage().splitlines()[0]
        if "cudagraph" in line and line not in self.lines:
            self.lines.append(line)


# [/heard]


def listen() -> Heard:
    """Hear the loggers of torch._inductor that speak of CUDA graphs."""
    import torch._inductor.compile_fx
    import torch._inductor.cudagraph_trees
    import torch._inductor.scheduler

    torch._logging.set_logs(perf_hints=True)
    heard = Heard()
    for name, logger in logging.root.manager.loggerDict.items():
        speaks = name.endswith(("__perf_hints", "__cudagraphs"))
        if speaks and isinstance(logger, logging.Logger):
            logger.handlers = [heard]
            logger.propagate = False
    return heard


# [cases]
def clean(x):
    """Nothing that a graph cannot keep."""
    return ops.scale(x, 2.0) + 1


def mutates(x):
    """Write over an input of the compiled function."""
    ops.scale_(x, 2.0)
    return x + 1


def visits_the_cpu(x):
    """Go to the CPU and back."""
    return x.sum().cpu().cuda() + ops.scale(x, 2.0)


def waits(x):
    """Wait for the GPU inside an operator."""
    return ops.waits(ops.scale(x, 2.0)) + 1


def tagged(x):
    """The same, with the tag that says so."""
    return ops.tagged(ops.scale(x, 2.0)) + 1


# [/cases]


def graphs_of(function: Callable, partition: bool) -> str:
    """Call three times; say what was captured, what was skipped, what was raised."""
    from torch._inductor.cudagraph_trees import get_container

    heard.lines.clear()
    torch._inductor.cudagraph_trees.reset_cudagraph_trees()
    with torch._inductor.config.patch(graph_partition=partition):
        run = compiled(function, mode="reduce-overhead")
        error = ""
        try:
            for _ in range(3):
                torch.compiler.cudagraph_mark_step_begin()
                run(torch.ones(COUNT, device="cuda"))
        except Exception as raised:
            first = raised.__context__ or raised
            error = f"{type(raised).__name__}: {str(first).splitlines()[0]}"
    manager = get_container(0).tree_manager
    recorded = manager.new_graph_id().id if manager else 0
    skips = counters["inductor"]["cudagraph_skips"]
    lines = [f"graphs: {recorded}, skips: {skips}", *heard.lines]
    return "\n        ".join([*lines, error] if error else lines)


def skips() -> None:
    """Print what Inductor says about each case, with and without partitions."""
    global heard
    heard = listen()
    for partition in (True, False):
        print(f"graph_partition={partition}")
        for function in (clean, mutates, visits_the_cpu, tagged):
            print(f"  {function.__name__}", flush=True)
            print(f"        {graphs_of(function, partition)}", flush=True)
    # Last: a capture that failed leaves the process in a bad state.
    print("graph_partition=True\n  waits")
    print(f"        {graphs_of(waits, True)}", flush=True)


# ---- Memory


# [pools]
def reserved(shared: bool, graphs: int = 4) -> float:
    """MB that captures of a large temporary keep, by a pool each or by one for all."""
    x = torch.ones(16 * 2**20, device="cuda")

    def peak(x: Tensor) -> Tensor:
        return (x * 2 + 1).exp().sum()

    peak(x)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    pool = torch.cuda.graph_pool_handle() if shared else None
    kept = []
    for _ in range(graphs):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            output = peak(x)
        kept.append((graph, output))
    return (torch.cuda.memory_reserved() - before) / 2**20


def kept_by_hand() -> tuple[float, float]:
    """Keep the output of a replay across the next replay."""
    x = torch.full((COUNT,), 1.0, device="cuda")
    replay, output = captured(lambda x: ops.scale(x, 2.0), x)
    replay()
    kept, copied = output, output.clone()
    replay(torch.full_like(x, 5))
    return kept[0].item(), copied[0].item()


def kept_by_compiler(calls: int = 5) -> list[str]:
    """Keep each output of mode="reduce-overhead" across the next call, and read it."""
    run = compiled(lambda x: ops.scale(x, 2.0) + 1, mode="reduce-overhead")
    x, kept, seen = torch.empty(COUNT, device="cuda"), None, []
    for number in range(1, calls + 1):
        output = run(x.fill_(number))
        if kept is not None:
            try:
                right = kept[0].item() == 2 * (number - 1) + 1
                seen.append("right" if right else "overwritten")
            except RuntimeError as error:
                seen.append(str(error).split(". ")[0].removeprefix("Error: "))
        kept = output
    return seen


# [/pools]


def memory() -> None:
    """Print what pools keep, and what becomes of an output that was kept."""
    for shared in (False, True):
        words = "one pool for all" if shared else "a pool for each"
        print(f"4 graphs, {words:18}{reserved(shared):8.0f} MB", flush=True)
    kept, copied = kept_by_hand()
    print(f"2 * 1 by hand, read after the next replay: {kept}, from a copy: {copied}")
    print("by the compiler, each output read after the next call:")
    for number, words in enumerate(kept_by_compiler(), start=1):
        print(f"  call {number}: {words}")


# ---- Seeds


# [masks]
def masks(function: Callable, replays: int = 4) -> int:
    """Replay a captured dropout; count the different masks."""
    x = torch.ones(COUNT, device="cuda")
    replay, output = captured(function, x)
    seen = set()
    for _ in range(replays):
        replay()
        seen.add(output.cpu().numpy().tobytes())
    return len(seen)


def masks_compiled(function: Callable, replays: int = 4) -> int:
    """The same with mode="reduce-overhead"."""
    run = compiled(function, mode="reduce-overhead")
    x = torch.ones(COUNT, device="cuda")
    for _ in range(3):
        run(x)
    return len({run(x).cpu().numpy().tobytes() for _ in range(replays)})


# [/masks]


def gradient_agrees() -> bool:
    """Train through a captured dropout: backward must draw forward's mask."""
    x = torch.ones(COUNT, device="cuda", requires_grad=True)

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        y = ops.dropout(x, 0.5)
        return y.detach(), torch.autograd.grad(y.sum(), x)[0]

    replay, (y, grad) = captured(step, x)
    agree = True
    for _ in range(3):
        replay()
        agree &= torch.equal(y, grad)  # of ones: both are the mask, scaled
    return agree


def seeds() -> None:
    """Count masks; the same generator state must give the same ones."""
    print("different masks in 4 replays")
    x = torch.ones(COUNT, device="cuda")
    for right, name, function in (
        (False, "seed as a number", lambda x: ops.dropout_by_number(x, 0.5, 42)),
        (True, "seed as a tensor", lambda x: ops.dropout(x, 0.5)),
        (True, "F.dropout", lambda x: F.dropout(x, 0.5)),
    ):
        for way in (masks, masks_compiled):
            count = way(function)
            expect(name, right, count == 4, f"{way.__name__:16}{count}")
    replay, output = captured(lambda x: ops.dropout(x, 0.5), x)
    results = []
    for _ in range(2):
        torch.manual_seed(7)
        replay()
        results.append(output.clone())
    expect("manual_seed", True, torch.equal(*results), "the same mask again")
    expect("gradient", True, gradient_agrees(), "backward has the mask of forward")


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # those that are shown are caught
    names = sys.argv[1:] or ["speed", "streams", "memory", "seeds", "skips"]
    for name in names:
        globals()[name]()
    raise SystemExit(bool(surprises))
