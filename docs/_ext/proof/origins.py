"""From claims to origins: what the records say about each code block.

A claim is what a page shows: a dict with its line, its language, and ``how`` it can be
proven. Claims are made when a page is read. Origins are found anew in every build, for
a record can appear or expire while the page stays the same.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .digest import NATIVE
from .evidence import Record, store
from .machine import toolchain

KINDS = ("ran", "compiled", "fails", "recorded", "stale", "not_run")
ELSEWHERE = ("ran", "compiled", "fails")  # of these the ledger says where

_HELP = "use {run}, {recorded}, or literalinclude of a file that is compiled or run"


@dataclass(frozen=True)
class Origin:
    """Why a block can be believed; `kind` is "" when it cannot.

    Attributes:
        kind: one of KINDS.
        where: the machine and the date, empty for what ran in this checkout.
        targets: what it was compiled for.
        source: the file that was run or compiled.
        reason: why not, or what else there is to say.
    """

    kind: str
    where: str = ""
    targets: tuple[str, ...] = ()
    source: str = ""
    reason: str = ""

    @property
    def label(self) -> str:
        """The text that the reader sees on the block."""
        words = {"": "unproven", "fails": "fails as shown", "not_run": "not run"}
        words |= {"recorded": "ran", "stale": "stale"}
        first = words.get(self.kind, self.kind)
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
    """A block of a page: `directives.RunBlock` has chosen the result that it shows."""
    source, kind = claim["source"], claim["status"]
    if claim["problem"] is not None:
        # An empty reason: another block of the page is to blame, and says so.
        return Origin("", source=source, reason=claim["problem"])
    if claim["stale"]:
        reason = "its sources have changed since"
        return Origin("stale", claim["where"], source=source, reason=reason)
    if kind == "not_run":
        return Origin("not_run", source=source, reason=claim["reason"])
    kind = "fails" if kind == "failed" else "ran"
    return Origin(kind, claim["where"], source=source)


def _record(claim: dict) -> Origin:
    """A script, a notebook or docstrings: one record for the whole file."""
    source = claim["source"]
    for record, is_here, is_stale in store().known(claim["what"]):
        if record.kind == "failed":
            return Origin("", source=source, reason=record.detail["reason"])
        elsewhere = store().elsewhere(claim["what"])
        if is_here and record.kind == "not_run" and elsewhere:
            continue  # a tool is missing here, and perhaps was not elsewhere
        kind = "stale" if is_stale else record.kind
        reason = record.detail.get("reason", "")
        if is_stale:
            reason = "its sources have changed since"
        where = "" if is_here or kind == "not_run" else record.where
        return Origin(kind, where, source=source, reason=reason)
    return Origin("", source=source, reason=f"no run of {source} is known")


def _recorded(claim: dict) -> Origin:
    record = store().kept(claim["what"])
    if not record:
        return Origin("not_run", reason="not recorded on a GPU yet")
    why = ", ".join(store().changed(record))
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
    reason = "its sources have changed since"
    return Origin("stale", old.where, old.targets, source, reason)


def _read(claim: dict, records: list[Record]) -> Origin:
    """A file that a run has imported, executed or read."""
    source = claim["source"]
    ran = [record for record in records if record.kind == "ran"]
    is_program = source.endswith((".py", ".sh"))  # of other files, to be read is no run
    if not ran or (claim.get("not_run") and not is_program):
        return Origin("", source=source, reason=f"no run has read {source}")
    kind = "recorded" if all(r.what.startswith("gpu:") for r in ran) else "ran"
    return Origin(kind, _where(ran), source=source)


def _where(records: list[Record]) -> str:
    """Empty if one of the records is of this checkout."""
    if any(map(store().is_here, records)):
        return ""
    return max(records, key=lambda record: record.date).where


def _compiled(claim: dict, records: list[Record]) -> Origin:
    source = claim["source"]
    compiled = [record for record in records if source in record.compiled]
    targets = {target for record in compiled for target in record.compiled[source]}
    skipped = {r.skipped[source] for r in records if source in r.skipped}
    absent = [tool for tool in _compilers(source) if not toolchain.find(tool)]
    if targets:
        missing = "" if len(targets) > 1 or not skipped else ", ".join(sorted(skipped))
        reason = f"not compiled here: {missing}" if missing else ""
        return Origin("compiled", _where(compiled), _sorted(targets), source, reason)
    refused = [record for record in records if source in record.refused]
    targets = {target for record in refused for target in record.refused[source]}
    if refused:
        return Origin("fails", _where(refused), _sorted(targets), source)
    if on_gpu := [record for record in records if record.what.startswith("gpu:")]:
        return Origin("recorded", _where(on_gpu), source=source)
    if skipped:
        return Origin("not_run", source=source, reason=", ".join(sorted(skipped)))
    if absent:
        reason = f"not compiled here: {', '.join(absent)} not found"
        return Origin("not_run", source=source, reason=reason)
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


def _sorted(targets: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(targets, key=_order))


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


def counted(origin: Origin) -> str:
    """The column of the ledger that counts a block."""
    kind = origin.kind.replace("_", " ")
    if origin.kind == "recorded":
        return "ran on a GPU"
    if origin.kind not in ELSEWHERE:
        return kind
    return f"{kind} {'elsewhere' if origin.where else 'here'}"


COLUMNS = (
    *(f"{kind} {place}" for kind in ELSEWHERE for place in ("here", "elsewhere")),
    *("ran on a GPU", "stale", "not run"),
)


def rows(blocks: Iterable[tuple[str, dict, Origin]]) -> dict:
    """The ledger as data: counts by origin, and one row for each block."""
    counts = dict.fromkeys(COLUMNS, 0)
    table = []
    for docname, claim, origin in blocks:
        if origin.kind:
            counts[counted(origin)] += 1
        table.append(
            {
                "page": docname,
                "line": claim["line"],
                "language": claim["language"],
                "origin": origin.kind or None,
                "where": origin.where or ("here" if origin.kind in ELSEWHERE else ""),
                "targets": list(origin.targets),
                "source": origin.source,
                "reason": origin.reason,
            }
        )
    return {"counts": counts, "blocks": table}
