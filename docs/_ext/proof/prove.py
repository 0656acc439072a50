"""The verbs that run the book: all that a verb names, several at once, with records.

    python -m proof docs        what this build of the site runs here
    python -m proof prove       everything, and docs/evidence is renewed

Sphinx lays out what the store has, and runs nothing.
"""

import argparse
import fcntl
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import chain
from typing import IO

from . import build, evidence, machine, page, process, recordings
from .evidence import Record, store
from .files import ROOT
from .units import Unit, is_of, problem, record_of, units

# Of these a build of the site runs every one, whatever is known of it.
RUN_HERE = ("script:", "notebook:", "page:guide/")
UNKNOWN = 15  # seconds that a unit takes of which there is no record


def is_proven(unit: Unit, here: bool) -> bool:
    """Whether a record says how the unit ends, as it is now."""
    record = store().here(unit.what)
    record = record if here or record else store().elsewhere(unit.what)
    return bool(record) and fits(record) and not problem(record)


def fits(record: Record) -> bool:
    """Whether a record is of what its page says now; other sources are its inputs."""
    kind, _, name = record.what.partition(":")
    path = page.DOCS / f"{name}.md"
    return kind != "page" or (path.exists() and is_of(record, path))


def seconds(unit: Unit) -> float:
    """How long the unit took, where that is known."""
    record = store().kept(unit.what)
    return record.detail.get("seconds", UNKNOWN) if record else UNKNOWN


def run(todo: list[Unit]) -> Iterator[Record]:
    """Run units, the longest first, and note each as it ends."""
    machine.environment()  # asked once, and not by all threads
    left = {unit.what: seconds(unit) for unit in todo}
    ordered = sorted(todo, key=seconds, reverse=True)
    side_by_side = _at_once([unit for unit in ordered if not unit.alone])
    one_by_one = map(_timed, [unit for unit in ordered if unit.alone])
    for number, record in enumerate(chain(side_by_side, one_by_one), 1):
        store().save(record)
        took, _ = record.detail["seconds"], left.pop(record.what)
        about = f"about {sum(left.values()) / workers():.0f} s left"
        said = f"[{number}/{len(todo)}] {record.what}: {_ended(record)}"
        print(f"{said}, {took:.0f} s ({about})", flush=True)
        yield record


def _at_once(todo: list[Unit]) -> Iterator[Record]:
    """Run as many at once as this machine holds."""
    with ThreadPoolExecutor(workers()) as pool:
        try:
            for done in as_completed([pool.submit(_timed, unit) for unit in todo]):
                yield done.result()
        except BaseException:  # Ctrl-C: end what runs, and start no more
            pool.shutdown(wait=False, cancel_futures=True)
            process.end()
            raise


def _timed(unit: Unit) -> Record:
    start = time.monotonic()
    try:
        record = unit.run()
    except build.BuildError as error:
        record = Record(unit.what, "failed", detail={"reason": str(error)})
    except Exception:  # the engine's own: the other units go on
        record = Record(unit.what, "failed", detail={"reason": traceback.format_exc()})
    record.detail["seconds"] = round(time.monotonic() - start, 1)
    return record


def _ended(record: Record) -> str:
    return "FAILED" if problem(record) else record.kind.replace("_", " ")


def workers() -> int:
    """How many run at once: one for each core that has 4 GiB of memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(os.cpu_count(), memory // (4 << 30)))


def docs(names: list[str]) -> int:
    """Run what a site built here shows as run here, and what has no record."""
    todo = [
        unit
        for unit in chosen(names)
        if unit.kind != "gpu" and not is_proven(unit, unit.what.startswith(RUN_HERE))
    ]
    for _ in run(todo):
        pass  # Sphinx says at its block what failed
    return 0


def prove(names: list[str], shard: str, check: bool) -> int:
    """Run what has not been run in this checkout; renew or check the store."""
    every = shared_out(chosen(names), shard)
    known = [unit for unit in every if is_proven(unit, here=True)]
    failed = []
    records = [store().here(unit.what) for unit in known]
    if not (check or machine.gpus()):  # the library's own compilation is evidence too
        for record in filter(None, map(store().here, build.records())):
            store().keep(record)
    if known:
        print(f"{len(known)} of {len(every)} have run in this checkout")
    for record in chain(records, run([unit for unit in every if unit not in known])):
        wrong = problem(record) or (check and disagrees(record)) or ""
        if wrong:
            failed.append(f"{record.what}: {wrong}")
        elif not check and is_kept_by_this_machine(record) and store().keep(record):
            print(f"renewed {record.what}")
    for what in gone():
        if not check:
            store().drop(what)
        elif store().kept(what) and not names:
            failed.append(f"{what}: what it is of is gone: run `nox -s prove`")
    print(*failed, f"{len(failed)} of {len(every)} failed", sep="\n")
    return int(bool(failed))


def disagrees(record: Record) -> str:
    """Where a run does not end as its committed record says."""
    known = store().kept(record.what)
    if not is_kept_by_this_machine(record):
        return ""
    if not known:
        return "has no record in docs/evidence: run `nox -s prove`"
    if why := known.changed:
        return f"the record is stale ({', '.join(why)}): run `nox -s prove`"
    before = {output.code: output.status for output in known.outputs}
    for output in record.outputs:
        ended = {output.status, before.get(output.code, "no record")}
        if len(ended - {"not_run"}) > 1:
            return f"ended otherwise than in its record: {', '.join(sorted(ended))}"
    return ""


def is_kept_by_this_machine(record: Record) -> bool:
    """A GPU's recordings are commands; what else runs there is a CPU's to record."""
    return record.what.startswith("gpu:") or not machine.gpus()


def gone() -> list[str]:
    """The records of what is no longer in the repository."""
    left = store().names() - {unit.what for unit in units()}
    compiled = {what for what in left if (ROOT / what.removeprefix("build:")).exists()}
    return sorted(left - compiled - set(filter(recordings.command, left)))


def stale(names: list[str]) -> int:
    """Say which committed records are of something that has changed since."""
    every, left = {unit.what for unit in units()}, gone()
    kept = {what for what in store().names() if store().kept(what)}
    for what in sorted({_named(name, every | kept) for name in names} or every | kept):
        known = store().kept(what)
        if not known:
            print(f"missing {what}")
        elif what in left:
            print(f"gone {what}")
        elif why := known.changed or ([] if fits(known) else ["its blocks"]):
            print(f"stale {what}: {', '.join(why)}")
    return 0


def chosen(names: list[str]) -> list[Unit]:
    """The units of these names, which are records' or pages'; all without names."""
    every = {unit.what: unit for unit in units()}
    if not names:
        return [u for u in every.values() if u.kind != "gpu" or not is_proven(u, False)]
    found = dict.fromkeys(_named(name, every) for name in names)
    return [every[what] for what in found if what in every]


def _named(name: str, every: Iterable[str]) -> str:
    what = name if ":" in name else record_of(name)
    if what in every:
        return what
    if not (page.DOCS / f"{what.removeprefix('page:')}.md").is_file():
        raise SystemExit(f"nothing to run is named {what}")
    print(f"{what}: nothing on it runs")
    return what


def shared_out(every: list[Unit], shard: str) -> list[Unit]:
    """Part I of N, "I/N": the longest units go in turn to the part with least to do."""
    if not shard:
        return every
    found = re.fullmatch(r"(\d+)/(\d+)", shard)
    number, parts = map(int, found.groups() if found else (0, 0))
    if not 1 <= number <= parts:
        raise SystemExit(f"--shard {shard}: there is no such part")
    shares: list[list[Unit]] = [[] for _ in range(parts)]
    for unit in sorted(every, key=lambda unit: (-seconds(unit), unit.what)):
        min(shares, key=lambda share: sum(map(seconds, share))).append(unit)
    return shares[number - 1]


def main() -> int:
    """Parse the command line and run a verb; return the exit status."""
    parser = argparse.ArgumentParser("proof", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("verb", choices=("library", "docs", "prove"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="pages or records")
    parser.add_argument("--check", action="store_true", help="renew nothing, compare")
    parser.add_argument("--list", action="store_true", help="run nothing, show stale")
    parser.add_argument("--shard", default="", metavar="I/N", help="run part I of N")
    options = parser.parse_intermixed_args()
    try:
        if options.list:
            return stale(options.names)
        with _lock():  # until the end of this run
            build.build_library()
            if options.verb == "docs":
                return docs(options.names)
            if options.verb == "prove":
                return prove(options.names, options.shard, options.check)
            return 0
    except build.BuildError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the same command goes on where it was", file=sys.stderr)
        return 128 + signal.SIGINT


def _lock() -> IO[str]:
    """Wait for the end of another run of this checkout: both write into build/."""
    evidence.HERE.mkdir(parents=True, exist_ok=True)
    lock = (evidence.HERE / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("waiting for the end of another run of this checkout", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock
