"""Run the notebooks of the site under nbval, each with its download alone.

``nox -s notebooks -- [NAME ...] [--shard I/N]``. What a cell has to print was stored
when the page ran; that it does is found out here anew. A page that names no download
runs in an empty folder. Where the page says so, the repository's zip is installed.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections import Counter
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import nbformat
from packaging.requirements import InvalidRequirement, Requirement

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests"), str(ROOT / "docs" / "_ext")]
from environment import BOOK, without  # noqa: E402  found through the line above
from proof.prove import shared_out  # noqa: E402
from proof.units import Unit  # noqa: E402

SITE = ROOT / "build" / "html"
SETTINGS = Path(__file__).with_suffix(".ini")
SANITIZE = Path(__file__).with_suffix(".cfg")
# As on a page, one stream has all that a cell prints, and its value is printed.
AS_ON_A_PAGE = """\
import os, sys; os.dup2(1, 2); sys.stderr = sys.stdout; \
get_ipython().display_trap.hook = lambda value: value is None or print(repr(value))"""
VARIABLES = {"COLUMNS": "88", "MPLBACKEND": "Agg", "NO_COLOR": "1", "TERM": "dumb"}
DOWNLOAD = re.compile(r"unpack (\S+)\.zip(?:, run `([^`]+)`)?")
REPOSITORY = "opbook-repository"
NEEDS = re.compile(r"^# Needs (.*)\.$", re.MULTILINE)
NOT_RUN = "not run"


def main() -> int:
    """Place the notebooks, run them, and say what was compared."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a page of the site")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="run a part")
    parser.add_argument("--site", default=SITE, type=Path, help="a site, laid out")
    parser.add_argument("--pytest", default="", help="more options for pytest")
    options = parser.parse_args()
    made = options.site / "_notebooks"
    found = sorted(made.rglob("*.ipynb"))
    names = [path.relative_to(made).with_suffix("").as_posix() for path in found]
    if wrong := set(options.names) - set(names):
        parser.error(f"{', '.join(sorted(wrong))}: no notebook in {made}")
    # A notebook takes about as long as its page: the longest is begun first.
    pages = [Unit(f"page:{n}", run=None) for n in sorted({*options.names}) or names]
    names = [u.what.removeprefix("page:") for u in shared_out(pages, options.shard)]
    if not names:  # pytest would run what is in this folder
        parser.error(f"--shard {options.shard}: it has no notebook of {made}")
    with tempfile.TemporaryDirectory() as folder:  # outside of this checkout
        return run(options, names, Path(folder))


def run(options: argparse.Namespace, names: list[str], home: Path) -> int:
    """Run these notebooks in folders below `home`; return the exit status."""
    plans = {}
    paths = [place(options.site, home, name, plans) for name in names]
    report = home / "report.xml"
    command = [sys.executable, "-m", "pytest", "-c", SETTINGS, "--rootdir", home]
    command += ["--noconftest", "--nbval", "--nbval-sanitize-with", SANITIZE]
    command += ["--junitxml", report]
    done = subprocess.run(
        [*command, *options.pytest.split(), *paths],
        env=without(*BOOK, "PYTEST_", "PYTHONPATH", "CI")
        | VARIABLES
        | {
            "JUPYTER_PATH": str(home / "jupyter"),
            "TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"),
        },
        check=False,
    )
    counts = count(plans, report)
    cells = ", ".join(f"{number} {what}" for what, number in counts.most_common())
    print(f"{len(paths)} notebooks, {counts.total()} cells: {cells}")
    return done.returncode or int(NOT_RUN in counts)


def count(plans: dict[tuple[str, str], str], report: Path) -> Counter:
    """Count the cells by what pytest reports of them, not by what was planned."""
    cases = ElementTree.parse(report).iter("testcase") if report.exists() else ()
    found = {(c.get("classname"), c.get("name")): {e.tag for e in c} for c in cases}
    counts = Counter()
    for cell, plan in plans.items():
        says = found.get(cell)
        if says is None or ("skipped" in says and not plan.startswith("skipped")):
            counts[NOT_RUN] += 1  # nbval gives a notebook up when a cell takes too long
        else:
            counts["failed" if says & {"failure", "error"} else plan] += 1
    return counts


def place(site: Path, home: Path, name: str, plans: dict[tuple[str, str], str]) -> Path:
    """Save a notebook where its first cell says, with an environment of its own.

    What is going to be done with each cell is noted in `plans`, under pytest's name.
    """
    book = nbformat.read(site / "_notebooks" / f"{name}.ipynb", as_version=4)
    folder, kernel, command = home / name, "bare", ""
    if found := DOWNLOAD.search(book.cells[0].source):
        zip, command = found.groups()
        kernel = "installed" if command else kernel
        if zip == REPOSITORY:  # one for all
            unpack(site / f"{zip}.zip", home)
            folder = home / zip / "build" / "notebooks" / name
        else:
            kernel = name.replace("/", "-")
            unpack(site / f"{zip}.zip", folder)
            folder /= zip
    book.metadata.kernelspec.name = kernel
    python = environment(home, kernel)
    if command:
        install(command, python, home / REPOSITORY)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{Path(name).name}.ipynb"
    known_as = ".".join(path.relative_to(home).parts)
    code = (cell for cell in book.cells if cell.cell_type == "code")
    plans |= {(known_as, f"Cell {i}"): judge(cell) for i, cell in enumerate(code)}
    nbformat.write(book, path)
    return path


def judge(cell) -> str:
    """Have a cell skipped that needs what is not here; what is done with the cell."""
    tags = cell.metadata.setdefault("tags", [])
    needs = NEEDS.search(cell.source)
    if needs and (missing := [n for n in needs[1].split(", ") if not has(n)]):
        tags.append("nbval-skip")
        return f"skipped: needs {', '.join(missing)}"
    if "nbval-ignore-output" in tags:
        return "run, not compared"
    return "run and compared"


def has(need: str) -> bool:
    """Whether a program, or a package as of a version, is here."""
    if shutil.which(need):
        return True
    try:
        wanted = Requirement(need)
        return wanted.specifier.contains(version(wanted.name))
    except (InvalidRequirement, PackageNotFoundError):
        return False


def unpack(zip: Path, folder: Path) -> None:
    """Unpack a zip, if that is not done yet."""
    if not (folder / zip.stem).exists():
        with zipfile.ZipFile(zip) as archive:
            archive.extractall(folder)


@cache
def environment(home: Path, name: str) -> str:
    """Make an environment with the packages of this Python, and a kernel of it.

    What is installed in place for this Python, such as the library, is not there.
    """
    made = home / "environments" / name
    venv.create(made)
    (library,) = made.glob("lib/python*/site-packages")
    known = (path for path in sys.path if path.endswith("-packages"))
    (library / "known.pth").write_text("\n".join(known))
    # Pages look for PyTorch's headers and libraries where pip would have put them.
    (library / "torch").symlink_to(Path(find_spec("torch").origin).parent)
    python = str(made / "bin" / "python")
    kernel = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel += [f"--InteractiveShellApp.exec_lines={AS_ON_A_PAGE}"]
    file = home / "jupyter" / "kernels" / name / "kernel.json"
    file.parent.mkdir(parents=True)
    spec = {"argv": kernel, "display_name": name, "language": "python"}
    file.write_text(json.dumps(spec))
    return python


@cache
def install(command: str, python: str, folder: Path) -> None:
    """Install the library, once, by the command that the notebook names."""
    path = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
    variables = without("PYTHONPATH") | {"PATH": path, "PIP_QUIET": "1"}
    subprocess.run(shlex.split(command), cwd=folder, env=variables, check=True)


if __name__ == "__main__":
    sys.exit(main())
