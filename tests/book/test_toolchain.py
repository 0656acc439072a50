"""opbook.toolchain finds what is there, in the order it says, and can hide it."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from opbook import toolchain

ROOT = Path(__file__).resolve().parents[2]
# Where no toolkit is: those in the usual folders of this machine must not count.
NOWHERE = {"CUDA_HOME": "/nowhere", "ROCM_HOME": "/nowhere"}


def program(path: Path, script: str = "") -> str:
    """An executable file at this path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def nvcc(home: Path, release: str = "13.0", *architectures: str) -> str:
    """An nvcc that knows its version and its folder, with a library beside it."""
    (home / "lib64").mkdir(parents=True, exist_ok=True)
    (home / "lib64" / "libcudart.so").touch()
    known = " ".join(f"compute_{name}" for name in architectures)
    answers = (
        f'--version) echo "Cuda compilation tools, release {release}, V{release}.1";; '
        f'--dryrun) echo "#$ TOP={home}/bin/.." >&2;; '
        f"--list-gpu-arch) echo {known};;"
    )
    return program(home / "bin" / "nvcc", f'case "$1" in {answers} esac')


def test_the_least_versions_are_those_that_pip_reads():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    required = {f"{name}>={least}" for name, least in toolchain.LEAST.items()}
    assert required == {*project["build-system"]["requires"]}
    assert f"torch>={toolchain.LEAST['torch']}" in project["project"]["dependencies"]


def test_the_numbers_of_a_version_are_those_of_the_release():
    assert toolchain.numbers("2.13.0+cu130") == (2, 13, 0)


def test_it_can_be_loaded_where_nothing_is_installed(tmp_path):
    shutil.copy(toolchain.__file__, tmp_path)
    command = "import toolchain; print(toolchain.find('sh'))"
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path[:0] = ['.']; {command}",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == shutil.which("sh"), done.stderr


# Looking up.


def test_cxx_decides(tmp_path):
    for name in ("c++", "g++", "mine"):
        program(tmp_path / name)
    path = {"PATH": str(tmp_path)}
    assert toolchain.find("c++", path) == str(tmp_path / "c++")
    assert toolchain.find("c++", path | {"CXX": ""}) == str(tmp_path / "c++")
    assert toolchain.find("c++", path | {"CXX": "mine -m64"}) == str(tmp_path / "mine")
    assert toolchain.find("c++", path | {"CXX": "gone"}) is None
    (tmp_path / "c++").unlink()
    assert toolchain.find("c++", path) is None  # PyTorch would not look for g++ either


def test_cuda_home_decides(tmp_path):
    on_path, chosen = nvcc(tmp_path / "a"), nvcc(tmp_path / "b")
    environment = {"PATH": str(tmp_path / "a/bin")}
    assert toolchain.find("nvcc", environment) == on_path
    for name in ("CUDA_HOME", "CUDA_PATH"):
        there = environment | {name: str(tmp_path / "b")}
        assert toolchain.find("nvcc", there) == chosen
    assert toolchain.find("nvcc", environment | NOWHERE) is None
    assert toolchain.cuda_home(environment | NOWHERE) is None


@pytest.mark.parametrize("kind", ["script", "link"])
def test_an_nvcc_outside_its_toolkit(tmp_path, kind):
    real, outside = nvcc(tmp_path / "cuda"), tmp_path / "usr/bin/nvcc"
    if kind == "script":
        program(outside, f'exec {real} "$@"')
    else:
        outside.parent.mkdir(parents=True)
        outside.symlink_to(real)
    environment = {"PATH": str(outside.parent)}
    assert toolchain.cuda_home(environment) == tmp_path / "cuda"
    assert toolchain.find("nvcc", environment) == real


@pytest.mark.skipif(toolchain.find("nvcc") is None, reason="needs nvcc")
def test_the_nvcc_that_is_here_has_its_headers():
    home = toolchain.cuda_home()
    folders = [home / "include", *home.glob("targets/*/include"), Path("/usr/include")]
    assert any((folder / "cuda_runtime.h").is_file() for folder in folders)
    assert toolchain.numbers(toolchain.release(toolchain.find("nvcc"))) >= (11,)


def test_tools_that_triton_brings(tmp_path, monkeypatch):
    bundled = program(tmp_path / "triton/backends/nvidia/bin/nvdisasm")
    (tmp_path / "triton" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    environment = NOWHERE | {"PATH": str(tmp_path / "bin")}
    assert toolchain.find("nvdisasm", environment) == bundled
    own = program(tmp_path / "bin" / "nvdisasm")
    assert toolchain.find("nvdisasm", environment) == own


def test_rocm_from_pip_packages(tmp_path, monkeypatch):
    brought = program(tmp_path / "_rocm_sdk_core/bin/hipcc")
    (tmp_path / "_rocm_sdk_core" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    environment = {"PATH": str(tmp_path / "bin")}
    program(tmp_path / "bin" / "hipcc")
    assert toolchain.find("hipcc", environment) == brought
    assert toolchain.find("hipcc", environment | NOWHERE) is None
    chosen = program(tmp_path / "rocm/bin/hipcc")
    for name in ("ROCM_HOME", "ROCM_PATH"):
        there = environment | {name: str(tmp_path / "rocm")}
        assert toolchain.find("hipcc", there) == chosen


def test_rocm_is_where_hipcc_on_the_path_lies(tmp_path):
    there = program(tmp_path / "rocm-7/bin/hipcc")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "hipcc").symlink_to(there)
    environment = {"PATH": str(tmp_path / "bin")}
    assert toolchain.rocm_home(environment) == tmp_path / "rocm-7"
    assert toolchain.find("hipcc", environment) == str(there)


def test_rocms_clang_goes_first(tmp_path):
    other = program(tmp_path / "bin" / "clang++-20")
    environment = {"PATH": str(tmp_path / "bin"), "ROCM_PATH": str(tmp_path / "rocm")}
    assert toolchain.find("clang", environment) == other
    own = program(tmp_path / "rocm/lib/llvm/bin/clang++")
    assert toolchain.find("clang", environment) == own


# What a build needs.


def test_a_toolkit_that_fits(tmp_path):
    nvcc(tmp_path, "13.2")
    environment = {"PATH": "", "CUDA_HOME": str(tmp_path)}
    assert toolchain.gpu_fault("cuda", "13.0", environment) is None


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        ("13.0", "install the CUDA toolkit 13.x, and"),
        ("12.6", "install the CUDA toolkit 12.8 or a later 12.x, and"),
    ],
)
def test_no_nvcc(version, remedy):
    fault, found = toolchain.gpu_fault("cuda", version, NOWHERE)
    assert fault == "no nvcc found"
    assert found.startswith(remedy)


def test_an_nvcc_of_another_major_version(tmp_path):
    nvcc(tmp_path, "12.4")
    environment = {"PATH": "", "CUDA_HOME": str(tmp_path)}
    fault, _ = toolchain.gpu_fault("cuda", "13.0", environment)
    assert "nvcc is of CUDA 12.4, torch of CUDA 13.0" in fault


@pytest.mark.parametrize("place", ["lib64", "lib", "targets/x86_64-linux/lib", None])
def test_the_library_that_gpu_code_is_linked_with(tmp_path, place):
    nvcc(tmp_path)
    shutil.rmtree(tmp_path / "lib64")
    environment = {"PATH": "", "CUDA_HOME": str(tmp_path)}
    if place:
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "libcudart.so").touch()
        assert toolchain.cudart(tmp_path, environment) == tmp_path / place
        assert toolchain.gpu_fault("cuda", "13.0", environment) is None
    else:
        fault, remedy = toolchain.gpu_fault("cuda", "13.0", environment)
        assert fault.endswith(f"libcudart.so in {tmp_path}/lib64 or {tmp_path}/lib")
        assert remedy.startswith("install cuda-cudart-dev")


@pytest.mark.skipif(toolchain.find("c++") is None, reason="needs a C++ compiler")
def test_a_library_that_the_linker_finds_by_itself(tmp_path, monkeypatch):
    (tmp_path / "libcudart.so").touch()
    monkeypatch.setenv("LIBRARY_PATH", str(tmp_path))
    assert toolchain.cudart(tmp_path / "none").samefile(tmp_path)


@pytest.mark.parametrize(
    ("known", "chosen"),
    [
        (("80", "86", "90", "100", "120"), "8.0;9.0;10.0+PTX"),
        (("80", "90"), "8.0;9.0+PTX"),
        ((), "8.0;9.0;10.0+PTX"),  # an nvcc that does not say
    ],
)
def test_the_architectures_that_an_nvcc_knows(tmp_path, known, chosen):
    assert toolchain.architectures(nvcc(tmp_path, "13.0", *known)) == chosen


def test_rocm(tmp_path):
    environment = {"PATH": "", "ROCM_HOME": str(tmp_path)}
    fault, remedy = toolchain.gpu_fault("hip", "7.0.51831", environment)
    assert (fault, "ROCM_HOME" in remedy) == ("no hipcc found", True)
    program(tmp_path / "bin" / "hipcc", "echo HIP version: 6.4.4")
    fault, _ = toolchain.gpu_fault("hip", "7.0.51831", environment)
    assert "hipcc is of ROCm 6.4.4, torch of ROCm 7.0.51831" in fault
    assert toolchain.gpu_fault("hip", "6.4.1", environment) is None


# Hiding.


def test_hidden_tools_are_found_by_nobody(tmp_path):
    hidden = toolchain.hidden(("nvcc", "clang"), tmp_path, os.environ)
    for name in ("nvcc", "hipcc", "clang"):
        assert toolchain.find(name, hidden) is None
    for name in ("nvcc", "ptxas", "hipcc", "clang++", *toolchain.CLANGS):
        assert toolchain.which(name, hidden) is None
    ask = (
        "from torch.utils import cpp_extension as c; import shutil; "
        "print(shutil.which('nvcc'), shutil.which(f'{c.CUDA_HOME}/bin/nvcc'))"
    )
    said = subprocess.check_output([sys.executable, "-c", ask], env=hidden, text=True)
    assert said.split() == ["None", "None"]


def test_the_other_tools_stay(tmp_path):
    folder = tmp_path / "bin"
    for name in ("nvcc", "ptxas", "clang-19", "clang-format", "g++"):
        program(folder / name, f"echo {name}")
    environment = {"PATH": f"{folder}{os.pathsep}/nowhere"}
    without = toolchain.hidden(["nvcc"], tmp_path / "links", environment)
    assert toolchain.which("nvcc", without) is None
    for name in ("clang-19", "clang-format", "g++"):
        found = toolchain.which(name, without)
        assert subprocess.check_output([found], text=True).strip() == name
    again = toolchain.hidden(["clang"], tmp_path / "links", environment)
    assert toolchain.which("clang-19", again) is None
    assert toolchain.which("clang-format", again)
    assert toolchain.which("nvcc", again)


def test_what_cannot_be_hidden_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"can hide nvcc and clang, but not g\+\+"):
        toolchain.hidden(["nvcc", "g++"], tmp_path, os.environ)
