"""The commands of docs/recordings.toml, which are run on a GPU and recorded."""

from dataclasses import dataclass
from functools import cache

from .files import ROOT, BuildError, read_toml

MANIFEST = ROOT / "docs" / "recordings.toml"


@dataclass(frozen=True)
class Entry:
    """One line of the manifest.

    Attributes:
        command: a line for the shell.
        gpus: how many GPUs the command needs.
        card: a part of the GPU's name, if only one will do.
        plays: the gallery script or notebook that the command runs, if any.
    """

    command: str
    gpus: int = 1
    card: str = ""
    plays: str = ""

    def runs_on(self, gpus: list[str]) -> bool:
        """Whether these GPUs are enough, and of the right kind."""
        return len(gpus) >= self.gpus and self.card in gpus[0]


@cache
def manifest() -> dict[str, Entry]:
    """The entries of docs/recordings.toml by name."""
    if not MANIFEST.exists():
        return {}
    return {name: _entry(name, value) for name, value in read_toml(MANIFEST).items()}


def _entry(name: str, value: str | dict) -> Entry:
    table = {"command": value} if isinstance(value, str) else dict(value)
    if plays := table.get("plays"):
        table["command"] = f"PYTHONPATH=docs/_ext python3 -m proof.play {plays}"
    try:
        return Entry(**table)
    except TypeError as error:
        raise BuildError(f"docs/recordings.toml: {name}: {error}") from error


def command(what: str) -> str:
    """The command of the record "gpu:NAME" today; empty if it has none any more."""
    entry = manifest().get(what.partition(":")[2])
    return entry.command if entry else ""
