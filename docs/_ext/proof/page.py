"""The ``{run}`` blocks of a Markdown page, for Sphinx and for pytest alike."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .files import ROOT, BuildError, relative

DOCS = ROOT / "docs"

_FENCE = re.compile(r"^(\s*)(`{3,}|~{3,}|:{3,})\s*(\{[\w:-]+\})?\s*(.*)$")
_HEAD = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)
# The lines of a head; a misspelt one would change nothing.
_KNOWN = re.compile(  # and Sphinx's own
    r"topics: \[\d+(, \d+)*\]|project: [1-9]|(fresh|alone): true"
    r"|(nosearch|orphan|nocomments): true|tocdepth: \d+|html_theme\..+"
)
_OPTION = re.compile(r"^:([\w-]+):\s*(.*)$")
# Directives whose body is text: a ``{run}`` inside is shown, not run.
_LITERAL = {"{code-block}", "{code}", "{code-cell}", "{literalinclude}", "{math}"}
_LITERAL |= {"{mermaid}", "{raw}", "{eval-rst}", "{parsed-literal}"}


@dataclass(frozen=True)
class Block:
    """One ``{run}`` block: its language, code, first line, and options.

    Attributes:
        fails: the pattern of the diagnostic with which it has to fail.
        needs: commands and modules without which it is not run.
        cause: cause and cure of the failure, for the table of errors.
        varies: whether another run, or Jupyter, prints something else.
    """

    language: str
    code: str
    line: int
    fails: str | None = None
    needs: tuple[str, ...] = ()
    cause: str = ""
    varies: bool = False


@dataclass
class Result:
    """What a block printed and how it ended, as a record has it.

    Attributes:
        code: the digest of the block, "" for what is no block of a page.
        status: "ok", "failed", or "not_run".
        text: standard output and error, in order.
        reason: why it did not run, or what it ended with.
        line: the line of the block that failed, counted from 1.
        varies: whether equal runs print something else.
        stale: whether it is of an earlier record, as the block could not run since.
    """

    code: str = ""
    status: str = "ok"
    text: str = ""
    reason: str = ""
    line: int | None = None
    varies: bool = False
    stale: bool = False


def problem(block: Block, result: Result) -> str | None:
    """Say what is wrong with a run; None when it went as the page says."""
    if result.status == "not_run":
        return None
    if block.fails is None:
        if result.status == "ok":
            return None
        return f"block failed: {result.reason}\n{result.text}".rstrip()
    if result.status == "ok":
        return "block was expected to fail, but it did not"
    if not re.search(block.fails, result.text):
        return f"block failed without matching {block.fails!r}:\n{result.text}"
    return None


def pages() -> list[Path]:
    """The pages of the book that hold ``{run}`` blocks; no generated folder."""
    skip = {"examples", "tutorials", "jupyter_execute"}
    found = []
    for path in sorted(DOCS.rglob("*.md")):
        folders = path.relative_to(DOCS).parts[:-1]
        if not any(f in skip or f[0] in "._" for f in folders) and parse(path):
            found.append(path)
    return found


def name(path: Path) -> str:
    """The Sphinx name of a page: its path in docs/ without the suffix."""
    return path.resolve().relative_to(DOCS).with_suffix("").as_posix()


def starts_fresh(path: Path) -> bool:
    """Whether nothing may be imported before a page or a script runs.

    It sets a variable which PyTorch or Triton reads when it is imported. A page says so
    by ``fresh: true`` in its front matter. A script of the gallery has no such place
    that its readers don't see, but it names Triton's variable.
    """
    if path.suffix == ".py":
        return "TRITON_INTERPRET" in path.read_text(encoding="utf-8")
    return front_matter(path, "fresh") == "true"


def runs_alone(path: Path) -> bool:
    """Whether no other page may run meanwhile: its output holds times."""
    return front_matter(path, "alone") == "true"


def project(path: Path) -> int:
    """The step (see projects.py) whose project a page runs in; 0: the repository."""
    return int(front_matter(path, "project") or 0)


def front_matter(path: Path, key: str) -> str:
    """A value in the head of a page, "" without one."""
    head = _HEAD.match(path.read_text(encoding="utf-8"))
    line = head and re.search(rf"^{key}: (.*)$", head[1], re.MULTILINE)
    return line[1].strip() if line else ""


def digest(path: Path, block: Block) -> str:
    """Name what is run, and how: prose may change without a new run."""
    how = [front_matter(path, key) for key in ("fresh", "alone", "project")]
    text = json.dumps([block.language, block.code, block.fails, block.needs, *how])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse(path: Path) -> list[Block]:
    """Read the ``{run}`` blocks of a page, in order."""
    try:
        return list(blocks(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise BuildError(f"{relative(path) or path}, {error}") from None


def blocks(text: str) -> Iterator[Block]:
    """Find the ``{run}`` blocks in Markdown, also inside tabs and lists."""
    lines, head = text.splitlines(), _HEAD.match(text)
    for number, line in enumerate(head[1].splitlines() if head else (), 2):
        if not _KNOWN.fullmatch(line):
            known = "topics: [1, 2], fresh: true, alone: true, project: 1"
            raise ValueError(f"line {number}: {line!r} is none of {known}")
    containers: list[str] = []  # the fences around this line whose content is Markdown
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        number += 1
        if not fence:
            continue
        indent, marks, directive, argument = fence.groups()
        if not directive and not argument and containers and _closes(marks, containers):
            containers.pop()
            continue
        is_container = directive or marks[0] == ":"
        if directive != "{run}" and is_container and directive not in _LITERAL:
            containers.append(marks)
            continue
        start = number
        while number < len(lines) and not _closes(lines[number].strip(), [marks]):
            number += 1
        if directive == "{run}":
            left = re.compile(rf"^\s{{0,{len(indent)}}}")
            body = [left.sub("", line) for line in lines[start:number]]
            yield block(argument.strip(), body, start + 1)
        number += 1


def _closes(line: str, fences: list[str]) -> bool:
    """Whether a line ends the innermost of these fences."""
    return line.startswith(fences[-1]) and not line.strip(fences[-1][0])


def block(language: str, body: list[str], line: int) -> Block:
    """Make a block of the lines between the fences.

    Raises:
        ValueError: when the language or a line cannot be run.
    """
    options = {}
    while body and (option := _OPTION.match(body[0])):
        options[option[1]] = option[2].strip()
        body, line = body[1:], line + 1
    while body and not body[0].strip():
        body, line = body[1:], line + 1
    if language not in ("python", "console"):
        raise ValueError(f"line {line}: cannot run {language!r}: python or console")
    if unknown := options.keys() - {"fails", "needs", "cause", "varies"}:
        raise ValueError(f"line {line}: unknown option {', '.join(sorted(unknown))}")
    code = "\n".join(body).rstrip()
    needs = tuple(options.get("needs", "").split())
    fails, cause = options.get("fails"), options.get("cause", "")
    try:
        re.compile(fails or "")
    except re.error as error:
        raise ValueError(f"line {line}: :fails: is no pattern: {error}") from None
    if cause and not fails:
        raise ValueError(f"line {line}: a cause explains a failure: add :fails:")
    made = Block(language, code, line, fails, needs, cause, "varies" in options)
    if language == "console":
        commands(made)
    return made


def commands(block: Block) -> list[tuple[int, str]]:
    """Split a console block into its commands, each with its line in the block.

    Raises:
        ValueError: when a line is neither a command nor the rest of one.
    """
    found: list[tuple[int, str]] = []
    for number, line in enumerate(block.code.splitlines(), 1):
        if line.startswith("$ "):
            found.append((number, line[2:]))
        elif found and found[-1][1].endswith("\\"):
            found[-1] = (found[-1][0], f"{found[-1][1]}\n{line}")
        elif line.strip():
            where = block.line + number - 1
            raise ValueError(f"line {where}: a console line begins with '$ ': {line}")
    return found
