"""Record a command on the GPU at hand, for ``{recorded}`` blocks of the site.

    PYTHONPATH=docs/_ext python -m proof.record NAME SOURCE... -- COMMAND...

runs the command from the root of the repository and writes its output, with device,
versions, date and the digest of each source, to docs/recordings/NAME.json. Once one
of them has changed, the site calls the recording stale. It needs neither nox nor a
network.
"""

import datetime
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from .evidence import ROOT, digests, environment, write_json

RECORDINGS = ROOT / "docs" / "recordings"


def files(names: list[str]) -> list[Path]:
    """The files named, and those inside the folders named."""
    paths = map(ROOT.joinpath, names)
    found = [
        p for path in paths for p in (path.rglob("*") if path.is_dir() else [path])
    ]
    if missing := [str(path) for path in found if not path.exists()]:
        raise SystemExit(f"proof.record: there is no {', '.join(missing)}")
    return [path for path in found if path.is_file() and path.suffix != ".so"]


def driver() -> str:
    """Version of the NVIDIA driver; empty where there is none."""
    if not (smi := shutil.which("nvidia-smi")):
        return ""
    query = [smi, "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True).stdout.split("\n")[0]


def record(name: str, sources: list[str], command: list[str]) -> Path:
    """Run the command and write the recording; a command that fails is not recorded."""
    cards = environment()["gpu"].split(", ")
    device = cards[0] if len(cards) == 1 else f"{len(cards)} x {cards[0]}"
    if not device:
        raise SystemExit("proof.record: no GPU here, so there is nothing to record")
    before = digests(files(sources))
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nproof.record: exit code {done.returncode}")
    file = RECORDINGS / f"{name}.json"
    versions = {key: value for key, value in environment().items() if value}
    recording = {
        "command": shlex.join(command),
        "output": done.stdout.replace(str(ROOT), "."),
        "device": device,
        "driver": driver(),
        "date": datetime.date.today().isoformat(),
        "versions": versions,
        "sources": before,
    }
    write_json(file, recording)
    return file


def main(arguments: list[str]) -> None:
    """Split the command line at ``--``."""
    if "--" not in arguments[2:]:
        raise SystemExit(__doc__)
    split = arguments.index("--")
    (name, *sources), command = arguments[:split], arguments[split + 1 :]
    print(record(name, sources, command).relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1:])
