"""Every operator has its places in the repository, and its page says what they are."""

import inspect
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

import opbook
import registry
from environment import without

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted(path.name for path in (ROOT / "csrc").iterdir() if path.is_dir())


def without_page(function: str, docs: Path) -> str:
    """What to write if no page has the function's source; or nothing."""
    file = Path(inspect.getsourcefile(getattr(opbook, function)))
    source = f"src/opbook/ops/{file.name}"
    if any(source in page.read_text() for page in docs.rglob("*.md")):
        return ""
    return (
        f"no page shows {source}: write docs/howto/{function}.md with a block "
        "{step-files}, and list the page in docs/howto/index.md"
    )


@pytest.mark.parametrize("function", registry.FUNCTIONS)
def test_a_page_shows_every_function(function, tmp_path):
    assert without_page(function, ROOT / "docs") == ""
    assert f"write docs/howto/{function}.md" in without_page(function, tmp_path)


@pytest.mark.parametrize("folder", FOLDERS)
def test_faults_are_planted_in_every_folder(folder):
    file = ROOT / "tests" / "faults" / f"{folder}.toml"
    assert file.exists(), f"write {file.relative_to(ROOT)}: the faults of csrc/{folder}"
    for fault in tomllib.loads(file.read_text())["mutant"]:
        count = (ROOT / fault["file"]).read_text().count(fault["old"])
        assert count == 1, (
            f"{fault['name']}: {fault['file']} has its text {count} times"
        )
