"""The starter at each step of the guide, and the folder in which a page runs it.

Step 1 is starter/first. From step 2 on, docs/guide/steps.toml says which files and
which regions of starter/cpp there are; step 7 has all. Step 8 is what readers copy, and
what part II runs beside it. The exercises, which have no steps, come as one more.
A region is marked by ``[name]`` and ``[/name]``, a line by ``[name/]``, in comments.
"""

import re
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .files import PROJECTS, ROOT, load, read_toml, sha256, write_json, write_text

STARTER = ROOT / "starter"
STEPS = ROOT / "docs" / "guide" / "steps.toml"
WHOLE, LAST, EXERCISES = 7, 8, 9
BESIDE = (  # in plain/: a kernel, and the emulator of a GPU that runs it
    "examples_src/sources/plain_kernel/plain_softmax_lse.cu",
    "tests/emulated.py",
    "tests/gpu_emulator.h",
    "tests/gpu_emulator.cpp",
    "LICENSE",
)

_MARK = re.compile(r"(?://|#) \[(/?)(\w+)(/?)\]")
_CLOSES = re.compile(r"\s*(\}|(//|#) \[/)")


@dataclass(frozen=True)
class File:
    """A file of a state: its text, and which lines of which original those are."""

    original: str
    text: str
    numbers: tuple[int, ...]


def state(step: int) -> dict[str, File]:
    """The files of the project at a step, by their path in its folder.

    Raises:
        ValueError: there is no such step, or steps.toml does not fit the starter.
    """
    if not 1 <= step <= EXERCISES:
        raise ValueError(f"there is no step {step}: the guide has 1 to {LAST}")
    folders = {1: STARTER / "first", LAST: STARTER}
    folders[EXERCISES] = ROOT / "examples_src/sources/exercises"
    folder = folders.get(step, STARTER / "cpp")
    read = load(STARTER / "new.py").read(folder)
    originals = {path.as_posix(): folder / path for path in read}
    texts = {path.as_posix(): text for path, text in read.items()}
    if step == LAST:
        texts = {n: text for n, text in texts.items() if not n.startswith("first/")}
        beside = {f"plain/{Path(name).name}": ROOT / name for name in BESIDE}
        originals |= beside
        texts |= {name: path.read_text("utf-8") for name, path in beside.items()}
    is_cut = folder == STARTER / "cpp"  # the others are whole
    of_file, of_region = _comes_in(texts) if is_cut else (dict.fromkeys(texts, 1), {})
    made = {}
    for name, text in texts.items():
        if of_file[name] <= step:
            lines = text.splitlines(keepends=True)
            kept = [*range(1, len(lines) + 1)]
            if is_cut:
                kept = _kept(name, lines, {n for n, s in of_region.items() if s > step})
            text = "".join(lines[number - 1] for number in kept)
            original = originals[name].relative_to(ROOT).as_posix()
            made[name] = File(original, text, tuple(kept))
    return made


def _comes_in(texts: dict[str, str]) -> tuple[dict[str, int], dict[str, int]]:
    """The step of each file and of each region that has one."""
    table = read_toml(STEPS)
    known = {name for text in texts.values() for _, name, _ in _MARK.findall(text)}
    if wrong := texts.keys() ^ table["files"].keys():
        raise ValueError(f"steps.toml and starter/cpp differ: {', '.join(wrong)}")
    if wrong := table["regions"].keys() - known:
        raise ValueError(f"starter/cpp has no region {', '.join(wrong)}")
    for name, step in (table["files"] | table["regions"]).items():
        if not 2 <= step <= WHOLE:
            raise ValueError(f"steps.toml: {name} at step {step}, not 2 to {WHOLE}")
    return table["files"], table["regions"]


def _kept(name: str, lines: list[str], later: set[str]) -> list[int]:
    """Numbers of the lines left without these regions and the gaps they leave."""
    kept, around, in_gap = [], [], False
    for number, line in enumerate(lines, 1):
        mark = _MARK.search(line)
        closes, region, alone = mark.groups() if mark else ("", "", "")
        if region and not closes:
            around.append(region)
        cut = not later.isdisjoint(around)
        if (closes or alone) and (not around or around.pop() != region):
            raise ValueError(f"{name}, line {number}: [{region}] is not open")
        after_blank = not kept or not lines[kept[-1] - 1].strip()
        in_gap = (cut and after_blank) or (in_gap and not line.strip())
        if not cut and not in_gap:
            if number > 1 and number - 1 not in kept and _CLOSES.match(line):
                _strip(lines, kept)
            kept.append(number)
    if around:
        raise ValueError(f"{name}: the region [{around[-1]}] has no end")
    _strip(lines, kept)
    return kept


def _strip(lines: list[str], kept: list[int]) -> None:
    """Take the blank lines from the end."""
    while kept and not lines[kept[-1] - 1].strip():
        kept.pop()


def write(page: str, step: int) -> Path:
    """Write a state into the folder of a page, which holds nothing else then."""
    folder = PROJECTS / page.replace("/", "-")
    shutil.rmtree(folder, ignore_errors=True)
    copies = {}
    for name, file in state(step).items():
        write_text(folder / name, file.text)
        copies[name] = [file.original, sha256(folder / name)]
    write_json(folder.with_suffix(".json"), copies)
    return folder


@cache
def shown(step: int) -> dict[str, Path]:
    """The files of a state as they are then, by the names of their originals."""
    folder, found = ROOT / "build" / "steps" / str(step), {}
    for name, file in state(step).items() if step else ():
        write_text(folder / name, file.text)
        found[file.original] = folder / name
    return found


def inputs(step: int) -> dict[str, str]:
    """Digests of what a state is made of, by bytes: markers are comments.

    steps.toml names the files from step 2 on; those of step 1 are all that lie there.
    """
    lists = () if step == EXERCISES else (STEPS, STARTER / "first")
    names = {path.relative_to(ROOT).as_posix() for path in lists}
    names |= {file.original for file in state(step).values()}
    return {name: sha256(name) for name in sorted(names)}
