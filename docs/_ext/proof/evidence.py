"""Records of what ran and was compiled, and the two places where they are kept.

``docs/evidence`` is committed: what was proven somewhere, on a CPU or on a GPU.
``build/proof/records`` holds what ran in this checkout. Both have a file for a record.
"""

import datetime
import json
import re
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

from . import machine, recordings
from .files import ROOT, BuildError, is_unchanged, relative, write_json
from .page import Result

KEPT = ROOT / "docs" / "evidence"
HERE = ROOT / "build" / "proof" / "records"

# What differs from run to run: addresses, dates, times and rates, names of temporary
# files. What else does shows when the same run is proven twice: see `_compared`.
_UNSTABLE = re.compile(
    r"0x[0-9a-f]+|/tmp/\S+|\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d"
    r"|\d[\d.,]*(e[+-]?\d+)?\s?([num\u00b5]?s|seconds|minutes|min|%|x|times|[GMT]?B/s)\b"
)


@dataclass
class Record:
    """One execution or compilation, and everything that it depended on.

    Attributes:
        what: the name of the record, such as "page:guide/2_interface".
        kind: "ran", "compiled", or "not_run" when a tool was missing.
        machine: versions at that time, by the names of `machine.environment`.
        inputs: digest of each file of the repository that was read.
        compiled: targets by the source files that a compiler took.
        refused: targets by those that it refused.
        skipped: why a source was not compiled.
        outputs: what each block printed and how it ended.
        detail: the command, the reason, the data that a run left.
        is_here: whether it is of this checkout; the store knows.
    """

    what: str
    kind: str
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())
    machine: dict[str, str] = field(default_factory=lambda: dict(machine.environment()))
    inputs: dict[str, str] = field(default_factory=dict)
    compiled: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, list[str]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    outputs: list[Result] = field(default_factory=list)
    detail: dict = field(default_factory=dict)
    is_here: bool = field(default=False, compare=False)

    @cached_property
    def changed(self) -> list[str]:
        """What has changed since: inputs, or the engine."""
        # The imports of `python FOLDER/SCRIPT` list the folder, so that what else is in
        # it is no input of the script.
        command = self.detail.get("command", "")
        scripts = [part for part in command.split() if part in self.inputs]
        listed = {str(Path(script).parent) for script in scripts}
        known = {p: of for p, of in self.inputs.items() if p not in listed}
        why = [p for p, of in known.items() if not is_unchanged(p, of)]
        if self.machine.get("engine") != machine.ENGINE:
            why.append("the engine")
        if command and recordings.command(self.what) != command:
            why.append("its command")
        return why

    def is_of_this_machine(self) -> bool:
        return self.machine.items() <= machine.environment().items()

    @property
    def where(self) -> str:
        """The machine, in words, and the date; "" for this checkout."""
        device = self.detail.get("device") or machine.in_words(self.machine)
        return "" if self.is_here else f"{device}, {self.date}"


def _file(folder: Path, what: str) -> Path:
    kind, _, name = what.partition(":")
    return folder / kind / (re.sub(r"[^\w./+-]", ".", name) + ".json")


def _read(file: Path) -> Record | None:
    """A record; its texts are lists of lines in the file, for the eyes of reviewers.

    Raises:
        BuildError: a committed file is no record, as after a merge with conflicts.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        for output in (outputs := data.get("outputs", [])):
            output["text"] = "\n".join(output["text"])
        data["outputs"] = [Result(**output) for output in outputs]
        record = Record(**data, is_here=file.is_relative_to(HERE))
        wrong = "" if _file(KEPT, record.what) == file else f"it is of {record.what}"
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        record, wrong = None, str(error)
    if wrong and file.is_relative_to(KEPT):
        name = file.relative_to(ROOT)
        raise BuildError(
            f"{name} is not as `nox -s prove` wrote it ({wrong}): "
            f"`git checkout HEAD -- {name}`, then prove it again"
        )
    return record


def _write(folder: Path, record: Record) -> None:
    data = {key: value for key, value in asdict(record).items() if value}
    data.pop("is_here", None)
    for output in data.get("outputs", ()):
        output["text"] = output["text"].splitlines()
        for name in [key for key in output if not output[key] and key != "text"]:
            del output[name]
    write_json(_file(folder, record.what), data)


class Store:
    """The records, read once: each process has a store of its own (`store`)."""

    def __init__(self) -> None:
        self._of = {
            folder: {
                record.what: record
                for file in sorted(folder.rglob("*.json"))
                if (record := _read(file))
            }
            for folder in (HERE, KEPT)
        }

    def names(self) -> set[str]:
        return {what for records in self._of.values() for what in records}

    def here(self, what: str) -> Record | None:
        """The record of this checkout, if nothing has changed since."""
        record = self._of[HERE].get(what)
        is_current = record and record.is_of_this_machine() and not record.changed
        return record if is_current else None

    def kept(self, what: str) -> Record | None:
        """The committed record, changed or not."""
        return self._of[KEPT].get(what)

    def elsewhere(self, what: str) -> Record | None:
        """The committed record, if nothing has changed since but the machine."""
        record = self.kept(what)
        return record if record and not record.changed else None

    def known(self, what: str) -> list[Record]:
        """What there is, best first: of here, then the committed, changed or not."""
        return [record for record in (self.here(what), self.kept(what)) if record]

    def best(self, what: str) -> Record | None:
        """The record to show, changed or not."""
        return next(iter(self.known(what)), None)

    def save(self, record: Record) -> None:
        """Note what ran in this checkout."""
        record.is_here = True
        self._of[HERE][record.what] = record
        _write(HERE, record)

    def keep(self, record: Record) -> bool:
        """Renew the committed record, if it says something else; return whether."""
        old = self.kept(record.what)
        new = replace(record, is_here=False)
        new = _compared(new, old, self.elsewhere(record.what) is not None)
        if new != old:
            self._of[KEPT][record.what] = new
            _write(KEPT, new)
        return new != old

    def drop(self, what: str, *folders: Path) -> None:
        """Forget a record, as its page or script is gone."""
        for folder in folders or (HERE, KEPT):
            self._of[folder].pop(what, None)
            _file(folder, what).unlink(missing_ok=True)

    def for_path(self, path: str | Path, stale: bool = False) -> list[Record]:
        """The records that depend on a file, and in which nothing has changed.

        Args:
            path: the file.
            stale: whether to return those in which something has changed instead.
        """
        name = relative(path)
        found = [
            record
            for folder, records in self._of.items()
            for record in records.values()
            if name in record.inputs and (folder == KEPT or record.is_of_this_machine())
        ]
        return [record for record in found if bool(record.changed) == stale]


def _compared(new: Record, old: Record | None, unchanged: bool) -> Record:
    """The record to keep: the old one where the new one says the same.

    What could not run now and did before stays, marked as stale if inputs have changed.
    An output that differs although inputs, machine and the blocks above it are the same
    is marked as one that varies, and only how it ended is compared from then on.
    """
    if old is None:
        return new
    before, now = _by_block(old.outputs), _by_block(new.outputs)
    same_machine = old.machine == new.machine
    pairs = enumerate(zip(before, now, strict=False))
    edited = next((n for n, (was, block) in pairs if was != block), len(before))
    outputs = [
        _output(output, before.get(block), unchanged and n < edited, same_machine)
        for n, (block, output) in enumerate(now.items())
    ]
    tools = {k: v for k, v in old.machine.items() if v and not new.machine.get(k)}
    new = replace(new, outputs=outputs, machine=new.machine | tools)
    for name in ("compiled", "refused"):
        setattr(new, name, _targets(getattr(old, name), getattr(new, name), old, new))
    says_the_same = all(
        getattr(new, name) == getattr(old, name)
        for name in ("outputs", "compiled", "refused")
    )
    if unchanged and says_the_same and new.kind in (old.kind, "not_run"):
        return _timed(old, new) if same_machine and new.kind == old.kind else old
    is_stale = any(output.stale for output in old.outputs)
    if unchanged and same_machine and not is_stale and [*before] == [*now]:
        new.date = old.date  # only a mark is new
    return new


def _timed(old: Record, new: Record) -> Record:
    """The old record, with the new duration if the machine was clearly busy before."""
    took, takes = old.detail.get("seconds", 0), new.detail.get("seconds", 0)
    if took < 2 * takes + 10:
        return old
    return replace(old, detail=old.detail | {"seconds": takes})


def _by_block(outputs: list[Result]) -> dict[tuple[str, int], Result]:
    """The outputs by their blocks: equal ones of a page are numbered, as a script's."""
    found = {}
    for output in outputs:
        found[output.code, sum(code == output.code for code, _ in found)] = output
    return found


def _output(
    new: Result, old: Result | None, unchanged: bool, same_machine: bool
) -> Result:
    if old is None:
        return new
    if new.status == "not_run" != old.status:
        return old if unchanged else replace(old, stale=True)
    if old.stale:
        return new
    if unchanged and _stable(old) == _stable(replace(new, varies=old.varies)):
        return old
    # The new text: somebody may have typed the old one.
    varies = old.varies or (unchanged and same_machine)
    return replace(new, varies=varies and new.status == old.status)


def _stable(output: Result) -> tuple[str, str]:
    """What of an output is the same in each run."""
    text = "" if output.varies else _UNSTABLE.sub("…", output.text)
    return output.status, re.sub(r"\s+|-{3,}", " ", text)


def _targets(old: dict, new: dict, before: Record, now: Record) -> dict:
    """The targets of both for sources that are the same."""
    same = {
        name: targets
        for name, targets in old.items()
        if before.inputs.get(name) and before.inputs.get(name) == now.inputs.get(name)
    }
    return new | {n: sorted({*t, *new.get(n, ())}) for n, t in same.items()}


@cache
def store() -> Store:
    """The store of this process."""
    return Store()
