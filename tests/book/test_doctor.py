"""opbook doctor names every fault that is planted, and none where there is none."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch.utils import cpp_extension

import opbook

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools" / "src"
sys.path.append(str(TOOLS))
from opbook_tools import doctor  # noqa: E402  found through the line above
from opbook_tools.doctor import OK, PROBLEM, WARNING, Machine  # noqa: E402

FAKE_TORCH = """\
import sys, types
from . import version

__version__ = version.__version__
_C = types.SimpleNamespace(
    _GLIBCXX_USE_CXX11_ABI=True, _dispatch_get_all_op_names=lambda: ["opbook::one"]
)
cuda = types.SimpleNamespace(is_available=lambda: False)
ops = types.SimpleNamespace(opbook=None)
"""
PACKAGE = Path(opbook.__file__).parent
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
CPU = {"version": "2.13.0+cpu"}
CUDA = {"version": "2.13.0+cu130", "cuda": "13.0"}
ROCM = {"version": "2.13.0+rocm7.0", "hip": "7.0.51831"}
H200 = {"built_for": ["sm_80", "sm_90"], "gpus": [["NVIDIA H200", "9.0"]]}


def machine(environment=None, build=CPU, says=None, package=PACKAGE, **known):
    """A machine of which some facts are given; the others are looked up."""
    made = Machine({"PATH": "", "HOME": "/nowhere"} | (environment or {}), package)
    known |= {"torch_build": build, "torch_says": {"cxx11": True} | (says or {})}
    vars(made).update(known)  # where a cached property keeps its value
    return made


MAKES = 'case "$*" in *" -o "*) for made; do :; done; : > "$made" ;; esac'


def program(path, text):
    """A command that prints a text and makes an empty file, in place of a real one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{text}'\n{MAKES}\n")
    path.chmod(0o755)
    return path


def targets(chosen):
    """What torch makes of a TORCH_CUDA_ARCH_LIST."""
    with mock.patch.dict(os.environ, TORCH_CUDA_ARCH_LIST=chosen):
        flags = cpp_extension._get_cuda_arch_flags() if chosen else []
    return re.findall(r",code=(\w+)", " ".join(flags))


def faults(findings):
    return [finding for finding in findings if finding.level != OK]


def only_problem(findings):
    """The one fault, a problem with a remedy."""
    (fault,) = faults(findings)
    assert fault.level == PROBLEM
    assert fault.remedy
    return fault.text


@pytest.fixture
def cache(tmp_path):
    """A cache with one extension in it that nobody else can touch."""
    (tmp_path / "cache" / "mine").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "cache", tmp_path / "cache" / "mine"):
        folder.chmod(0o700)
    return tmp_path / "cache"


@pytest.fixture
def copy(tmp_path):
    """The package without its library, and a torch that says what it is told to."""
    package = tmp_path / "opbook"
    package.mkdir()
    shutil.copy(PACKAGE / "doctor.py", package)
    (package / "__init__.py").write_text("import opbook._C\n")
    torch = tmp_path / "path" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text(FAKE_TORCH)
    (torch / "version.py").write_text("__version__ = '2.13.0+cpu'\ncuda = None\n")
    (tmp_path / "cache").mkdir(mode=0o700)
    return tmp_path


def build(folder, module=""):
    """Give `copy` a library: a file of that name, and a module for the import."""
    (folder / "opbook" / "_C.built.so").touch()
    (folder / "opbook" / "_C.py").write_text(module)


def run(folder, **environment):
    """The doctor of `copy`, run by its path: its status and what it printed."""
    environment = os.environ | {
        "PYTHONPATH": f"{folder / 'path'}:{TOOLS}",
        "TORCH_EXTENSIONS_DIR": str(folder / "cache"),
        **environment,
    }
    command = [sys.executable, str(folder / "opbook" / "doctor.py")]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert not done.stderr
    return done.returncode, " ".join(done.stdout.split())


# The whole screen, in a process of its own.


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_a_healthy_machine_has_no_problem(copy):
    build(copy)
    status, screen = run(copy)
    assert "opbook/_C.built.so): 1 operators" in screen
    assert screen.endswith("No problem found.")
    assert status == 0


def test_it_runs_where_the_package_cannot_be_imported(copy):
    failed = subprocess.run(
        [sys.executable, "-c", "import opbook"], cwd=copy, capture_output=True
    )
    assert failed.returncode
    status, screen = run(copy)
    assert "problem opbook._C is not built" in screen
    assert "1 thing will not work." in screen
    assert status == 1


def test_a_library_for_another_torch_is_named(copy):
    build(copy, "raise ImportError('_C.abi3.so: undefined symbol: _ZN3c105ErrorE')\n")
    status, screen = run(copy)
    assert (
        "it was built for another torch: ImportError: _C.abi3.so: undefined" in screen
    )
    assert status == 1


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("raise ImportError('_C.abi3.so: file too short')\n", "file too short"),
        ("import os\nos.kill(os.getpid(), 11)\n", "killed by signal 11"),
    ],
)
def test_a_library_that_is_broken_is_not_blamed_on_torch(copy, module, text):
    build(copy, module)
    status, screen = run(copy)
    assert f"opbook._C ({copy}/opbook/_C.built.so): it does not load: " in screen
    assert text in screen
    assert "ok torch 2.13.0+cpu" in screen
    assert status == 1


def test_a_library_for_another_python_is_named(copy):
    (copy / "opbook" / "_C.cpython-399-x86_64-linux-gnu.so").touch()
    status, screen = run(copy)
    assert "it was built for another Python: this one loads .cpython-3" in screen
    assert status == 1


def test_the_import_error_names_the_doctor(copy):
    shutil.copy(PACKAGE / "__init__.py", copy / "opbook")
    failed = subprocess.run(
        [sys.executable, "-c", "import opbook; opbook.rms_norm"],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy / "path")},
        capture_output=True,
        text=True,
    )
    assert "opbook.rms_norm is written in C++" in failed.stderr
    assert "No module named 'opbook._C'" in failed.stderr
    assert f"run: python {copy}/opbook/doctor.py" in failed.stderr


def test_it_runs_where_there_are_no_users_and_groups(copy):
    build(copy)
    (copy / "path" / "sitecustomize.py").write_text(
        "import os, sys\n"
        "sys.modules['grp'] = sys.modules['pwd'] = None\n"
        "del os.getuid\n"
    )
    status, screen = run(copy)
    assert "JIT cache" in screen or "TORCH_EXTENSIONS_DIR" in screen
    assert status == 0


def test_a_folder_that_was_deleted(copy, tmp_path):
    build(copy)
    gone = tmp_path / "gone"
    gone.mkdir()
    command = 'cd "$1" && rmdir "$1" && exec "$2" "$3"'
    script = str(copy / "opbook" / "doctor.py")
    done = subprocess.run(
        ["sh", "-c", command, "sh", str(gone), sys.executable, script],
        env=os.environ | {"PYTHONPATH": str(TOOLS)},
        capture_output=True,
        text=True,
    )
    assert "problem  the folder that this runs in was deleted" in done.stdout
    assert (done.returncode, done.stderr) == (1, "")


def test_a_torch_that_cannot_be_imported_is_named(copy):
    build(copy)
    (copy / "path/torch/__init__.py").write_text("raise OSError('libc10.so: gone')\n")
    status, screen = run(copy)
    assert "it cannot be imported: OSError: libc10.so: gone" in screen
    assert status == 1


def test_variables_that_lead_the_loader_astray(copy):
    build(copy)
    source = (
        "import os\nif os.environ.get('LD_LIBRARY_PATH'): raise OSError('GLIBCXX')\n"
    )
    (copy / "path/torch/__init__.py").write_text(source + FAKE_TORCH)
    status, screen = run(copy, LD_LIBRARY_PATH="/opt/old/lib", LD_PRELOAD="")
    assert "cannot be imported: OSError: GLIBCXX" in screen
    assert "unset LD_LIBRARY_PATH=/opt/old/lib: without, torch can be" in screen
    assert status == 1
    (copy / "path/torch/__init__.py").write_text("raise OSError('GLIBCXX')\n")
    assert "install torch again" in run(copy, LD_LIBRARY_PATH="/opt/old/lib")[1]


@pytest.mark.parametrize("source", ["os._exit(0)", "print('[[1, 2]]'); os._exit(1)"])
def test_a_torch_that_ends_the_process_is_named(copy, source):
    build(copy)
    (copy / "path/torch/__init__.py").write_text(f"import os; {source}\n")
    status, screen = run(copy)
    assert "it cannot be imported" in screen
    assert status == 1


def test_a_torch_with_a_damaged_version_file(copy):
    known = Machine({})
    file = copy / "path" / "torch" / "version.py"
    file.write_bytes(b"__version__ = '2.13.0'\n\xff\xfe")
    vars(known)["torch_folder"] = file.parent
    assert known.torch_build == {"version": "2.13.0"}


def test_a_version_file_that_is_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "version.py")
    found = Machine({})
    vars(found)["torch_folder"] = tmp_path
    assert found.torch_build == {}


def test_no_compiler_on_the_path(copy):
    build(copy)
    status, screen = run(copy, PATH=str(copy), CXX="")
    assert "no C++ compiler (c++): nothing can be built -> install g++" in screen
    assert status == 1


# One check each.


def test_python_without_its_headers(monkeypatch, tmp_path):
    assert not faults(doctor.check_python(machine()))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    assert "no Python.h" in only_problem(doctor.check_python(machine()))


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ({"build": {}, "torch_file": None}, "torch is not installed"),
        ({"build": {}, "torch_file": Path("/x/torch.py")}, "/x/torch.py is imported"),
        ({"build": {"version": "2.9.1+cpu"}}, "opbook needs 2.11 or later"),
        ({"says": {"error": "killed by signal 11"}}, "killed by signal 11"),
    ],
)
def test_torch_that_is_missing_old_or_broken(known, text):
    assert text in only_problem(doctor.check_torch(machine(**known)))


@pytest.mark.parametrize("suffix", [".cpython-399-x86_64-linux-gnu.so", SUFFIX])
def test_torch_for_another_python(tmp_path, suffix):
    (tmp_path / f"_C{suffix}").touch()
    found = machine(says={"error": "or by running Python"}, torch_folder=tmp_path)
    text = only_problem(doctor.check_torch(found))
    assert text.endswith(f"({suffix})" if "399" in suffix else "or by running Python")


def test_the_version_of_torch_is_read_without_an_import(copy):
    assert Machine().torch_build["version"] == torch.__version__
    known = Machine({})
    file = copy / "path" / "torch" / "version.py"
    file.write_text(
        "from typing import Optional\n__version__ = '2.12.1+cu126'\ndebug = False\n"
        "cuda: Optional[str] = '12.6'\nhip: Optional[str] = None\n"
    )
    vars(known)["torch_folder"] = file.parent
    assert known.torch_build == {"version": "2.12.1+cu126", "cuda": "12.6"}
    assert (known.torch_version, known.gpu_kind) == ((2, 12), "cuda")


def test_a_compiler_that_is_named_and_not_there():
    found = machine({"CXX": "/nowhere/g++-99"})
    assert "CXX=/nowhere/g++-99: not found" in only_problem(
        doctor.check_cpp_compiler(found)
    )


def test_a_compiler_under_another_name_is_offered(tmp_path):
    program(tmp_path / "g++", "g++ 12")
    (fault,) = doctor.check_cpp_compiler(machine({"PATH": str(tmp_path)}))
    assert fault.remedy == "set CXX=g++"


def test_a_compiler_that_is_too_old(tmp_path):
    old = program(tmp_path / "c++", "g++ (GCC) 4.8.5")
    old.write_text('#!/bin/sh\necho "g++ (GCC) 4.8.5"\n[ "$1" = --version ]\n')
    found = only_problem(doctor.check_cpp_compiler(machine({"PATH": str(tmp_path)})))
    assert found.startswith("g++ (GCC) 4.8.5 does not compile C++20")


def test_a_compiler_that_makes_no_file(tmp_path):
    none = program(tmp_path / "c++", "")
    none.write_text("#!/bin/sh\necho g++ 14\n")
    found = only_problem(doctor.check_cpp_compiler(machine({"PATH": str(tmp_path)})))
    assert found.endswith("no file is made, and its status is 0")
    program(none, "g++ 14")
    assert not faults(doctor.check_cpp_compiler(machine({"PATH": str(tmp_path)})))


FLAGS = (
    """for one; do [ "$one" = -march=k99 ] && echo "bad value k99" && exit 1; done"""
)


@pytest.mark.parametrize("name", ["CFLAGS", "CPPFLAGS", "LDFLAGS"])
def test_flags_that_the_compiler_refuses(tmp_path, name):
    made = program(tmp_path / "c++", "g++ 14")
    made.write_text(made.read_text().replace("echo", f"{FLAGS}\necho", 1))
    environment = {"PATH": str(tmp_path), name: "-O2 -march=k99"}
    found = [*doctor.check_cpp_compiler(machine(environment))]
    if name == "LDFLAGS":
        assert not faults(found)
    else:
        assert only_problem(found).endswith("(-O2 -march=k99): bad value k99")
    for right in ("-O2 -march=k8", '-DNAME="a b"', 'an odd "'):
        environment[name] = right
        assert not faults(doctor.check_cpp_compiler(machine(environment)))


def test_missing_build_tools(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: "")
    problem, warning = doctor.check_build_tools(machine())
    assert (problem.level, warning.level) == (PROBLEM, WARNING)
    assert "no setuptools" in problem.text
    assert "no ninja" in warning.text


def test_ninja_has_to_be_on_the_path(tmp_path):
    (warning,) = faults(doctor.check_build_tools(machine()))
    assert (warning.level, warning.text[:20]) == (WARNING, "ninja is not on PATH")
    assert warning.remedy.startswith("activate the environment")
    program(tmp_path / "ninja", "1.13.0")
    assert not faults(doctor.check_build_tools(machine({"PATH": str(tmp_path)})))
    (tmp_path / "ninja").write_text("#!/bin/sh\necho undefined symbol; exit 127\n")
    (warning,) = faults(doctor.check_build_tools(machine({"PATH": str(tmp_path)})))
    assert "ninja does not run (undefined symbol)" in warning.text


@pytest.mark.parametrize(
    ("jobs", "text"),
    [
        ("0", "no limit"),
        ("abc", "ignores it"),
        ("-1", "ignores it"),
        ("8", ""),
    ],
)
def test_max_jobs(tmp_path, jobs, text):
    program(tmp_path / "ninja", "1.13.0")
    environment = {"PATH": str(tmp_path), "MAX_JOBS": jobs}
    found = faults(doctor.check_build_tools(machine(environment)))
    assert [f"MAX_JOBS={jobs}: " in f.text and text in f.text for f in found] == (
        [True] if text else []
    )


@pytest.mark.parametrize(
    ("version", "old"), [("65.5.0", True), ("77.0.2", True), ("77.0.3", False)]
)
def test_setuptools_that_is_too_old(monkeypatch, tmp_path, version, old):
    monkeypatch.setattr(doctor, "_version", {"setuptools": version}.get)
    program(tmp_path / "ninja", "1.13.0")
    findings = [*doctor.check_build_tools(machine({"PATH": str(tmp_path)}))]
    if old:
        text = only_problem(findings)
        assert (
            text
            == f"setuptools {version}: opbook and projects of `opbook new` need 77.0.3"
        )
    else:
        assert not faults(findings)


@pytest.mark.parametrize(("release", "fits"), [("13.2", True), ("12.6", False)])
def test_the_major_versions_of_nvcc_and_torch(tmp_path, release, fits):
    text = f"Cuda compilation tools, release {release}, V{release}.88"
    program(tmp_path / "bin" / "nvcc", text)
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libcudart.so").touch()
    findings = [
        *doctor.check_gpu_compiler(machine({"CUDA_HOME": str(tmp_path)}, build=CUDA))
    ]
    if fits:
        assert not faults(findings)
    else:
        found = only_problem(findings)
        assert f"nvcc is of CUDA {release}, torch of CUDA 13.0" in found


def toolkit(folder, script):
    """A CUDA toolkit whose nvcc is this shell script."""
    nvcc = program(folder / "bin" / "nvcc", "")
    nvcc.write_text(f"#!/bin/sh\n{script}\n")
    (folder / "lib64").mkdir()
    (folder / "lib64" / "libcudart.so").touch()
    return {"CUDA_HOME": str(folder)}


NVCC = """case "$*" in
  *--list-gpu-arch*) printf 'compute_80\\ncompute_90\\ncompute_90a\\n' ;;
  *--version*) echo release 13.0 ;;
  *) {} ;;
esac"""


@pytest.mark.parametrize(
    ("chosen", "arch", "unknown"),
    [
        ("", "9.0", ""),
        ("", "12.0", "12.0"),
        ("9.0+PTX", "12.0", ""),
        ("8.0;9.0a", "9.0", ""),
        ("8.0;10.3+PTX", "9.0", "10.3"),
        ("Volta;Hopper", "9.0", "7.0"),
        ("Ampere;Hopper", "9.0", "8.6"),
    ],
)
def test_nvcc_is_asked_which_architectures_it_knows(tmp_path, chosen, arch, unknown):
    environment = toolkit(tmp_path, NVCC.format(MAKES))
    environment |= {"TORCH_CUDA_ARCH_LIST": chosen}
    says = {"gpus": [["NVIDIA GPU", arch]], "targets": targets(chosen)}
    found = [*doctor.check_gpu_compiler(machine(environment, build=CUDA, says=says))]
    if unknown:
        text = only_problem(found)
        assert f"nvcc 13.0 ({tmp_path}/bin/nvcc) does not know {unknown}" in text
    else:
        assert not faults(found)
        assert len(found) == 1


@pytest.mark.parametrize(
    ("says", "remedy"),
    [
        ("x.h:137:2: error: #error -- unsupported GNU version!", "install a compiler"),
        ('y.h(79): error: exception specification of "cospi"', "glibc is newer"),
        ("nvcc fatal: Failed to preprocess host compiler", "see whether nvcc compiles"),
        ("no file is made, and its status is 0", "see whether nvcc compiles"),
    ],
)
def test_nvcc_and_the_compiler_and_libc_of_the_host(tmp_path, says, remedy):
    status = 0 if says.endswith("0") else 1
    script = NVCC.format(f"echo Warning; echo '{says}'; exit {status}")
    environment = toolkit(tmp_path, script)
    (fault,) = faults(doctor.check_gpu_compiler(machine(environment, build=CUDA)))
    assert fault.level == PROBLEM
    assert "compiles nothing here" in fault.text
    assert says in fault.text or "fatal" in says
    assert fault.remedy.startswith(remedy)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_the_nvcc_of_this_machine_compiles():
    found = machine(dict(os.environ), build=CUDA)
    assert not [*doctor._nvcc_faults(found, "nvcc")]
    refused = "-Xcompiler=-U__GNUC__,-D__GNUC__=99"
    found = machine({**os.environ, "NVCC_APPEND_FLAGS": refused}, build=CUDA)
    (fault,) = doctor._nvcc_faults(found, "nvcc")
    assert "unsupported GNU version" in fault.text
    assert "set CC and CXX" in fault.remedy


def test_a_flag_of_nvcc_that_is_in_a_variable(tmp_path):
    environment = toolkit(tmp_path, NVCC.format("echo no such file; exit 1"))
    environment["NVCC_PREPEND_FLAGS"] = "-ccbin g++-9"
    (fault,) = faults(doctor.check_gpu_compiler(machine(environment, build=CUDA)))
    assert fault.remedy == "look at NVCC_PREPEND_FLAGS, which nvcc reads"


@pytest.mark.parametrize("chosen", ["old", "right/bin", "nowhere"])
def test_a_toolkit_that_would_fit_is_named(monkeypatch, tmp_path, chosen):
    monkeypatch.setattr(doctor, "TOOLKITS", tmp_path)
    toolkit(tmp_path / "old", "echo release 12.6")
    other = {"PATH": f"{tmp_path}/old/bin:{tmp_path}/right/bin"}
    other["CUDA_HOME"] = str(tmp_path / chosen)
    (fault,) = doctor.check_gpu_compiler(machine(other, build=CUDA))
    assert "install the CUDA toolkit 13.x" in fault.remedy
    toolkit(tmp_path / "right", NVCC.format(MAKES))
    (fault,) = doctor.check_gpu_compiler(machine(other, build=CUDA))
    assert fault.remedy == f"set CUDA_HOME={tmp_path}/right, which fits this torch"


def test_cuda_home_goes_before_path(tmp_path):
    program(tmp_path / "nvcc", "release 12.6")
    environment = {"PATH": str(tmp_path), "CUDA_HOME": "/nowhere"}
    found = only_problem(doctor.check_gpu_compiler(machine(environment, build=CUDA)))
    assert found.endswith("(CUDA 13.0): CUDA_HOME=/nowhere has no bin/nvcc")
    (fault,) = doctor.check_gpu_compiler(machine({"CUDA_HOME": ""}, build=CUDA))
    assert "CUDA_HOME=" not in fault.text


def test_a_toolkit_that_nothing_can_be_linked_with(tmp_path):
    program(tmp_path / "bin" / "nvcc", "release 13.0")
    found = machine({"CUDA_HOME": str(tmp_path)}, build=CUDA)
    text = only_problem(doctor.check_gpu_compiler(found))
    assert f"nvcc has no libcudart.so in {tmp_path}/lib64 or" in text


def test_torch_for_rocm_and_its_compiler(tmp_path):
    nowhere = {"ROCM_HOME": "/nowhere"}
    missing = doctor.check_gpu_compiler(machine(nowhere, build=ROCM))
    assert "ROCM_HOME=/nowhere has no bin/hipcc" in only_problem(missing)
    program(tmp_path / "bin" / "hipcc", "HIP version: 6.4.4")
    other = machine({"ROCM_HOME": str(tmp_path)}, build=ROCM)
    text = only_problem(doctor.check_gpu_compiler(other))
    assert "hipcc is of ROCm 6.4.4, torch of ROCm 7.0" in text


def test_torch_without_code_for_the_gpu():
    says = {"built_for": ["sm_50", "sm_60"], "gpus": H200["gpus"]}
    found = doctor.check_gpus(machine(build=CUDA, says=says))
    assert "torch has no code for it" in only_problem(found)
    assert not faults(doctor.check_gpus(machine(build=CUDA, says=H200)))


def test_no_visible_gpu_is_a_warning():
    (fault,) = doctor.check_gpus(machine(build=CUDA, says={"gpus": []}))
    assert fault.level == WARNING


def test_a_gpu_that_this_torch_is_not_built_for(tmp_path):
    program(tmp_path / "nvidia-smi", "GPU 0: NVIDIA L4 (UUID: GPU-0)")
    (fault,) = doctor.check_gpus(machine({"PATH": str(tmp_path)}))
    assert fault.level == WARNING
    assert fault.text.endswith("the CPU alone, and there is a GPU: NVIDIA L4")
    assert not faults(doctor.check_gpus(machine()))
    program(tmp_path / "nvidia-smi", "No devices were found")
    assert not faults(doctor.check_gpus(machine({"PATH": str(tmp_path)})))


@pytest.mark.parametrize(
    ("chosen", "says", "text"),
    [
        ("", {"gpus": []}, "IndexError: list index out of range"),
        ("native", {"gpus": []}, "is native and no GPU is visible: torch's build"),
        ("8.0;99.9", H200 | {"refused": ["99.9"]}, "has '99.9', which torch"),
        ("8.0;8.6", H200, "leaves out the GPU that is here (9.0)"),
        ("10.0+PTX", H200, "leaves out the GPU that is here (9.0)"),
        ("Turing", H200 | {"gpus": [["Tesla V100", "7.0"]]}, "that is here (7.0)"),
    ],
)
def test_wrong_lists_of_architectures(chosen, says, text):
    if says["gpus"] and "refused" not in says:
        says = says | {"targets": targets(chosen)}
    found = machine({"TORCH_CUDA_ARCH_LIST": chosen}, build=CUDA, says=says)
    assert text in only_problem(doctor.check_architectures(found))


def test_torch_is_asked_which_architectures_it_knows():
    chosen = "sm_90;8.0,9.0;10.0f;10.1;99.9;9.0a;8.0+PTX Hopper Ada+PTX"
    says = Machine({**os.environ, "TORCH_CUDA_ARCH_LIST": chosen}).torch_says
    assert says["refused"] == "sm_90 8.0,9.0 10.0f 10.1 99.9 Ada+PTX".split()
    assert {*says["targets"]} == {*"sm_90a sm_80 compute_80 sm_90 compute_90".split()}
    says = Machine({**os.environ, "TORCH_CUDA_ARCH_LIST": "8.0;9.0;"}).torch_says
    assert says["refused"] == ["8.0;9.0;"]
    assert Machine(dict(os.environ)).torch_says["refused"] == []


@pytest.mark.parametrize(
    "chosen",
    ["", "9.0", "8.0;9.0+PTX", "8.0 9.0a", "8.0+PTX", "Hopper", "Ada", "native"],
)
def test_right_lists_of_architectures(chosen):
    says = H200 | {"targets": [] if chosen == "native" else targets(chosen)}
    found = machine({"TORCH_CUDA_ARCH_LIST": chosen}, build=CUDA, says=says)
    assert not faults(doctor.check_architectures(found))


def test_whether_a_gpu_is_visible_is_not_known_without_torch():
    broken = machine(build=CUDA, says={"error": "killed by signal 4"})
    assert not faults(doctor.check_architectures(broken))


def test_an_architecture_that_torch_refuses_is_named_once(tmp_path):
    environment = toolkit(tmp_path, NVCC.format(MAKES))
    environment["TORCH_CUDA_ARCH_LIST"] = "8.0;99.9"
    found = machine(environment, build=CUDA, says={"refused": ["99.9"]})
    assert not faults(doctor.check_gpu_compiler(found))


def test_the_list_of_amd_architectures():
    found = machine({"PYTORCH_ROCM_ARCH": "gfx942;9.0"}, build=ROCM)
    assert "has '9.0', which" in only_problem(doctor.check_architectures(found))
    found = machine(build=ROCM, says={"gpus": []})
    assert "invalid target ID" in only_problem(doctor.check_architectures(found))
    found = machine({"PYTORCH_ROCM_ARCH": "native"}, build=ROCM, says={"gpus": []})
    assert "`cannot determine" in only_problem(doctor.check_architectures(found))


@pytest.mark.parametrize("chosen", ["gfx942:xnack+", "native", "gfx9-generic"])
def test_right_lists_of_amd_architectures(chosen):
    here = {"gpus": [["AMD Instinct MI300X", "gfx942"]]}
    found = machine({"PYTORCH_ROCM_ARCH": chosen}, build=ROCM, says=here)
    assert not faults(doctor.check_architectures(found))
    says = {"gpus": [["AMD Instinct MI300X", "gfx942"]]}
    found = machine({"PYTORCH_ROCM_ARCH": "gfx90a"}, build=ROCM, says=says)
    assert "leaves out" in only_problem(doctor.check_architectures(found))


@pytest.mark.parametrize(
    ("targets", "arch", "runs"),
    [
        (["sm_80"], "8.6", True),
        (["sm_86"], "8.0", False),
        (["sm_80"], "9.0", False),
        (["sm_80+PTX"], "9.0", True),
        (["compute_90"], "12.0", True),
        (["sm_90a"], "9.0", True),
        (["sm_100a"], "10.3", False),
        (["gfx90a", "gfx942"], "gfx942", True),
        (["gfx90a"], "gfx942", False),
        ([], "9.0", False),
        (["some NVIDIA GPUs"], "9.0", True),
    ],
)
def test_which_code_runs_on_which_gpu(targets, arch, runs):
    assert doctor.runs_on(targets, arch) is runs


def test_a_library_without_code_for_the_gpu(tmp_path):
    library = tmp_path / "_C.abi3.so"
    library.write_bytes(b"\x7fELF .nv_fatbin")
    program(tmp_path / "cuobjdump", "ELF file 1: _C.1.sm_80.cubin")
    says = H200 | {"operators": 9}
    path = {"PATH": str(tmp_path)}
    found = machine(path, build=CUDA, says=says, library=library)
    text = only_problem(doctor.check_library(found))
    assert "opbook._C has no code for NVIDIA H200 (9.0)" in text
    library.write_bytes(b"\x7fELF hipv4-amdgcn-amd-amdhsa--gfx942\0")
    assert doctor.library_targets(found, library) == ["gfx942"]


@pytest.mark.parametrize("gpus", [H200["gpus"], []])
def test_a_library_without_gpu_kernels(tmp_path, gpus):
    library = tmp_path / "_C.abi3.so"
    library.write_bytes(b"\x7fELF")
    says = {"operators": 9, "gpus": gpus}
    environment = {"CUDA_HOME": "/nowhere"}
    known = {"library": library, "fitting_toolkit": None}
    found = machine(environment, build=CUDA, says=says, **known)
    (fault,) = faults(doctor.check_library(found))
    assert fault.level == (PROBLEM if gpus else WARNING)
    assert "built without GPU kernels: its operators raise" in fault.text
    assert fault.remedy.startswith("install the CUDA toolkit 13.x")
    assert "USE_CUDA=1 python -m pip install" in fault.remedy
    found = machine(build=CUDA, says=says, library=library, gpu_fault=None)
    (fault,) = faults(doctor.check_library(found))
    assert fault.remedy.startswith("USE_CUDA=1 python -m pip install")
    cpu = machine(says={"operators": 9}, library=library)
    assert not faults(doctor.check_library(cpu))


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_a_library_that_is_no_file(tmp_path, kind):
    library = tmp_path / "_C.abi3.so"
    makes = {"folder": library.mkdir, "pipe": lambda: os.mkfifo(library)}
    makes.get(kind, lambda: library.symlink_to("nothing"))()
    found = machine(package=tmp_path)
    assert "_C.abi3.so) cannot be read" in only_problem(doctor.check_library(found))


def test_the_library_of_this_python_is_looked_at(tmp_path):
    for name in ("_C.cpython-399-x86_64-linux-gnu.so", "_C.a.so", "_C.abi3.so"):
        (tmp_path / name).touch()
    assert machine(package=tmp_path).library.name == "_C.abi3.so"


def test_triton(monkeypatch):
    interpreted = machine({"TRITON_INTERPRET": "1"}, build=CUDA, says=H200)
    monkeypatch.setattr(doctor, "_version", lambda name: "3.6.0")
    (fault,) = doctor.check_triton(interpreted)
    assert fault.remedy == "unset TRITON_INTERPRET"
    assert not faults(doctor.check_triton(machine(build=CUDA, says=H200)))
    assert not faults(doctor.check_triton(machine()))
    monkeypatch.setattr(doctor, "_version", lambda name: "")
    (fault,) = doctor.check_triton(machine())
    assert fault.text.startswith("no Triton")


def test_a_file_that_hides_triton(monkeypatch, tmp_path):
    (tmp_path / "triton.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    # Another test may have imported it.
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    text = only_problem(doctor.check_triton(machine(build=CUDA, says=H200)))
    assert text.endswith("triton.py is imported as triton")
    (tmp_path / "triton.py").unlink()
    (tmp_path / "triton").mkdir()  # without __init__.py, the real one goes first
    importlib.invalidate_caches()
    assert not faults(doctor.check_triton(machine()))


@pytest.mark.parametrize(
    ("arch", "environment", "variable"),
    [
        ("9.0", {}, ""),
        ("10.0", {}, ""),
        ("12.1", {}, "TRITON_PTXAS_BLACKWELL_PATH"),
        ("8.9", {}, "TRITON_PTXAS_PATH"),
        ("8.9", {"TRITON_PTXAS_PATH": "/bin/true"}, ""),
        ("12.1", {"TRITON_PTXAS_BLACKWELL_PATH": "/bin/true"}, ""),
    ],
)
def test_ptxas_is_asked_whether_it_knows_the_gpu(tmp_path, arch, environment, variable):
    programs = tmp_path / "backends" / "nvidia" / "bin"
    for name, chips in {"ptxas": "sm_80 sm_90", "ptxas-blackwell": "sm_100"}.items():
        script = program(programs / name, "")
        refuse = "is not defined for option 'gpu-name'"
        script.write_text(
            f'#!/bin/sh\nfor chip in {chips}; do [ "$1" = --gpu-name=$chip ] && exit; '
            f'done\necho "fatal: $1 {refuse}"\nexit 1\n'
        )
    says = {"gpus": [["NVIDIA GPU", arch]]}
    known = {"triton": ([str(tmp_path)], None), "build": CUDA, "says": says}
    found = [*doctor.check_triton(machine(environment, **known))]
    if variable:
        assert "does not know NVIDIA GPU (sm_" in only_problem(found)
        assert f"set {variable} to" in found[0].remedy
    else:
        assert not faults(found)


def test_triton_needs_the_headers_of_python(monkeypatch, tmp_path):
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    found = machine(build=CUDA, says=H200, triton=([], None))
    assert "this Python has no Python.h" in only_problem(doctor.check_triton(found))
    interpreted = machine({"TRITON_INTERPRET": "1"}, says={"gpus": []})
    assert not faults(doctor.check_triton(interpreted))


# The cache.


def check_cache(cache, build=CPU):
    found = machine({"TORCH_EXTENSIONS_DIR": str(cache)}, build=build)
    return [*doctor.check_cache(found)]


def test_a_cache_of_your_own_has_no_fault(cache):
    assert not faults(check_cache(cache))
    assert not faults(check_cache(cache / "not" / "there"))


def test_a_cache_that_cannot_be_made(cache, monkeypatch):
    file = cache / "file"
    file.touch(mode=0o600)
    text = only_problem(check_cache(file / "inside"))
    assert text.endswith("file is not a folder: load() cannot build")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    for folder in (cache, cache / "not" / "there"):
        text = only_problem(check_cache(folder))
        assert text.endswith(
            "cache is a folder that you may not write to: load() cannot build"
        )


def test_a_cache_on_a_disk_that_is_full(cache, monkeypatch):
    usage = type("Usage", (), {"free": 0})
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert "is on a disk that is full" in only_problem(check_cache(cache))
    usage.free = 1 << 30
    assert not faults(check_cache(cache))


@pytest.mark.parametrize("folder", [".", "mine"])
def test_a_folder_that_everybody_can_write_to(cache, folder):
    (cache / folder).chmod(0o777)
    text = only_problem(check_cache(cache))
    assert "has mode 777: others can place a library there" in text


def test_a_parent_that_everybody_can_write_to(cache):
    cache.parent.chmod(0o777)
    assert "in the place of cache" in only_problem(check_cache(cache))
    cache.parent.chmod(0o1777)
    assert not faults(check_cache(cache))
    cache.rename(cache.with_name("elsewhere"))
    assert "in the place of cache" in only_problem(check_cache(cache))


def test_a_cache_of_another_user(cache, monkeypatch):
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    if owner == 0:  # root may write everywhere anyhow, so its folders are no fault
        os.chown(cache, 12345, -1)
        monkeypatch.undo()
    found = [f.text for f in faults(check_cache(cache))]
    assert any("belongs to another user" in text for text in found)


def test_a_group_of_several(cache, monkeypatch):
    cache.chmod(0o770)
    group = type("Group", (), {"gr_name": "staff", "gr_mem": ["you", "they"]})
    monkeypatch.setattr(doctor.grp, "getgrgid", lambda number: group)
    assert "mode 770, group staff" in only_problem(check_cache(cache))
    name = doctor.pwd.getpwuid(os.getuid()).pw_name
    group.gr_name, group.gr_mem = name, []
    assert not faults(check_cache(cache))


def test_a_lock_that_outlived_its_build(cache):
    lock = cache / "mine" / "lock"
    lock.touch()
    (fault,) = faults(check_cache(cache))
    assert (fault.level, fault.remedy[:2]) == (WARNING, "if")
    hour_ago = time.time() - 3600
    os.utime(lock, (hour_ago, hour_ago))
    assert "60 minutes old: load() of mine waits" in only_problem(check_cache(cache))
    assert not faults(check_cache(cache, build={"version": "2.14.0+cpu"}))


def test_the_default_cache_is_that_of_torch(monkeypatch):
    from torch.utils import cpp_extension

    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    theirs = Path(cpp_extension.get_default_build_root())
    assert Path(os.path.realpath(Machine().cache)) == theirs


def test_paths_are_short():
    assert doctor.short(Path.cwd() / "src" / "x.so") == "src/x.so"
    assert doctor.short(Path.home() / "elsewhere" / "x") == "~/elsewhere/x"
    assert doctor.short(Path("/usr/bin/g++")) == "/usr/bin/g++"
