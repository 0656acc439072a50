"""The exercises: each judge says wrong, right, and why, when it must."""

import io
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import steps
from proof import projects

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples_src/sources/exercises"
sys.path.insert(0, str(FOLDER))

import exercises  # noqa: E402
import solved  # noqa: E402
from solved import GAP, filled, gap, solution  # noqa: E402

NAMES = list(exercises.exercises())

# What the judge says of a file as the reader gets it.
UNSOLVED = {
    "no_kernel": r"Could not run 'no_kernel::triple' .*\]\.\n?\Z",
    "error_message": r"bias \[1\]: accepted",
    "strides": "^transposed: .* not close",
    "empty_rows": "cannot reshape tensor of 0 elements",
    "schema_mutation": "total is not defined as mutable but was mutated",
    "returns_its_input": "x is not defined to alias output but was aliasing",
    "fake_shape": r"^x with shape \[2, 3, 4\], .* fake kernel, .*: Shapes .*2, 3.* and",
    "fake_strides": r"^x with shape \[3, 2\], strides \[1, 3\], .*: Stride mismatch",
    "graph_break": "the graph breaks in line 14: if largest > 1:\nDoes it need",
    "gradient_factor": "Jacobian mismatch",
    "saved_tensor": "^first derivative: Jacobian mismatch",
    "double_backward": "^second derivative, .*cube_backward.default but no autograd",
    "lost_gradient": r"x.grad is \[0.0, 0.0\]",
    "version_counter": "y._version is 0 as before",
    "stable_softmax": r"softmax of \[\[100.0.*\n.*nan",
    "half_sum": "numbers of about 300: .* not close",
    "tail": "a row of 1: .* not close",
    "statistic_gradient": "Jacobian mismatch",
    "store_mask": "5 elements: the memory after the output was 7",
    "last_program": r"(?s)13 elements: .*nan",
    "other_for_max": r"rows \[\[-1.0.*\n.*0.*",
    "int32_offset": "",  # a crash, which says nothing
    "recursion": "RecursionError: `noted` calls an operator that .* `noted` again",
    "lost_arguments": "'dtype' do not match",
    "four_faults": r"(?s)x in fp16: .*\nmutation: .*transposed: .*\ngradient: ",
}
# Of a solution, a text and what to write for it: another answer that is right.
ALSO_RIGHT = [
    ("four_faults", "sum_to_size(scale.shape)", "sum(0)"),  # autograd adds the rest
    ("no_kernel", '"CPU"', '"CompositeExplicitAutograd"'),
    ("error_message", "bias.shape != x.shape[-1:]", "[*bias.shape] != [x.shape[-1]]"),
    ("empty_rows", "torch.empty_like(x)", "x.clone()"),
    ("fake_shape", "x.new_empty(x.shape[:-1],", "torch.empty_like(x[..., 0],"),
    ("fake_strides", "x.new_empty(x.shape)", "torch.empty_like(x.contiguous())"),
    ("graph_break", ".clamp(min=1)", ".maximum(torch.ones(()))"),
    ("gradient_factor", "1 - tanh**2", "1 / torch.cosh(x / ctx.cap) ** 2"),
    (
        "stable_softmax",
        "x - x.amax(-1, keepdim=True)",
        "x - torch.logsumexp(x, -1, True)",
    ),
    ("half_sum", "x.float()", "x.double()"),
    ("tail", "x[i];", "*(x + i);"),
    ("other_for_max", '-float("inf")', 'float("-inf")'),
    (
        "recursion",
        "replaced.call_boxed(keyset, x)",
        "torch.abs(x, out=x.new_empty(0, dtype=x.real.dtype))",
    ),
    ("lost_arguments", "**(kwargs or {})", "**kwargs"),
]
# The same for an answer that is wrong, and what the judge must say of it.
ALSO_WRONG = [
    ("no_kernel", '"CPU"', '"Meta"', "Could not run"),
    ("error_message", "bias.shape != x.shape[-1:]", "True", r"expected bias to have"),
    ("error_message", "add_bias: ", "", "the message lacks 'add_bias'"),
    ("error_message", ", but got {[*bias.shape]}", "", "the message lacks"),
    ("error_message", "bias.shape != x.shape[-1:]", "len(bias) != 5", r"\[7, 5\]|0-d"),
    ("strides", "2 * from[i]", "3 * from[i]", "^contiguous: "),
    (
        "strides",
        "x.scalar_type() == torch::headeronly::ScalarType::Float",
        "true",
        "fp64: accepted",
    ),
    ("strides", "* from[i];", "* from[i]", r"(?s)g\+\+ refuses KERNEL\nKERNEL:.*error"),
    ("empty_rows", "torch.empty_like(x)", "x.new_empty(0)", r"shape .* not match"),
    ("schema_mutation", "x) ->", "x, Tensor y) ->", "missing value for argument 'y'"),
    ("schema_mutation", "Tensor x", "Tensor(b!) x", r"change: \['total', 'x'\]"),
    ("returns_its_input", "x.clone()", "x.view_as(x)", "was aliasing"),
    ("returns_its_input", "x.clone()", "x + 1", r"scale\(x, 1.0\): .* not close"),
    ("fake_shape", ", dtype=torch.float32", "", "Dtypes? .*float16|float16"),
    ("fake_shape", "x.shape[:-1]", "x.shape[1:]", "Shapes"),
    ("fake_shape", "x.new_empty(", "torch.empty(", "meta returns cpu"),
    ("fake_strides", "x.new_empty(x.shape)", "torch.empty(x.shape)", "float64"),
    (
        "fake_strides",
        "x.new_empty(x.shape)",
        "torch.empty(x.shape, dtype=x.dtype)",
        "meta returns cpu",
    ),
    ("empty_rows", "torch.empty_like(x)", "torch.zeros(x.shape)", "fp64: .*dtype"),
    (
        "lost_gradient",
        'round_through, "CompositeExplicitAutograd"',
        'lambda x: x + (x.round() - x).detach(), "CompositeImplicitAutograd"',
        "recorded AddBackward0, and not",
    ),
    (
        "fake_strides",
        "x.new_empty(x.shape)",
        "torch.empty_like(x.T)",
        "mismatch|Shapes",
    ),
    ("graph_break", ".clamp(min=1)", ".clamp(max=1)", "not close"),
    (
        "graph_break",
        "x.abs().max().clamp(min=1)",
        "max(1, x.abs().max().item())",
        r"line 12: RuntimeError: Tensor.item\(\) cannot be called on meta tensors",
    ),
    ("gradient_factor", "1 - tanh**2", "1 - tanh", "Jacobian mismatch"),
    ("saved_tensor", "(output)", "(2 * output)", "^first derivative: Jacobian"),
    ("saved_tensor", "(output)", "(output.detach())", "second is wrong, .*Jacobian"),
    (
        "saved_tensor",
        "(output)",
        "(inputs[0].sigmoid())",
        "second is wrong, .*Jacobian",
    ),
    ("saved_tensor", "(output)", "(1 - output)", "second is wrong, .*Jacobian"),
    ("double_backward", "grad * 6 * x", "6 * x", "^second derivative, .*Jacobian"),
    ("double_backward", "* 6 * x", "* 3 * x", "Jacobian mismatch"),
    ("lost_gradient", '"CompositeExplicitAutograd"', '"CUDA"', "Could not run"),
    ("version_counter", "    memory *= 2\n", "", "double_.* not close"),
    ("stable_softmax", "amax(-1, keepdim=True)", "amax()", r"not close"),
    ("stable_softmax", "- x.amax(-1, keepdim=True)", "- 100", "not close"),
    ("half_sum", ".to(x.dtype)", "", "dtype"),
    (
        "half_sum",
        "(wide * torch.rsqrt(mean + eps)).to(x.dtype)",
        "x * torch.rsqrt(mean + eps).to(x.dtype)",
        "of 8192 numbers are not what fp64",
    ),
    ("half_sum", "x.float()", "x / 300", "not close"),
    ("tail", "for (; i < count; ++i)", "for (; i <= count; ++i)", "nan"),
    ("tail", "for (; i < count; ++i)", "if (i < count)", "a row of 3"),
    ("statistic_gradient", "x * r**2", "x * r", "Jacobian mismatch"),
    ("store_mask", "values), mask=inside", "values)", "5 elements: the memory after"),
    ("store_mask", "values < 0", "values > 0", "5 elements: .* not close"),
    ("last_program", "triton.cdiv(x.numel(), BLOCK)", "1", "16 elements"),
    (
        "last_program",
        "double_kernel[grid](x, y, x.numel(), BLOCK=BLOCK)",
        "y = x * 2",
        "double has not launched the kernel",
    ),
    ("other_for_max", '-float("inf")', "-1000.0", "e.30"),
    ("int32_offset", "(0).to(tl.int64)", "(0)", ""),
    ("int32_offset", "row * stride", "(row * stride).to(tl.int32)", ""),
    ("recursion", "    shapes.append(x.shape)\n", "", r"noted: \[\]"),
    ("recursion", "replaced.call_boxed(keyset, x)", "x.where(x > 0, -x)", "."),
    (
        "lost_arguments",
        "        self.names.append(operator.name())\n",
        "",
        r"noted: \[\]",
    ),
    ("lost_arguments", "**(kwargs or {})", "alpha=1", "."),
    ("four_faults", ".contiguous() * scale", ".mul_(scale)", "\nmutation: .*mutated"),
    ("four_faults", "tanh(scaled / cap)", "tanh(scaled)", "\nvalues: .* not close"),
    ("four_faults", "scale.dtype", "x.dtype", "\nfake .*, x in fp16: "),
    ("four_faults", "x.new_empty(x.shape", "torch.empty_like(x", "1 of 7.*\n.*transp"),
    ("four_faults", "x * scale / ctx", "x / ctx", "1 of 7.*\ngradient: Jacobian"),
    ("four_faults", "(slope * x)", "slope", "1 of 7.*\ngradient: Jacobian"),
]
# Files that end before there is an answer, and what the judge says.
NO_ANSWERS = {
    "raise SystemExit(0)\n": "line 1: SystemExit: 0",
    "def broken(:\n": "SyntaxError",
}


def replaced(name: str, old: str, new: str) -> str:
    """The solved exercise with another text in its gap."""
    assert old in solution(name), f"{name}: the solution has no {old!r}"
    return filled(name, solution(name).replace(old, new))


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> dict[tuple[str, str], str]:
    """What the judge says of each kind of answer to each exercise, "" if it crashed."""
    folder = tmp_path_factory.mktemp("answers")
    answers = {("unsolved", name): gap(name) for name in NAMES}
    answers |= {("solved", name): filled(name, solution(name)) for name in NAMES}
    answers |= {(f"no answer {text}", "no_kernel"): text for text in NO_ANSWERS}
    for kind, rows in (("right", ALSO_RIGHT), ("wrong", ALSO_WRONG)):
        for number, row in enumerate(rows):
            answers[f"{kind}_{number}", row[0]] = replaced(*row[:3])
    kinds = {kind: str(number) for number, kind in enumerate(k for k, _ in answers)}
    paths = {key: folder / kinds[key[0]] / f"{key[1]}.py" for key in answers}
    for key, path in paths.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(answers[key])
    subprocess.run(
        [sys.executable, solved.__file__, *map(str, paths.values())],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        stdout=subprocess.DEVNULL,
    )
    return {key: path.with_suffix(".said").read_text() for key, path in paths.items()}


def must_be_wrong(text: str, name: str, pattern: str) -> None:
    if not text and not pattern:
        return  # a crash
    head, _, why = text.partition("\n")
    assert head == f"wrong: {name}"
    assert re.search(pattern, why, re.MULTILINE), why


@pytest.mark.parametrize("name", NAMES)
def test_an_exercise_is_wrong_before_and_right_after(name, said):
    must_be_wrong(said["unsolved", name], name, UNSOLVED[name])
    assert re.fullmatch(rf"right: {name}\n.+\n", said["solved", name])


@pytest.mark.parametrize("number", range(len(ALSO_RIGHT)))
def test_another_answer_is_right(number, said):
    name = ALSO_RIGHT[number][0]
    text = said[f"right_{number}", name]
    assert text.startswith(f"right: {name}\n"), text


@pytest.mark.parametrize("number", range(len(ALSO_WRONG)))
def test_another_answer_is_wrong(number, said):
    name, *_, pattern = ALSO_WRONG[number]
    must_be_wrong(said[f"wrong_{number}", name], name, pattern)


@pytest.mark.parametrize("text", NO_ANSWERS)
def test_no_answer_is_wrong(text, said):
    must_be_wrong(said[f"no answer {text}", "no_kernel"], "no_kernel", NO_ANSWERS[text])


def answered(folder: Path, name: str, text: str = "", *options: str):
    """Run the command as a reader does, with the text in the file of the exercise."""
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("solutions"))
    if text:
        (folder / "gaps" / f"{name}.py").write_text(text)
    command = [sys.executable, "exercises.py", name, *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_the_command_says_right(tmp_path):
    done = answered(
        tmp_path / "e", "no_kernel", filled("no_kernel", solution("no_kernel"))
    )
    assert done.returncode == exercises.RIGHT
    assert done.stdout == "right: no_kernel\nthe call finds the kernel\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
            "crashed: Segmentation fault, at",
        ),
        ("1 / 0\n", "gaps/no_kernel.py, line 1: ZeroDivisionError: division by zero"),
    ],
)
def test_the_command_says_wrong(tmp_path, text, why):
    done = answered(tmp_path / "e", "no_kernel", text)
    assert done.returncode == exercises.WRONG
    assert done.stdout.startswith("wrong: no_kernel\n")
    assert why in done.stdout
    assert done.stdout.endswith("A hint: python exercises.py no_kernel --hint\n")


def test_an_answer_that_never_ends_is_wrong(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(exercises, "HERE", tmp_path)
    monkeypatch.setattr(exercises, "TIMEOUT", 0.5)
    (tmp_path / "judges.py").write_text("import time\ntime.sleep(60)\n")
    assert exercises.judge("no_kernel") == exercises.JUDGED_WRONG
    assert "has not ended after 0.5 s" in capfd.readouterr().out


def test_a_judge_that_fails_itself_judges_nothing(tmp_path, capfd):
    (tmp_path / "judges.py").write_text("1 / 0\n")
    for name in ("exercises.py", "exercises.toml"):
        shutil.copy(FOLDER / name, tmp_path)
    command = [sys.executable, "exercises.py", "no_kernel"]
    status = subprocess.run(command, cwd=tmp_path).returncode
    assert status == exercises.NOT_JUDGED
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_missing_tool_is_named(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "argv", ["exercises.py", "tail"])
    assert exercises.main() == exercises.NOT_JUDGED
    assert capsys.readouterr().out == "not judged: tail needs g++\n"


@pytest.mark.parametrize("arguments", [["nothing"], ["--hint"]])
def test_misuse_has_a_status_of_its_own(monkeypatch, arguments):
    monkeypatch.setattr(sys, "argv", ["exercises.py", *arguments])
    with pytest.raises(SystemExit) as error:
        exercises.main()
    assert error.value.code == 2


def test_the_list_and_the_hints_need_no_torch(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(sys, "argv", ["exercises.py"])
    assert exercises.main() == exercises.RIGHT
    listed = capsys.readouterr().out
    for name, entry in exercises.exercises().items():
        assert re.search(rf"(?m)^  {name} +[A-Z].*\.$", listed)
        monkeypatch.setattr(sys, "argv", ["exercises.py", name, "--hint"])
        assert exercises.main() == exercises.RIGHT
        assert capsys.readouterr().out == f"{entry['hint'].strip()}\n"


def test_each_exercise_is_whole():
    files = {path.stem for path in (FOLDER / "gaps").glob("*.py")}
    assert files == {path.stem for path in (FOLDER / "solutions").glob("*.py")}
    assert files == set(NAMES) == set(UNSOLVED)
    for name, entry in exercises.exercises().items():
        assert len(GAP.findall(gap(name))) == 1, name
        assert (ROOT / "docs" / f"{entry['page']}.md").is_file(), name
        assert name in {row[0] for row in ALSO_WRONG}, name


def test_the_zip_has_what_the_commands_need(tmp_path):
    with zipfile.ZipFile(io.BytesIO(steps.zipped(projects.EXERCISES))) as archive:
        archive.extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "exercises.py"],
        cwd=tmp_path / "exercises",
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == exercises.listed(exercises.exercises()).split()
    for folder in ("gaps", "solutions"):
        files = (tmp_path / "exercises" / folder).iterdir()
        assert {path.stem for path in files} == set(NAMES)


def test_a_reader_may_leave_the_list():
    command = f"{sys.executable} exercises.py | true"
    done = subprocess.run(
        command, cwd=FOLDER, shell=True, capture_output=True, text=True
    )
    assert not done.stderr
