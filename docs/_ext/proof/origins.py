"""From claims to origins: what the records say about each code block.

A claim is what a page shows: a dict with its line, its language, and ``how`` it can be
proven. Claims are made when a page is read. Origins are found anew in every build, for
a record can appear or expire while the page stays the same.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from .digest import NATIVE
from .evidence import Record, store
from .machine import toolchain

ELSEWHERE = ("ran", "compiled", "fails")  # of these the ledger says where

CHANGED = "its sources have changed since"
_HELP = "use {run}, {recorded}, or literalinclude of a file that is compiled or run"


@dataclass(frozen=True)
class Origin:
    """Why a block can be believed; `kind` is "" when it cannot.

    Attributes:
        kind: "ran", "compiled", "fails", "recorded", "stale", or "not_run".
        where: the machine and the date, empty for what ran in this checkout.
        targets: what it was compiled for.
        source: the file that was run or compiled.
        reason: why not, or what else there is to say.
        is_text: whether it is no program, but a program that ran has read it.
    """

    kind: str
    where: str = ""
    targets: tuple[str, ...] = ()
    source: str = ""
    reason: str = ""
    is_text: bool = False

    @property
    def label(self) -> str:
        """The text that the reader sees on the block."""
        words = {"": "unproven", "fails": "fails as shown", "not_run": "not run"}
        words |= {"recorded": "ran", "stale": "stale"}
        first = words.get(self.kind, self.kind)
        if self.is_text:
            first = f"part of what {first}"
        if self.where:
            first += f" on {self.where}"
        elif self.kind in ELSEWHERE:
            first += " here"
        return " · ".join(filter(None, [first, ", ".join(self.targets), self.reason]))


def resolve(claim: dict, complete: bool = True) -> Origin:
    """Find the evidence for a claim.

    Args:
        claim: what was noted when the page was read.
        complete: whether all was run that can run here. If not, what has no evidence is
            not an error but says so.
    """
    origin = _RESOLVERS[claim["how"]](claim)
    source, here = origin.source, ""
    if origin.kind == "not_run" and complete:
        here = _tool_at_hand(origin.reason)
    if here:
        return Origin("", source=source, reason=f"{origin.reason}; but {here} is here")
    if not origin.kind and claim.get("not_run"):
        return Origin("not_run", source=source, reason=claim["not_run"])
    if not origin.kind and not complete and claim["how"] != "nothing":
        return Origin("not_run", source=source, reason="not run since its last edit")
    return origin


def _nothing(claim: dict) -> Origin:
    return Origin("", reason=f"unproven {claim['language']} block: {_HELP}")


def _run(claim: dict) -> Origin:
    """A block of a page: `units.shown` has found its origin, with its result."""
    return claim["found"]


def _record(claim: dict) -> Origin:
    """A script, a notebook or docstrings: one record for the whole file."""
    source = claim["source"]
    for record in store().known(claim["what"]):
        if record.kind == "failed":
            return Origin("", source=source, reason=record.detail["reason"])
        elsewhere = store().elsewhere(claim["what"])
        if record.is_here and record.kind == "not_run" and elsewhere:
            continue  # a tool is missing here, and perhaps was not elsewhere
        kind = "stale" if record.changed else record.kind
        reason = CHANGED if record.changed else record.detail.get("reason", "")
        where = "" if kind == "not_run" else record.where
        return Origin(kind, where, source=source, reason=reason)
    return Origin("", source=source, reason=f"no run of {source} is known")


def _recorded(claim: dict) -> Origin:
    record = store().kept(claim["what"])
    if not record:
        return Origin("not_run", reason="not recorded on a GPU yet")
    why = ", ".join(record.changed[:3])
    if more := len(record.changed[3:]):  # `nox -s prove -- --list` names all
        why += f" and {more} more"
    kind, reason = ("stale", f"changed since: {why}") if why else ("recorded", "")
    return Origin(kind, record.where, source=claim["what"], reason=reason)


def _file(claim: dict) -> Origin:
    source = claim["source"]
    find = _compiled if Path(source).suffix in NATIVE else _read
    found = find(claim, store().for_path(source))
    if found.kind not in ("", "not_run") or claim.get("not_run"):
        return found
    old = find(claim, store().for_path(source, stale=True))
    if old.kind in ("", "not_run"):
        return found
    return Origin("stale", old.where, old.targets, source, CHANGED)


def _read(claim: dict, records: list[Record]) -> Origin:
    """A file that a run has imported, executed or read."""
    source = claim["source"]
    ran = [record for record in records if record.kind == "ran"]
    is_program = source.endswith((".py", ".sh"))  # of other files, to be read is no run
    if not ran or (claim.get("not_run") and not is_program):
        return Origin("", source=source, reason=f"no run has read {source}")
    kind = "recorded" if all(r.what.startswith("gpu:") for r in ran) else "ran"
    return Origin(kind, _where(ran), source=source, is_text=not is_program)


def _where(records: list[Record]) -> str:
    """Empty if one of the records is of this checkout."""
    return max(records, key=lambda record: (record.is_here, record.date)).where


def _compiled(claim: dict, records: list[Record]) -> Origin:
    source = claim["source"]
    skipped = ", ".join(
        sorted({r.skipped[source] for r in records if source in r.skipped})
    )
    for kind, name in (("compiled", "compiled"), ("fails", "refused")):
        found = [record for record in records if source in getattr(record, name)]
        targets = {
            target for record in found for target in getattr(record, name)[source]
        }
        if found:
            partly = kind == "compiled" and len(targets) == 1 and skipped
            reason = f"not compiled here: {skipped}" if partly else ""
            targets = tuple(sorted(targets, key=_order))
            return Origin(kind, _where(found), targets, source, reason)
    if on_gpu := [record for record in records if record.what.startswith("gpu:")]:
        return Origin("recorded", _where(on_gpu), source=source)
    absent = [tool for tool in _compilers(source) if not toolchain.find(tool)]
    if absent and not skipped:
        skipped = f"not compiled here: {', '.join(absent)} not found"
    if skipped:
        return Origin("not_run", source=source, reason=skipped)
    return Origin("", source=source, reason=f"nothing has compiled {source}")


def _tool_at_hand(reason: str) -> str:
    """The compiler that a reason gives as missing, if it is here all the same."""
    if "cannot compile for" in reason:  # it is here, and too old
        return ""
    named = re.findall(r"(?<![\w-])(?:nvcc|clang|hipcc|g\+\+)(?![\w-])", reason)
    return next(filter(toolchain.find, named), "")


def _compilers(source: str) -> tuple[str, ...]:
    """The tools besides a C++ compiler that can prove a listing."""
    if source.endswith((".cu", ".cuh")):
        return ("nvcc", "clang")
    return ("clang",) if source.endswith(".hip") else ()


def _order(target: str) -> tuple:
    """CPU first, then CUDA by number, then AMD by name."""
    if target.startswith("sm_"):
        return 1, int(target[3:].rstrip("af")), target
    return (2 if target.startswith("gfx") else 0), 0, target


_RESOLVERS = {
    "nothing": _nothing,
    "run": _run,
    "record": _record,
    "recorded": _recorded,
    "file": _file,
}
