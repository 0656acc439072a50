"""What setup.py promises of the library it builds."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from pathlib import Path

import forked
import pytest
import setuptools
import torch
from test_toolchain import nvcc, program

from opbook import _C
from proof import build, files

ROOT = Path(__file__).resolve().parents[2]
# A torch for CUDA, as far as setup.py looks: what it declares, as JSON.
DECLARE = """\
import json, os, runpy, sys, torch
torch.version.cuda, sys.argv = "13.0", ["setup.py", "--version"]
torch.cuda._is_compiled, torch.cuda.is_available = lambda: True, lambda: False
declared = runpy.run_path("setup.py")["operators"]()["ext_modules"][0]
from torch.utils import cpp_extension
print(json.dumps({
    "home": cpp_extension.CUDA_HOME,
    "architectures": os.environ["TORCH_CUDA_ARCH_LIST"],
    "libraries": declared.library_dirs,
    "sources": declared.sources,
}))
"""


def python(*arguments, env) -> subprocess.CompletedProcess:
    """Run Python in the repository."""
    return forked.run(arguments, ROOT, env, loaded=("torch",))


def setup(**environment):
    """Run setup.py as far as its decisions; nothing is built."""
    return python("setup.py", "--version", env=os.environ | environment)


def test_no_gpu_source_includes_more_of_torch_than_its_half_types():
    of_the_host = {
        ROOT / "csrc" / f"{name}.h" for name in ("tensors", "rows", "overrides")
    }
    sources = {*ROOT.glob("csrc/**/*.cu"), *ROOT.glob("csrc/**/*.h")} - of_the_host
    for path in sources:
        included = re.findall(r"#include <(torch/.*)>", path.read_text())
        allowed = {"torch/headeronly/util/BFloat16.h", "torch/headeronly/util/Half.h"}
        assert set(included) <= allowed, path


def test_one_library_serves_every_python():
    assert ".abi3." in Path(_C.__file__).name


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm")
def test_the_library_imports_no_cpp_symbol_of_torch():
    command = ["nm", "-DC", "--undefined-only", _C.__file__]
    symbols = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "torch_" in symbols
    assert not re.findall(r" U (?:c10|at|torch)::.*", symbols)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"USE_CUDA": "yes"}, "USE_CUDA must be 0 or 1, but is 'yes'"),
        (
            {"USE_CUDA": "1", "CUDA_HOME": "/nowhere", "ROCM_HOME": "/nowhere"},
            "USE_CUDA=1, but",
        ),
    ],
)
def test_a_contradiction_is_one_line(environment, message):
    finished = setup(**environment)
    assert finished.returncode != 0
    # A CUDA build of torch warns of its own that CUDA_HOME leads nowhere.
    lines = finished.stderr.strip().splitlines()
    (ours,) = [line for line in lines if "cpp_extension.py" not in line]
    assert message in ours


@pytest.fixture
def declare(monkeypatch):
    """Run setup.py with this torch, but for its CUDA: the sources that it declares."""

    def declare(root=ROOT, cuda=None, **environment):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(sys, "argv", ["setup.py", "--version"])
        monkeypatch.delenv("USE_CUDA", raising=False)
        monkeypatch.chdir(root)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        declared = runpy.run_path("setup.py")["operators"]()
        return declared["ext_modules"][0].sources

    return declare


@pytest.fixture
def project(tmp_path):
    """A project of one operator that has no GPU kernel."""
    (tmp_path / "src/opbook").mkdir(parents=True)
    (tmp_path / "csrc/one").mkdir(parents=True)
    for name in ("setup.py", "src/opbook/toolchain.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("csrc/module.cpp", "csrc/one/one_op.cpp"):
        (tmp_path / name).touch()
    return tmp_path


def test_a_build_without_nvcc_says_what_it_leaves_out(declare, capfd):
    sources = declare(cuda="12.6", CUDA_HOME="/nowhere")
    said = "opbook: no GPU kernels will be built: no nvcc found; install the CUDA "
    said += "toolkit 12.8 or a later 12.x, and set CUDA_HOME to it\n"
    assert said in capfd.readouterr().err
    assert "csrc/module.cpp" in sources
    assert not [name for name in sources if name.endswith(".cu")]


@pytest.mark.parametrize("environment", [{"cuda": None}, {"USE_CUDA": "0"}])
def test_nothing_is_said_where_no_gpu_kernels_are_wanted(declare, capfd, environment):
    declare(**{"cuda": "13.0", "CUDA_HOME": "/nowhere"} | environment)
    assert "GPU kernels" not in capfd.readouterr().err


def test_a_toolkit_that_cannot_be_linked_with_is_found_before_the_build(
    declare, tmp_path
):
    nvcc(tmp_path)
    (tmp_path / "lib64/libcudart.so").unlink()
    with pytest.raises(SystemExit, match=r"USE_CUDA=1, but .*no libcudart\.so in"):
        declare(cuda="13.0", CUDA_HOME=str(tmp_path), USE_CUDA="1", PATH="")


def test_a_gpu_build_with_an_nvcc_outside_its_toolkit(tmp_path):
    real = nvcc(tmp_path / "cuda", "13.0", "80", "90")
    program(tmp_path / "bin/nvcc", f'exec {real} "$@"')
    names = ("CUDA_HOME", "CUDA_PATH", "USE_CUDA", "TORCH_CUDA_ARCH_LIST")
    environment = {k: v for k, v in os.environ.items() if k not in names}
    environment["CUDA_VISIBLE_DEVICES"] = ""
    environment["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{environment['PATH']}"
    done = python("-c", DECLARE, env=environment)
    assert not done.returncode, done.stderr
    declared = json.loads(done.stdout.splitlines()[-1])
    assert declared["home"] == str(tmp_path / "cuda")
    assert declared["architectures"] == "8.0;9.0+PTX"
    assert declared["libraries"][0] == str(tmp_path / "cuda/lib64")
    kernels = {str(path.relative_to(ROOT)) for path in ROOT.glob("csrc/*/*.cu")}
    assert kernels <= {*declared["sources"]}


def test_an_operator_without_a_gpu_source_stops_a_gpu_build(declare, project, tmp_path):
    assert declare(project) == ["csrc/module.cpp", "csrc/one/one_op.cpp"]
    nvcc(tmp_path / "cuda")
    with pytest.raises(SystemExit, match=r"^csrc/one: no \.cu file there"):
        declare(project, cuda="13.0", CUDA_HOME=str(tmp_path / "cuda"))


def test_copies_that_torch_writes_for_rocm_are_no_sources(declare, project):
    before = declare(project)
    (project / "csrc/one/one_op_hip.cpp").touch()
    assert declare(project) == before


@pytest.mark.parametrize("name", ["x_op.cpp", "x.cu", "one/more/x_op.cpp"])
def test_a_source_that_would_not_be_compiled_stops_the_build(declare, project, name):
    path = project / "csrc" / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    with pytest.raises(SystemExit, match=f"^csrc/{name}: not in a folder csrc/NAME/"):
        declare(project)


@pytest.mark.parametrize(
    ("package", "version", "least"),
    [(setuptools, "65.5.0", "77.0.3"), (torch, "2.10.1+cu128", "2.11")],
)
def test_what_is_too_old_to_build_with(declare, monkeypatch, package, version, least):
    monkeypatch.setattr(package, "__version__", version)
    name = package.__name__
    said = f"opbook needs {name} {least} or later, but has {version}: python -m pip"
    with pytest.raises(SystemExit, match=f"^{re.escape(said)} [^\n]*$"):
        declare()


def test_the_source_distribution_is_complete_and_builds(tmp_path):
    # egg_info: its list of files would otherwise begin with those of an older one.
    command = f"setup.py -q egg_info --egg-base {tmp_path} sdist --dist-dir {tmp_path}"
    done = python(*command.split(), env={**os.environ})
    assert not done.returncode, done.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path)
    folder = tmp_path / archive.name.removesuffix(".tar.gz")
    inside = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    kept = [
        *ROOT.glob("csrc/**/*.*"),
        *ROOT.glob("tests/*.*"),
        *ROOT.glob("src/**/*.py"),
    ]
    assert {str(path.relative_to(ROOT)) for path in kept} <= inside
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE"} <= inside
    # One operator is built: all of them would take a minute.
    for path in (folder / "csrc").iterdir():
        if path.is_dir() and path.name != "linear_gelu":
            shutil.rmtree(path)
    command = f"-m pip wheel -q --no-build-isolation --no-deps -w {tmp_path} {folder}"
    subprocess.run(
        [sys.executable, *command.split()],
        env=os.environ | {"USE_CUDA": "0", "DEBUG": "1"},
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert "opbook/_C.abi3.so" in zipfile.ZipFile(wheel).namelist()


def test_a_copy_does_not_take_the_library_of_its_original(monkeypatch, tmp_path):
    assert build._is_found("opbook")
    monkeypatch.setattr(files, "ROOT", tmp_path)
    assert not build._is_found("opbook")


NINJA = """\
rule compile
  command = c++ -c $in -o $out
build good.o: compile good.cpp
build bad.o: compile bad.cpp
build worse.o: compile worse.cpp
"""


@pytest.mark.parametrize("sources", [("good",), ("good", "bad", "worse")])
def test_a_failed_build_says_what_the_compiler_said(tmp_path, sources):
    (tmp_path / "build.ninja").write_text(NINJA)
    for name in ("good", "bad", "worse"):
        (tmp_path / f"{name}.cpp").write_text(f"int {name} = {name}_number;\n")
    (tmp_path / "good.cpp").write_text("int good = 1;\n")
    objects = [f"{name}.o" for name in sources]
    command = ["ninja", "-v", "-k0", *objects]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    # As pip shows it, in the middle of much else.
    said = build.by_compiler(f"one\n{textwrap.indent(done.stdout, '      ')}two\n")
    errors = re.findall(r"^(\w+)\.cpp:1:\d+: error", said, re.MULTILINE)
    assert sorted(errors) == sorted(set(sources) - {"good"})
    assert not re.search("one|two|ninja|FAILED", said)
