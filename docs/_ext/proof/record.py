"""Record what commands print on the GPU at hand, for a site built without one.

    PYTHONPATH=docs/_ext python3 -m proof.record

runs what docs/recordings.toml names and has no recording yet, or one whose sources have
changed. Each recording, docs/recordings/NAME.json, holds the output, device, versions,
date, and the digest of each source. It needs neither nox nor a network.
"""

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .evidence import (
    ROOT,
    digests,
    environment,
    is_unchanged,
    pinned,
    read_json,
    toolchain,
    write_text,
)

MANIFEST = ROOT / "docs" / "recordings.toml"
RECORDINGS = ROOT / "docs" / "recordings"
TIMEOUT = 560  # seconds for each command

# What PyTorch's logger, Python's warnings and Inductor's search print among the
# results, the first time that something is compiled: with paths of the machine.
_LOGS = re.compile(
    r"^(?:[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ .*\n"
    r"|/\S+\.py:\d+: \w+Warning: .*\n(?:  .*\n)?"
    r"|Autotune Choices Stats:\n.*\n)",
    re.MULTILINE,
)

# Run by the Python that runs the commands: `import opbook` proves that it is installed.
_PROBE = """
import json, torch, opbook
names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
print(json.dumps([names, torch.version.cuda or torch.version.hip or ""]))
"""


class Failure(Exception):
    """A message for whoever records; the other recordings go on."""


@dataclass(frozen=True)
class Entry:
    """One table of the manifest.

    Attributes:
        command: a line for the shell.
        sources: files, patterns and folders whose change makes the recording stale.
        gpus: how many GPUs the command needs.
        card: a part of the GPU's name, if only one will do.
        plays: the gallery script or notebook that the command runs, if any.
    """

    name: str
    command: str
    sources: tuple[str, ...]
    gpus: int = 1
    card: str = ""
    plays: str = ""

    @property
    def file(self) -> Path:
        return RECORDINGS / f"{self.name}.json"

    def lacks(self, names: list[str]) -> str:
        """What the command needs and these GPUs are not; empty if nothing."""
        if self.gpus > len(names):
            return f"{self.gpus} GPUs"
        return "" if self.card in names[0] else f"an {self.card}"

    def state(self) -> str:
        """In one word, fresh, stale or missing; and after "stale", why."""
        recording = read_json(self.file, None)
        if recording is None:
            return "missing"
        why = changes(self.name, recording)
        return f"stale: {', '.join(why)}" if why else "fresh"


@cache
def manifest() -> dict[str, Entry]:
    """The entries of docs/recordings.toml by name."""
    if not MANIFEST.exists():
        return {}
    tables = tomllib.loads(MANIFEST.read_text(encoding="utf-8"))
    return {name: _entry(name, dict(table), tables) for name, table in tables.items()}


def _entry(name: str, table: dict, tables: dict) -> Entry:
    sources = table.pop("sources", [])
    if isinstance(sources, str):  # those of the entry that it names
        if sources not in tables:
            raise SystemExit(f"docs/recordings.toml: [{name}]: no entry {sources}")
        sources = tables[sources]["sources"]
    if plays := table.pop("script", "") or table.pop("notebook", ""):
        sources = [plays, *sources]
        table["command"] = f"PYTHONPATH=docs/_ext python3 -m proof.play {plays}"
    try:
        return Entry(name=name, sources=tuple(sources), plays=plays, **table)
    except TypeError as error:
        raise SystemExit(f"docs/recordings.toml: [{name}]: {error}") from error


def files(names: tuple[str, ...]) -> list[Path]:
    """The files that match the names, and those inside the folders that do."""
    found = []
    for name in names:
        # A name that matches nothing stays: the file is missing, and has to be missed.
        for path in sorted(ROOT.glob(name)) or [ROOT / name]:
            found += path.rglob("*") if path.is_dir() else [path]
    return [path for path in found if not path.is_dir() and path.suffix != ".so"]


def changes(name: str, recording: dict) -> list[str]:
    """What has changed since: sources, files that have become one, the command."""
    old, why = recording["sources"], []
    if entry := manifest().get(name):
        now = digests(path for path in files(entry.sources) if path.exists())
        why += sorted(now.keys() - old.keys())
        why += ["its command"] if recording["command"] != entry.command else []
    return [path for path, known in old.items() if not is_unchanged(path, known)] + why


def driver() -> str:
    """Version of the NVIDIA driver; empty where there is none."""
    if not (smi := toolchain.find("nvidia-smi")):
        return ""
    query = [smi, "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True).stdout.split("\n")[0]


def variables() -> dict[str, str]:
    """The commands' environment: their `python3` is the Python that runs this."""
    if shutil.which("python3") == sys.executable:
        return dict(os.environ)
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    return dict(os.environ) | {"PATH": path}


def only(gpus: int) -> dict[str, str]:
    """The variable that hides all GPUs but the first few, if there are more."""
    here = len(machine()[0])
    every = ",".join(map(str, range(here)))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", every).split(",")
    return {"CUDA_VISIBLE_DEVICES": ",".join(visible[:gpus])} if here > gpus else {}


@cache
def machine() -> tuple[list[str], dict[str, str]]:
    """The GPUs that PyTorch sees here, and the versions of what is installed."""
    if not environment()["gpu"]:
        raise SystemExit("proof.record: no GPU here, so there is nothing to record")
    command = ["python3", "-c", _PROBE]
    done = subprocess.run(
        command, cwd=ROOT, env=variables(), capture_output=True, text=True
    )
    if done.returncode:
        remedy = "python3 -m pip install --no-build-isolation --no-deps --editable ."
        raise SystemExit(
            f"{done.stderr}\nproof.record: `import opbook` fails; build it with\n"
            f"  {remedy}"
        )
    names, cuda = json.loads(done.stdout.splitlines()[-1])
    if not names:
        raise SystemExit("proof.record: PyTorch sees no GPU here")
    versions = {key: value for key, value in environment().items() if value}
    return names, versions | {"cuda": cuda, "gpu": names[0]}


def run(entry: Entry) -> tuple[str, object]:
    """Run the command; return its output without logs, and the data or None.

    A command may write data, as JSON, to the file that RECORD_DATA names.
    """
    with tempfile.TemporaryDirectory(prefix="opbook-") as folder:
        data = Path(folder, "data.json")
        with subprocess.Popen(
            # It ends the command's own children too, which would keep the GPU busy.
            ["timeout", "--kill-after=5", str(TIMEOUT), "bash", "-c", entry.command],
            cwd=ROOT,
            env=variables() | only(entry.gpus) | {"RECORD_DATA": str(data)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as command:
            lines = []
            for line in command.stdout:
                lines.append(line)
                print(f"    {line}", end="", flush=True)  # who waits sees where it is
        if command.returncode:
            late = f", no end after {TIMEOUT} s" if command.returncode == 124 else ""
            raise Failure(f"exit status {command.returncode}{late}")
        output = _LOGS.sub("", "".join(lines)).replace(str(ROOT), ".")
        return output, read_json(data, None)


def record(entry: Entry) -> None:
    """Run the command and write the recording; a command that fails is not recorded."""
    names, versions = machine()
    device = names[0] if entry.gpus == 1 else f"{entry.gpus} x {names[0]}"
    sources = files(entry.sources)
    if missing := [str(path) for path in sources if not path.exists()]:
        raise Failure(f"there is no {', '.join(missing)}")
    before = digests(sources)
    output, data = run(entry)
    if digests(sources) != before:
        raise Failure("its sources changed while it ran")
    recording = {
        "command": entry.command,
        "output": output,
        "device": device,
        "driver": driver(),
        "date": datetime.date.today().isoformat(),
        "versions": versions,
        "sources": pinned(before, output),
    }
    if data is not None:
        recording["data"] = data
    write_text(entry.file, one_line_lists(json.dumps(recording, indent=1)) + "\n")


def one_line_lists(text: str) -> str:
    """Put each list of numbers on one line; a line break is never in a JSON string."""
    number_list = re.compile(r"\[\n[-+\d.eE,\s]*\]")
    return number_list.sub(lambda found: re.sub(r"\n\s*", " ", found[0]), text)


def record_all(entries: list[Entry]) -> int:
    """Record each entry; return how many failed."""
    failed = 0
    for entry in entries:
        names, _ = machine()
        if needs := entry.lacks(names):
            print(f"skipped   {entry.name}: needs {needs}, here: {', '.join(names)}")
            continue
        start = time.monotonic()
        try:
            record(entry)
            print(f"recorded  {entry.name}", end="")
        except Failure as failure:
            failed += 1
            print(f"FAILED    {entry.name}: {failure}", end="")
        print(f"  ({time.monotonic() - start:.0f} s)", flush=True)
    return failed


def chosen(names: list[str], every: bool) -> list[Entry]:
    """The entries named; all; or those that are missing or stale."""
    entries = manifest()
    if unknown := [name for name in names if name not in entries]:
        raise SystemExit(f"docs/recordings.toml has no [{'], ['.join(unknown)}]")
    if names:
        return [entries[name] for name in names]
    return [entry for entry in entries.values() if every or entry.state() != "fresh"]


def main() -> int:
    """Record or list; return the exit status."""
    parser = argparse.ArgumentParser("proof.record", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME", help="record these")
    parser.add_argument("--all", action="store_true", help="record the fresh ones too")
    parser.add_argument("--list", action="store_true", help="record nothing, show all")
    options = parser.parse_args()
    if options.list:
        for entry in chosen(options.names, every=True):
            print(f"{entry.name:36} {entry.state()}")
        return 0
    if not (entries := chosen(options.names, options.all)):
        print("no recording is missing or stale")
    return int(record_all(entries) > 0)


if __name__ == "__main__":
    sys.exit(main())
