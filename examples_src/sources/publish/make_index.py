"""Write a simple index: a folder of HTML pages from which pip installs wheels."""

import hashlib
import shutil
import sys
from collections import defaultdict
from pathlib import Path

from packaging.utils import parse_wheel_filename

PAGE = "<!DOCTYPE html>\n<html><body>\n{}\n</body></html>\n"


def link(address: str, text: str) -> str:
    """One line of a page."""
    return f"<a href='{address}'>{text}</a><br>"


def main(folder: Path, wheels: list[Path]) -> None:
    """Copy the wheels, and list them by the name of their project."""
    projects = defaultdict(list)
    for wheel in wheels:
        project = parse_wheel_filename(wheel.name)[0]  # lower case, with dashes
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        (folder / project).mkdir(parents=True, exist_ok=True)
        shutil.copy(wheel, folder / project)
        projects[project].append(link(f"{wheel.name}#sha256={digest}", wheel.name))
    for project, links in projects.items():
        (folder / project / "index.html").write_text(PAGE.format("\n".join(links)))
    names = (link(f"{project}/", project) for project in sorted(projects))
    (folder / "index.html").write_text(PAGE.format("\n".join(names)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
