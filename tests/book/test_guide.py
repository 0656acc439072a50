"""The project of the guide: each page's state of it, and how long the pages are."""

import io
import zipfile
from pathlib import Path

import pytest

import downloads
import steps
from proof import projects

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide"
STEPS = range(1, projects.LAST + 1)


def test_each_step_has_one_page():
    pages = sorted(path.name for path in GUIDE.glob("[0-9]*.md"))
    assert [name.partition("_")[0] for name in pages] == [str(step) for step in STEPS]
    for step, name in zip(STEPS, pages, strict=True):
        text = (GUIDE / name).read_text()
        assert f"\nproject: {step}\n" in text
        assert f"{{project-zip}}`{downloads.zip_name(step)}`" in text


def test_the_first_step_is_four_short_files():
    texts = [file.text for file in projects.state(1).values()]
    assert len(texts) == 4
    assert sum(len(text.splitlines()) for text in texts) <= 80


@pytest.mark.parametrize("step", range(1, projects.LAST))
def test_each_step_names_its_build_system(step):
    """Without it, pip before 25.3 builds where torch is missing, if there is wheel."""
    assert "[build-system]" in projects.state(step)["pyproject.toml"].text


def test_step_7_is_the_starter_to_the_byte():
    for name, file in projects.state(projects.WHOLE).items():
        assert file.text == (projects.STARTER / "cpp" / name).read_text(), name


@pytest.mark.parametrize("step", range(2, projects.WHOLE))
def test_a_step_keeps_no_code_of_a_later_one(step):
    text = "".join(file.text for file in projects.state(step).values())
    later = {"parametrize": 3, "register_fake": 4, "opcheck": 4, "gradcheck": 5}
    later |= {"swiglu_backward": 5, "__global__": 6}
    for word, first in later.items():
        assert (word in text) == (step >= first), word
    assert "\n\n\n\n" not in text


def test_the_gpu_page_changes_the_operator_and_adds_one_shared_header():
    now, before = projects.state(6), projects.state(5)
    changed = {
        name for name in now if now[name].text != getattr(before.get(name), "text", "")
    }
    of_the_operator = {"csrc/swiglu.h", "csrc/swiglu.cu", "csrc/swiglu_op.cpp"}
    assert changed == {"csrc/elementwise.h", *of_the_operator}


def test_a_changed_file_shows_its_new_lines_first():
    now, old = projects.state(5), projects.state(4)
    name = "csrc/tensors.h"
    text = "\n".join(steps._fold(name, now[name], old[name], "changed"))
    new, _, whole = text.partition("The whole file")
    assert new.count("literalinclude") == 1
    assert "emphasize-lines: 1,2" in new
    # What readers copy is the file of the download, with its markers.
    assert f":lines: 1-{len(now[name].numbers)}\n:with-markers:" in whole
    shown = projects.shown(5)[now[name].original]
    assert shown.read_text() == now[name].text
    assert steps._with_context({1, 7}, 7) == [range(1, 4), range(7, 8)]
    assert steps._with_context({3, 4, 7}, 20) == [range(3, 10)]


def test_one_file_is_open():
    name, file = next(iter(projects.state(1).items()))
    for is_open in (True, False):
        lines = [*steps._fold(name, file, None, "new", is_open)]
        assert (lines[1] == ":open:") == is_open
        assert "" in lines[1:3]  # the options end here


@pytest.mark.parametrize("step", STEPS)
def test_the_download_has_the_files_of_the_step(step):
    with zipfile.ZipFile(io.BytesIO(steps.zipped(step))) as archive:
        found = {name: archive.read(name).decode() for name in archive.namelist()}
    files = projects.state(step)
    folder = "starter" if step == projects.LAST else f"starter_step_{step}"
    assert found == {f"{folder}/{name}": file.text for name, file in files.items()}
    assert steps.zipped(step) == steps.zipped(step)


@pytest.mark.parametrize(
    ("entry", "wrong", "reason"),
    [
        ('"setup.py" = 2', '"setup.py" = 9', "setup.py at step 9, not 2 to 7"),
        ('"setup.py" = 2', '"lost.py" = 2\n"setup.py" = 2', "differ: lost.py"),
        ("gpu = 6", "gpu = 6\nlost = 3", "no region lost"),
    ],
)
def test_a_table_must_fit(tmp_path, monkeypatch, entry, wrong, reason):
    table = tmp_path / "steps.toml"
    table.write_text(projects.STEPS.read_text().replace(entry, wrong))
    monkeypatch.setattr(projects, "STEPS", table)
    with pytest.raises(ValueError, match=reason):
        projects.state(3)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [(["# [a]"], r"\[a\] has no end"), (["# [a]", "# [/b]"], r"line 2: \[b\] is not")],
)
def test_regions_must_nest(lines, reason):
    with pytest.raises(ValueError, match=reason):
        projects._kept("file", lines, set())


def test_there_is_no_step_10():
    with pytest.raises(ValueError, match="no step 10: the guide has 1 to 8"):
        projects.state(10)
