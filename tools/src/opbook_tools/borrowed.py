"""What stands elsewhere in the repository; the build puts copies into the wheel."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
# The library's build needs toolchain.py before anything is installed, and readers copy
# the starter. Here is what each is called, and where it is.
PLACES = {"toolchain.py": "src/opbook/toolchain.py", "starter": "starter"}
_MADE = shutil.ignore_patterns("__pycache__", "build", "dist", "*.egg-info", "*.so")


def find(name: str) -> Path:
    """A borrowed file or folder: in the wheel, or in a clone."""
    first, *rest = name.split("/")
    copy = HERE / "borrowed" / first
    return (copy if copy.exists() else HERE.parents[2] / PLACES[first]).joinpath(*rest)


def module(name: str) -> ModuleType:
    """A borrowed file as a module, which is loaded once."""
    path = find(name)
    title = f"opbook_tools.borrowed_{path.stem}"
    if title not in sys.modules:
        spec = importlib.util.spec_from_file_location(title, path)
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        sys.modules[title] = made
    return sys.modules[title]


def copy_into(package: Path) -> None:
    """Put copies into a package that is being built."""
    for name in PLACES:
        source, target = find(name), package / "borrowed" / name
        if not source.exists():
            raise SystemExit(
                f"opbook-tools: {source} is missing. Build from the folder tools/ of a "
                "clone of the whole repository, or from an sdist."
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=_MADE, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)
