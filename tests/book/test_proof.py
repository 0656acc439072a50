"""The proof extension on small books of one or two pages."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from html import unescape
from pathlib import Path

import pytest

from environment import BOOK, without
from proof import record, run
from proof.evidence import toolchain

directives = pytest.importorskip("proof.directives", reason="needs sphinx")
pytest.importorskip("myst_parser", reason="needs myst-parser")

EXTENSIONS = Path(__file__).resolve().parents[2] / "docs" / "_ext"
CONF = """\
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
import proof.run

proof.run.PRELOAD = []  # these pages need no torch
extensions = ["myst_parser", "proof", "anchors", "topics"]
myst_enable_extensions = ["colon_fence"]
html_theme = "basic"
html_static_path = ["_static"]
"""
GALLERY_CONF = (
    CONF.replace('"topics"]', '"topics", "sphinx_gallery.gen_gallery"]')
    + "sphinx_gallery_conf = {'examples_dirs': '../examples_src',"
    "'gallery_dirs': 'examples', 'filename_pattern': r'/\\d\\d_',"
    "'write_computation_times': False, 'image_scrapers': ()}\n"
)
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

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hidden: tuple[str, ...] = ()
        self.write("docs/conf.py", CONF)
        self.write("docs/topics.toml", TOPICS)
        self.write("docs/_static/proof.css", "")
        self.extensions = self.root / "docs" / "_ext"
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(EXTENSIONS, self.extensions, ignore=ignore)
        toolchain = Path("src/opbook/toolchain.py")
        self.write(str(toolchain), (EXTENSIONS.parents[1] / toolchain).read_text())

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def page(self, text: str, name: str = "index") -> Path:
        return self.write(f"docs/{name}.md", "# Title\n\n" + textwrap.dedent(text))

    def hide(self, *tools: str) -> None:
        """Build from now on as on a machine that lacks these tools."""
        self.hidden += tools

    @property
    def environment(self) -> dict[str, str]:
        variables = without(*BOOK)
        return toolchain.hidden(self.hidden, self.root / "hidden", variables)

    def build(self, *options: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "sphinx", "-W", "-n", "--keep-going", "-q"]
        command += ["-d", "build/doctrees", *options, "docs", "build/html"]
        return subprocess.run(
            command,
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

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
        code = "from proof.evidence import *\n" + textwrap.dedent(code)
        environment = self.environment | {"PYTHONPATH": str(self.extensions)}
        command = [sys.executable, "-c", code]
        subprocess.run(command, cwd=self.root, env=environment, check=True)


@pytest.fixture
def book(tmp_path) -> Book:
    return Book(tmp_path)


needs_gpu_compilers = pytest.mark.skipif(
    not (toolchain.find("nvcc") and toolchain.find("clang")),
    reason="needs nvcc and clang",
)


def origins(ledger: dict) -> list[str | None]:
    return [block["origin"] for block in ledger["blocks"]]


UNPROVEN = {
    "python": "```python\nprint(1)\n```",
    "cpp": "```{code-block} cpp\nint x;\n```",
    "default": "```\nplain\n```",
    "console": "```{eval-rst}\n.. code-block:: console\n\n   $ ls\n```",
    "text": "```{code-block} text\nThe output, typed in.\n```",
}


def test_unproven_block_of_any_language_fails_the_build_each_time(book):
    path = book.page("\n\n".join(UNPROVEN.values()))
    for _ in range(2):  # the second build reads no page, and must fail all the same
        warnings = book.fails()
        for language in UNPROVEN:
            assert f"unproven {language} block" in warnings
        assert f"{path}:3: WARNING" in warnings
        assert origins(book.ledger()) == [None] * len(UNPROVEN)
        assert not any(book.ledger()["counts"].values())


@pytest.mark.parametrize("language", UNPROVEN)
def test_one_unproven_block_is_enough(book, language):
    book.page(UNPROVEN[language])
    assert f"unproven {language} block" in book.fails()


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
    assert ledger["counts"] == {
        "ran": 6,
        "compiled": 0,
        "fails": 0,
        "recorded": 0,
        "stale": 0,
        "not_run": 0,
    }
    keys = {"page", "line", "language", "origin", "targets", "source", "reason"}
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
    good = "```{run} python\nx = 1\n```\n\n"
    path = book.page(good + "```{run} python\nprint(x)\n1 / 0\n```")
    for _ in range(2):
        warnings = book.fails()
        assert "ZeroDivisionError" in warnings
        assert f"{path}:7" in warnings
    book.page(good)
    assert origins(book.passes()) == ["ran"]


@pytest.mark.parametrize(
    ("language", "code"), [("python", "int('a')"), ("console", "$ ls /nowhere; false")]
)
def test_expected_failure(book, language, code):
    pattern = "invalid literal|nowhere"
    book.page(f"```{{run}} {language}\n:fails: {pattern}\n{code}\n```")
    assert origins(book.passes()) == ["fails", "fails"]
    assert "fails as shown" in book.html()
    book.page(f"```{{run}} {language}\n:fails: another message\n{code}\n```")
    assert "without matching" in book.fails()


def test_expected_failure_that_does_not_fail(book):
    book.page("```{run} python\n:fails: Error\n1 + 1\n```")
    assert "expected to fail" in book.fails()


@pytest.mark.parametrize("code", ["", "# A comment is no code."])
def test_empty_block_fails(book, code):
    book.page(run_block("python", code))
    assert "the block is empty" in book.fails()


def test_block_that_ends_its_process(book):
    book.page("```{run} python\nimport os\nos.abort()\n```")
    assert "SIGABRT" in book.fails()


def test_missing_tool_is_named(book):
    book.page("```{run} console\n:needs: no-such-tool\n$ no-such-tool\n```")
    ledger = book.passes()
    assert origins(ledger) == ["not_run"]
    assert "not run · needs no-such-tool" in book.html()


def test_a_diff_in_an_output_is_coloured(book):
    book.write("src/a.txt", "old\n")
    book.write("src/b.txt", "new\n")
    names = "--label a --label b src/a.txt src/b.txt"
    book.page(f"```{{run}} console\n$ diff -U0 {names} || true\n$ echo -- end\n```")
    book.passes()
    assert '<span class="gd">-old</span>' in book.html()
    assert '<span class="gi">+new</span>' in book.html()


def test_run_is_reused_until_its_inputs_change(book):
    book.write("src/data.txt", "one")
    code = "print(open('src/data.txt').read(), __import__('time').time_ns())"
    book.page(f"```{{run}} python\n{code}\n```\n\nProse.")
    book.passes()
    first = book.html()
    book.page(f"```{{run}} python\n{code}\n```\n\nOther prose.")
    book.passes()
    stamp = first.partition("<pre><span></span>one ")[2].partition("\n")[0]
    assert stamp
    assert stamp in book.html()
    book.write("src/data.txt", "two")
    book.passes()
    assert stamp not in book.html()
    assert "two" in book.html()


def test_a_code_object_is_the_builds_until_an_edit(book):
    book.write("csrc/a/a.cu", "int a;")
    book.in_proof("""
        from proof import build

        source, file = ROOT / "csrc/a/a.cu", build.KERNELS / "a.sm_90.json"
        here = {"path": str(file.with_suffix(".cubin"))}
        write_json(file, here)
        assert build.code_object(source, "sm_90") is None
        record = Record("compiled", "compile:csrc/a/a.cu:sm_90", digests([source]))
        store().save(record)
        assert build.code_object(source, "sm_90") == here
        write_json(file, {"path": "/elsewhere/build/kernels/a.sm_90.cubin"})
        assert build.code_object(source, "sm_90") is None
        write_json(file, here)
        source.write_text("int b;")
        assert build.code_object(source, "sm_90") is None
        """)


@needs_gpu_compilers
def test_compiled_origin_needs_the_digest_of_the_file(book):
    book.write("csrc/a.cu", "// [part]\nint a;\n// [/part]\n")
    book.page("""
        ```{literalinclude} ../csrc/a.cu
        :caption: csrc/a.cu
        :start-after: "[part]"
        :end-before: "[/part]"
        ```
        """)
    assert "nothing has compiled csrc/a.cu" in book.fails()
    book.hide("nvcc")
    record = """
        inputs = digests([ROOT / "csrc/a.cu"])
        store().save(Record("{kind}", "compile:a:{target}", inputs, ["{target}"],
                            detail={{"reason": "nvcc not found: install CUDA"}}))
        """
    book.in_proof(record.format(kind="not_run", target="sm_90"))
    (block,) = book.passes()["blocks"]
    assert block["origin"] == "not_run"
    assert block["reason"] == "not compiled here: nvcc not found"
    book.in_proof(record.format(kind="compiled", target="gfx942"))
    (block,) = book.passes()["blocks"]
    assert block["origin"] == "compiled"
    assert block["targets"] == ["gfx942"]
    assert "compiled · gfx942 · not compiled here: nvcc not found" in book.html()
    book.write("csrc/a.cu", "// [part]\nint b;\n// [/part]\n")
    (block,) = book.passes()["blocks"]
    assert block["reason"].startswith("not compiled here: nvcc")


@needs_gpu_compilers
def test_a_missing_compiler_is_a_reason_and_no_excuse_where_it_is_there(book):
    book.write("src/a.cu", "int a;\n")
    book.page("```{literalinclude} ../src/a.cu\n```")
    assert "nothing has compiled src/a.cu" in book.fails()
    book.hide("clang")
    (block,) = book.passes()["blocks"]
    assert block["origin"] == "not_run"
    assert block["reason"] == "not compiled here: clang not found"
    book.write("src/a.cu", "int a = b;\n")
    command = "$ nvcc -c src/a.cu -o /dev/null"
    book.page(run_block("console", command, ":needs: nvcc"))
    assert "identifier" in book.fails()  # nvcc is there, and fails
    book.hide("nvcc")
    (block,) = book.passes()["blocks"]
    assert (block["origin"], block["reason"]) == ("not_run", "needs nvcc")
    book.page(run_block("python", "raise SystemExit('skip: needs g++')"))
    assert "needs g++; but g++ is here" in book.fails()


@needs_gpu_compilers
def test_a_compiler_that_lacks_files_is_a_reason_too(book):
    book.write("src/a.cu", "int a;\n")
    noted = 'sys.audit("opbook.not_compiled", "src/a.cu", "no HIP headers: get them")'
    shown = "```{literalinclude} ../src/a.cu\n```\n\n"
    book.page(shown + run_block("python", f"import sys\n{noted}"))
    listing = book.passes()["blocks"][0]
    assert (listing["origin"], listing["reason"]) == ("not_run", "no HIP headers")


@needs_gpu_compilers
@pytest.mark.parametrize(("asked", "holds"), [("c++", True), ("nvcc", False)])
def test_a_run_depends_on_the_compilers_it_asked_for(book, asked, holds):
    page = book.page(
        run_block("python", f"import sys\nsys.audit('opbook.find', {asked!r})")
    )
    book.in_proof(f"from proof import run\nrun.run_page(Path({str(page)!r}))")
    book.hide("nvcc")
    book.in_proof(
        f"from proof import run\nfound = run.known_results(Path({str(page)!r}))\n"
        f"assert bool(found) == {holds}, found"
    )


@pytest.mark.skipif(run.workers() < 2, reason="needs two cores and 8 GiB")
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

    book.page(page("a", meet, other="b"), "a")
    book.page(page("b", meet, other="a"), "b")
    clock = page("a_clock", times)
    book.write("docs/a_clock.md", f"---\nalone: true\n---\n\n# Clock\n\n{clock}")
    book.page("```{toctree}\na\na_clock\nb\n```\n")
    assert origins(book.passes()) == ["ran", "ran", "ran"]
    runs = Path(book.root, "build/runs").read_text().split()
    assert sorted(runs) == ["a", "a_clock", "b"]  # who fails is run again


SHOWN = "```{literalinclude} ../src/a.cpp\n```\n\n"
HEADER = "```{literalinclude} ../src/a.h\n```\n\n"
needs_gxx = pytest.mark.skipif(not toolchain.find("g++"), reason="needs g++")


def run_block(language: str, code: str, *options: str) -> str:
    return "\n".join((f"```{{run}} {language}", *options, code, "```\n"))


@pytest.fixture
def native(book) -> Book:
    """A book with a C++ source and its header."""
    book.write("src/a.h", "int a();\n")
    book.write("src/a.cpp", '#include "a.h"\nint a() { return 1; }\n')
    return book


@needs_gxx
@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("console", "$ g++ -c src/a.cpp -o /dev/null"),
        ("console", "$ cd src && g++ -c a.cpp -o /dev/null 2>&1 | cat"),
        ("python", "subprocess.run(COMMAND, check=True)"),
        ("python", "subprocess.check_output(['env', *COMMAND])"),
        ("python", "subprocess.run([*COMMAND[:2], '../src/a.cpp'], cwd='build')"),
    ],
)
def test_a_page_that_compiles_is_evidence_until_an_edit(native, language, code):
    if language == "python":
        command = ["g++", "-c", "src/a.cpp", "-o", "/dev/null"]
        code = f"import subprocess\nCOMMAND = {command}\n{code}"
    native.page(SHOWN + HEADER + run_block(language, code))
    ledger = native.passes()
    assert origins(ledger)[:2] == ["compiled", "compiled"]
    assert ledger["blocks"][0]["targets"] == [os.uname().machine]
    native.write("src/a.h", "// A comment outdates nothing.\nint a();\n")
    assert origins(native.passes("-D", "proof_execute=0"))[0] == "compiled"
    native.write("src/a.h", "long a();\n")
    ledger = native.passes("-D", "proof_execute=0")  # a build that runs nothing
    assert origins(ledger)[:2] == ["not_run", "not_run"]
    native.page(SHOWN)
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
@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("console", "$ cat src/a.h"),
        ("console", "$ g++ -H -c src/a.cpp -o /dev/null && date +%N"),
        ("python", 'print(open("src/a.h").read())'),
    ],
)
def test_a_file_that_is_read_as_text_counts_by_its_bytes(native, language, code):
    native.page(run_block(language, code))
    native.passes()
    native.write("src/a.h", "int a();  // edited\n")
    assert "edited" not in native.html()
    native.passes()
    assert ("edited" in native.html()) == ("g++" not in code)


def test_an_output_that_names_a_line_holds_while_the_lines_stay(book):
    book.write("src/module.py", MODULE)
    command = "$ cd src && python -c 'import module; module.sign(None)'"
    page = run_block("console", command, ":fails: TypeError")
    book.page(page)
    book.passes()
    assert 'module.py", line 2' in unescape(book.html())
    book.write("src/module.py", f"# A line more.\n{MODULE}")
    book.passes()
    assert 'module.py", line 3' in unescape(book.html())


@needs_gxx
@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("console", "$ g++ -E src/a.cpp >/dev/null"),
        ("console", "$ g++ -fsyntax-only src/a.cpp"),
        ("console", "$ echo g++ src/a.cpp"),
        ("console", "$ clang-0 src/a.cpp || nvcc-0 src/a.cpp || true"),
        ("console", "$ PATH= g++ src/a.cpp || true"),
        ("console", "$ timeout -s KILL 0.001 g++ -c src/a.cpp -o /dev/null || true"),
        ("python", 'import subprocess\nsubprocess.run(["echo", "g++", "src/a.cpp"])'),
        ("python", 'open("src/a.cpp").read()'),
    ],
)
def test_what_compiles_nothing_is_no_evidence(native, language, code):
    native.page(SHOWN + run_block(language, code))
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
    native.page(SHOWN)
    assert "nothing has compiled src/a.cpp" in native.fails()


@pytest.mark.parametrize("blank", ["", "\n", "\n\n"])
def test_a_listing_has_no_blank_lines_at_its_ends(blank):
    part = f"{blank}a = 1\n\n# [inner]\n\nb = 2\n{blank}# [/inner]\n{blank}"
    lines = part.splitlines()
    shown = [lines[index] for index in directives.without_markers(lines)]
    assert shown == ["a = 1", "", "b = 2"]
    assert directives.without_markers(["", "# [empty]", ""]) == []


def test_not_run_needs_a_reason_and_yields_to_evidence(book):
    book.write("csrc/a.cpp", "int a;\n")
    book.page("```{literalinclude} ../csrc/a.cpp\n:not-run: needs MUSA\n```")
    assert origins(book.passes()) == ["not_run"]
    assert "not run · needs MUSA" in book.html()
    book.in_proof("""
        inputs = digests([ROOT / "csrc/a.cpp"])
        store().save(Record("compiled", "build:library", inputs, ["x86_64"]))
        """)
    assert origins(book.passes()) == ["compiled"]
    book.page("```{literalinclude} ../csrc/a.cpp\n:not-run:\n```")
    assert "argument required" in book.fails()


def test_python_include_needs_executed_lines(book):
    pytest.importorskip("coverage", reason="needs coverage")
    book.write("src/module.py", MODULE)
    include = "```{{literalinclude}} ../src/module.py\n:lines: {}\n```\n\n"
    command = "$ cd src && python -c 'import module; module.sign({})'"
    run = f"```{{{{run}}}} console\n{command}\n```"
    book.page(include.format("1-2, 4") + run.format(1))
    assert origins(book.passes())[0] == "ran"
    book.page(include.format("1-4") + run.format(1))
    assert "no run has executed line 3 of src/module.py" in book.fails()
    book.page(include.format("1-3") + run.format(-1))
    assert origins(book.passes())[0] == "ran"
    book.write("src/module.py", MODULE.replace("-1", "-2"))
    assert origins(book.passes())[0] == "ran"  # the page ran again by itself


def test_no_line_is_noted_while_an_installed_package_is_imported(book):
    pytest.importorskip("coverage", reason="needs coverage")
    other = "import sys\n\ntraced = sys.gettrace() is not None\n"
    book.write("lib/site-packages/other.py", other)
    book.write("src/module.py", "import other\n\nanswer = f'traced: {other.traced}'\n")
    code = "import module; print(module.answer)"
    command = f"$ PYTHONPATH=$PYTHONPATH:lib/site-packages:src python -c '{code}'"
    shown = "```{literalinclude} ../src/module.py\n```\n\n"
    book.page(shown + run_block("console", command))
    assert origins(book.passes())[0] == "ran"
    assert "traced: False" in book.html()


def test_include_without_a_run(book):
    book.write("src/module.py", MODULE)
    book.page("```{literalinclude} ../src/module.py\n```")
    assert "no run has executed src/module.py" in book.fails()
    book.write("pyproject.toml", "[project]\n")
    book.page("```{literalinclude} ../pyproject.toml\n```")
    assert "no run has read pyproject.toml" in book.fails()
    book.page(
        "```{literalinclude} ../pyproject.toml\n```\n\n"
        "```{run} console\n$ cat pyproject.toml\n```"
    )
    assert origins(book.passes())[0] == "ran"


def test_recording_goes_stale_with_its_sources(book):
    source = book.write("csrc/a.cu", "int a;\n")
    book.in_proof("""
        recording = {"command": "python bench.py", "output": "3.2 TB/s",
                     "device": "NVIDIA H200", "date": "2026-01-02",
                     "sources": digests([ROOT / "csrc/a.cu"])}
        write_json(ROOT / "docs/recordings/bench.json", recording)
        """)
    book.page("```{recorded} bench\n```")
    assert origins(book.passes()) == ["recorded", "recorded"]
    assert "recorded · NVIDIA H200, 2026-01-02" in book.html()
    source.write_text("int b;\n")
    ledger = book.passes()
    assert ledger["counts"]["stale"] == 2
    assert "stale" in book.html()
    book.page("```{recorded} absent\n```")
    assert "cannot read docs/recordings/absent.json" in book.fails()


MANIFEST = """\
[bench]
command = 'cat csrc/a.cu && echo "{\\"rate\\": [1, 2]}" > $RECORD_DATA'
sources = ["csrc"]

[pair]
command = "echo both"
sources = ["csrc/a.cu"]
gpus = 2

[other]
command = "echo other"
card = "H100"
"""
RECORD = """
    from proof import record

    record.machine = lambda: (["NVIDIA H200"], {"torch": "2.11.0"})
    failed = record.record_all(record.chosen([], False))
    """


def test_record_what_is_missing_or_stale(book, capfd):
    source = book.write("csrc/a.cu", "int a;\n")
    book.write("docs/recordings.toml", MANIFEST)
    book.in_proof(RECORD)
    file = book.root / "docs/recordings/bench.json"
    recording = json.loads(file.read_text())
    assert recording["output"] == "int a;\n"
    assert recording["data"] == {"rate": [1, 2]}
    assert recording["device"] == "NVIDIA H200"
    assert recording["sources"].keys() == {"csrc/a.cu"}
    said = capfd.readouterr().out
    assert "skipped   pair: needs 2 GPUs, here: NVIDIA H200" in said
    assert "skipped   other: needs an H100, here: NVIDIA H200" in said
    assert [path.stem for path in file.parent.iterdir()] == ["bench"]

    book.in_proof(RECORD)
    assert "bench" not in capfd.readouterr().out
    source.write_text("int b;\n")
    book.in_proof(RECORD)
    assert json.loads(file.read_text())["output"] == "int b;\n"


LOG = """\
result 1
E1122 12:42:27.199000 6351 torch/_inductor/a.py:3541] [0/1] Traceback:
/some/where/b.py:12: UserWarning: old
  the line of it
Autotune Choices Stats:
{"num_choices": 21}
  result 2
"""


def test_recording_leaves_logs_out(book):
    book.write("log", LOG)
    book.write("docs/recordings.toml", '[log]\ncommand = "cat log"\nsources = []\n')
    book.in_proof(RECORD)
    file = book.root / "docs/recordings/log.json"
    assert json.loads(file.read_text())["output"] == "result 1\n  result 2\n"


def test_failing_command_keeps_the_old_recording_and_others_go_on(book, capfd):
    book.write("csrc/a.cu", "int a;\n")
    book.write("docs/recordings.toml", MANIFEST)
    book.in_proof(RECORD)
    file = book.root / "docs/recordings/bench.json"
    before = file.read_text()
    after = '[after]\ncommand = "true"\nsources = []\n'
    fails = MANIFEST.replace("cat csrc/a.cu", "echo seen; exit 3")
    book.write("docs/recordings.toml", fails + after)
    book.in_proof(RECORD + "assert failed == 1\n")
    assert "    seen\nFAILED    bench: exit status 3" in capfd.readouterr().out
    assert file.read_text() == before
    assert (book.root / "docs/recordings/after.json").exists()


def test_what_nobody_has_recorded_yet_is_shown_without_a_result(book):
    book.write("docs/recordings.toml", MANIFEST)
    book.write("csrc/a.cu", "int a;\n")
    book.page("```{recorded} pair\n```")
    assert origins(book.passes()) == ["not_run"]
    assert "not run · not recorded on a GPU yet" in book.html()


def test_recording_is_stale_for_new_file_or_command(book):
    book.write("csrc/a.cu", "int a;\n")
    book.write("docs/recordings.toml", MANIFEST)
    book.in_proof(RECORD)
    book.page("```{recorded} bench\n```")
    assert origins(book.passes()) == ["recorded", "recorded"]
    new = book.write("csrc/b.cu", "int b;\n")
    assert origins(book.passes()) == ["stale", "stale"]
    new.unlink()
    assert origins(book.passes()) == ["recorded", "recorded"]
    book.write("docs/recordings.toml", MANIFEST.replace("cat", "cat -n"))
    assert origins(book.passes()) == ["stale", "stale"]


def test_a_recording_has_the_sources_of_another(book):
    book.write("csrc/a.cu", "int a;\n")
    same = '[same]\ncommand = "echo same"\nsources = "{}"\n'
    book.write("docs/recordings.toml", MANIFEST + same.format("bench"))
    book.in_proof(RECORD)
    recording = json.loads((book.root / "docs/recordings/same.json").read_text())
    assert recording["sources"].keys() == {"csrc/a.cu"}
    book.write("docs/recordings.toml", MANIFEST + same.format("nobody"))
    book.in_proof(
        """
        import pytest
        from proof import record

        with pytest.raises(SystemExit, match="same.: no entry nobody"):
            record.manifest()
        """
    )


def test_sources_of_a_recording_by_pattern(book, capfd):
    for name in ("a.h", "b.h", "a.cu"):
        book.write(f"csrc/{name}", "int a;\n")
    entry = '[{}]\ncommand = "date"\nsources = ["csrc/*.{}"]\n'
    manifest = entry.format("bench", "h") + entry.format("none", "cpp")
    book.write("docs/recordings.toml", manifest)
    book.in_proof(RECORD + "assert failed == 1\n")
    assert "FAILED    none: there is no" in capfd.readouterr().out
    recording = json.loads((book.root / "docs/recordings/bench.json").read_text())
    assert recording["sources"].keys() == {"csrc/a.h", "csrc/b.h"}
    book.page("```{recorded} bench\n```")
    assert origins(book.passes()) == ["recorded", "recorded"]
    book.write("csrc/c.h", "int c;\n")
    assert origins(book.passes()) == ["stale", "stale"]


def test_nothing_is_recorded_without_a_gpu(book):
    book.write("csrc/a.cu", "int a;\n")
    book.write("docs/recordings.toml", MANIFEST)
    done = subprocess.run(
        [sys.executable, "-m", "proof.record"],
        cwd=book.root,
        env=os.environ | {"PYTHONPATH": "docs/_ext", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "no GPU here, so there is nothing to record" in done.stderr


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
PLAYED = """\
[play]
script = "examples_src/10_a.py"
"""


def play(book, name: str) -> tuple[str, list[dict]]:
    """What a script or notebook prints, and the figures that it leaves."""
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
    (axes,) = figure["axes"]
    (line,), (bars,) = axes["lines"], axes["bars"]
    assert (line["label"], line["x"], line["y"]) == ("rate", [1, 2, 4], [0.5, 2, 3])
    assert (bars["label"], bars["height"]) == ("share", [3, 4])
    assert (axes["title"], axes["x"]["label"]) == ("speed", "size")
    assert (axes["x"]["scale"], axes["y"]["scale"]) == ("log", "linear")


def test_play_a_notebook(book):
    cells = [
        "import inspect\n\n\ndef twice(x):\n    return 2 * x\n",
        "print('from', __name__)\ninspect.getsource(twice).strip()",
        "twice(21)",
        "twice(22);",
        "None",
        "# A comment alone.",
        "",
    ]
    cells = [{"cell_type": "code", "source": [cell]} for cell in cells]
    cells.insert(1, {"cell_type": "markdown", "source": ["not code"]})
    book.write("tutorials/a.ipynb", json.dumps({"cells": cells}))
    printed, figures = play(book, "tutorials/a.ipynb")
    source = r"'def twice(x):\n    return 2 * x'"
    assert printed.splitlines() == ["from __main__", source, "42"]
    assert figures == []


def test_failing_script_is_not_recorded(book, capfd):
    book.write("examples_src/10_a.py", "print('seen')\nraise SystemExit(77)\n")
    book.write("docs/recordings.toml", PLAYED)
    book.in_proof(RECORD + "assert failed == 1\n")
    assert "    seen\nFAILED    play: exit status 77" in capfd.readouterr().out
    assert not (book.root / "docs/recordings").exists()


def test_gallery_page_shows_its_recording(book, monkeypatch):
    pytest.importorskip("sphinx_gallery", reason="needs sphinx-gallery")
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    book.write("docs/conf.py", GALLERY_CONF)
    book.write("examples_src/GALLERY_HEADER.rst", "Examples\n========\n")
    book.write("examples_src/10_a.py", SCRIPT.replace("sys.exit()\n", ""))
    book.write("docs/recordings.toml", PLAYED)
    # A ledger links to each block, which needs its id.
    book.page("```{toctree}\nexamples/index\n```\n\n```{ledger}\n```")
    assert origins(book.passes()) == ["ran", "ran"]
    assert "NVIDIA" not in book.html("examples/10_a")

    book.in_proof(RECORD)
    assert origins(book.passes()) == ["ran", "ran", "recorded", "recorded"]
    html = book.html("examples/10_a")
    assert ">On an NVIDIA H200<" in html
    assert "run with PyTorch 2.11.0" in html
    assert "ran as examples_src/10_a.py" in html
    assert 'alt="speed; size; rate; share, on NVIDIA H200"' in html
    assert (book.root / "build/html/_images/play-0.svg").exists()
    assert html.index("play-0.svg") < html.index("Download")

    changed = SCRIPT.replace("sys.exit()", "print(1)")
    book.write("examples_src/10_a.py", changed)
    assert origins(book.passes())[2:] == ["stale", "stale"]
    assert "stale: its sources or command have changed" in book.html("examples/10_a")

    smi = book.write("bin/nvidia-smi", "#!/bin/sh\necho NVIDIA H200\n")
    smi.chmod(0o755)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("PATH", f"{smi.parent}{os.pathsep}{os.environ['PATH']}")
    assert origins(book.passes("-E")) == ["ran", "ran"]


def test_manifest_fits_the_recordings():
    root = EXTENSIONS.parents[1]
    manifest = record.manifest()
    for file in (root / "docs/recordings").glob("*.json"):
        assert file.stem in manifest, f"{file.name} is of no table"
        recording = json.loads(file.read_text())
        if record.changes(file.stem, recording):
            continue  # stale, and the page says so
        sources, named = recording["sources"], manifest[file.stem].sources
        unnamed = [s for s in sources if not any(is_in(s, n) for n in named)]
        unused = [n for n in named if not any(is_in(s, n) for s in sources)]
        assert (unnamed, unused) == ([], []), file.name
    for page in (root / "docs").rglob("*.md"):
        for name in re.findall(r"^`{3,}\{recorded\} (\w+)", page.read_text(), re.M):
            assert name in manifest, f"{page.name}: no table [{name}]"


def is_in(source: str, place: str) -> bool:
    """Whether a file is named, by itself, by a pattern or by its folder."""
    return Path(source).match(place) or source.startswith(f"{place}/")


def test_quick_build_runs_nothing_and_says_so(book):
    path = book.page("```{run} python\nopen('ran', 'w').close()\n```")
    ledger = book.passes("-D", "proof_execute=0")
    assert origins(ledger) == ["not_run"]
    assert not (book.root / "ran").exists()
    book.page("```{run} python\n1\n```", name=path.stem)
    book.passes()
    book.page("```{run} python\n2\n```\n\n```{run} python\n3\n```", name=path.stem)
    ledger = book.passes("-D", "proof_execute=0")
    assert origins(ledger) == ["not_run", "not_run"]
    book.page("```python\nprint(1)\n```", name=path.stem)
    assert "unproven" in book.fails("-D", "proof_execute=0")


def test_pages_come_and_go(book):
    toctree = "```{toctree}\nother\nledger\n```\n"
    book.page(toctree)
    book.page("```{ledger}\n```", name="ledger")
    book.page("```{run} python\n1\n```", name="other")
    assert {block["page"] for block in book.passes()["blocks"]} == {"other"}
    assert 'href="other.html#block-0"' in book.html("ledger")
    assert 'href="ledger.html#blocks-other"' in book.html("other")
    (book.root / "docs/other.md").unlink()
    book.page(toctree.replace("other\n", ""))
    assert book.passes()["blocks"] == []
    assert "other.html" not in book.html("ledger")
    assert not list((book.root / "build/proof/records").glob("page-other*"))


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
    book.write("docs/reference/errors.toml", "row = []\n")
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


def test_reported_errors_stand_apart(book):
    book.write("docs/conf.py", CONF.replace('"topics"]', '"topics", "error_table"]'))
    row = '[[row]]\npage = "index"\nmessage = "no such"\ncause = "a cause"\n'
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


def test_gallery_script_runs_again_when_an_input_changes(book):
    pytest.importorskip("sphinx_gallery", reason="needs sphinx-gallery")
    book.write("docs/conf.py", GALLERY_CONF)
    script = (
        '"""\nTitle\n=====\n\nText.\n{}"""\n\nprint(open("../src/data.txt").read())\n'
    )
    book.write("examples_src/GALLERY_HEADER.rst", "Examples\n========\n")
    book.write("examples_src/10_a.py", script.format(""))
    book.write("src/data.txt", "first answer")
    book.page("```{toctree}\nexamples/index\n```")
    assert origins(book.passes()) == ["ran", "ran"]
    assert "first answer" in book.html("examples/10_a")
    book.write("src/data.txt", "second answer")
    assert origins(book.passes()) == ["ran", "ran"]
    assert "second answer" in book.html("examples/10_a")
    pasted = "\n.. code-block:: cpp\n\n    int pasted;\n"
    book.write("examples_src/10_a.py", script.format(pasted))
    assert "unproven cpp block" in book.fails()
    book.write(
        "examples_src/10_a.py",
        script.format("") + "print('needs a hammer')\nraise SystemExit(77)\n",
    )
    (block,) = book.passes()["blocks"]
    assert block["reason"] == "needs a hammer"
    assert origins(book.passes()) == ["not_run"]


def test_gallery_script_may_have_nothing_imported_before(book):
    pytest.importorskip("sphinx_gallery", reason="needs sphinx-gallery")
    preloading = GALLERY_CONF.replace("PRELOAD = []", 'PRELOAD = ["json.tool"]')
    book.write("docs/conf.py", preloading)
    book.write("examples_src/GALLERY_HEADER.rst", "Examples\n========\n")
    script = '"""\nTitle\n=====\n\nText.\n"""\n\nimport os\nimport sys\n\n'
    script += 'print("imported before:", "json.tool" in sys.modules)\n'
    book.write("examples_src/10_a.py", script)
    script += 'os.environ["TRITON_INTERPRET"] = "0"\n'
    book.write("examples_src/20_b.py", script)
    book.page("```{toctree}\nexamples/index\n```")
    book.passes()
    assert "imported before: True" in book.html("examples/10_a")
    assert "imported before: False" in book.html("examples/20_b")


def pytest_says(book) -> str:
    """What pytest prints about the pages."""
    shutil.copy(EXTENSIONS.parents[1] / "conftest.py", book.root)
    command = [sys.executable, "-m", "pytest", "docs", "-rs", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command,
        cwd=book.root,
        env=without(*BOOK),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


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
    book.page(run_block("python", code.format("a")))
    book.passes()
    for _ in range(2):
        assert "1 passed" in pytest_says(book)
        assert (book.root / "build/ran").read_text() == "a"
    book.page(run_block("python", code.format("b")))
    assert "1 passed" in pytest_says(book)
    assert (book.root / "build/ran").read_text() == "ab"


def test_examples_run_in_the_module_that_defines_what_a_package_exports(book):
    book.write("src/pack/__init__.py", "from pack.inner import twice\n")
    text = 'def twice(x):\n    """\n    >>> pack.twice(2)\n    RESULT\n    """\n'
    text += "    return 2 * x\n"
    report = """
        import sys
        sys.path.insert(0, str(ROOT / "src"))
        from proof import run
        file = run.file_that_defines("pack.inner.twice")
        wrong = run._run_doctest("pack.inner")
        """
    book.write("src/pack/inner.py", text.replace("RESULT", "4"))
    book.in_proof(
        f"{report}\n        assert (file.name, wrong) == ('inner.py', ''), wrong"
    )
    book.write("src/pack/inner.py", text.replace("RESULT", "5"))
    book.in_proof(f"{report}\n        assert 'Expected:' in wrong, wrong")
