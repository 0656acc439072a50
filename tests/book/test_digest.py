"""Digests of evidence: by meaning for code, by bytes for the rest."""

import ast
import dataclasses
import os

import pytest

from proof import digest, files, machine
from proof.evidence import Record

KERNEL = """\
#define TWICE(x) \\
  (2 * (x))
// Adds one.
__global__ void add(float* y) { y[0] += 1'000; } /* done */
const char* text = "// no comment";
auto raw = R"sql(/* nor this */)sql";
"""
MODULE = '''\
"""What it does."""


def add(x):
    """Add one."""
    return x + 1  # one
'''


def same(one: str, other: str, suffix: str) -> bool:
    digests = [digest.of_meaning(text.encode(), suffix) for text in (one, other)]
    assert all(known.startswith("code:") for known in digests)
    return digests[0] == digests[1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("// Adds one.\n", ""),
        ("// Adds one.", "/* Adds\n   one. */"),
        ("/* done */", "// it's done"),
        ("{ y[0] += 1'000; }", "{\n  y[0] += 1'000;\n}"),
        ("\\\n  (2", "(2"),
        ("(float* y)", "(float *y)"),
    ],
)
def test_comments_and_layout_of_cpp_mean_nothing(old, new):
    assert old in KERNEL
    assert same(KERNEL, KERNEL.replace(old, new), ".cu")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1'000", "1'001"),
        ("y[0] += 1", "y[0] + = 1"),
        ("no comment", "a comment"),
        ("// no comment", ""),
        ("/* nor this */", ""),
        ("\\\n  (2", "\n(2"),
        ("float", "double"),
    ],
)
def test_any_token_of_cpp_counts(old, new):
    assert old in KERNEL
    assert not same(KERNEL, KERNEL.replace(old, new), ".h")


def test_a_comment_after_a_directive_ends_with_its_line():
    assert same("#define A 1 // one\nint b;", "#define A 1\n\nint b;", ".cpp")
    assert not same("#define A 1 // one\nint b;", "#define A 1 int b;", ".cpp")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  # one", ""),
        ('"""What it does."""\n\n\n', ""),
        ('    """Add one."""\n', ""),
        ("x + 1", "(x +\n            1)"),
    ],
)
def test_comments_and_docstrings_of_python_mean_nothing(old, new):
    assert old in MODULE
    assert same(MODULE, MODULE.replace(old, new), ".py")


@pytest.mark.parametrize(
    ("old", "new"),
    [("x + 1", "x + 1.0"), ("x + 1", "x + True"), ("add(x)", "add(x, y=None)")],
)
def test_any_node_of_python_counts(old, new):
    assert old in MODULE
    assert not same(MODULE, MODULE.replace(old, new), ".py")


def test_a_newer_python_gives_the_same_digest(monkeypatch):
    known = digest.of_meaning(MODULE.encode(), ".py")
    parse = ast.parse

    def with_a_new_field(data):
        tree = parse(data)
        for node in ast.walk(tree):
            node._fields += ("type_params",)
            node.type_params = []
        return tree

    monkeypatch.setattr(digest.ast, "parse", with_a_new_field)
    assert digest.of_meaning(MODULE.encode(), ".py") == known


@pytest.mark.parametrize(("text", "suffix"), [("a", ".toml"), ("def (", ".py")])
def test_what_has_no_tokens_counts_by_its_bytes(text, suffix):
    data = text.encode()
    assert digest.of_meaning(data, suffix) == digest.of_bytes(data)


# Files of a repository.


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ROOT", tmp_path)
    (tmp_path / "a.h").write_text("int a;\n")
    return tmp_path


def edit(file, text: str) -> None:
    """Write a file at another time, which a fast test may be too fast for."""
    time = file.stat().st_mtime_ns + 1_000_000
    file.write_text(text)
    os.utime(file, ns=(time, time))


def test_a_digest_follows_its_file(repository):
    known = files.digests([repository / "a.h"])["a.h"]
    assert known.startswith("code:")
    assert files.is_unchanged("a.h", known)
    edit(repository / "a.h", "int b;\n")
    assert not files.is_unchanged("a.h", known)
    (repository / "a.h").unlink()
    assert files.sha256("a.h") == ""
    assert not files.is_unchanged("a.h", "")
    assert files.digests([repository / "a.h", "/elsewhere/a.h"]) == {}


def test_what_is_read_as_text_counts_by_its_bytes(repository):
    known = files.digests([repository / "a.h"], text=["a.h"])["a.h"]
    assert files.is_unchanged("a.h", known)
    edit(repository / "a.h", "int a;  // one\n")
    assert not files.is_unchanged("a.h", known)


def test_a_folder_counts_by_the_names_of_its_sources(repository):
    known = files.sha256(".")
    edit(repository / "a.h", "int b;\n")
    (repository / "__pycache__").mkdir()
    (repository / "moved" / "__pycache__").mkdir(parents=True)  # what git leaves behind
    (repository / "moved" / "__pycache__" / "a.pyc").touch()
    assert files.sha256(".") == known
    (repository / "b.h").touch()
    assert files.sha256(".") != known


def test_the_lines_that_an_output_names_stay_where_they_are(repository):
    known = files.digests([repository / "a.h"])
    assert files.pinned(known, "a.h is fine") == known
    pinned = files.pinned(known, "a.h:1: warning")
    edit(repository / "a.h", "// one\nint a;\n")
    assert files.is_unchanged("a.h", known["a.h"])
    assert not files.is_unchanged("a.h", pinned["a.h"])


def test_a_record_holds_for_its_inputs_its_engine_and_its_machine(repository):
    record = Record("page:a", "ran", inputs=files.digests([repository / "a.h"]))
    assert record.is_of_this_machine()
    other = dataclasses.replace(record, machine=record.machine | {"torch": "another"})
    assert not other.is_of_this_machine()
    assert other.changed == []
    old = dataclasses.replace(record, machine=record.machine | {"engine": "0"})
    assert old.changed == ["the engine"]
    edit(repository / "a.h", "int a;  // one\n")
    assert dataclasses.replace(record).changed == []
    edit(repository / "a.h", "int b;\n")
    assert dataclasses.replace(record).changed == ["a.h"]


def test_a_record_names_the_compilers_that_its_run_asked_for(monkeypatch):
    everything = {"torch": "2", "c++": "c", "nvcc": "n", "clang": "l", "hip": "yes"}
    monkeypatch.setattr(machine, "environment", lambda: everything | {"hipcc": "h"})
    assert machine.versions([]) == {"torch": "2", "c++": "c"}
    assert machine.versions(["cuobjdump"]).keys() == {"torch", "c++", "nvcc"}
    asked = machine.versions(["clang++-19"])
    assert asked.keys() == {"torch", "c++", "clang", "hip"}


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ({"machine": "x86_64", "torch": "2.13.0+cpu"}, "x86-64 with PyTorch 2.13.0"),
        ({"machine": "aarch64"}, "aarch64"),
        ({"gpu": "NVIDIA H200", "torch": "2.11"}, "NVIDIA H200 with PyTorch 2.11"),
    ],
)
def test_a_machine_in_words(versions, words):
    assert machine.in_words(versions) == words
