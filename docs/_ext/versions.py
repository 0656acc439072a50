"""The version switcher: a site for each release, and the list of them that all share.

The list is made of git's tags. A site that is already published reads the newest list,
so a release needs no new build of the sites before it.
"""

import json
import re
import subprocess
from pathlib import Path

FRONT_PAGE = """\
<!DOCTYPE html>
<html lang="en"><title>{newest}</title>
<meta http-equiv="refresh" content="0; url={newest}/">
<a href="{newest}/">{newest}</a></html>
"""


def theme_options(site: str, version: str) -> dict:
    """What the theme needs to show the switcher on the site of one version."""
    switcher = {"json_url": f"{site}/switcher.json", "version_match": version}
    # The list is published with the first site: no build finds it there.
    options = {"switcher": switcher, "check_switcher": False}
    return options | {"show_version_warning_banner": True}


def releases(repository: Path) -> list[str]:
    """The tags of releases, v1.2.3, newest first."""
    command = ["git", "-C", str(repository), "tag"]
    tags = subprocess.run(command, capture_output=True, text=True).stdout.split()
    found = [tag for tag in tags if re.fullmatch(r"v\d+\.\d+\.\d+", tag)]
    return sorted(found, key=lambda tag: [*map(int, tag[1:].split("."))], reverse=True)


def entries(versions: list[str], site: str) -> list[dict]:
    """The lines of the switcher; the theme calls the newest release preferred."""
    return [
        {"version": version, "url": f"{site}/{version}/", "preferred": not number}
        for number, version in enumerate(versions)
    ]


def write(app, exception) -> None:
    """Write what lies above the sites of all versions to the folder versions/."""
    if exception or not app.config.versions_site:
        return  # nobody publishes, and there may be no git here
    if not (versions := releases(Path(app.confdir).parent)):
        return
    folder = Path(app.outdir, "versions")
    folder.mkdir(exist_ok=True)
    lines = json.dumps(entries(versions, app.config.versions_site), indent=2)
    (folder / "switcher.json").write_text(lines + "\n", encoding="utf-8")
    front_page = FRONT_PAGE.format(newest=versions[0])
    (folder / "index.html").write_text(front_page, encoding="utf-8")


def setup(app):
    app.add_config_value("versions_site", "", "html")
    app.connect("build-finished", write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
