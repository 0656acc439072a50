"""From claims to origins: what the records say about each code block.

A claim is what a page shows: a dict with its line, its language, and ``how`` it can be
proven. Claims are made when a page is read. Origins are found anew in every build, for
a record can appear or expire while the page stays the same.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from . import evidence
from .digest import NATIVE
from .evidence import Record, store, toolchain
from .record import RECORDINGS, changes

KINDS = ("ran", "compiled", "fails", "recorded", "stale", "not_run")

_HELP = "use {run}, {recorded}, or literalinclude of a file that is compiled or run"


@dataclass(frozen=True)
class Origin:
    """Why a block can be believed; `kind` is "" when it cannot."""

    kind: str
    targets: tuple[str, ...] = ()
    source: str = ""
    reason: str = ""

    @property
    def label(self) -> str:
        """The text that the reader sees on the block."""
        first = {"": "unproven", "fails": "fails as shown", "not_run": "not run"}
        parts = [first.get(self.kind, self.kind), ", ".join(self.targets), self.reason]
        if self.kind == "stale":
            why = "stale: its sources or command have changed since"
            parts = ["recorded", self.reason, why]
        return " · ".join(filter(None, parts))


def resolve(claim: dict, execute: bool = True) -> Origin:
    """Find the evidence for a claim.

    Args:
        claim: what was noted when the page was read.
        execute: whether this build runs code. If not, what has no evidence is not an
            error but says so.
    """
    origin = _RESOLVERS[claim["how"]](claim)
    if origin.kind == "not_run" and (found := _tools_at_hand(origin.reason)):
        return Origin("", (), origin.source, f"{origin.reason}; but {found} is here")
    if not origin.kind and claim.get("not_run"):
        return Origin("not_run", (), origin.source, claim["not_run"])
    if not origin.kind and not execute and claim["how"] != "nothing":
        return Origin("not_run", (), origin.source, "this build runs nothing")
    return origin


def is_current(claim: dict) -> bool:
    """Whether the page's own run still holds; if not, the page must be read again."""
    return claim["how"] not in ("run", "doctest") or bool(store().get(claim["what"]))


def _nothing(claim: dict) -> Origin:
    return Origin("", reason=f"unproven {claim['language']} block: {_HELP}")


def _run(claim: dict) -> Origin:
    if claim["problem"] is not None:
        # An empty reason: another block of the page is to blame, and says so.
        return Origin("", source=claim["source"], reason=claim["problem"])
    record = store().get(claim["what"])
    if not record:
        return Origin("", source=claim["source"], reason="the run is out of date")
    result = record.outputs[claim["block"]]
    if result["status"] == "not_run":
        return Origin("not_run", (), claim["source"], result["reason"])
    return Origin("fails" if claim["fails"] else "ran", (), claim["source"])


def _record(claim: dict) -> Origin:
    """A gallery script or a module's docstrings: one record for the whole file."""
    if record := store().get(claim["what"]):
        # Without a tool that it needs, a script is shown but does not run.
        return Origin(record.kind, (), claim["source"], record.detail.get("reason", ""))
    reason = claim.get("problem") or f"{claim['source']} did not run to its end"
    return Origin("", source=claim["source"], reason=reason)


def _notebook(claim: dict) -> Origin:
    if claim["succeeded"]:
        return Origin("ran", (), claim["source"])
    return Origin("", source=claim["source"], reason="the notebook did not run")


def _recorded(claim: dict) -> Origin:
    file = RECORDINGS / f"{claim['name']}.json"
    if not file.exists():
        return Origin("not_run", reason="not recorded on a GPU yet")
    recording = json.loads(file.read_text(encoding="utf-8"))
    fresh = not changes(claim["name"], recording)
    source = evidence.relative(file) or file.name
    reason = f"{recording['device']}, {recording['date']}"
    return Origin("recorded" if fresh else "stale", (), source, reason)


def _file(claim: dict) -> Origin:
    source, records = claim["source"], store().for_path(claim["source"])
    suffix = Path(source).suffix
    if suffix in NATIVE:
        return _compiled(source, records)
    if suffix == ".py" and Path(source).name != "setup.py":
        return _executed(source, records, set(claim["lines"]))
    if any(record.kind == "ran" for record in records) and not claim.get("not_run"):
        return Origin("ran", (), source)  # a file that was read, which is all it is for
    return Origin("", source=source, reason=f"no run has read {source}")


def _compiled(source: str, records: list[Record]) -> Origin:
    targets = {t for r in records if r.kind == "compiled" for t in r.targets}
    targets |= {
        t for r in records for t in r.detail.get("compiled", {}).get(source, ())
    }
    missing = {r.detail["reason"] for r in records if r.kind == "not_run"}
    # "nvcc not found: install ..." is the remedy for the console, not for the label.
    short = ", ".join(sorted({reason.partition(":")[0] for reason in missing}))
    reason = f"not compiled here: {short}" if missing else ""
    if targets:
        return Origin("compiled", tuple(sorted(targets, key=_order)), source, reason)
    if missing:
        return Origin("not_run", (), source, reason)
    refused = {t for r in records for t in r.detail.get("refused", {}).get(source, ())}
    if refused:
        return Origin("fails", tuple(sorted(refused, key=_order)), source)
    if skipped := {r.detail.get("skipped", {}).get(source) for r in records} - {None}:
        return Origin("not_run", (), source, ", ".join(sorted(skipped)))
    if absent := [tool for tool in _compilers(source) if not toolchain.find(tool)]:
        reason = f"not compiled here: {', '.join(absent)} not found"
        return Origin("not_run", (), source, reason)
    return Origin("", source=source, reason=f"nothing has compiled {source}")


def _tools_at_hand(reason: str) -> str:
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


def _executed(source: str, records: list[Record], shown: set[int]) -> Origin:
    if any(record.what == f"script:{source}" for record in records):
        return Origin("ran", (), source)
    ran = {number for r in records for number in r.statements.get(source, ())}
    spans = enumerate(evidence.statements(source))
    # A compound statement has run when any line of it has.
    missed = [s[0] for number, s in spans if s[0] in shown and number not in ran]
    if ran and not missed:
        return Origin("ran", (), source)
    where = f"line {', '.join(map(str, sorted(missed)))} of {source}" if ran else source
    return Origin("", source=source, reason=f"no run has executed {where}")


_RESOLVERS = {
    "nothing": _nothing,
    "run": _run,
    "record": _record,
    "doctest": _record,
    "notebook": _notebook,
    "recorded": _recorded,
    "file": _file,
}


def rows(blocks: Iterable[tuple[str, dict, Origin]]) -> dict:
    """The ledger as data: counts by origin, and one row for each block."""
    counts = dict.fromkeys(KINDS, 0)
    table = []
    for docname, claim, origin in blocks:
        if origin.kind:
            counts[origin.kind] += 1
        table.append(
            {
                "page": docname,
                "line": claim["line"],
                "language": claim["language"],
                "origin": origin.kind or None,
                "targets": list(origin.targets),
                "source": origin.source,
                "reason": origin.reason,
            }
        )
    return {"counts": counts, "blocks": table}
