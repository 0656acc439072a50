"""Each gallery script where a reader downloads it: alone in an empty folder."""

import re
import shutil
from pathlib import Path

import pytest

from alone import run, without_library

ROOT = Path(__file__).resolve().parents[2]
GALLERY = ROOT / "examples_src"
SCRIPTS = sorted([*GALLERY.glob("[0-9]*.py"), *GALLERY.glob("benchmarks/[0-9]*.py")])
SKIPPED = 77
# What runs without anything of the repository.
ALONE = {
    "00_add_an_operator",
    "02_one_source_for_cuda_and_hip",
    "04_package_an_operator",
    "06_tests_that_find_a_fault",
    "08_register_and_look_up",
    "12_a_gradient_and_its_double",
    "14_update_in_place",
    "16_a_row_reduction_with_two_results",
    "18_rules_for_vmap_and_autocast",
    "20_rms_norm_in_triton",
    "22_profile_a_triton_operator",
    "40_cost_of_a_binding",
    "74_dropout_with_a_seed",
    "82_override_an_aten_operator",
    "84_two_libraries_one_namespace",
}
# What needs no compiled library runs with it when the site is built.
IN_TRITON = {"70_autotune_in_triton", "72_fused_linear_gelu_in_triton"}
IN_TRITON |= {"76_triton_ahead_of_time"}
# What runs beside the package, if a compiler is there.
WITH_COMPILER = {"32_fast_math_and_architectures"}
NEED = [script for script in SCRIPTS if script.stem not in ALONE]
# Without --all, a script runs in examples_src/, and here it says that the package is
# missing.
RUNS = ALONE | WITH_COMPILER
CASES = [
    pytest.param(
        packages,
        script,
        marks=pytest.mark.all if packages == "not built" or script.stem in RUNS else (),
    )
    for packages, scripts in (("not installed", SCRIPTS), ("not built", NEED))
    for script in scripts
]
CASES += [
    pytest.param("installed", script, marks=pytest.mark.all)
    for script in NEED
    if script.stem not in IN_TRITON
]


@pytest.fixture(scope="module")
def packages(request, tmp_path_factory) -> Path:
    """What Python finds: no package, only its Python files, or all of it."""
    if request.param == "installed":
        return ROOT / "src"
    folder = tmp_path_factory.mktemp("packages")
    if request.param == "not built":
        return without_library(folder)
    # The environment of the tests has the package: hide it.
    missing = "raise ModuleNotFoundError(\"No module named 'opbook'\")\n"
    (folder / "opbook.py").write_text(missing)
    return folder


@pytest.mark.parametrize(
    ("packages", "script"),
    CASES,
    indirect=["packages"],
    ids=lambda value: getattr(value, "stem", value),
)
def test_a_downloaded_script_runs_or_says_what_it_needs(
    script, packages, tmp_path, monkeypatch
):
    shutil.copy(script, tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    done = run(tmp_path, packages, script.name)
    if script.stem in ALONE or done.returncode == 0:
        assert done.returncode == 0, done.stdout + done.stderr
        return
    assert done.returncode == SKIPPED, done.stdout + done.stderr
    (line,) = done.stdout.splitlines()
    assert re.match(r"skipped: needs \S+", line)
    assert not done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_says_at_its_top_what_it_needs(script):
    docstring = script.read_text().split('"""')[1]
    assert re.search(r"^It needs \w+", docstring, re.MULTILINE)
