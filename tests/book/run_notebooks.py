"""Run the notebooks of the site under nbval, each where its reader has it.

``nox -s notebooks -- [NAME ...] [--shard I/N]``. What a cell has to print was stored
when the page ran; that it does is found out here anew.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import nbformat
from packaging.requirements import InvalidRequirement, Requirement

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests"), str(ROOT / "docs" / "_ext")]
from environment import BOOK, without  # noqa: E402  found through the line above
from proof.prove import part_of  # noqa: E402

SITE = ROOT / "build" / "html"
SETTINGS = Path(__file__).with_suffix(".ini")
SANITIZE = Path(__file__).with_suffix(".cfg")
# As on a page, one stream has all that a cell prints, and its value is printed.
AS_ON_A_PAGE = """\
import os, sys; os.dup2(1, 2); sys.stderr = sys.stdout; \
get_ipython().display_trap.hook = lambda value: value is None or print(repr(value))"""
VARIABLES = {"COLUMNS": "88", "MPLBACKEND": "Agg", "NO_COLOR": "1", "TERM": "dumb"}
ZIP = re.compile(r"unpack (starter\w*)\.zip")
NEEDS = re.compile(r"^# Needs (.*)\.$", re.MULTILINE)


def main() -> int:
    """Place the notebooks, run them, and say what was compared."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a page of the site")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="run a part")
    parser.add_argument("--site", default=SITE, type=Path, help="a site, laid out")
    parser.add_argument("--pytest", default="", help="more options for pytest")
    options = parser.parse_args()
    part, parts = part_of(options.shard)
    made = options.site / "_notebooks"
    found = sorted(made.rglob("*.ipynb"))
    names = [path.relative_to(made).with_suffix("").as_posix() for path in found]
    if wrong := set(options.names) - set(names):
        parser.error(f"{', '.join(sorted(wrong))}: no notebook in {made}")
    chosen = [n for n in names if not options.names or n in options.names]
    chosen = chosen[part - 1 :: parts]
    if not chosen:  # pytest would run what is in this folder
        parser.error(f"--shard {options.shard}: it has no notebook of {made}")
    home = options.site.resolve().parent / "notebooks"
    shutil.rmtree(home, ignore_errors=True)
    write_kernel(home, "python3", sys.executable)
    counts = Counter()
    paths = [place(options.site, home, name, counts) for name in chosen]
    command = [sys.executable, "-m", "pytest", "-c", SETTINGS, "--rootdir", home]
    command += ["--noconftest", "--nbval", "--nbval-sanitize-with", SANITIZE]
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
    cells = ", ".join(f"{number} {what}" for what, number in counts.most_common())
    print(f"{len(paths)} notebooks, {counts.total()} cells: {cells}")
    return done.returncode


def place(site: Path, home: Path, name: str, counts: Counter) -> Path:
    """Save a notebook where its first cell says, with an environment of its own."""
    book = nbformat.read(site / "_notebooks" / f"{name}.ipynb", as_version=4)
    folder = home / name
    if project := ZIP.search(book.cells[0].source):
        with zipfile.ZipFile(site / f"{project[1]}.zip") as archive:
            archive.extractall(folder)
        folder /= project[1]
        kernel = book.metadata.kernelspec.name = name.replace("/", "-")
        write_kernel(home, kernel, environment(home / "environments" / kernel))
    for cell in book.cells:
        if cell.cell_type == "code":
            counts[judge(cell)] += 1
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{Path(name).name}.ipynb"
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


def write_kernel(home: Path, name: str, python: str) -> None:
    """Describe a kernel to Jupyter."""
    kernel = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel += [f"--InteractiveShellApp.exec_lines={AS_ON_A_PAGE}"]
    file = home / "jupyter" / "kernels" / name / "kernel.json"
    file.parent.mkdir(parents=True)
    spec = {"argv": kernel, "display_name": name, "language": "python"}
    file.write_text(json.dumps(spec))


def environment(home: Path) -> str:
    """Make an environment with the packages of this Python, for what pip installs."""
    venv.create(home)
    (library,) = home.glob("lib/python*/site-packages")
    known = (path for path in sys.path if path.endswith("-packages"))
    (library / "known.pth").write_text("\n".join(known))
    return str(home / "bin" / "python")


if __name__ == "__main__":
    sys.exit(main())
