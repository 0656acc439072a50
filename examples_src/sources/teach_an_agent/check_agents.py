"""Looks whether the paths and commands that an AGENTS.md names still exist."""

import ast
import re
import sys
import tomllib
from pathlib import Path


def paths(text):
    """Words in code type with a slash, or with the suffix of a file."""
    words = re.findall(r"`([^`\s]+)`", text)
    return [word for word in words if re.search(r"\w/|\w\.(md|h|toml|py)$", word)]


def missing(text):
    """Paths that are not there; `NAME` stands for an operator."""
    made = {"build/"}  # not there before the first build
    named = [
        path.replace("NAME", "rms_norm") for path in paths(text) if path not in made
    ]
    return [path for path in named if not Path(path).exists()]


def sessions():
    """The names of the sessions in noxfile.py."""
    for node in ast.parse(Path("noxfile.py").read_text()).body:
        decorators = [ast.unparse(d) for d in getattr(node, "decorator_list", [])]
        if "nox.session" in decorators:
            yield node.name


def is_page(name):
    """Whether the book has a page of this name."""
    return Path("docs", f"{name}.md").exists()


def has_mutants(name):
    """Whether a fault is planted in a file of this name."""
    lists = (tomllib.loads(p.read_text()) for p in Path("tests/faults").iterdir())
    return any(name in mutant["file"] for found in lists for mutant in found["mutant"])


ARGUMENTS = {
    "page": is_page,
    "notebooks": is_page,
    "lint": lambda name: name == "--fix",
    "tests": lambda name: Path(name).exists(),
    "mutants": has_mutants,
}


def wrong_commands(text):
    """Commands in code type that name no session, page, test or mutant."""
    known = set(sessions())
    for command in re.findall(r"`(nox -s [^`]+)`", text):
        session, *argument = re.split(r" -- | ", command.removeprefix("nox -s "))
        if session not in known or (argument and not ARGUMENTS[session](argument[0])):
            yield command


if __name__ == "__main__":
    text = Path(sys.argv[1]).read_text()
    if problems := [*missing(text), *wrong_commands(text)]:
        sys.exit("AGENTS.md is out of date: " + ", ".join(problems))
    counts = len(paths(text)), len(re.findall("`nox -s", text))
    print("{} paths and {} commands are current".format(*counts))
