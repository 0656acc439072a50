"""A block as a complete program: what it takes along, when it is none, its runs."""

import math
import os
import re
from functools import cache

import forked
import pytest

from environment import BOOK, without
from proof import page, programs, units
from proof.page import Result

PAGE = """\
```{run} python
import functools
import math
from collections import deque

# The ratio of a circle.
ratio = math.pi
unused = deque()
```

```{run} python
@functools.cache
def area(radius):
    return ratio * radius**2 + offset


offset, radii = 1, []
for number in (5, 6):
    print("shown", number)
```

```{run} python
:fails: broken
offset = 7
raise ValueError("broken")
```

```{run} python
for number in (1, 2):
    radii.append(number)
area.cache_clear()
radii
```

```{run} python
for number in (3, 4):
    print(number)
area(len(radii)), "two"
```
"""
FENCE = "```{{run}} python\n{}\n```\n\n"
NO_PROGRAM = {
    "nothing is before it": ["1 + 1"],
    "it is a command": ["x = 1", "$ echo x"],
    "it fails": ["x = 1", ":fails: zero\nx / 0"],
    "it needs what failed": [":fails: no\nraise ValueError('no')\nx = 1", "x"],
    "a name is bound nowhere": ["x = 1", "x + y"],
    "a module is in no package": ["import emulated as e", "e"],
    "a file of the repository": ["p = 'csrc/portable.h'", "open(p).read()"],
    "a folder of it": ["import pathlib", "pathlib.Path('tests').iterdir()"],
    "a file that a command made": ["p = 'build/made'", "open(p).read()"],
    "code in a string": ["x = 1", "eval('x', globals())\nx"],
}
SAMPLE = 12
# Each kind of program is in the sample.
KINDS = (
    "import triton",
    "import opbook",
    "custom_op",
    "Library(",
    "opcheck",
    "compile(",
)
# The end of what a program printed is the recorded one, unless it has a part of these.
VARIES = re.compile(r"rand|time|profile|version|platform|Warning")


def results(parsed):
    """How the blocks of an invented page end: those that are to fail do so at once."""
    return [
        Result(status="failed", line=1) if block.fails else Result(text="shown")
        for block in parsed
    ]


def run(program, folder):
    """Run a program as its reader would, in a folder with nothing else."""
    (folder / "program.py").write_text(program)
    variables = without(*BOOK, "TRITON_")
    return forked.run(["program.py"], folder, variables, loaded=("torch",))


def test_a_program_has_what_ran_before_its_block(tmp_path):
    parsed = list(page.blocks(PAGE))
    ended = results(parsed)
    ended[2].line = 2
    program = programs.complete(parsed, ended, 4)
    assert "# The ratio" in program
    assert "broken" not in program
    done = run(program, tmp_path)
    assert done.stdout.splitlines()[2:4] == ["3", "4"], done.stderr
    assert done.stdout.endswith(f"({math.pi * 4 + 7}, 'two')\n")


@pytest.mark.parametrize(
    ("end", "printed"),
    [
        ("x  # x", "1"),
        ("x, x", "(1, 1)"),
        ("give(\n    x\n)", "1"),
        ("len([x])", "1"),
        ("print(x)", "1"),
        ("show(x)", "1"),
        ("print(x)\ngc.enable()", "1"),
        ("y = x", ""),
    ],
)
def test_a_program_prints_what_its_block_shows(end, printed, tmp_path):
    before = (
        "import gc\n\nx = 1\ndef give(a):\n    return a\ndef show(a):\n    print(a)"
    )
    parsed = list(page.blocks(FENCE.format(before) + FENCE.format(end)))
    program = programs.complete(parsed, results(parsed), 1)
    assert run(program, tmp_path).stdout.strip() == printed


def test_a_program_has_triton_interpret_its_kernels():
    parsed = list(page.blocks(FENCE.format("import triton") + FENCE.format("1")))
    program = programs.complete(parsed, [Result(), Result()], 1)
    assert program.index("TRITON_INTERPRET") < program.index("import triton")


@pytest.mark.parametrize("why", NO_PROGRAM)
def test_a_block_is_no_program_when(why):
    text = "".join(map(FENCE.format, NO_PROGRAM[why]))
    parsed = list(page.blocks(text.replace("python\n$", "console\n$")))
    assert programs.complete(parsed, results(parsed), len(parsed) - 1) == ""


@cache
def offers():
    """The programs that the pages offer, each with what its block printed."""
    found = {}
    for path in page.pages():
        parsed, shown = page.parse(path), units.shown(path)
        ended = [each.result for each in shown]
        for number, each in enumerate(shown):
            if program := programs.complete(parsed, ended, number):
                found[f"{page.name(path)}, block {number}"] = program, each
    return found


def of_kind(kind):
    """The names of the programs that have this text, in the order of the pages."""
    return [name for name, (program, _) in offers().items() if kind in program]


CHOSEN = {f"shortest: {kind}": kind for kind in KINDS}
ALSO = {f"first: {kind}": kind for kind in KINDS} | dict.fromkeys(range(SAMPLE), "")


@pytest.mark.parametrize(
    "which", [*CHOSEN, *(pytest.param(which, marks=pytest.mark.all) for which in ALSO)]
)
def test_a_program_of_a_page_runs_alone(which, tmp_path):
    torch = pytest.importorskip("torch")
    if which in CHOSEN:
        name = min(of_kind(CHOSEN[which]), key=lambda name: len(offers()[name][0]))
    elif ALSO[which]:
        name = of_kind(ALSO[which])[0]
    else:
        name = list(offers())[which * len(offers()) // SAMPLE]
    program, shown = offers()[name]
    for package in re.findall(r"^import (opbook|triton)$", program, re.MULTILINE):
        pytest.importorskip(package)
    done = run(program, tmp_path)
    assert done.returncode == 0, f"{name}: {done.stderr}"
    assert os.listdir(tmp_path) == ["program.py"]
    is_same = torch.__version__.partition("+")[0] in shown.origin.where
    if is_same and not VARIES.search(program + shown.result.text):
        # Of a string, the page shows the quotes.
        assert done.stdout.rstrip().endswith(shown.result.text.strip("'")), name
