"""Judge exercises about operators of PyTorch.

python exercises.py              list the exercises
python exercises.py NAME         say whether gaps/NAME.py is right, and why
python exercises.py NAME --hint  help a little

The exit status is 0 for a right answer, 1 for a wrong one, and 3 if it was not judged.
"""

import argparse
import ast
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
RIGHT, WRONG, NOT_JUDGED = 0, 1, 3  # exit statuses; argparse's own is 2
JUDGED_WRONG = 10  # the exit status of judges.py
TIMEOUT = 120  # seconds


def exercises() -> dict[str, dict]:
    """The exercises by name: chapter, page of the book, hint, and the tools needed."""
    text = (HERE / "exercises.toml").read_text(encoding="utf-8")
    return {
        name: {"chapter": chapter, **entry}
        for chapter, entries in tomllib.loads(text).items()
        for name, entry in entries.items()
    }


def title(name: str) -> str:
    """The first line of an exercise's file, or "" while it cannot be read as Python."""
    try:
        tree = ast.parse((HERE / "gaps" / f"{name}.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return ""
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def listed(known: dict[str, dict]) -> str:
    """A line for each exercise, below the name of its chapter."""
    lines, chapter = [], ""
    for name, entry in known.items():
        if entry["chapter"] != chapter:
            chapter = entry["chapter"]
            lines.append(chapter)
        lines.append(f"  {name:20} {title(name)}")
    return "\n".join(lines)


def missing(tools: list[str]) -> list[str]:
    """Those that are neither a program nor a Python package here."""
    return [t for t in tools if not (shutil.which(t) or importlib.util.find_spec(t))]


def judge(name: str) -> int:
    """Judge an exercise in a process of its own, which may crash or never end.

    Returns:
        The exit status of judges.py.
    """
    answer = HERE / "gaps" / f"{name}.py"
    command = [sys.executable, str(HERE / "judges.py"), str(answer)]
    # Triton reads the variable when it is imported. No exercise needs a GPU.
    variables = os.environ | {"TRITON_INTERPRET": "1"}
    try:
        status = subprocess.run(command, env=variables, timeout=TIMEOUT).returncode
    except subprocess.TimeoutExpired:
        why = f"has not ended after {TIMEOUT} s"
    else:
        if status >= 0:
            return status
        why = f"crashed: {signal.strsignal(-status)}"
        if -status == signal.SIGSEGV:
            why += ", at an address outside its memory"
    print(f"wrong: {name}\ngaps/{name}.py {why}")
    return JUDGED_WRONG


def main() -> int:
    """Do what the command line says."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("name", nargs="?", help="of an exercise")
    parser.add_argument("--hint", action="store_true", help="help a little")
    options, known = parser.parse_args(), exercises()
    if options.name is None:
        if options.hint:
            parser.error("--hint needs the NAME of an exercise")
        print(listed(known))
        return RIGHT
    if options.name not in known:
        parser.error(f"there is no exercise {options.name}: run it without a name")
    entry = known[options.name]
    if options.hint:
        print(entry["hint"].strip())
        return RIGHT
    if absent := missing(["torch", *entry.get("needs", [])]):
        print(f"not judged: {options.name} needs {' and '.join(absent)}")
        return NOT_JUDGED
    status = judge(options.name)
    if status == JUDGED_WRONG:
        print(f"A hint: python exercises.py {options.name} --hint")
        return WRONG
    return status and NOT_JUDGED  # the judge has failed itself, and has said why


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader such as head may leave
    sys.exit(main())
