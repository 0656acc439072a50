"""The workflow that publishes the site of a release, run on repositories made here."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / ".github/workflows/site.yml"
SITE = "https://example.org/book"

CONF = """\
import sys
sys.path.insert(0, {extensions!r})
import versions
extensions = ["versions"]
html_theme = "pydata_sphinx_theme"
versions_site = {site!r}
html_theme_options = versions.theme_options(versions_site, {version!r})
html_theme_options["navbar_end"] = ["version-switcher"]
"""


@pytest.fixture(scope="module")
def workflow() -> dict:
    return yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))


def git(where: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    command += ["-C", str(where), *arguments]
    return subprocess.check_output(command, text=True, stderr=subprocess.STDOUT)


@pytest.fixture
def project(tmp_path) -> Path:
    """A repository with a page, and an origin that it was pushed to."""
    folder = tmp_path / "project"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs/index.rst").write_text("Title\n=====\n\nA page.\n")
    git(tmp_path, "init", "--quiet", "--bare", "origin.git")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=A page")
    git(folder, "remote", "add", "origin", str(tmp_path / "origin.git"))
    git(folder, "push", "--quiet", "origin", "main")
    return folder


def build(project: Path, version: str, address: str = SITE) -> Path:
    """Build the site of a version with the theme and the book's extension."""
    extensions = str(ROOT / "docs/_ext")
    conf = CONF.format(extensions=extensions, site=address, version=version)
    (project / "docs/conf.py").write_text(conf)
    site = project.parent / "built" / version
    command = [sys.executable, "-m", "sphinx", "-q", "-W", project / "docs", site]
    subprocess.run(command, check=True)
    return site


def publish(workflow: dict, project: Path, site: Path, version: str) -> None:
    """Run the last step of the workflow in a fresh clone, as GitHub does."""
    clone = project.parent / f"clone-{version}"
    git(project.parent, "clone", "--quiet", "origin.git", str(clone))
    site.rename(clone / "site")
    (step,) = (s["run"] for s in workflow["jobs"]["publish"]["steps"] if "run" in s)
    variables = os.environ | {"VERSION": version}
    subprocess.run(["bash", "-e", "-c", step], cwd=clone, env=variables, check=True)


def published(project: Path, path: str) -> str:
    return git(project, "--git-dir", "../origin.git", "show", f"gh-pages:{path}")


def test_each_release_keeps_its_site_and_the_newest_is_in_front(workflow, project):
    for version in ("v0.9.0", "v0.10.0"):
        git(project, "tag", version)
        publish(workflow, project, build(project, version), version)
    lines = json.loads(published(project, "switcher.json"))
    assert lines == [
        {"version": "v0.10.0", "url": f"{SITE}/v0.10.0/", "preferred": True},
        {"version": "v0.9.0", "url": f"{SITE}/v0.9.0/", "preferred": False},
    ]
    assert "url=v0.10.0/" in published(project, "index.html")
    for version in ("v0.9.0", "v0.10.0"):
        page = published(project, f"{version}/index.html")
        assert f"theme_switcher_json_url = '{SITE}/switcher.json'" in page
        assert f"theme_switcher_version_match = '{version}'" in page
    assert ".nojekyll" in published(project, "")
    assert "docs/index.rst" not in published(project, "")


def test_a_repair_of_an_old_release_stays_behind_the_newest(workflow, project):
    for version in ("v1.0.0", "v0.9.1", "draft"):
        git(project, "tag", version)
    publish(workflow, project, build(project, "v0.9.1"), "v0.9.1")
    lines = json.loads(published(project, "switcher.json"))
    assert [line["version"] for line in lines] == ["v1.0.0", "v0.9.1"]
    assert "url=v1.0.0/" in published(project, "index.html")


def test_a_site_without_an_address_has_no_list_of_versions(project):
    git(project, "tag", "v1.0.0")
    assert not (build(project, "v1.0.0", address="") / "versions").exists()


def test_a_site_without_an_address_needs_no_git(project, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (build(project, "v1.0.0", address="") / "index.html").exists()


def test_the_job_that_may_push_runs_no_code_of_the_project(workflow):
    jobs = workflow["jobs"]
    assert workflow["permissions"] == {"contents": "read"}
    assert "permissions" not in jobs["build"]
    commands = [step.get("run", "") for step in jobs["publish"]["steps"]]
    assert not re.search(r"python|nox|pip|\$\{\{", "".join(commands))
    actions = [s["uses"] for job in jobs.values() for s in job["steps"] if "uses" in s]
    assert all(re.search(r"@[0-9a-f]{40}$", action) for action in actions)


def test_the_book_reads_what_the_workflow_sets(workflow):
    conf = (ROOT / "docs/conf.py").read_text(encoding="utf-8")
    names = workflow["jobs"]["build"]["env"]
    assert all(f'os.environ.get("{name}"' in conf for name in names)


def test_the_guide_clones_the_repository_that_the_pages_link_to():
    conf = (ROOT / "docs/conf.py").read_text(encoding="utf-8")
    address = re.search(r'^repository = "(.*)"$', conf, re.MULTILINE)[1]
    script = ROOT / "examples_src/sources/reduction/install.sh"
    clone = f"git clone {address or 'https://github.com/OWNER/NAME'} opbook"
    assert clone in script.read_text(encoding="utf-8").splitlines()
