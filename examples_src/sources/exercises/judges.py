"""Say whether one answer is right: exercises.py starts it, in a process of its own.

A judge is a function with the name of its exercise. It gets the module of the answer,
raises an error if the answer is wrong, and returns what it has compared.
"""

import importlib.util
import linecache
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
import torch.nn.functional as F
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck

LONGEST, WIDEST = 16, 480  # of a message: lines, and letters of a line
RIGHT, WRONG = 0, 10  # exit statuses; Python's own is 1, of a judge that fails itself


def compare(what: str, yours, eager) -> None:
    """Raise an error that shows both results if they differ.

    They must have one shape and dtype; numbers may differ by their rounding.
    """
    try:
        torch.testing.assert_close(yours, eager, equal_nan=True)
    except AssertionError as error:
        why = str(error).partition("\n\n")[0]
        both = f"yours: {yours}\neager: {eager}"
        raise AssertionError(f"{what}: {why}\n{both}") from None


def must(holds: bool, message: str) -> None:
    """Raise an error with a message unless something holds."""
    if not holds:
        raise AssertionError(message)


def agree(what: str, check: Callable[..., object], *arguments) -> None:
    """Run gradcheck or gradgradcheck, and say which derivative it finds wrong."""
    try:
        check(*arguments)
    except RuntimeError as error:
        raise AssertionError(f"{what}: {error}") from None


def check_fake(operator: Callable[..., object], x: torch.Tensor, *others) -> None:
    """Run opcheck's test of the fake kernel, and say which result it names first."""
    try:
        opcheck(operator, (x, *others), test_utils="test_faketensor")
    except Exception as error:
        _, found, differs = str(error).partition("mismatched tensor metadata: ")
        if not found:
            raise
        raise AssertionError(
            f"x with shape {list(x.shape)}, strides {list(x.stride())}, {x.dtype}: "
            "opcheck compares the result of the kernel with that of the fake kernel, "
            f"in this order: {differs}"
        ) from None


def load_cpp(answer: ModuleType) -> None:
    """Compile the C++ of an answer and load it; the compiler's errors are shown."""
    torch_root = Path(torch.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "answer.cpp"), Path(folder, "answer.so")
        # The compiler counts the lines of KERNEL, not those of the whole.
        parts = (answer.HEAD, '#line 1 "KERNEL"', answer.KERNEL, answer.REGISTRATION)
        source.write_text("".join(parts))
        options = (
            "-std=c++20 -O1 -shared -fPIC -DTORCH_TARGET_VERSION=0x020b000000000000"
        )
        paths = ["-isystem", torch_root / "include", "-L", torch_root / "lib"]
        command = [
            "g++",
            *options.split(),
            *paths,
            source,
            "-ltorch_cpu",
            "-o",
            library,
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"g++ refuses KERNEL\n{done.stderr}")
        torch.ops.load_library(library)


# The guide


def no_kernel(answer):
    x = torch.tensor([1.0, -2.0])
    compare("triple([1, -2])", torch.ops.no_kernel.triple(x), x * 3)
    return "the call finds the kernel"


def error_message(answer):
    for x_shape, shape in (((7, 5), (5,)), ((5,), (5,)), ((0, 5), (5,))):
        x, bias = torch.ones(x_shape), torch.rand(shape)
        compare(f"x {x_shape}, bias {shape}", answer.add_bias(x, bias), x + bias)
    for shape in ((1,), (7, 5), (4,), (1, 5), ()):
        _must_refuse(answer.add_bias, torch.ones(7, 5), torch.ones(shape))
    return "three pairs of shapes are accepted, five are refused with what is wrong"


def _must_refuse(add_bias, x, bias):
    """Raise an error unless add_bias raises one that helps."""
    shapes = f"x {list(x.shape)}, bias {list(bias.shape)}"
    try:
        add_bias(x, bias)
    except ValueError as error:
        said = str(error)
    else:
        raise AssertionError(f"{shapes}: accepted")
    words = ["add_bias", "bias", str(x.shape[-1]), *map(str, bias.shape)]
    rest = said
    for word in words:
        must(word in rest, f"{shapes}: the message lacks {word!r}\n{said}")
        rest = rest.replace(word, "", 1)


def strides(answer):
    load_cpp(answer)
    x = torch.arange(6.0).reshape(2, 3)
    layouts = {
        "contiguous": x,
        "transposed": x.T,
        "every second column": x[:, ::2],
        "expanded": x[:, :1].expand(2, 3),
        "empty": x[:0],
    }
    for layout, tensor in layouts.items():
        compare(layout, torch.ops.strides.twice(tensor), 2 * tensor)
    accepts = not _failure("", lambda: torch.ops.strides.twice(x.double()))
    must(not accepts, "fp64: accepted, although the kernel reads fp32")
    return f"{len(layouts)} layouts give eager's result, and fp64 is refused"


def empty_rows(answer):
    shapes = [(2, 3), (2, 2, 3), (0, 3), (3, 0), (2, 0, 3), (0,)]
    for shape in shapes:
        x = torch.randn(shape)
        yours = torch.ops.empty_rows.log_softmax(x)
        compare(f"shape {shape}", yours, F.log_softmax(x, -1))
    x = torch.randn(0, 3, dtype=torch.float64)
    yours = torch.ops.empty_rows.log_softmax(x)
    compare("shape (0, 3) in fp64", yours, F.log_softmax(x, -1))
    return f"{len(shapes)} shapes give eager's result, four of them without elements"


def schema_mutation(answer):
    total, x = torch.zeros(3), torch.ones(3)
    operator = torch.ops.schema_mutation.accumulate.default
    operator(total, x)
    compare("accumulate(0, 1)", total, torch.ones(3))
    opcheck(operator, (total, x), test_utils="test_schema")
    changed = [a.name for a in operator._schema.arguments if a.is_write]
    must(changed == ["total"], f"the schema says that these change: {changed}")
    return "opcheck finds no change that the schema does not have, nor the reverse"


def returns_its_input(answer):
    x = torch.ones(3)
    for factor in (2.0, 1.0):
        yours = torch.ops.returns_its_input.scale(x, factor)
        compare(f"scale(x, {factor})", yours, x * factor)
        opcheck(torch.ops.returns_its_input.scale.default, (x, factor))
    return "opcheck finds no shared memory, for the factors 1 and 2"


def fake_shape(answer):
    inputs = [torch.randn(2, 3), torch.randn(2, 3, 4), torch.randn(2, 3).half()]
    for x in inputs:
        check_fake(answer.row_sum, x)
    _must_stay_on_meta(answer.row_sum)
    return "opcheck finds the kernel's shape and dtype for three inputs"


def fake_strides(answer):
    x = torch.randn(2, 3)
    for tensor in (x, x.T, x[:, ::2], x.expand(4, 2, 3), x.double()):
        check_fake(answer.twice, tensor)
    _must_stay_on_meta(answer.twice)
    return "opcheck finds the kernel's strides for four layouts, and its dtype"


def _must_stay_on_meta(operator):
    """Raise an error unless the fake kernel's result is where its argument is."""
    device = operator(torch.empty(2, 3, device="meta")).device
    must(device.type == "meta", f"the fake kernel of a tensor on meta returns {device}")


def graph_break(answer):
    for x in (torch.tensor([0.5, -0.25]), torch.tensor([1.0, -4.0]), torch.zeros(2)):
        eager = x / max(1.0, float(x.abs().max()))
        compare(f"limit_to_one({x.tolist()})", _in_one_graph(answer, x), eager)
    answer.limit_to_one(torch.ones(2, device="meta"))  # which has no number to ask for
    return "one graph, with eager's result above and below 1"


def _in_one_graph(answer, x):
    """The compiled function's result; an error names the line that ends the graph."""
    compiled = torch.compile(answer.limit_to_one, backend="eager", fullgraph=True)
    try:
        return compiled(x)
    except torch._dynamo.exc.TorchDynamoException as error:
        lines = re.findall(rf'"{re.escape(answer.__file__)}", line (\d+)', str(error))
        number = int(lines[-1])
        line = linecache.getline(answer.__file__, number).strip()
        raise AssertionError(
            f"the graph breaks in line {number}: {line}\n"
            "Does it need a number that is in a tensor, as `.item()`, `float()` and "
            f"`if` do? torch.compile says: {str(error).splitlines()[0]}"
        ) from None


def gradient_factor(answer):
    for cap in (1.0, 3.0):
        x = torch.linspace(-4, 4, 5, dtype=torch.float64, requires_grad=True)
        gradcheck(answer.softcap, (x, cap))
        eager = cap * torch.tanh(x / cap)
        compare(f"softcap, cap {cap}", answer.softcap(x, cap), eager)
    return "gradcheck agrees for the caps 1 and 3"


def saved_tensor(answer):
    x = torch.linspace(-2, 2, 5, dtype=torch.float64, requires_grad=True)
    agree("first derivative", gradcheck, answer.sigmoid, (x,))
    agree(
        "the first derivative is right, and the second is wrong, as if what is saved "
        "did not depend on x. Is it the argument or the result itself?",
        gradgradcheck,
        answer.sigmoid,
        (x,),
    )
    compare("sigmoid", answer.sigmoid(x), torch.sigmoid(x))
    return "gradcheck and gradgradcheck agree"


def double_backward(answer):
    x = torch.linspace(-2, 2, 5, dtype=torch.float64, requires_grad=True)
    agree("first derivative", gradcheck, answer.cube, (x,))
    agree(
        "second derivative, where input 0 is x, and input 1 the gradient that backward "
        "gets; it comes from the function that you register for cube_backward",
        gradgradcheck,
        answer.cube,
        (x,),
    )
    return "gradcheck and gradgradcheck agree"


def lost_gradient(answer):
    x = torch.tensor([0.4, 1.6], requires_grad=True)
    y = torch.ops.lost_gradient.round_through(x)
    compare("round_through([0.4, 1.6])", y.detach(), x.detach().round())
    (y * torch.tensor([2.0, 3.0])).sum().backward()
    must(
        torch.equal(x.grad, torch.tensor([2.0, 3.0])),
        f"the incoming gradient is [2, 3], and x.grad is {x.grad.tolist()}",
    )
    node = y.grad_fn.name()
    must("lost_gradient" in node, f"autograd recorded {node}, and not your formula")
    return "the registered formula gives the gradient"


def version_counter(answer):
    x, original = torch.ones(2, requires_grad=True), torch.ones(2)
    y = x.exp()  # autograd keeps the result for the gradient
    before = y._version
    torch.ops.version_counter.double_(y.detach())
    compare("double_(exp(x))", y.detach(), 2 * original.exp())
    must(
        y._version > before,
        f"y = x.exp() is doubled in place, and y._version is {y._version} as before: "
        "backward would take the new y for the old one",
    )
    try:
        y.sum().backward()
    except RuntimeError as error:
        must("modified by an inplace operation" in str(error), str(error))
    else:
        raise AssertionError("backward did not notice the change")
    return "autograd refuses a gradient from memory that has changed"


# The reduction


def stable_softmax(answer):
    rows = [[1.0, 2.0, 3.0], [100.0, 0.0, -100.0], [-200.0, -201.0, -202.0]]
    for given in (*([row] for row in rows), rows):
        x = torch.tensor(given)
        compare(f"softmax of {given}", answer.softmax(x), torch.softmax(x, -1))
    return "rows of small, large and negative numbers give eager's result"


def half_sum(answer):
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(2, 4096, generator=generator)
    for name, x in {
        "1 to 4": noise,
        "300": noise * 300,
        "0.0001": noise * 1e-4,
    }.items():
        x = x.half()
        yours, eager = answer.rms_norm(x, 1e-6), _exact_rms_norm(x)
        compare(f"numbers of about {name}", yours, eager)
    # In fp32, hardly any number lies so near to a border that it rounds otherwise.
    x = noise.half()
    other = int((answer.rms_norm(x, 1e-6) != _exact_rms_norm(x)).sum())
    must(
        other <= x.numel() // 100,
        f"{other} of {x.numel()} numbers are not what fp64 rounds to: something was "
        "rounded to fp16 before the end",
    )
    return "fp16 rows of three magnitudes round to what fp64 gives"


def _exact_rms_norm(x):
    return F.rms_norm(x.double(), x.shape[-1:], eps=1e-6).half()


def tail(answer):
    load_cpp(answer)
    memory = torch.full((80,), float("nan"))
    for count in (64, 4, 0, 1, 3, 7, 66):
        memory.fill_(float("nan"))
        row = memory[:count].copy_(torch.arange(1.0, count + 1))
        compare(f"a row of {count}", torch.ops.tail.sum(row), row.sum().reshape(1))
    return "rows of seven lengths give eager's sum, with NaN in the memory after them"


def statistic_gradient(answer):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    gradcheck(answer.normalize, (x,))
    return "gradcheck agrees"


# Triton


def store_mask(answer):
    for count in (5, 8, 13):
        x = torch.linspace(-1, 1, count)
        memory = torch.full((24,), 7.0)
        answer.relu(x, memory[:count])
        must(
            bool((memory[count:] == 7).all()),
            f"{count} elements: the memory after the output was 7, and is "
            f"{memory[count:].tolist()}",
        )
        compare(f"{count} elements", memory[:count], x.relu())
    return "outputs of 5, 8 and 13 elements, and the memory after them"


class Launches:
    """A kernel that counts its launches."""

    def __init__(self, kernel):
        self.kernel, self.count = kernel, 0

    def __getitem__(self, grid):
        self.count += 1
        return self.kernel[grid]


def last_program(answer):
    kernel = answer.double_kernel = Launches(answer.double_kernel)
    for count in (16, 13, 5, 0):
        x = torch.arange(float(count))
        compare(f"{count} elements", answer.double(x), 2 * x)
    must(
        kernel.count > 0,
        "the results are right, but double has not launched the kernel",
    )
    return "inputs of 16, 13, 5 and 0 elements give eager's result"


def other_for_max(answer):
    for columns in (4, 5):
        x = torch.arange(1.0, 2 * columns + 1).reshape(2, columns)
        for rows in (x, -x, -1e30 * x, torch.full_like(x, -float("inf"))):
            compare(f"rows {rows.tolist()}", answer.row_max(rows), rows.amax(-1))
    return "rows of positive and negative numbers give eager's maximum"


def int32_offset(answer):
    stride = 2**30 + 1
    # Pages of memory that nobody touches cost nothing.
    memory = torch.empty(2 * stride + 1, dtype=torch.int8)
    rows = memory.as_strided((3, 1), (stride, 1))
    rows.copy_(torch.tensor([[1], [2], [3]]))
    compare("rows 2**30 + 1 apart", answer.first_column(rows), rows[:, 0].clone())
    return "a row is read that begins 2147483650 elements after the first"


# The dispatcher


def recursion(answer):
    inputs = [
        torch.tensor([-1.5, 2.0]),
        torch.tensor([-3, 4]),
        torch.tensor([3 + 4j]),
        torch.arange(-3.0, 3.0).reshape(2, 3)[:, ::2],
    ]
    for x in inputs:
        answer.shapes.clear()
        try:
            yours, noted = torch.abs(x), list(answer.shapes)
        except RecursionError:
            raise AssertionError(
                "RecursionError: `noted` calls an operator that the dispatcher sends "
                "to `noted` again. Call the kernel that served abs before yours."
            ) from None
        compare(f"abs({x.tolist()})", yours, torch.abs(x, out=yours.new_empty(0)))
        must(noted == [x.shape], f"one call of shape {x.shape}, but noted: {noted}")
    return "real, integer and complex inputs, each noted once"


def lost_arguments(answer):
    x = torch.tensor([[3.0, 1.0, 2.0]])
    calls = {
        "torch.sum(x, dtype=torch.float64)": lambda: torch.sum(x, dtype=torch.float64),
        "torch.add(x, x, alpha=10)": lambda: torch.add(x, x, alpha=10),
        "x.neg()": x.neg,
    }
    for name, call in calls.items():
        with answer.Noted() as mode:
            yours = call()
        compare(name, yours, call())
        must(len(mode.names) == 1, f"{name}: one operator, but noted: {mode.names}")
    return "three calls give eager's result, and each is noted"


# All together


def four_faults(answer):
    softcap = answer.softcap
    x = torch.randn(2, 4, 3, dtype=torch.float64)
    scale = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    leaf, scale_leaf = x.clone().requires_grad_(), scale.clone().requires_grad_()
    half, wide = x.half(), scale.float()

    def values(x, scale):
        eager = 3 * torch.tanh(x * scale / 3)
        compare("softcap", softcap(x.clone(), scale, 3.0), eager)

    def gradient():
        before = leaf.detach().clone()
        softcap(leaf, scale_leaf, 3.0)
        must(
            torch.equal(leaf, before), "the call changes x, so no gradient was checked"
        )
        gradcheck(softcap, (leaf, scale_leaf, 3.0))

    tests = {
        "values": lambda: values(x, scale),
        "values, x in fp16": lambda: values(half, wide),
        "mutation": lambda: opcheck(
            softcap, (x.clone(), scale, 3.0), test_utils="test_schema"
        ),
        "fake kernel": lambda: check_fake(softcap, x, scale, 3.0),
        "fake kernel, x transposed": lambda: check_fake(
            softcap, x.transpose(0, 1), scale, 3.0
        ),
        "fake kernel, x in fp16": lambda: check_fake(softcap, half, wide, 3.0),
        "gradient": gradient,
    }
    failed = [text for name, test in tests.items() if (text := _failure(name, test))]
    must(not failed, f"{len(failed)} of {len(tests)} tests fail\n" + "\n".join(failed))
    return f"{len(tests)} tests pass"


def _failure(name: str, test: Callable[[], object]) -> str:
    """The name of a test and the first line that it says, "" if it passes."""
    try:
        test()
    except Exception as error:
        return f"{name}: {str(error).splitlines()[0]}"
    return ""


# The command


def load(path: Path) -> ModuleType:
    """Import the file of an answer."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    answer = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = answer  # where Triton looks for a kernel's source
    spec.loader.exec_module(answer)
    return answer


def explained(error: BaseException, path: Path) -> str:
    """What an error says, with the line of the answer that it passed last."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    where = f"{path.parent.name}/{path.name}, line {lines[-1]}: " if lines else ""
    said = str(error).replace(" (scroll up for stack trace)", "")  # of opcheck
    if isinstance(error, SyntaxError):
        said = "".join(traceback.format_exception_only(error))
    elif not isinstance(error, AssertionError):
        said = f"{type(error).__name__}: {said}"
    said = [line for line in said.strip().splitlines() if line.strip()]
    if isinstance(error, NotImplementedError):  # a table of all keys follows
        return where + said[0]
    said = [line[:WIDEST] for line in said]
    more = ["..."] if len(said) > LONGEST else []
    return where + "\n".join(said[:LONGEST] + more)


def main(path: Path) -> int:
    """Judge an answer, print why, and return the exit status."""
    name = path.stem
    try:
        compared = globals()[name](load(path))
    except (Exception, SystemExit) as error:
        print(f"wrong: {name}\n{explained(error, path)}")
        return WRONG
    print(f"right: {name}\n{compared}")
    return RIGHT


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
