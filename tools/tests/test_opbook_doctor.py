"""opbook doctor for an outsider: their machine, and their library."""

import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch

from opbook_tools import cli, doctor, library
from opbook_tools.doctor import OK, PROBLEM, WARNING, Machine

pytestmark = [
    pytest.mark.skipif(not shutil.which("g++"), reason="needs g++"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files"),
]
TORCH = Path(torch.__file__).parent
LINKED = f"-L{TORCH / 'lib'} -Wl,--no-as-needed -ltorch_cpu -lc10".split()
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")

STABLE = """
extern "C" int aoti_torch_get_dim(void*, long*);
extern "C" int torch_get_mutable_data_ptr(void*, void**);
int use(void* x, long* n, void** p) {
  return aoti_torch_get_dim(x, n) + torch_get_mutable_data_ptr(x, p);
}
"""
UNSTABLE = """
namespace at { int get_num_threads(); }
int use() { return at::get_num_threads(); }
"""
MODULE = 'extern "C" void* PyInit_mine() { return 0; }\n'


@pytest.fixture
def built(tmp_path):
    """Compile a source to a library of this name."""

    def build(source, name="mine.so", *options):
        path = tmp_path / name
        (tmp_path / "source.cpp").write_text(source)
        command = ["g++", "-shared", "-fPIC", str(tmp_path / "source.cpp"), *options]
        subprocess.run([*command, "-o", str(path)], check=True)
        return path

    return build


def findings(path, level):
    found = library.inspect(path, Machine())
    return " ".join(each.text for each in found if each.level == level)


def test_nothing_is_wrong_with_a_stable_library(built):
    path = built(STABLE, "mine.so", *LINKED)
    assert findings(path, PROBLEM) == findings(path, WARNING) == ""
    said = findings(path, OK)
    assert "stable ABI: 2 symbols of torch" in said
    assert "it needs torch 2.1" in said
    assert "no Python module" in said
    assert "code for no GPU" in said
    assert cli.main(["doctor", str(path)]) == 0


def test_nothing_is_wrong_with_torchs_own_library():
    assert findings(TORCH / "lib" / "libtorch_python.so", PROBLEM) == ""


def test_cpp_of_torch_is_not_stable(built):
    path = built(UNSTABLE, "mine.so", *LINKED)
    assert findings(path, PROBLEM) == ""
    said = findings(path, WARNING)
    assert "not the stable ABI: 1 C++ symbols of torch" in said
    if shutil.which("c++filt"):
        assert "at::get_num_threads()" in said


def test_what_no_library_has_is_named(built):
    gone = "namespace at { int gone(); }\nint use() { return at::gone(); }\n"
    path = built(gone, "mine.so", *LINKED)
    assert "gone" in findings(path, PROBLEM)
    with pytest.raises(OSError, match="undefined symbol"):
        ctypes.CDLL(str(path), os.RTLD_NOW)
    assert cli.main(["doctor", str(path)]) == 1


def test_a_library_that_was_not_linked_with_torch_is_told_from_another_torch(built):
    said = findings(built(STABLE), PROBLEM)
    assert "does not ask for libtorch_cpu.so" in said
    assert "neither" not in said


def test_a_needed_library_that_is_not_here_is_named(built, tmp_path):
    built("int other() { return 1; }", "libother.so")
    calls = "int other();\nint use() { return other(); }\n"
    path = built(calls, "mine.so", f"-L{tmp_path}", "-lother")
    assert "mine.so needs libother.so, which is not here" in findings(path, PROBLEM)
    path = built(calls, "mine.so", f"-L{tmp_path}", "-lother", "-Wl,-rpath,$ORIGIN")
    assert findings(path, PROBLEM) == ""
    assert "search path: $ORIGIN" in findings(path, OK)


@pytest.mark.parametrize(
    ("entry", "level"), [("/opt/build/lib", WARNING), ("lib", PROBLEM), (".", PROBLEM)]
)
def test_a_search_path_of_elsewhere_is_named(built, entry, level):
    path = built("int one = 1;", "mine.so", f"-Wl,-rpath,{entry}")
    assert f"search path: {entry}" in findings(path, level)


def test_a_module_for_this_python_is_none_for_another(built):
    assert findings(built(MODULE, f"mine{SUFFIX}"), PROBLEM) == ""
    assert "any Python 3" in findings(built(MODULE, "mine.abi3.so"), OK)
    other = SUFFIX.replace(f"3{sys.version_info.minor}", "399")
    assert "another Python" in findings(built(MODULE, f"mine{other}"), PROBLEM)
    renamed = built(MODULE, f"yours{SUFFIX}")
    assert "has PyInit_mine, and no PyInit_yours" in findings(renamed, PROBLEM)


def test_a_version_that_the_system_lacks_is_named(built, monkeypatch):
    path = built('#include <cstdio>\nint use() { return std::puts(""); }\n')
    needed = [("libc.so.6", "GLIBC_9.99")]
    monkeypatch.setattr(library.Elf, "versions_needed", lambda self: needed)
    assert "it needs GLIBC_9.99" in findings(path, PROBLEM)


def test_code_for_a_gpu_is_compared_with_the_gpus(built, tmp_path):
    mark = 'const char name[] = "hipv4-amdgcn-amd-amdhsa--gfx942";\n'
    path = built(f'extern "C" {mark}')
    machine = Machine()
    for arch, level in (("gfx90a", PROBLEM), ("gfx942", OK)):
        vars(machine)["torch_says"] = {"gpus": [["AMD GPU", arch]]}
        found = list(library.check_gpus(library.Elf(path), machine))
        assert found[0].text == "it holds code for gfx942"
        assert found[-1].level == level


def test_what_is_no_library_is_misuse(built, tmp_path, capsys):
    text = tmp_path / "text.so"
    text.write_text("no library")
    for path in (text, tmp_path / "gone.so"):
        assert cli.main(["doctor", str(path)]) == 2
    assert "not an ELF file" in capsys.readouterr().err


def test_a_pipe_is_no_library_and_is_not_waited_for(tmp_path, capsys):
    os.mkfifo(tmp_path / "mine.so")
    assert cli.main(["doctor", str(tmp_path / "mine.so")]) == 2
    assert "a pipe or a device" in capsys.readouterr().err


def test_a_needed_library_that_is_damaged_is_named(built, tmp_path):
    built("int other() { return 1; }", "libother.so")
    calls = "int other();\nint use() { return other(); }\n"
    where = f"-Wl,-rpath,{tmp_path}"
    path = built(calls, "mine.so", f"-L{tmp_path}", "-lother", where)
    (tmp_path / "libother.so").write_text("no library")
    said = findings(path, PROBLEM)
    assert f"mine.so needs {tmp_path}/libother.so: not an ELF file" in said


@pytest.mark.parametrize("kept", [300, 5000])
def test_a_library_of_which_a_part_is_missing_is_damaged(built, kept, capsys):
    path = built(STABLE)
    path.write_bytes(path.read_bytes()[:kept])
    assert cli.main(["doctor", str(path)]) == 2
    assert "a damaged ELF file" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["-pie", "-no-pie"])
def test_a_program_is_no_library(tmp_path, option, capsys):
    path = tmp_path / "program"
    command = ["g++", option, "-fPIE", "-x", "c++", "-", "-o", str(path)]
    subprocess.run(command, input="int main() {}", text=True, check=True)
    assert cli.main(["doctor", str(path)]) == 2
    assert "a program, and no shared library" in capsys.readouterr().err


def test_a_library_of_another_machine_is_named(built, monkeypatch):
    path = built(STABLE)
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert "this machine is riscv64" in findings(path, PROBLEM)


# A machine without opbook.


@pytest.fixture
def outsider(monkeypatch):
    """A machine on which opbook is not installed."""
    monkeypatch.setattr(doctor, "opbook_here", lambda: None)
    return Machine(package=None)


def test_no_line_is_about_a_library_that_is_not_here(outsider):
    found = doctor.diagnose(outsider)
    assert len(found) > 5
    assert not [each.text for each in found if "opbook._C" in each.text]
    assert "operators" not in outsider.torch_says


def test_json_holds_what_the_lines_say(outsider, capsys):
    status = doctor.report(doctor.diagnose(outsider), as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert said["problems"] == sum(f["level"] == PROBLEM for f in said["findings"])
    assert status == bool(said["problems"])


def test_a_failure_of_the_doctor_is_its_own_status(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "diagnose", lambda machine: 1 / 0)
    assert cli.main(["doctor"]) == 3
    assert "a fault of the tool" in capsys.readouterr().err
