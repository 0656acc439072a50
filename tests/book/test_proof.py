"""The proof engine and its Sphinx extension, on small books of one or two pages."""

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from threading import Barrier

import forked
import pytest

from environment import BOOK, without
from error_table import diagnostic
from proof import files, machine, prove, recordings
from proof.machine import toolchain

directives = pytest.importorskip("proof.directives", reason="needs sphinx")
pytest.importorskip("myst_parser", reason="needs myst-parser")

EXTENSIONS = Path(__file__).resolve().parents[2] / "docs" / "_ext"
CONF = """\
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
extensions = ["myst_parser", "proof", "anchors", "topics"]
myst_enable_extensions = ["colon_fence"]
html_theme = "basic"
html_static_path = ["_static"]
"""
GALLERY_CONF = (
    CONF.replace('"topics"]', '"topics", "sphinx_gallery.gen_gallery"]')
    + "sphinx_gallery_conf = {'examples_dirs': '../examples_src',"
    "'gallery_dirs': 'examples', 'filename_pattern': r'/\\d\\d_',"
    "'write_computation_times': False}\n"
)
# `python -m proof`, on a machine that is as a test wants it.
PROOF = """\
import sys
from proof import machine, process, prove

process.PRELOAD = {preload}  # these pages need no torch
known = machine.environment() | {versions}
machine.environment, machine.gpus = lambda: known, lambda: {gpus}
sys.exit(prove.main())
"""
SPHINX = ("-m", "sphinx", "-W", "-n", "--keep-going", "-q", "-d", "build/doctrees")
READ = ("-D", "proof_complete=0")  # what `nox -s read` sets, which runs nothing
TOPICS = """\
["A"]
1 = ["One", '1 \\+ 1']
2 = ["Two", '2 \\+ 2']
"""
MODULE = """\
def sign(x):
    if x < 0:
        return -1
    return 1
"""


class Book:
    """A repository of its own with a copy of the extension."""

    preload: tuple[str, ...] = ()

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hidden: tuple[str, ...] = ()
        self.write("docs/conf.py", CONF)
        self.write("docs/topics.toml", TOPICS)
        self.write("docs/_static/proof.css", "")
        extensions = self.root / "docs" / "_ext"
        self.python_path = [extensions]
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(EXTENSIONS, extensions, ignore=ignore)
        toolchain = Path("src/opbook/toolchain.py")
        self.write(str(toolchain), (EXTENSIONS.parents[1] / toolchain).read_text())

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def page(self, text: str, name: str = "index") -> Path:
        return self.write(f"docs/{name}.md", "# Title\n\n" + textwrap.dedent(text))

    def tool(self, name: str, script: str) -> Path:
        """A program on PATH."""
        path = self.write(f"bin/{name}", f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def hide(self, *tools: str) -> None:
        """Run from now on as on a machine that lacks these tools."""
        self.hidden += tools

    @property
    def environment(self) -> dict[str, str]:
        python_path = os.pathsep.join(map(str, self.python_path))
        variables = without(*BOOK) | {"PYTHONPATH": python_path}
        variables["PATH"] = f"{self.root}/bin{os.pathsep}{variables['PATH']}"
        return toolchain.hidden(self.hidden, self.root / "hidden", variables)

    def python(self, *arguments: str) -> subprocess.CompletedProcess:
        return forked.run(arguments, self.root, self.environment)

    def prove(self, *arguments: str, status: int = 0, gpus: tuple = (), **versions):
        """Run `python -m proof prove` on a machine with these GPUs and versions."""
        return self.proof("prove", *arguments, status=status, gpus=gpus, **versions)

    def proof(self, *arguments, status=0, gpus=(), **versions) -> str:
        if gpus:
            versions["gpu"] = ", ".join(gpus)
        made = {"preload": [*self.preload], "gpus": [*gpus], "versions": versions}
        done = self.python("-c", PROOF.format(**made), *arguments)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def build(self, *options: str) -> subprocess.CompletedProcess:
        """Build the site as `nox -s docs` does, or with READ as `nox -s read`."""
        if options[:2] != READ:
            self.proof("docs")
        return self.python(*SPHINX, *options, "docs", "build/html")

    def passes(self, *options: str) -> dict:
        """Build, which must succeed; return the ledger."""
        done = self.build(*options)
        assert done.returncode == 0, done.stdout + done.stderr
        return self.ledger()

    def fails(self, *options: str) -> str:
        """Build, which must fail; return the warnings."""
        done = self.build(*options)
        assert done.returncode != 0, "the build passed"
        return done.stderr

    def ledger(self) -> dict:
        return json.loads((self.root / "build/html/ledger.json").read_text())

    def html(self, name: str = "index") -> str:
        return (self.root / f"build/html/{name}.html").read_text(encoding="utf-8")

    def in_proof(self, code: str) -> None:
        """Run code that may use the copied package, such as to save a record."""
        imports = "from proof.evidence import *\nfrom proof.files import *\n"
        done = self.python("-c", imports + textwrap.dedent(code))
        assert done.returncode == 0, done.stdout + done.stderr

    def evidence(self) -> dict[str, bytes]:
        """The committed records as they are, by kind and name."""
        folder = self.root / "docs/evidence"
        files = {path.relative_to(folder): path for path in folder.rglob("*.json")}
        return {str(n.with_suffix("")): p.read_bytes() for n, p in files.items()}

    def record(self, name: str) -> dict:
        return json.loads(self.evidence()[name])

    def cloned(self) -> None:
        """Leave what is committed, as in a fresh clone."""
        shutil.rmtree(self.root / "build", ignore_errors=True)


@pytest.fixture
def book(tmp_path) -> Book:
    return Book(tmp_path)


@pytest.fixture
def gpu_compilers(book) -> None:
    """Compilers for both kinds of GPU, as far as the engine looks at them."""
    book.tool("nvcc", "echo 'release 13.0, V13.0.1'")
    book.tool("clang++", "echo 'clang version 19.1.7'")


def origins(ledger: dict) -> list[str | None]:
    return [block["origin"] for block in ledger["blocks"]]


def counts(ledger: dict) -> dict[str, int]:
    return {name: number for name, number in ledger["counts"].items() if number}


def run_block(language: str, code: str, *options: str) -> str:
    return "\n".join((f"```{{run}} {language}", *options, code, "```\n"))


# Blocks of a page.

UNPROVEN = {
    "python": "```python\nprint(1)\n```",
    "cpp": "```{code-block} cpp\nint x;\n```",
    "default": "```\nplain\n```",
    "console": "```{eval-rst}\n.. code-block:: console\n\n   $ ls\n```",
    "text": "```{code-block} text\nThe output, typed in.\n```",
}


def test_unproven_block_of_any_language_fails_the_build_each_time(book):
    path = book.page("\n\n".join(UNPROVEN.values()))
    for options in ((), READ):  # the second build reads no page, and fails all the same
        warnings = book.fails(*options)
        for language in UNPROVEN:
            assert f"unproven {language} block" in warnings
        assert f"{path}:3: WARNING" in warnings
        assert origins(book.ledger()) == [None] * len(UNPROVEN)
        assert not any(book.ledger()["counts"].values())


def test_python_and_console_blocks_run(book):
    book.page(
        """
        ```{run} python
        import ctypes
        x = 20
        ctypes.CDLL(None).printf(b"from C\\n")
        ```

        ::::{note}
        ```{run} python
        x + 1
        ```
        ::::

        ```{run} console
        $ python -c "print('child', __import__('os').getcwd())" >&2
        $ test "$(python -c 'import sys; print(sys.prefix)')" = %r
        ```
        """.replace("%r", sys.prefix)
    )
    ledger = book.passes()
    assert set(origins(ledger)) == {"ran"}
    assert counts(ledger) == {"ran here": 6}
    keys = {"page", "line", "language", "origin", "where"}
    keys |= {"targets", "source", "reason"}
    assert all(set(block) == keys for block in ledger["blocks"])
    assert [block["line"] for block in ledger["blocks"][::2]] == [4, 11, 16]
    html = book.html()
    assert "from C" in html
    assert "21" in html
    assert "child ." in html
    assert str(book.root) not in html
    assert html.count('<p class="proof proof-ran">') == 3


def test_a_block_in_nested_tabs_is_found_and_a_shown_one_is_not_run(book):
    book.page("""
        `````{note}
        ````{tip}
        ```{run} python
        1 + 1
        ```
        ````
        ````{tip}
        ```{run} python
        2 + 2
        ```
        ````
        `````
        """)
    assert origins(book.passes()) == ["ran"] * 4
    book.page("""
        ````{code-block} markdown
        ```{run} python
        open("written", "w")
        ```
        ````
        """)
    assert "unproven markdown block" in book.fails()
    assert not (book.root / "written").exists()


def test_failing_block_fails_the_build_until_it_is_mended(book):
    good = run_block("python", "x = 1") + "\n"
    path = book.page(good + run_block("python", "print(x)\n1 / 0"))
    for options in ((), ("-E",)):
        warnings = book.fails(*options)
        assert f"{path}:7: WARNING: block failed: ZeroDivisionError" in warnings
        assert warnings.count("WARNING") == 1  # the other block is not to blame
    book.page(good)
    assert origins(book.passes()) == ["ran"]


@pytest.mark.parametrize(
    ("language", "code"), [("python", "int('a')"), ("console", "$ ls /nowhere; false")]
)
def test_expected_failure(book, language, code):
    book.page(run_block(language, code, ":fails: invalid literal|nowhere"))
    assert book.passes()["counts"]["fails here"] == 2
    assert "fails as shown here" in book.html()
    book.page(run_block(language, code, ":fails: another message"))
    assert "without matching" in book.fails()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (":fails: Error\n1 + 1", "expected to fail"),
        ("", "the block is empty"),
        ("# A comment is no code.", "the block is empty"),
        ("import os\nos.abort()", "SIGABRT"),
    ],
)
def test_what_a_block_must_not_do(book, code, said):
    book.page(run_block("python", code))
    assert said in book.fails()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```{run} console\nls\n```", "line 4: a console line begins with '$ ': ls"),
        ("```{run} python\n:fail: x\n1\n```", "line 5: unknown option fail"),
        ("```{run} cpp\nint x;\n```", "line 4: cannot run 'cpp': python or console"),
        ("```{run} python\n:fails: (\n1\n```", "line 5: :fails: is no pattern: miss"),
    ],
)
def test_a_block_that_cannot_be_read_is_named_with_file_and_line(book, text, said):
    book.page(text)
    for output in (
        book.prove(status=1),
        book.python(*SPHINX, "docs", "build/html").stderr,
    ):
        assert f"docs/index.md, {said}" in output.splitlines()[-1]
        assert "Traceback" not in output


@pytest.mark.parametrize(
    "line", ["topics: 4", "topics: [x]", "alone: yes", "aloen: true", "project: two"]
)
def test_a_misspelt_line_in_the_head_of_a_page_is_named(book, line):
    book.write("docs/index.md", f"---\ntopics: [1]\n{line}\n---\n# Title\n")
    said = book.prove(status=1).splitlines()[-1]
    assert said.startswith(f"docs/index.md, line 3: {line!r} is none of topics: [1, 2]")


def test_missing_tool_is_named(book):
    book.page(run_block("console", "$ no-such-tool", ":needs: no-such-tool"))
    assert origins(book.passes()) == ["not_run"]
    assert "not run · needs no-such-tool" in book.html()


def test_a_diff_in_an_output_is_coloured(book):
    book.write("src/a.txt", "old\n")
    book.write("src/b.txt", "new\n")
    names = "--label a --label b src/a.txt src/b.txt"
    book.page(run_block("console", f"$ diff -U0 {names} || true\n$ echo -- end"))
    book.passes()
    assert '<span class="gd">-old</span>' in book.html()
    assert '<span class="gi">+new</span>' in book.html()


def test_run_is_reused_until_its_inputs_change(book):
    book.write("src/data.txt", "one")
    code = "print(open('src/data.txt').read(), __import__('time').time_ns())"
    book.page(run_block("python", code) + "\nProse.")
    book.passes()
    stamp = re.search(r"<span></span>one (\d+)", book.html())[1]
    book.page(run_block("python", code) + "\nOther prose.")
    book.passes()
    assert stamp in book.html()
    book.write("src/data.txt", "two")
    book.passes()
    assert stamp not in book.html()
    assert "two" in book.html()


@pytest.mark.skipif(prove.workers() < 2, reason="needs two cores and 8 GiB")
def test_pages_run_at_once_but_not_beside_one_that_times_something(book):
    begin = """\
        import time
        from pathlib import Path
        with open("build/runs", "a") as file:
            print("{own}", file=file)
        """
    meet = """\
        end = time.monotonic() + 20
        while "{other}" not in Path("build/runs").read_text().split():
            assert time.monotonic() < end, "it runs by itself"
            time.sleep(0.01)
        time.sleep(0.2)
        Path("build/{own} ended").touch()"""
    times = """\
        assert Path("build/a ended").exists() and Path("build/b ended").exists()"""

    def page(name: str, code: str, **names) -> str:
        code = textwrap.dedent(begin) + textwrap.dedent(code)
        return run_block("python", code.format(own=name, **names))

    book.write("build/runs", "")
    book.page(page("a", meet, other="b"), "a")
    book.page(page("b", meet, other="a"), "b")
    clock = page("a_clock", times)
    book.write("docs/a_clock.md", f"---\nalone: true\n---\n\n# Clock\n\n{clock}")
    assert "0 of 3 failed" in book.prove()
    runs = Path(book.root, "build/runs").read_text().split()
    assert sorted(runs) == ["a", "a_clock", "b"]


# What is compiled.

SHOWN = "```{literalinclude} ../src/a.cpp\n```\n\n"
HEADER = "```{literalinclude} ../src/a.h\n```\n\n"
needs_gxx = pytest.mark.skipif(not toolchain.find("g++"), reason="needs g++")


@pytest.fixture
def native(book) -> Book:
    """A book with a C++ source and its header."""
    book.write("src/a.h", "int a();\n")
    book.write("src/a.cpp", '#include "a.h"\nint a() { return 1; }\n')
    return book


def test_what_lies_beside_a_script_is_no_input_of_its_recording(book):
    book.write("folder/script.py", "a = 1")
    book.in_proof("""
        from proof import evidence

        def changed(command):
            record = Record("gpu:a", "ran", inputs=known, detail={"command": command})
            evidence.recordings.command = lambda what: command
            return record.changed

        known = digests(["folder/script.py", "folder"])
        (ROOT / "folder/beside.py").write_text("")
        assert changed("python folder/script.py") == []
        assert changed("python -m pytest folder") == ["folder"]
        (ROOT / "folder/script.py").write_text("a = 2")
        assert changed("python folder/script.py") == ["folder/script.py"]
        """)


def test_a_code_object_is_the_builds_until_an_edit(book):
    book.write("csrc/a/a.cu", "int a;")
    book.in_proof("""
        from proof import build

        compiled = []
        source, file = ROOT / "csrc/a/a.cu", build.KERNELS / "a.sm_90.json"
        here = {"path": str(file.with_suffix(".cubin"))}

        def compile_kernel(source, target):
            compiled.append(target)
            write_json(file, here)
            what = f"compile:csrc/a/a.cu:{target}"
            return Record(what, "compiled", inputs=digests([source]))

        build.compile_kernel = compile_kernel
        for _ in range(2):
            assert build.code_object(source, "sm_90") == here
        assert len(compiled) == 1
        write_json(file, {"path": "/elsewhere/build/kernels/a.sm_90.cubin"})
        assert build.code_object(source, "sm_90") == here
        assert len(compiled) == 2
        source.write_text("int b;")
        store.cache_clear()
        build.code_object(source, "sm_90")
        assert len(compiled) == 3
        """)


def test_compiled_origin_needs_the_digest_of_the_file(book, gpu_compilers):
    book.write("src/a.cu", "// [part]\nint a;\n// [/part]\n")
    book.page("""
        ```{literalinclude} ../src/a.cu
        :caption: src/a.cu
        :start-after: "[part]"
        :end-before: "[/part]"
        ```
        """)
    assert "nothing has compiled src/a.cu" in book.fails()
    book.hide("nvcc")
    record = """
        inputs, source = digests([ROOT / "src/a.cu"]), "src/a.cu"
        store().save(Record("compile:a:{target}", "{kind}", inputs=inputs, {more}))
        """
    missing = 'skipped={source: "nvcc not found"}'
    book.in_proof(record.format(kind="not_run", target="sm_90", more=missing))
    (block,) = book.passes()["blocks"]
    assert (block["origin"], block["reason"]) == ("not_run", "nvcc not found")
    took = 'compiled={source: ["gfx942"]}'
    book.in_proof(record.format(kind="compiled", target="gfx942", more=took))
    (block,) = book.passes()["blocks"]
    assert (block["origin"], block["targets"]) == ("compiled", ["gfx942"])
    label = "compiled here · gfx942 · not compiled here: nvcc not found"
    assert label in book.html()
    book.write("src/a.cu", "// [part]\nint b;\n// [/part]\n")
    (block,) = book.passes()["blocks"]
    assert (block["origin"], block["targets"]) == ("stale", ["gfx942"])


def test_a_missing_compiler_is_a_reason_and_no_excuse_where_it_is_there(
    book, gpu_compilers
):
    book.write("src/a.cu", "int a;\n")
    book.page("```{literalinclude} ../src/a.cu\n```")
    assert "nothing has compiled src/a.cu" in book.fails()
    book.hide("clang")
    (block,) = book.passes()["blocks"]
    assert block["origin"] == "not_run"
    assert block["reason"] == "not compiled here: clang not found"
    book.tool("nvcc", "echo 'identifier \"b\" is undefined'; exit 2")
    command = "$ nvcc -c src/a.cu -o /dev/null"
    book.page(run_block("console", command, ":needs: nvcc"))
    assert "identifier" in book.fails()  # nvcc is there, and fails
    book.hide("nvcc")
    (block,) = book.passes()["blocks"]
    assert (block["origin"], block["reason"]) == ("not_run", "needs nvcc")
    book.page(run_block("python", "raise SystemExit('skip: needs g++')"))
    assert "needs g++; but g++ is here" in book.fails()
    assert origins(book.passes(*READ)) == ["not_run"]  # who reads has run nothing


def test_a_compiler_that_lacks_files_is_a_reason_too(book):
    book.write("src/a.cu", "int a;\n")
    noted = 'sys.audit("opbook.not_compiled", "src/a.cu", "no HIP headers: get them")'
    shown = "```{literalinclude} ../src/a.cu\n```\n\n"
    book.page(shown + run_block("python", f"import sys\n{noted}"))
    listing = book.passes()["blocks"][0]
    assert (listing["origin"], listing["reason"]) == ("not_run", "no HIP headers")


@pytest.mark.parametrize(("asked", "holds"), [("c++", True), ("nvcc", False)])
def test_a_run_depends_on_the_compilers_it_asked_for(book, gpu_compilers, asked, holds):
    book.page(run_block("python", f"import sys\nsys.audit('opbook.find', {asked!r})"))
    book.prove()
    book.hide("nvcc")
    book.in_proof(f"assert bool(store().here('page:index')) == {holds}")


@needs_gxx
def test_a_page_that_compiles_is_evidence_until_an_edit(native):
    command = ["g++", "-c", "src/a.cpp", "-o", "/dev/null"]
    python = f"import subprocess\nCOMMAND = {command}\nsubprocess."
    blocks = [
        ("console", "$ g++ -c src/a.cpp -o /dev/null"),
        ("console", "$ cd src && g++ -c a.cpp -o /dev/null 2>&1 | cat"),
        ("python", f"{python}run(COMMAND, check=True)"),
        ("python", f"{python}check_output(['env', *COMMAND])"),
        ("python", f"{python}run([*COMMAND[:2], '../src/a.cpp'], cwd='docs')"),
    ]
    for number, block in enumerate(blocks):
        native.page(run_block(*block), f"page{number}")
    native.prove()
    here = [os.uname().machine]
    for number in range(len(blocks)):
        compiled = native.record(f"page/page{number}")["compiled"]
        assert compiled == {"src/a.cpp": here, "src/a.h": here}, blocks[number]
        (native.root / f"docs/page{number}.md").unlink()
    native.page(SHOWN + HEADER + run_block(*blocks[0]))
    ledger = native.passes()
    assert origins(ledger)[:2] == ["compiled", "compiled"]
    assert ledger["blocks"][0]["targets"] == here
    native.write("src/a.h", "// A comment outdates nothing.\nint a();\n")
    assert origins(native.passes(*READ))[0] == "compiled"
    native.write("src/a.h", "long a();\n")
    assert origins(native.passes(*READ))[:2] == ["stale", "stale"]
    native.page(SHOWN)
    native.prove()  # the record goes with its blocks
    assert "nothing has compiled src/a.cpp" in native.fails()


@needs_gxx
def test_a_source_that_the_compiler_refuses(native):
    native.write("src/a.cpp", "int a() { return b; }\n")
    refused = run_block("console", "$ g++ -c src/a.cpp", ":fails: not declared")
    native.page(SHOWN + refused)
    assert origins(native.passes())[0] == "fails"
    native.write("src/a.cpp", "int a() { return 1; }\n")
    native.page(SHOWN + run_block("console", "$ g++ -c src/a.cpp -o /dev/null"))
    assert origins(native.passes())[0] == "compiled"


@needs_gxx
def test_what_compiles_nothing_is_no_evidence(native):
    commands = [
        "g++ -E src/a.cpp >/dev/null",
        "g++ -fsyntax-only src/a.cpp",
        "echo g++ src/a.cpp",
        "clang-0 src/a.cpp || nvcc-0 src/a.cpp || true",
        "PATH= g++ src/a.cpp || true",
        "timeout -s KILL 0.001 g++ -c src/a.cpp -o /dev/null || true",
    ]
    blocks = [run_block("console", f"$ {command}") for command in commands]
    echo = '__import__("subprocess").run(["echo", "g++", "src/a.cpp"])'
    blocks += [run_block("python", code) for code in (echo, 'open("src/a.cpp").read()')]
    native.page(SHOWN + "\n".join(blocks))
    assert "nothing has compiled src/a.cpp" in native.fails()


@needs_gxx
def test_compilers_side_by_side_keep_their_notes_apart(native):
    names = [f"src/a{number}.cpp" for number in range(8)]
    for name in names:
        native.write(name, "int a;\n")
    shown = "".join(SHOWN.replace("src/a.cpp", name) for name in names)
    each = " & ".join(f"g++ -c {name} -o /dev/null" for name in names)
    native.page(shown + run_block("console", f"$ {each} & wait"))
    assert origins(native.passes())[: len(names)] == ["compiled"] * len(names)


def test_a_source_of_a_block_that_lacks_its_compiler(native):
    block = run_block("console", "$ no-such-nvcc src/a.cpp", ":needs: no-such-nvcc")
    native.page(SHOWN + block)
    ledger = native.passes()
    assert origins(ledger) == ["not_run", "not_run"]
    assert ledger["blocks"][0]["reason"] == "needs no-such-nvcc"


def test_not_run_needs_a_reason_and_yields_to_evidence(book):
    book.write("src/a.cpp", "int a;\n")
    book.page("```{literalinclude} ../src/a.cpp\n:not-run: needs MUSA\n```")
    assert origins(book.passes()) == ["not_run"]
    assert "not run · needs MUSA" in book.html()
    book.in_proof("""
        known = {"inputs": digests(["src/a.cpp"]), "compiled": {"src/a.cpp": ["x86"]}}
        store().save(Record("build:src/a.cpp", "compiled", **known))
        """)
    assert origins(book.passes()) == ["compiled"]
    book.page("```{literalinclude} ../src/a.cpp\n:not-run:\n```")
    assert "argument required" in book.fails()


# Other files that a page shows.


@pytest.mark.parametrize("blank", ["", "\n", "\n\n"])
def test_a_listing_has_no_blank_lines_at_its_ends(blank):
    part = f"{blank}a = 1\n\n# [inner]\n\nb = 2\n{blank}# [/inner]\n{blank}"
    lines = part.splitlines()
    shown = [lines[index] for index in directives.without_markers(lines)]
    assert shown == ["a = 1", "", "b = 2"]
    assert directives.without_markers(["", "# [empty]", ""]) == []


def test_a_listing_of_what_is_not_compiled_needs_a_run_that_read_it(book):
    book.write("src/module.py", MODULE)
    book.write("pyproject.toml", "[project]\n")
    shown = "".join(
        f"```{{literalinclude}} ../{name}\n```\n\n"
        for name in ("src/module.py", "pyproject.toml")
    )
    book.page(shown)
    said = book.fails()
    assert "no run has read src/module.py" in said
    assert "no run has read pyproject.toml" in said
    commands = "$ cd src && python -c 'import module'\n$ cat pyproject.toml"
    book.page(shown + run_block("console", commands))
    assert origins(book.passes())[:2] == ["ran", "ran"]
    assert ">ran here<" in book.html()
    assert ">part of what ran here<" in book.html()
    book.write("src/module.py", MODULE.replace("-1", "-2"))
    assert origins(book.passes(*READ))[0] == "stale"
    assert ">stale · its sources have changed since<" in book.html()
    assert origins(book.passes())[0] == "ran"


# What a run depends on.


@needs_gxx
def test_a_file_that_is_read_as_text_counts_by_its_bytes(native):
    native.page(run_block("console", "$ cat src/a.h"), "cat")
    native.page(run_block("console", "$ g++ -H -c src/a.cpp -o /dev/null"), "compile")
    native.page(run_block("python", 'print(open("src/a.h").read())'), "open")
    native.prove()
    native.write("src/a.h", "int a();  // edited\n")
    assert native.prove("--list").splitlines() == [
        f"stale page:{name}: src/a.h" for name in ("cat", "open")
    ]


def test_an_output_that_names_a_line_holds_while_the_lines_stay(book):
    book.write("src/module.py", MODULE)
    command = "$ cd src && python -c 'import module; module.sign(None)'"
    book.page(run_block("console", command, ":fails: TypeError"))
    book.passes()
    assert 'module.py", line 2' in unescape(book.html())
    book.write("src/module.py", f"# A line more.\n{MODULE}")
    book.passes()
    assert 'module.py", line 3' in unescape(book.html())


@pytest.mark.parametrize(
    "command",
    [
        "cd src && python -c 'import module'",
        "PYTHONPATH=src python -c 'import module'",
        "PYTHONPATH=src python3 -c 'import module'",
        "env -C src python -c 'import module'",
    ],
)
def test_a_commands_imports_are_inputs_by_their_meaning(book, command):
    reads = "Path(__file__).with_name('data.txt').read_text()"
    module = book.write("src/module.py", f"from pathlib import Path\n{reads}\n")
    book.write("src/data.txt", "one\n")
    book.page(run_block("console", f"$ {command}"))
    book.prove()
    module.write_text(f"# A comment.\n{module.read_text()}")
    book.write("src/beside.py", "# An import looks through the whole folder.\n")
    assert book.prove("--list") == ""
    book.write("src/data.txt", "one \n")
    assert book.prove("--list") == "stale page:index: src/data.txt\n"
    book.write("src/data.txt", "one\n")
    module.write_text(f"{module.read_text()}answer = 42\n")
    assert book.prove("--list") == "stale page:index: src/module.py\n"


def test_a_program_depends_on_the_operators_that_it_names(book):
    """Not on all sources of the library, which it loads as one file."""
    for name in ("csrc/module", "csrc/neg/neg_op", "csrc/rms_norm/rms_norm_op"):
        book.write(f"{name}.cpp", f"int {Path(name).name};\n")
    book.write("csrc/rms_norm/rms_norm.h", "int header;\n")
    book.write("src/opbook/_C.so", "")
    for name in ("src/call.py", "bench/call.py"):
        book.write(name, "rms_norm = 1\n")
    book.in_proof("""
        import sys
        from proof import build, process, units

        process.PRELOAD = []
        of_norm = {"csrc/rms_norm/rms_norm_op.cpp", "csrc/rms_norm/rms_norm.h"}
        of_neg, shared = {"csrc/neg/neg_op.cpp"}, {"csrc/module.cpp"}
        for source in build.sources():
            read = of_norm if source in of_norm else [source]
            what = f"build:{source}"
            store().save(Record(what, "compiled", inputs=digests(read)))

        def found(text):
            return build.sources_of_operators(text)

        assert len(build.sources()) == 3
        assert found("torch.ones(3)") == shared
        for call in ("rms_norm(x)", "rms_norm_forward(x)", "nn.RMSNorm(3)"):
            assert found(call) == shared | of_norm, call
        assert found("negative(x), my_neg(x), storms()") == shared
        assert found("opbook.neg(x)") == shared | of_neg
        assert found("opbook.__all__") == shared | of_norm | of_neg

        def inputs(code):
            page = ROOT / "docs/index.md"
            page.write_text(f"```{{run}} python\\n{code}\\n```\\n")
            known = units.run_page(page).inputs
            return {name for name in known if name.startswith("csrc/")}

        load = "open('src/opbook/_C.so').close()"
        assert inputs("neg = 1") == set()
        assert inputs(f"{load}; neg = 1") == shared | of_neg
        script = "__import__('runpy').run_path('{}')"
        assert inputs(f"{load}; {script.format('src/call.py')}") == shared
        assert inputs(f"{load}; {script.format('bench/call.py')}") == shared | of_norm
        """)


# The store.

DATA = 'print(open("src/data.txt").read())'
ARCHITECTURE = platform.machine().replace("_", "-")
WHERE = rf"{ARCHITECTURE} with PyTorch [\d.]+, \d{{4}}-\d\d-\d\d"


def test_a_fresh_clone_shows_what_ran_elsewhere_until_an_edit(book):
    book.write("src/data.txt", "one")
    book.page(run_block("python", f"open('runs', 'a').write('x')\n{DATA}"))
    book.prove()
    book.cloned()
    for options in ((), READ):
        assert counts(book.passes(*options)) == {"ran elsewhere": 2}
        assert re.search(rf">ran on {WHERE}<", book.html())
        assert ">one\n<" in book.html()
    assert (book.root / "runs").read_text() == "x"
    book.write("src/data.txt", "two")
    assert counts(book.passes(*READ)) == {"stale": 2}
    assert re.search(rf">stale on {WHERE} · its sources have changed", book.html())
    assert (book.root / "runs").read_text() == "x"
    assert counts(book.passes()) == {"ran here": 2}
    assert ">ran here<" in book.html()
    assert ">two\n<" in book.html()


def test_reading_runs_nothing_and_needs_no_record(book):
    book.page(run_block("python", "open('ran', 'w').close()"))
    assert origins(book.passes(*READ)) == ["not_run"]
    assert "not run · not run since its last edit" in book.html()
    assert not (book.root / "ran").exists()
    book.page(run_block("python", "1"))
    book.prove()
    book.page(run_block("python", "1") + "\n" + run_block("python", "2"))
    ledger = book.passes(*READ)
    assert origins(ledger) == ["stale", "stale", "not_run"]
    book.write("src/a.py", "")
    book.page("```{literalinclude} ../src/a.py\n```")
    assert origins(book.passes(*READ)) == ["not_run"]


def test_what_ran_here_before_an_edit_gives_way_to_the_whole_page_elsewhere(book):
    build, saved = book.root / "build", book.root / "saved"

    def prove(word):
        book.page(
            run_block("python", f"w = {word!r}") + run_block("python", "print(w)")
        )
        book.prove()

    prove("one")
    build.rename(saved)
    prove("two")  # somebody else's edit and record, which git brings
    shutil.rmtree(build)
    saved.rename(build)
    assert set(counts(book.passes(*READ))) == {"ran elsewhere"}
    assert ">two\n<" in book.html()


def test_a_second_prove_leaves_the_store_as_it_is(book):
    timed = "import time\nprint(object(), time.time_ns(), 'ns')"
    book.page(run_block("python", timed) + "\n" + run_block("python", "6 * 7"))
    assert "renewed page:index" in book.prove()
    before = book.evidence()
    assert [*before] == ["page/index"]
    for _ in range(2):
        book.cloned()
        assert "renewed" not in book.prove()
        assert book.evidence() == before


def test_a_record_of_a_busy_machine_takes_the_time_of_a_quiet_one(book):
    book.page(run_block("python", "6 * 7"))
    book.prove()
    known = book.record("page/index")
    for busy, is_renewed in ((9, False), (1000, True)):
        slow = known | {"detail": known["detail"] | {"seconds": busy}}
        book.write("docs/evidence/page/index.json", json.dumps(slow))
        book.cloned()
        assert ("renewed page:index" in book.prove()) == is_renewed
        seconds = book.record("page/index")["detail"]["seconds"]
        assert (seconds < busy) == is_renewed


def test_an_output_that_varies_is_compared_by_how_it_ended(book):
    book.page(run_block("python", "import random\nrandom.random()"))
    book.prove()
    first = book.record("page/index")
    book.cloned()
    assert "renewed page:index" in book.prove()
    marked = book.record("page/index")
    again = marked["outputs"][0]
    assert again["varies"]
    assert again["text"] != first["outputs"][0]["text"]
    book.cloned()
    assert "renewed" not in book.prove()
    assert book.record("page/index") == marked
    book.page(run_block("python", "import random\nround(random.random() / 9)"))
    book.prove()
    assert "varies" not in book.record("page/index")["outputs"][0]


def test_a_record_has_the_date_of_its_last_block(book):
    book.page(run_block("python", "1 + 1"))
    book.prove()
    old = book.record("page/index") | {"date": "2020-02-02"}
    book.write("docs/evidence/page/index.json", json.dumps(old))
    book.cloned()
    assert "renewed" not in book.prove()
    book.page(run_block("python", "1 + 1") + "\n" + run_block("python", "2"))
    assert "renewed page:index" in book.prove()
    assert book.record("page/index")["date"] > old["date"]


def test_an_output_that_somebody_typed_gives_way_to_that_of_a_run(book):
    book.page(run_block("python", "print('ran')"))
    book.prove()
    kept = book.root / "docs/evidence/page/index.json"
    kept.write_text(kept.read_text().replace('"ran"\n', '"typed"\n'))
    book.prove()
    assert book.record("page/index")["outputs"][0]["text"] == ["ran"]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda text: f"<<<<<<< HEAD\n{text}=======\n{text}>>>>>>> branch\n", "line 1"),
        (lambda text: text.replace('"what"', '"colour": "", "what"'), "'colour'"),
        (lambda text: text.replace('"status"', '"state"'), "'state'"),
        (lambda text: text.replace("page:index", "page:old"), "it is of page:old"),
        (lambda text: "[]", "'list'"),
    ],
)
def test_a_committed_file_that_is_no_record_is_named(book, edit, said):
    book.page(run_block("python", "1 + 1"))
    book.prove()
    kept = book.root / "docs/evidence/page/index.json"
    kept.write_text(edit(kept.read_text()))
    for option in ("--list", "--check"):
        last = book.prove(option, status=1).splitlines()[-1]
        assert last.startswith("docs/evidence/page/index.json is not")
        assert said in last
        assert "git checkout HEAD -- docs/evidence/page/index.json" in last
    broken = kept.read_text()
    kept.unlink()
    book.prove()
    (book.root / "build/proof/records/page/index.json").write_text(broken)
    assert "[1/1] page:index: ran" in book.prove()  # what is not committed is made anew


def test_what_cannot_run_here_keeps_its_output(book):
    book.write("src/data.txt", "one")
    hammer = book.tool("hammer", "echo hit")
    blocks = [run_block("console", "$ hammer", ":needs: hammer")]
    book.page("\n".join([*blocks, run_block("python", DATA)]))
    book.prove()
    before = book.evidence()
    hammer.unlink()
    book.cloned()
    assert "renewed" not in book.prove()
    assert book.evidence() == before
    assert counts(book.passes()) == {"ran here": 2, "ran elsewhere": 2}
    assert ">hit\n<" in book.html()
    book.write("src/data.txt", "two")
    book.prove()
    hit, data = book.record("page/index")["outputs"]
    assert (hit["text"], hit["stale"]) == (["hit"], True)
    assert data["text"] == ["two"]
    assert counts(book.passes()) == {"ran here": 2, "stale": 2}
    book.tool("hammer", "echo hit")
    old = book.record("page/index") | {"date": "2020-02-02"}
    book.write("docs/evidence/page/index.json", json.dumps(old))
    book.cloned()
    book.prove()
    assert "stale" not in book.record("page/index")["outputs"][0]
    assert book.record("page/index")["date"] > old["date"]


def test_another_torch_changes_the_record_of_what_was_edited_alone(book):
    book.page(run_block("python", "1 + 1"))
    book.page(run_block("python", "2 + 2"), "other")
    book.prove()
    before = book.evidence()
    assert "renewed" not in book.prove(torch="9.9.0+cpu")  # all of it runs again
    assert book.evidence() == before
    book.page(run_block("python", "2 + 2") + "\n" + run_block("python", "3"), "other")
    assert "renewed page:other" in book.prove(torch="9.9.0+cpu")
    after = book.evidence()
    assert {name for name in after if after[name] != before[name]} == {"page/other"}
    assert book.record("page/other")["machine"]["torch"] == "9.9.0+cpu"
    book.cloned()
    book.page("```{toctree}\nother\n```\n\n" + run_block("python", "1 + 1"))
    assert counts(book.passes(*READ)) == {"ran elsewhere": 6}
    assert "with PyTorch 9.9.0, " in book.html("other")


def test_records_of_what_is_gone_go(book):
    toctree = "```{toctree}\nother\nledger\n```\n"
    book.page(toctree)
    book.page("```{ledger}\n```", name="ledger")
    book.page(run_block("python", "1"), name="other")
    book.prove()
    assert {block["page"] for block in book.passes()["blocks"]} == {"other"}
    assert 'href="other.html#block-0"' in book.html("ledger")
    assert 'href="ledger.html#blocks-other"' in book.html("other")
    (book.root / "docs/other.md").unlink()
    book.page(toctree.replace("other\n", ""))
    assert book.passes()["blocks"] == []
    assert "other.html" not in book.html("ledger")
    assert book.prove("--list") == "gone page:other\n"
    book.prove("index")
    assert not book.evidence()
    assert not list((book.root / "build/proof/records").rglob("*.json"))


# The verb prove.


def test_check_compares_and_renews_nothing(book):
    book.write("src/data.txt", "one")
    hammer = book.tool("hammer", "")
    needs = run_block("console", "$ hammer", ":needs: hammer")
    book.page(run_block("python", DATA) + "\n" + needs)
    said = book.prove("--check", status=1)
    assert "page:index: has no record in docs/evidence" in said
    assert not book.evidence()
    book.prove()
    before = book.evidence()
    hammer.unlink()  # what lacks a tool is not compared
    book.cloned()
    assert "0 of 1 failed" in book.prove("--check")
    kept = book.root / "docs/evidence/page/index.json"
    record = book.record("page/index")
    record["outputs"][0]["status"] = "failed"
    kept.write_text(json.dumps(record))
    said = book.prove("--check", status=1)
    assert "page:index: ended otherwise than in its record: failed, ok" in said
    kept.write_bytes(before["page/index"])
    book.write("src/data.txt", "two")
    said = book.prove("--check", status=1)
    assert "page:index: the record is stale (src/data.txt)" in said
    assert book.evidence() == before


def test_the_record_of_a_page_that_is_gone(book):
    book.page(run_block("python", "1"))
    other = book.page(run_block("python", "2"), "other")
    book.prove()
    other.unlink()
    book.cloned()
    assert "page:other" not in book.prove("--check", "index")
    said = book.prove("--check", status=1)
    assert "page:other: what it is of is gone" in said
    assert said == book.prove("--check", "--shard", "1/1", status=1)
    book.prove()
    assert [*book.evidence()] == ["page/index"]


def test_what_fails_has_no_record(book):
    book.page(run_block("python", "1 / 0"))
    book.page(run_block("python", "1"), "other")
    said = book.prove(status=1)
    assert "page:index: line 4: block failed: ZeroDivisionError" in said
    assert "1 of 2 failed" in said
    assert [*book.evidence()] == ["page/other"]
    assert "1 of 2 failed" in book.prove(status=1)  # it is tried again
    book.page(run_block("python", "1"))
    assert "0 of 2 failed" in book.prove()


def test_list_says_what_is_stale_or_missing_and_runs_nothing(book):
    book.write("src/data.txt", "one")
    book.page(run_block("python", DATA))
    assert book.prove("--list") == "missing page:index\n"
    book.prove()
    assert book.prove("--list") == ""
    book.write("src/data.txt", "two")
    assert book.prove("--list") == "stale page:index: src/data.txt\n"
    for name in ("index", "page:index"):
        assert book.prove("--list", name) == "stale page:index: src/data.txt\n"
    said = book.prove("--list", "other", status=1)
    assert said == "nothing to run is named page:other\n"
    book.write("src/data.txt", "one")
    book.page(run_block("python", f"{DATA}\n1"))
    assert book.prove("--list") == "stale page:index: its blocks\n"
    machine = "docs/_ext/proof/machine.py"
    text = (book.root / machine).read_text()
    book.write(machine, re.sub(r'(?m)^ENGINE = ".*"', 'ENGINE = "new"', text))
    assert book.prove("--list") == "stale page:index: the engine\n"


def test_shards_are_disjoint_and_cover_all(book):
    names = {f"page:p{number}" for number in range(5)}
    for name in names:
        book.page(run_block("python", "1"), name.removeprefix("page:"))
    parts, evidence = [], {}
    for number in (1, 2):
        said = book.prove("--shard", f"{number}/2")
        parts.append(re.findall(r"^\[\d/\d\] (\S+): ran", said, re.MULTILINE))
        evidence |= book.evidence()
        book.cloned()  # the other part is for another machine
        shutil.rmtree(book.root / "docs/evidence")
    assert sorted(parts[0] + parts[1]) == sorted(names)
    assert sorted(map(len, parts)) == [2, 3]
    assert {name.replace("/", ":") for name in evidence} == names


@pytest.mark.parametrize("shard", ["0/2", "3/2", "2", "half"])
def test_a_part_must_be_there(book, shard):
    book.page(run_block("python", "1"))
    said = book.prove("--shard", shard, status=1)
    assert said.splitlines()[-1] == f"--shard {shard}: there is no such part"


def test_a_name_must_be_there(book):
    book.page(run_block("python", "1"))
    book.page(run_block("python", "1"), "other")
    assert "1 of 1" not in book.prove("other")
    assert [*book.evidence()] == ["page/other"]
    said = book.prove("another", status=1)
    assert said.splitlines()[-1] == "nothing to run is named page:another"
    book.page("Words.", "prose")
    assert book.prove("prose") == "page:prose: nothing on it runs\n0 of 0 failed\n"


def test_ctrl_c_ends_what_runs_and_keeps_what_has_ended(book):
    book.page(run_block("python", "1"))
    book.page(run_block("console", "$ touch started; exec sleep 83.21"), "slow")
    book.page(run_block("python", "1"), "later")
    code = PROOF.format(preload=[], gpus=[], versions={})
    options = {"cwd": book.root, "env": book.environment, "text": True}
    options |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    # A shell's background process ignores SIGINT, and so would what it starts.
    options["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen([sys.executable, "-c", code, "prove"], **options) as run:
        while not (book.root / "started").exists():
            time.sleep(0.1)
        run.send_signal(signal.SIGINT)
        assert run.wait(timeout=30) == 130
        said = run.stdout.read()
    assert said.endswith("interrupted: the same command goes on where it was\n")
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True)
    assert "sleep 83.21" not in listed.stdout
    book.page(run_block("python", "1"), "slow")
    assert "0 of 3 failed" in book.prove()


@pytest.mark.parametrize("timeout", ["0.01", "9"])  # before it has begun, and after
def test_a_block_without_end_is_ended(book, timeout):
    engine = "docs/_ext/proof/process.py"
    text = (book.root / engine).read_text()
    book.write(engine, text.replace("TIMEOUT = 600", f"TIMEOUT = {timeout}"))
    book.page(run_block("console", "$ exec sleep 43.21"))
    said = book.prove(status=1)
    assert f"line 4: block failed: no end after {timeout} s" in said
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True)
    assert "sleep 43.21" not in listed.stdout


def test_two_runs_of_a_checkout_take_turns(book):
    book.page(run_block("console", "$ test ! -e busy; touch busy; sleep 1; rm busy"))
    book.page(run_block("console", "$ test ! -e busy; touch busy; rm busy"), "other")
    both_can_start = Barrier(2)

    def prove(page):
        book.python("-c", "")  # starts this thread's process
        both_can_start.wait()
        return book.prove(page)

    with ThreadPoolExecutor() as pool:
        said = sorted(pool.map(prove, ["index", "other"]), key=len)
    waits = ["waiting for the end of another run" in text for text in said]
    assert waits == [False, True]


def test_what_a_prove_has_run_is_not_run_again_here(book):
    book.page(run_block("python", "open('runs', 'a').write('x')"))
    book.proof("docs")
    assert "1 of 1 have run in this checkout" in book.prove()
    assert [*book.evidence()] == ["page/index"]
    book.page(run_block("python", "open('runs', 'a').write('y')"))
    book.prove()
    book.proof("docs")
    assert (book.root / "runs").read_text() == "xy"


def test_a_build_here_runs_the_guide_whatever_is_known(book):
    book.page(run_block("python", "1"), "guide/1_first")
    book.page("```{toctree}\nguide/1_first\n```\n\n" + run_block("python", "1"))
    book.prove()
    book.cloned()
    where = {block["page"]: block["where"] for block in book.passes()["blocks"]}
    assert where["guide/1_first"] == "here"
    assert where["index"] != "here"


def test_examples_in_docstrings(book):
    book.write("src/pack/__init__.py", "from pack.inner import twice\n")
    text = 'def twice(x):\n    """\n    >>> pack.twice(2)\n    RESULT\n    """\n'
    text += "    return 2 * x\n"
    book.python_path.append(book.root / "src")
    what = "doctest:src/pack/inner.py"
    book.write("src/pack/inner.py", text.replace("RESULT", "4"))
    book.prove(what)
    assert [*book.evidence()] == ["doctest/src/pack/inner.py"]
    # Of another length: in the same second, Python would take the compiled file.
    book.write("src/pack/inner.py", text.replace("RESULT", "5") + "# edited\n")
    assert "Expected:\n    5\nGot:\n    4" in book.prove(what, status=1)


# Recordings on a GPU.

H200 = ("NVIDIA H200",)
BENCH = """\
import json, os

print(open("src/a.cu").read(), end="")
with open(os.environ["RECORD_DATA"], "w") as file:
    json.dump({"rate": [1, 2]}, file)
"""
MANIFEST = """\
bench = "python3 src/bench.py"
pair = { gpus = 2, command = "echo both" }
other = { card = "H100", command = "echo other" }
"""


@pytest.fixture
def bench(book) -> Book:
    """A book with three recordings to make, one of which an H200 can."""
    book.write("src/a.cu", "int a;\n")
    book.write("src/bench.py", BENCH)
    book.write("docs/recordings.toml", MANIFEST)
    return book


def test_record_what_this_gpu_can_and_has_not(bench):
    bench.page(run_block("python", "1"))  # it runs, and a CPU's run is kept
    said = bench.prove(gpus=H200)
    assert "    int a;" in said  # who waits sees where it is
    assert [*bench.evidence()] == ["gpu/bench"]
    record = bench.record("gpu/bench")
    assert record["outputs"] == [{"status": "ok", "text": ["int a;"]}]
    detail = record["detail"]
    assert detail["data"] == {"rate": [1, 2]}
    assert (detail["device"], record["machine"]["gpu"]) == (H200[0], H200[0])
    assert record["inputs"].keys() == {"src/a.cu", "src/bench.py"}
    bench.cloned()
    assert "gpu:bench" not in bench.prove(gpus=H200)
    bench.write("src/a.cu", "int b;\n")
    bench.prove(gpus=H200)
    assert bench.record("gpu/bench")["outputs"][0]["text"] == ["int b;"]
    said = bench.prove(gpus=("NVIDIA H100 80GB", "NVIDIA H100 80GB"))
    assert "renewed gpu:pair" in said
    assert bench.record("gpu/pair")["detail"]["device"] == "2 x NVIDIA H100 80GB"
    assert bench.record("gpu/other")["detail"]["device"] == "NVIDIA H100 80GB"
    said = bench.prove("gpu:bench", status=1)
    assert "nothing to run is named gpu:bench" in said


@pytest.mark.parametrize(
    ("edit", "why", "listed"),
    [
        (("src/a.cu", "int b;\n"), "src/a.cu", "stale"),
        (("src/bench.py", f"{BENCH}\nprint(1)\n"), "src/bench.py", "stale"),
        (
            ("docs/recordings.toml", MANIFEST.replace("3", "3 -u", 1)),
            "its command",
            "stale",
        ),
        (("docs/recordings.toml", ""), "its command", "gone"),
    ],
)
def test_a_recording_is_stale_by_its_inputs_and_its_command(bench, edit, why, listed):
    bench.prove(gpus=H200)
    bench.page("```{recorded} bench\n```")
    assert counts(bench.passes(*READ)) == {"ran on a GPU": 2}
    assert re.search(r">ran on NVIDIA H200, \d{4}-\d\d-\d\d<", bench.html())
    bench.write(*edit)
    assert counts(bench.passes(*READ)) == {"stale": 2}
    label = rf">stale on NVIDIA H200, [\d-]+ · changed since: {why}<"
    assert re.search(label, bench.html())
    reason = f": {why}" if listed == "stale" else ""
    assert f"{listed} gpu:bench{reason}\n" in bench.prove("--list")


@pytest.mark.parametrize(("count", "why"), [(3, "3.txt"), (5, "3.txt and 2 more")])
def test_the_label_of_a_stale_recording_names_three_inputs(book, count, why):
    files = [f"src/{n}.txt" for n in range(1, count + 1)]
    for file in files:
        book.write(file, "1\n")
    book.write("docs/recordings.toml", f'cat = "cat {" ".join(files)}"\n')
    book.prove(gpus=H200)
    book.page("```{recorded} cat\n```")
    for file in files:
        book.write(file, "2\n")
    book.passes(*READ)
    assert f"changed since: src/1.txt, src/2.txt, src/{why}<" in book.html()


def test_the_script_of_a_shell_is_an_input(book):
    book.write("src/bench.sh", "echo one\n")
    book.write("docs/recordings.toml", 'bench = "bash src/bench.sh"\n')
    book.prove(gpus=H200)
    assert book.record("gpu/bench")["inputs"].keys() == {"src/bench.sh"}


def test_a_failing_command_keeps_the_old_recording_and_others_go_on(bench):
    bench.prove(gpus=H200)
    before = bench.evidence()
    fails = MANIFEST.replace("python3 src/bench.py", "echo seen; exit 3")
    bench.write("docs/recordings.toml", f'{fails}after = "echo fine"\n')
    said = bench.prove(gpus=H200, status=1)
    assert "    seen\n" in said
    assert "gpu:bench: exit status 3\n1 of 2 failed" in said
    after = bench.evidence()
    assert after["gpu/bench"] == before["gpu/bench"]
    assert "gpu/after" in after


LOG = """\
result 1
E1122 12:42:27.199000 6351 torch/_inductor/a.py:3541] [0/1] Traceback:
/some/where/b.py:12: UserWarning: old
  the line of it
Autotune Choices Stats:
{"num_choices": 21}
  result 2
"""


def test_a_header_is_the_one_beside_its_source_where_there_is_one(book):
    for name in ("csrc/a.h", "csrc/b.h", "src/a.h"):
        book.write(name, "")
    book.write("src/x.cpp", '#include "a.h"\n#include "b.h"\n')
    book.in_proof("""
        from proof import compiles
        found = compiles.included({"src/x.cpp"})
        assert found == {"src/a.h", "csrc/b.h"}, found
        """)


def test_a_header_is_found_where_the_command_looks_for_it(book):
    book.write("stand_in/tool.h", "inline int one() { return 1; }\n")
    book.write("elsewhere/tool.h", "")
    book.write("x.cpp", "#include <tool.h>\nint x = one();\n")
    compile = "g++ -I stand_in -c x.cpp -o build/x.o"
    book.page(run_block("console", f"$ mkdir -p build && {compile}"))
    book.prove()
    record = book.record("page/index")
    assert sorted(record["compiled"]) == ["stand_in/tool.h", "x.cpp"]
    assert "stand_in/tool.h" in record["inputs"]
    assert "elsewhere/tool.h" not in record["inputs"]


def test_a_recording_leaves_logs_out(book):
    book.write("log", LOG)
    book.write("docs/recordings.toml", 'log = "cat log"\n')
    book.prove(gpus=H200)
    text = book.record("gpu/log")["outputs"][0]["text"]
    assert text == ["result 1", "  result 2"]


def test_what_nobody_has_recorded_yet_is_shown_without_a_result(bench):
    bench.page("```{recorded} pair\n```")
    assert origins(bench.passes()) == ["not_run"]
    assert "not run · not recorded on a GPU yet" in bench.html()
    bench.page("```{recorded} absent\n```")
    assert "docs/recordings.toml has no absent" in bench.fails()


def test_the_manifest_knows_its_keys(book):
    book.write("docs/recordings.toml", 'bench = { command = "true", card_ = "H200" }\n')
    said = book.prove("--list", status=1)
    assert "docs/recordings.toml: bench: " in said
    assert "'card_'" in said


def test_the_book_has_no_recording_without_a_command():
    docs = EXTENSIONS.parent
    named = {path.stem for path in (docs / "evidence/gpu").glob("*.json")}
    for page in docs.rglob("*.md"):
        named |= {*re.findall(r"^`{3,}\{recorded\} (\w+)", page.read_text(), re.M)}
    assert named - recordings.manifest().keys() == set()


# Scripts and notebooks.

SCRIPT = '''\
"""
Title
=====

Text.
"""

import sys

import matplotlib.pyplot as plt

figure, axes = plt.subplots()
axes.plot([1, 2, 4], [0.5, 2, 3], label="rate")
axes.bar([1, 2], [3, 4], label="share")
axes.set(xlabel="size", xscale="log", title="speed")
plt.show()
print("ran as", sys.argv[0])
sys.exit()
'''
SHORT = '"""\nTitle\n=====\n\nText.\n"""\n\n'
PLAYED = 'play = { plays = "examples_src/10_a.py" }\n'


@pytest.fixture
def gallery(book) -> Book:
    """A book with a gallery that has no script yet."""
    pytest.importorskip("sphinx_gallery", reason="needs sphinx-gallery")
    book.write("docs/conf.py", GALLERY_CONF)
    book.write("examples_src/GALLERY_HEADER.rst", "Examples\n========\n")
    # A ledger links to each block, which needs its id.
    book.page("```{toctree}\nexamples/index\n```\n\n```{ledger}\n```")
    return book


def play(book, name: str) -> tuple[str, list[dict]]:
    """What a script prints, and the figures that it leaves."""
    done = subprocess.run(
        [sys.executable, "-m", "proof.play", name],
        cwd=book.root,
        env=os.environ | {"PYTHONPATH": "docs/_ext", "RECORD_DATA": "data.json"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((book.root / "data.json").read_text())["figures"]


def test_play_a_script(book):
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    book.write("examples_src/10_a.py", SCRIPT)
    printed, (figure,) = play(book, "examples_src/10_a.py")
    assert printed == "ran as examples_src/10_a.py\n"
    assert figure["alt"] == "speed; size; rate; share"
    assert {"speed", "size"} <= {*re.findall(r">([a-z]+)</text>", figure["svg"])}
    assert play(book, "examples_src/10_a.py")[1] == [figure]  # to the byte


def test_a_failing_script_is_not_recorded(book):
    book.write("examples_src/10_a.py", "print('seen')\nraise SystemExit(77)\n")
    book.write("docs/recordings.toml", PLAYED)
    said = book.prove("gpu:play", gpus=H200, status=1)
    assert "    seen\n" in said
    assert "gpu:play: exit status 77" in said
    assert not book.evidence()


def test_a_gallery_page_shows_its_run_and_its_recording(gallery):
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    gallery.write("examples_src/10_a.py", SCRIPT.replace("sys.exit()\n", ""))
    gallery.write("docs/recordings.toml", PLAYED)
    gallery.prove()
    gallery.cloned()
    assert counts(gallery.passes(*READ)) == {"ran elsewhere": 2}
    html = gallery.html("examples/10_a")
    assert "NVIDIA" not in html
    assert 'alt="speed; size; rate; share"' in html
    images = gallery.root / "build/html/_images"
    assert "speed" in (images / "sphx_glr_10_a_001.svg").read_text()

    gallery.prove("gpu:play", gpus=H200, torch="2.11.0")
    assert counts(gallery.passes()) == {"ran here": 2, "ran on a GPU": 2}
    html = gallery.html("examples/10_a")
    assert ">On an NVIDIA H200<" in html
    assert "run with PyTorch 2.11.0" in html
    assert "ran as examples_src/10_a.py" in html
    assert 'alt="speed; size; rate; share, on NVIDIA H200"' in html
    assert (images / "play-0.svg").exists()
    assert html.index("play-0.svg") < html.index("Download")

    gallery.write("examples_src/10_a.py", SCRIPT.replace("sys.exit()", "print(1)"))
    assert origins(gallery.passes())[2:] == ["stale", "stale"]
    assert "changed since: examples_src/10_a.py" in gallery.html("examples/10_a")
    gallery.tool("nvidia-smi", "echo NVIDIA H200")
    assert counts(gallery.passes("-E")) == {"ran here": 2}


def test_a_gallery_page_follows_the_inputs_of_its_script(gallery):
    code = 'print(open("../src/data.txt").read())\n'
    gallery.write("examples_src/10_a.py", SHORT + code)
    gallery.write("src/data.txt", "first answer")
    assert origins(gallery.passes()) == ["ran", "ran"]
    assert "first answer" in gallery.html("examples/10_a")
    gallery.write("src/data.txt", "second answer")
    assert origins(gallery.passes()) == ["ran", "ran"]
    assert "second answer" in gallery.html("examples/10_a")
    pasted = SHORT.replace("Text.", "Text.\n\n.. code-block:: cpp\n\n    int pasted;")
    gallery.write("examples_src/10_a.py", pasted + code)
    assert "unproven cpp block" in gallery.fails()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('needs a hammer')\nraise SystemExit(77)\n", "not run · needs a hammer"),
        ("print('before')\n1 / 0\n", "ZeroDivisionError"),
        ("import os\nos.abort()\n", "SIGABRT"),
    ],
)
def test_a_script_that_does_not_end_well(gallery, code, said):
    gallery.write("examples_src/10_a.py", SHORT + code)
    if "77" in code:
        assert origins(gallery.passes()) == ["not_run"]
        assert said in gallery.html("examples/10_a")
    else:
        assert said in gallery.prove(status=1)
        assert said in gallery.fails()


def test_a_script_may_have_nothing_imported_before(gallery):
    gallery.preload = ("json.tool",)
    script = SHORT + "import os\nimport sys\n\n"
    script += 'print("imported before:", "json.tool" in sys.modules)\n'
    gallery.write("examples_src/10_a.py", script)
    script += 'os.environ["TRITON_INTERPRET"] = "0"\n'
    gallery.write("examples_src/20_b.py", script)
    gallery.prove()
    for name, before in (("10_a", "True"), ("20_b", "False")):
        record = gallery.record(f"script/examples_src/{name}.py")
        texts = [line for output in record["outputs"] for line in output["text"]]
        assert any(f"imported before: {before}" in text for text in texts), texts


def test_a_notebook_runs_as_a_whole(book):
    nbformat = pytest.importorskip("nbformat", reason="needs nbformat")
    pytest.importorskip("ipykernel", reason="needs ipykernel")
    book.write("src/data.txt", "one")
    path = book.root / "tutorials/a.ipynb"

    def write(*codes: str) -> None:
        cells = [nbformat.v4.new_code_cell(code) for code in codes]
        path.parent.mkdir(exist_ok=True)
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)

    write("print(open('../src/data.txt').read())")
    book.prove()
    record = book.record("notebook/tutorials/a.ipynb")
    assert {"src/data.txt", "tutorials/a.ipynb"} <= record["inputs"].keys()
    executed = book.root / "build/proof/notebooks/a.ipynb"
    (cell,) = nbformat.read(executed, as_version=4).cells
    assert cell.outputs[0].text == "one\n"
    write("x = 0", "1 / x", "x")
    said = book.prove(status=1)
    assert "a.ipynb: code cell 2: ZeroDivisionError: division by zero\n" in said


# What else is in the pages.


def test_a_link_that_leads_nowhere_fails_the_build_each_time(book):
    gone = ["other.html#gone", "#gone", "gone.html", "_static/gone.css", "/gone.html#a"]
    there = [
        "other.html#title",
        "#title",
        "_static/proof.css?v=1",
        "/other.html",
        "//x/#a",
    ]
    links = [f'<a href="{link}">' for link in gone + there]
    toctree = "```{toctree}\nother\n```\n\n"
    book.page(toctree + "```{raw} html\n" + "\n".join(links) + "\n```\n")
    book.page("Text.", name="other")
    for _ in range(2):
        assert re.findall(
            "index.md: WARNING: nothing is at (.*) ", book.fails()
        ) == sorted(gone)
    book.page(toctree + "[Title](other.md#title)")
    book.passes("-D", "myst_heading_anchors=1")


def test_error_table(book):
    book.write("docs/conf.py", CONF.replace('"topics"]', '"topics", "error_table"]'))
    book.write("docs/reference/errors.toml", "row = []\n[symptoms]\nAny = ['']\n")
    book.page("```{toctree}\nerrors\nother\n```")
    book.page("```{error-table}\n```", name="errors")
    fails = run_block("python", "1 / 0", ":fails: ZeroDivision", ":cause: CAUSE")
    for cause in ("a zero", "a nought"):
        book.page(fails.replace("CAUSE", cause), name="other")
        book.passes()
        error = "<code>ZeroDivisionError: division by zero</code>"
        assert book.html("errors").count(error) == 1
        assert f"<td>{cause}</td>" in book.html("errors")
        assert 'href="other.html#block-0"' in book.html("errors")
    book.page("Nothing fails.", name="other")
    book.passes()
    assert "ZeroDivisionError" not in book.html("errors")


def test_a_long_line_is_cut_to_what_the_block_is_about():
    line = f"RuntimeError: {'word ' * 60}the fault is of {'n' * 90}"
    found = re.search("the fault", f"before\n{line}\nafter")
    assert diagnostic(found) == f"RuntimeError: … the fault is of {'n' * 20}…"
    call = 'calling a __host__ function("{}") from a __global__ function("k")'
    found = re.search("calling", call.format(f"T1 ns::f<{'T, ' * 90}> (T)"))
    assert diagnostic(found) == call.format("T1 ns::f…")


def test_reported_errors_stand_apart(book):
    book.write("docs/conf.py", CONF.replace('"topics"]', '"topics", "error_table"]'))
    row = (
        '[symptoms]\n[[row]]\npage = "index"\nmessage = "no such"\ncause = "a cause"\n'
    )
    table = "docs/reference/errors.toml"
    book.write(table, row + 'threads = ["owner/name#12"]\n')
    book.page("```{error-table}\n```")
    book.passes()
    _, _, apart = book.html().partition("Reported in public threads")
    assert "<code>no such</code>" in apart
    assert 'href="https://github.com/owner/name/issues/12"' in apart
    book.write(table, row + 'recording = "nothing"\n')
    book.page("Changed.\n\n```{error-table}\n```")
    assert "recording 'nothing' lacks 'no such'" in book.fails()
    book.write(table, row.replace('"index"', '"gone"') + 'threads = ["a/b#1"]\n')
    book.page("Changed again.\n\n```{error-table}\n```")
    assert "there is no page gone" in book.fails()
    book.write(table, row + 'colour = "red"\n')
    book.page("And again.\n\n```{error-table}\n```")
    assert re.search(r"errors.toml: 'no such': .*'colour'", book.fails())


@pytest.mark.parametrize("name", ["topics.toml", "recordings.toml"])
def test_a_table_that_cannot_be_read_is_named_with_its_line(book, name):
    book.write(
        "docs/index.md", "---\ntopics: [1]\n---\n# Title\n\n```{recorded} x\n```\n"
    )
    book.write(f"docs/{name}", "[a]\nb = c\n")
    built = book.python(*SPHINX, *READ, "docs", "build/html")
    assert re.search(rf"docs/{name}: Invalid value \(at line 2,", built.stderr)


def test_a_page_is_described_by_its_first_paragraph(book):
    pytest.importorskip("bs4", reason="needs beautifulsoup4")
    book.write("docs/conf.py", CONF.replace('"topics"]', '"finding", "finish"]'))
    book.write("docs/synonyms.toml", "")
    book.page("A `name`, a < b & *so on*.\n\nAnother one.")
    book.passes()
    assert 'content="A name, a &lt; b &amp; so on." />' in book.html()
    overview = (book.root / "build/html/llms.txt").read_text()
    assert "\n> A name, a < b & so on.\n" in overview


def test_topics(book):
    loose = ("-D", "suppress_warnings=toc.not_included")
    front_matter = "---\ntopics: [{}]\n---\n\n# Title\n\n"
    block = "```{run} python\nprint(2 + 2)\n```\n"
    shows = front_matter.format(2) + block
    book.write("docs/index.md", shows)
    book.page("```{topic-coverage}\n```", name="coverage")
    book.passes(*loose)

    def pages():
        text = (book.root / "build/html/coverage.json").read_text()
        topics = json.loads(text)["topics"].values()
        return {topic["title"]: topic["pages"] for topic in topics}

    assert pages() == {"One": [], "Two": ["index"]}
    assert "1 of 2 topics" in book.html("coverage")
    assert 'href="index.html#block-0"' in book.html("coverage")
    book.write("docs/topics.toml", TOPICS.replace('"One"', '"First"'))
    book.passes(*loose)
    assert "First" in book.html("coverage")
    # Named, and shown by a block that does not run here: not taught here.
    book.write("docs/index.md", shows.replace("python\n", "python\n:needs: no_such\n"))
    book.passes(*loose)
    assert pages()["Two"] == []
    book.write("docs/index.md", shows.replace("[2]", "[1]"))
    assert "no block shows topic 1" in book.fails(*loose)
    book.write("docs/index.md", shows.replace("[2]", "[3]"))
    assert "there is no topic 3" in book.fails(*loose)


# pytest on the pages.


def pytest_says(book, *options: str) -> str:
    """What pytest prints about the pages."""
    conftest = (EXTENSIONS.parents[1] / "conftest.py").read_text()
    conftest += "\nfrom proof import process  # noqa\n\nprocess.PRELOAD = []\n"
    book.write("conftest.py", conftest)
    command = ["-m", "pytest", "docs", "-rs", "-p", "no:cacheprovider", *options]
    return book.python(*command).stdout


def test_pytest_reads_the_pages(book):
    book.page("""
        ```{run} python
        x = 1
        ```

        ```{run} python
        y = 2
        x / 0
        ```

        ```{run} console
        $ true
        ```
        """)
    book.write("docs/other.md", "```{run} python\n:needs: no_such_module\n1\n```\n")
    said = pytest_says(book)
    assert "docs/index.md:10: block failed: ZeroDivisionError" in said
    assert "1 failed, 1 passed, 2 skipped" in said
    assert "needs no_such_module" in said


def test_pytest_takes_what_the_build_ran(book):
    code = "with open('build/ran', 'a') as file:\n    file.write('{}')"
    book.write("build/ran", "")
    book.page(run_block("python", code.format("a")))
    book.passes()
    for _ in range(2):
        assert "1 passed" in pytest_says(book)
        assert (book.root / "build/ran").read_text() == "a"
    book.page(run_block("python", code.format("b")))
    assert "1 passed" in pytest_says(book)
    assert (book.root / "build/ran").read_text() == "ab"


def test_pytest_runs_the_guide_and_what_has_no_current_record(book):
    book.write("src/data.txt", "one")
    book.page(run_block("python", DATA))
    book.page(run_block("python", "1"), "guide/1_first")
    book.prove()
    assert "1 passed" in pytest_says(book)
    assert "2 passed" in pytest_says(book, "--all")
    book.write("src/data.txt", "two")
    assert "2 passed" in pytest_says(book)


def test_a_process_that_may_use_one_gpu_of_two_counts_one(monkeypatch, tmp_path):
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho first\necho second\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine, "Path", lambda name: tmp_path / "no" / name[1:])
    found = {"0,1": ["first", "second"], "1": ["second"], "": [], "7": []}
    for visible, names in found.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert machine.gpus.__wrapped__() == names
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert machine.gpus.__wrapped__() == ["first", "second"]


def test_threads_that_load_one_module_find_it_whole(tmp_path):
    slow = tmp_path / "a_slow_module.py"
    slow.write_text("import time\ntime.sleep(0.2)\nEND = 1\n")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda path: files.load(path).END, [slow] * 4))
    assert found == [1] * 4
