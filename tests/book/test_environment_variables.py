"""The tables of environment variables: what reads each, and that none is missing."""

import mmap
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/environment_variables.md"
TORCH = Path(find_spec("torch").origin).parent
FOLDERS = {
    "cpp_extension.py": TORCH / "utils",
    "CUDADeviceAssertion.h": TORCH / "include/c10/cuda",
    "cache_dir_utils.py": TORCH / "_inductor/runtime",
}
# What this machine may not have: runtimes of GPUs, libraries of a PyTorch for CUDA.
ELSEWHERE = {"CUDA driver", "HIP runtime", "OpenMP's runtime", "libc10_cuda.so"}
OURS = r"(?:OPBOOK|BENCHMARK|RECORD)_[A-Z_]+[A-Z]"


def readers(text):
    """Of each row of the tables, the variable and what reads it."""
    rows = re.findall(r"^\| `(\w+)`.*\| ([^,|]+), [^|]*\|$", text, re.MULTILINE)
    return [(name, cell.split(" and ")[-1].strip("`")) for name, cell in rows]


def file_of(reader):
    """The file of this project, of PyTorch or of Triton."""
    if (ROOT / reader).exists():
        return ROOT / reader
    if reader == "triton/knobs.py":
        triton = pytest.importorskip("triton", reason="needs Triton")
        return Path(triton.__file__).with_name("knobs.py")
    default = TORCH / "lib" if reader.endswith(".so") else TORCH
    return FOLDERS.get(reader, default) / reader


def has_name(file, name):
    with file.open("rb") as stream:
        text = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    return text.find(name.encode()) >= 0


def variables_of(text):
    """This project's variables that a source names, a prefix without its underscore."""
    return set(re.findall(f'"({OURS})_?"', text))


ROWS = readers(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "reader"), ROWS, ids=[name for name, _ in ROWS])
def test_the_file_that_a_row_names_has_the_variable(name, reader):
    file = file_of(reader)
    if reader in ELSEWHERE and not file.exists():
        pytest.skip(f"{reader} is not on this machine")
    assert has_name(file, name), f"{name} is not in {reader}"


def test_a_name_that_no_file_has_is_not_found():
    assert not has_name(TORCH / "utils/cpp_extension.py", "TORCH_NO_SUCH_VARIABLE")


def test_the_tables_list_every_variable_of_this_project():
    places = ["*.py", "csrc/**/*.h", "docs/conf.py"]
    folders = ("src", "docs/_ext", "tests", "benchmarks", "tools/src")
    places += [f"{folder}/**/*.py" for folder in folders]
    files = (file for place in places for file in ROOT.glob(place))
    read = set().union(*(variables_of(file.read_text("utf-8")) for file in files))
    assert read == {found[0] for name, _ in ROWS if (found := re.match(OURS, name))}


def test_a_name_without_quotes_is_no_variable():
    assert variables_of('f(OPBOOK_HIDE, "PATH", "OPBOOK_")') == set()
    assert variables_of('environ["OPBOOK_HIDE"]') == {"OPBOOK_HIDE"}
