"""The starter: projects made of it build, pass their tests, and live side by side."""

import importlib.machinery
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import forked
import pytest

import codeobjects
from environment import HAS_RUFF, WITH_RUFF, without
from gpu import HAS_GPU
from proof.files import load

ROOT = Path(__file__).resolve().parents[2]
STARTER = ROOT / "starter"
# As names of other lengths: two packages and three operators.
CPP = ("k", "soft_capping_of_scores", "swish")
TRITON = ("kernels_of_ours", "relu")
ADDED = {"rows": "attention_weights", "inplace": "decaying_mean"}  # other kinds
new = load(STARTER / "new.py")
# The starter itself runs what is cheap. With --all, a project made of it runs the rest,
# and a few that call all of the operator.
REST = "opcheck or compiles or derivatives or forward_mode"
FEW = "wrong_arguments or (equals and float32)"
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx90a", "gfx942")
one_of_each_compiler = pytest.mark.parametrize(
    "target",
    [
        pytest.param(name, marks=() if name in ("sm_90", "gfx942") else pytest.mark.all)
        for name in TARGETS
    ],
)


def run(*command, folder: Path, **environment: str) -> str:
    """Run Python there, without what this process's own tests depend on."""
    kept = without("PROOF_", "COVERAGE_", "TRITON_INTERPRET", "PYTEST_")
    done = forked.run(command, folder, kept | environment, loaded=("torch",))
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def refusal(*arguments, script: Path = STARTER / "new.py") -> str:
    command = [sys.executable, str(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0, done.stdout
    assert done.stderr.startswith(("new.py: ", "usage: ")), done.stderr
    return done.stderr


def new_py(*arguments) -> str:
    return run(STARTER / "new.py", *arguments, folder=STARTER, PATH=WITH_RUFF)


def install(project: Path, site: Path) -> None:
    """Install into a folder of its own, with the torch of this environment."""
    pip = ("-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation")
    run(*pip, "--no-deps", "--target", site, project, folder=project)


def build(project: Path) -> None:
    """Compile what there is to compile, in place."""
    if (project / "setup.py").exists():
        run("setup.py", "-q", "build_ext", "--inplace", folder=project)


def run_tests(project: Path, site: Path, *options: str, **environment: str) -> None:
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", *options)
    paths = {"PYTHONPATH": str(site)}
    assert " passed" in run(*command, folder=project, **environment, **paths)


@pytest.fixture(scope="session")
def projects(tmp_path_factory) -> Path:
    """A project in each language, which have grown operators of other kinds."""
    folder = tmp_path_factory.mktemp("projects")
    cpp, in_triton = folder / CPP[0], folder / TRITON[0]
    new_py(cpp, "--operator", CPP[1])
    new_py(cpp, "--add", CPP[2])
    for kind, operator in ADDED.items():
        new_py(cpp, "--add", operator, "--kind", kind)
    new_py(in_triton, "--operator", TRITON[1], "--triton")
    for kind, operator in ADDED.items():
        new_py(in_triton, "--add", operator, "--kind", kind)
    return folder


@pytest.fixture(scope="session")
def installed(projects) -> Path:
    """Both projects, installed beside them."""
    for package in (CPP[0], TRITON[0]):
        install(projects / package, projects / "site")
    return projects


def files(folder: Path) -> list[Path]:
    """What git tracks, or would; in a copy without git, everything."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "."]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return [path for path in folder.rglob("*") if path.is_file()]
    return [folder / name for name in done.stdout.split()]


# Files, lines, and lines of the longest file.
SIZES = {
    ("elementwise", False): (18, 970, 160),
    ("rows", False): (18, 1175, 210),
    ("inplace", False): (18, 1035, 210),
    ("elementwise", True): (9, 480, 215),
    ("rows", True): (9, 565, 260),
    ("inplace", True): (9, 530, 215),
}
# Files and lines of a further operator of a kind that the project has already.
FURTHER = {
    ("elementwise", False): (5, 450),
    ("rows", False): (5, 555),
    ("inplace", False): (5, 450),
    ("elementwise", True): (2, 370),
    ("rows", True): (2, 450),
    ("inplace", True): (2, 415),
}


@pytest.mark.parametrize(("kind", "is_triton"), SIZES)
def test_it_is_small(kind, is_triton):
    most_files, most_lines, longest = SIZES[kind, is_triton]
    own, shared = new.template(kind, is_triton)
    lines = {path: text.count("\n") for path, text in (shared | own).items()}
    assert len(lines) <= most_files
    assert sum(lines.values()) <= most_lines
    assert not {path: n for path, n in lines.items() if n > longest}


@pytest.mark.parametrize(("kind", "is_triton"), FURTHER)
def test_a_further_operator_is_small(tmp_path, kind, is_triton):
    language = ["--triton"] * is_triton
    new_py(tmp_path / "mine", "--operator", "blend", "--kind", kind, *language)
    before = new.read(tmp_path / "mine")
    new_py(tmp_path / "mine", "--add", "melted", "--kind", kind)
    added = [
        text for path, text in new.read(tmp_path / "mine").items() if path not in before
    ]
    most_files, most_lines = FURTHER[kind, is_triton]
    assert len(added) <= most_files
    assert sum(text.count("\n") for text in added) <= most_lines


def test_it_knows_nothing_of_the_rest():
    for path in files(STARTER):
        text = path.read_text().replace("Opbook contributors", "")
        assert "opbook" not in text.lower(), path


OPERATORS = [(CPP[1], ""), (CPP[2], FEW), *((name, "") for name in ADDED.values())]


@pytest.mark.all
@pytest.mark.parametrize(("operator", "which"), OPERATORS)
def test_a_project_in_cpp_passes_its_tests(installed, operator, which):
    tests, which = f"tests/test_{operator}.py", which or f"{REST} or {FEW}"
    run_tests(installed / CPP[0], installed / "site", tests, "-k", which)


@pytest.mark.all
def test_a_project_in_triton_passes_its_tests(installed):
    which = f"{REST} or {FEW} or any_strides"
    run_tests(installed / TRITON[0], installed / "site", "-k", which)


@pytest.mark.all
def test_the_timing_script_prints_a_table(installed):
    names = (f"k:{CPP[2]}", f"k.{CPP[2]}:composite", "20x30", "20x30", "0.5")
    paths = {"PYTHONPATH": str(installed / "site")}
    said = run(STARTER / "timing.py", *names, folder=installed, **paths)
    for word in ("operator", "pytorch", "torch.compile(pytorch)", "bfloat16 on c"):
        assert word in said
    assert len(re.findall(r"\|\s+\d+\.?\d*\s", said)) >= 4


FORGOTTEN = [  # of one tensor alone
    ("forward_mode", "_has_tangent(gate, up)", "_has_tangent(up)"),
    ("forward_mode", "_has_tangent(gate, up)", "_has_tangent(gate)"),
    ("wrong_arguments", "gate.dim() == up.dim()", "True"),
]


@pytest.mark.all
@pytest.mark.parametrize(("test", "right", "wrong"), FORGOTTEN)
def test_the_tests_of_a_project_notice_a_forgotten_tensor(
    installed, tmp_path, test, right, wrong
):
    site = shutil.copytree(installed / "site", tmp_path / "site")
    file = site / CPP[0] / f"{CPP[1]}.py"
    assert file.read_text().count(right) == 1
    file.write_text(file.read_text().replace(right, wrong))
    only = (f"tests/test_{CPP[1]}.py", "-k", test)
    with pytest.raises(AssertionError, match="1 failed"):
        run_tests(installed / CPP[0], site, *only)


COMPILED = [  # a fault in what torch.compile traces and keeps on disk
    (CPP[0], CPP[1], "grad, *inputs", "-grad, *inputs"),
    (TRITON[0], ADDED["rows"], "probs, ctx.scale)", "probs, -ctx.scale)"),
]


@pytest.mark.all
@pytest.mark.parametrize(("package", "operator", "right", "wrong"), COMPILED)
def test_a_compiled_test_sees_an_edit_and_prints_no_log(
    installed, tmp_path, package, operator, right, wrong
):
    site = shutil.copytree(installed / "site", tmp_path / "site")
    only = (f"tests/test_{operator}.py", "-k", "compiles_without")
    where = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    run_tests(installed / package, site, *only, **where)
    file = site / package / f"{operator}.py"
    assert file.read_text().count(right) == 1
    file.write_text(file.read_text().replace(right, wrong))
    with pytest.raises(AssertionError, match="1 failed") as error:
        run_tests(installed / package, site, *only, **where)
    assert "DEBUG" not in str(error.value)


def test_no_folder_of_the_starter_is_found_as_a_package_that_torch_imports():
    # A script beside it would import the folder where the package is not installed.
    found = importlib.machinery.PathFinder.find_spec
    tried = ("torch", "triton", "numpy", "sympy", "networkx", "jinja2")
    assert [name for name in tried if found(name, [str(STARTER)])] == []


@pytest.mark.parametrize("folder", new.FOLDERS.values())
def test_the_starter_itself_passes_its_tests(tmp_path, folder):
    places = {place: of for of, place in new.FOLDERS.items()}
    own, shared = new.template(*places[folder])
    for name, text in (shared | own).items():
        copy = tmp_path / folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)
    build(tmp_path / folder)
    # In Triton's interpreter, strides in each dtype take half of the time. A project in
    # Triton has them with --all.
    slow = " and not (any_strides and torch.float)" * (folder == "triton_rows")
    which = f"not ({REST}){slow}"
    run_tests(tmp_path / folder, tmp_path / folder / "src", "-k", which)


def test_no_mark_of_the_guide_is_left(projects):
    for package in (CPP[0], TRITON[0]):
        for path, text in new.read(projects / package).items():
            marks = set(re.findall(r"(?://|#) \[(/?\w+/?)\]", text))
            assert marks <= {"math", "/math", "reference", "/reference"}, path


def test_an_added_operator_does_not_copy_what_was_edited(tmp_path):
    new_py(tmp_path / "mine", "--operator", "blend", "--flat")
    kernel = tmp_path / "mine/csrc/blend.h"
    kernel.write_text("edited")
    said = new_py(tmp_path / "mine", "--add", "mean_", "--kind", "inplace")
    assert "mean_ still computes what ema_update_ of the starter does" in said
    said = new_py(tmp_path / "mine", "--add", "blend_again")
    assert "blend_again still computes what swiglu of the starter does" in said
    assert "[math]" in (tmp_path / "mine/csrc/blend_again.h").read_text()
    assert kernel.read_text() == "edited"
    init = (tmp_path / "mine/mine/__init__.py").read_text()
    assert "from mine.mean import mean_\n" in init
    assert "src" not in (tmp_path / "mine/pyproject.toml").read_text()


FLAT = [("rows",), ("inplace",), ("rows", "--triton"), ("inplace", "--triton")]


@pytest.mark.all
@pytest.mark.parametrize("kind", FLAT, ids=" ".join)
def test_a_flat_project_passes_its_tests(tmp_path, kind):
    project = tmp_path / "kernels_of_ours"
    new_py(project, "--operator", "mean", "--flat", "--kind", *kind)
    build(project)
    run_tests(project, project, "-k", FEW)


@pytest.mark.needs("ruff", HAS_RUFF)
@pytest.mark.parametrize("package", [CPP[0], TRITON[0]])
def test_a_copy_is_clean(projects, package):
    for command in ("check", "format --check"):
        done = subprocess.run(
            ["ruff", *command.split(), "--isolated", "."],
            cwd=projects / package,
            env=os.environ | {"PATH": WITH_RUFF},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def test_what_tools_leave_in_a_project_is_not_read(tmp_path):
    for folder in (".ruff_cache", "build"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / ".gitignore").touch()
    assert not new.read(tmp_path)


def test_a_copy_has_the_files_of_the_starter_alone(tmp_path):
    new_py(tmp_path / "mine", "--operator", "blend")
    found = {path for path in (tmp_path / "mine").rglob("*") if path.is_file()}
    own, shared = new.template("elementwise", False)
    assert len(found) == len(own | shared)


def test_no_old_name_is_left(projects):
    for package in (CPP[0], TRITON[0]):
        found = [projects / package / path for path in new.read(projects / package)]
        assert len(found) > 8
        for path in found:
            text = f"{path.relative_to(projects)}\n{path.read_text()}"
            assert not re.search(
                "starter|swiglu|softmax_lse|ema_update|opbook", text, re.IGNORECASE
            ), path


@pytest.mark.all
def test_two_projects_and_opbook_share_a_process(installed):
    code = (
        "import torch, opbook, k, kernels_of_ours",
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'",
        "gate, up = torch.randn(2, 100, device=device)",
        "outputs = [",
        "    k.soft_capping_of_scores(gate.cpu(), up.cpu()).to(device),",
        "    k.swish(gate.cpu(), up.cpu()).to(device),",
        "    kernels_of_ours.relu(gate, up),",
        "]",
        "for output in outputs:",
        "    expected = torch.nn.functional.silu(gate) * up",
        "    torch.testing.assert_close(output, expected)",
        "normalized = torch.nn.functional.rms_norm(gate, (100,))",
        "torch.testing.assert_close(opbook.rms_norm(gate), normalized)",
    )
    interpreted = {} if HAS_GPU else {"TRITON_INTERPRET": "1"}
    paths = {"PYTHONPATH": str(installed / "site")}
    run("-c", "\n".join(code), folder=installed, **interpreted, **paths)


REFUSED = {
    "must be lower-case letters": ("Softcap", "2nd", "soft-cap", "soft cap"),
    "is reserved in Python, C++ or PyTorch": (
        "lambda",
        "torch",
        "aten",
        "std",
        "delete",
    ),
    "is taken": ("gate", "launch", "with_type_of", "namespace"),
}


@pytest.mark.parametrize(
    ("reason", "name"), [(why, name) for why in REFUSED for name in REFUSED[why]]
)
def test_a_name_that_cannot_be_is_refused_before_anything_is_written(
    tmp_path, reason, name
):
    folder = tmp_path / "mine"
    assert reason in refusal(folder, f"--operator={name}", "--package=ours")
    assert reason in refusal(folder, "--operator=ours", f"--package={name}")
    assert not folder.exists()


# Parts of the starter's names, functions of PyTorch, and parts of a name of your own.
FREE = [("rows", "softmax"), ("elementwise", "silu"), ("inplace", "ema")]


def test_a_name_is_free_if_only_what_is_renamed_or_of_pytorch_has_it(tmp_path):
    for kind, name in FREE:
        for language in ([], ["--triton"]):
            folder = tmp_path / f"{name}s{len(language)}"
            new_py(folder, "--operator", name, "--kind", kind, *language)
    new_py(folder, "--add", "gelu_tanh")
    new_py(folder, "--add", "gelu")


def test_a_name_is_taken_if_what_is_made_of_it_is(tmp_path):
    new_py(tmp_path, "--operator", "gelu_backward", "--package", "ours")
    before = new.read(tmp_path)
    assert "is taken" in refusal(tmp_path, "--add", "gelu")  # has one
    assert new.read(tmp_path) == before


def test_other_mistakes_are_refused(tmp_path):
    assert "is a module of Python" in refusal(tmp_path / "json", "--operator=softcap")
    assert "package and operator are both" in refusal(tmp_path / "q", "--operator=q")
    assert "--add needs a project" in refusal(tmp_path, "--add=softcap")
    for wrong in ((), ("--operator=a",), (tmp_path / "b",)):
        assert "required" in refusal(*wrong)
    assert "not allowed with" in refusal(tmp_path / "b", "--add=c", "--operator=d")
    for option in ("--triton", "--flat", "--package=p"):
        assert "--add finds" in refusal(tmp_path, "--add=softcap", option)
    assert not [*tmp_path.iterdir()]


def test_what_exists_stays_as_it_is(projects, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    words = "exists and is not an empty folder"
    assert words in refusal(tmp_path, "--operator=softcap", "--package=ours")
    assert words in refusal(tmp_path / "notes.txt", "--operator=q", "--package=ours")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    project = projects / CPP[0]
    for name in CPP[1:]:
        assert "is taken" in refusal(project, "--add", name)


@pytest.mark.parametrize(
    ("kind", "count"),
    [(("elementwise",), 3), (("rows",), 4), (("rows", "--triton"), 3)],
    ids=str,
)
def test_it_says_which_lines_hold_the_formula(tmp_path, kind, count):
    command = ("mine", "--operator", "softcap", "--kind", *kind)
    said = run(STARTER / "new.py", *command, folder=tmp_path)
    places = re.findall(r"^  (\S+), lines (\d+) to (\d+)$", said, re.MULTILINE)
    assert len(places) == count
    for place, first, last in places:
        lines = (tmp_path / "mine" / place).read_text().splitlines()
        assert re.search(r"\[(math|reference)\]", lines[int(first) - 1])
        assert re.search(r"\[/(math|reference)\]", lines[int(last) - 1])


@pytest.mark.parametrize("is_triton", [False, True])
def test_it_says_which_lines_hold_saved_tensors(tmp_path, is_triton):
    options = ("--operator", "softcap", "--kind", "rows", *["--triton"] * is_triton)
    said = new_py(tmp_path / "mine", *options)
    places = re.findall(r"^  (\S+), lines ([\d, ]+)$", said, re.MULTILINE)
    found = ""
    for place, numbers in places:
        lines = (tmp_path / "mine" / place).read_text().splitlines()
        found += "\n".join(lines[int(n) - 1] for n in numbers.split(", ")) + "\n"
    signature = "def _softcap_backward(" if is_triton else '"softcap_backward(Tensor?'
    for what in (
        signature,
        "save_for_backward(",
        "saved_tensors",
        "backward = torch.ops",
    ):
        assert what in found
    fake = "@_softcap_backward.register_fake" if is_triton else 'register_fake("mine::'
    assert fake in found
    said = new_py(tmp_path / "other", "--operator", "softcap", "--kind", "inplace")
    assert "other tensors" not in said  # it has no gradient


@pytest.mark.parametrize("kind", ["cpp", "triton"])
def test_it_says_which_lines_describe_the_formula(tmp_path, kind):
    options = ["--operator", "softcap"] + ["--triton"] * (kind == "triton")
    said = run(STARTER / "new.py", "mine", *options, folder=tmp_path)
    places = re.findall(r"([\w./]+):(\d+)[,.]", said)
    formula, found = "SiLU(gate) * up", set()
    for place, number in places:
        lines = (tmp_path / "mine" / place).read_text().splitlines()
        assert formula in "".join(lines[int(number) - 1 :][:2]), place
        found.add(place)
    texts = new.read(tmp_path / "mine").items()
    assert found == {path.as_posix() for path, text in texts if formula in text}


@one_of_each_compiler
def test_a_gpu_compiler_accepts_it(target, tmp_path):
    compiled(STARTER / "cpp" / "csrc" / "swiglu.cu", target, tmp_path, loads=2)


@pytest.mark.all
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["rows", "inplace"])
def test_a_gpu_compiler_accepts_other_kinds(kind, target, tmp_path):
    for place in ("cpp", kind):
        csrc = STARTER / place / "csrc"
        shutil.copytree(csrc, tmp_path / "csrc", dirs_exist_ok=True)
    source = tmp_path / "csrc" / f"{new.KINDS[kind]}.cu"
    try:
        code = codeobjects.compile_kernel(source, target, tmp_path)
    except codeobjects.ToolMissing as missing:
        pytest.skip(str(missing))
    assert len(code.kernels) == {"rows": 16, "inplace": 8}[kind]
    for kernel in code.kernels:
        # For sm_100, nvcc spills one fp64 number of the gradient of softmax_lse.
        assert kernel.spill_bytes <= 8 * ("double" in kernel.name), kernel
        if re.search("<(8|4), ", kernel.name):
            assert kernel.wide_loads >= 2, kernel


# Triton's interpreter takes what its compiler refuses.
COMPILE_TRITON = """\
import sys
import triton
from codeobjects import triton_target
from ema_update import ema_update_kernel as kernel
for dims in (1, 3):
    strides = ("constexpr", *("i32",) * (dims - 1))  # the smallest is 1
    types = {"state": "*bf16", "x": "*bf16", "count": "i32", "sizes": ("i32",) * dims}
    types |= {"written": strides, "read": strides, "decay": "fp64", "take": "fp64"}
    one = {(4, 0): 1, (5, 0): 1}
    source = triton.compiler.ASTSource(kernel, types, one)
    triton.compile(source, triton_target(sys.argv[1]))
"""


@one_of_each_compiler
def test_triton_compiles_the_kernel_that_writes_to_an_argument(target):
    pytest.importorskip("triton")
    places = ("triton_inplace/src/starter", "triton_elementwise/src")
    folders = [*(STARTER / place for place in places), ROOT / "src"]
    paths = {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    run("-c", COMPILE_TRITON, target, folder=ROOT, **paths)


def compiled(source: Path, target: str, folder: Path, loads: int) -> None:
    """Compile the kernels; each loads as wide as it can, and spills nothing."""
    try:
        code = codeobjects.compile_kernel(source, target, folder)
    except codeobjects.ToolMissing as missing:
        pytest.skip(str(missing))
    assert len(code.kernels) == 16  # 2 kernels, 4 types, vectors and single elements
    for kernel in code.kernels:
        assert kernel.spill_bytes == 0, kernel
        if re.search("<(8|4), ", kernel.name):
            assert kernel.wide_loads == loads + ("backward" in kernel.name), kernel


def test_copies_that_torch_writes_for_rocm_are_left_out(tmp_path):
    project = tmp_path / "cpp"
    shutil.copytree(STARTER / "cpp", project)
    (project / "csrc/swiglu_op_hip.cpp").write_text("#error this is a copy\n")
    show = (
        "import setuptools\n"
        "setuptools.setup = lambda ext_modules, **_: print(ext_modules[0].sources)\n"
        "exec(open('setup.py').read())"
    )
    sources = run("-c", show, folder=project)
    run("setup.py", "-q", "sdist", "--formats=zip", folder=project)
    (archive,) = (project / "dist").glob("*.zip")
    for names in (sources, *zipfile.ZipFile(archive).namelist()):
        assert "_hip" not in names
    assert "swiglu_op.cpp" in sources


# What setup.py sees where torch is built for CUDA: the folders that it links from.
WITH_CUDA = """\
import os, torch, setuptools
os.environ.pop("CUDA_HOME", None), os.environ.pop("CUDA_PATH", None)
torch.version.cuda, torch.version.hip = "13.0", None
torch.cuda._is_compiled, torch.cuda.is_available = lambda: True, lambda: False
setuptools.setup = lambda ext_modules, **_: print(*ext_modules[0].library_dirs)
exec(open("setup.py").read())
"""


@pytest.fixture
def toolkit(tmp_path) -> Path:
    """A CUDA toolkit whose nvcc knows its root, and which a script on PATH leads to."""
    root = tmp_path / "toolkit"
    (root / "lib64").mkdir(parents=True)
    said = f"#$ _HERE_={root}/bin\n#$ TOP={root}/bin/..\n"
    scripts = {root: f"printf '{said}' >&2", tmp_path: f'exec {root}/bin/nvcc "$@"'}
    for folder, command in scripts.items():
        nvcc = folder / "bin/nvcc"
        nvcc.parent.mkdir()
        nvcc.write_text(f"#!/bin/sh\n{command}\n")
        nvcc.chmod(0o755)
    return root


def linked_from(toolkit: Path, **environment: str) -> str:
    path = f"{toolkit.parent}/bin{os.pathsep}{os.environ['PATH']}"
    options = {"folder": STARTER / "cpp", "PATH": path} | environment
    return run("-c", WITH_CUDA, **options)


def test_it_links_from_the_toolkit_of_an_nvcc_behind_a_script(toolkit):
    (toolkit / "lib64/libcudart.so").touch()
    said = linked_from(toolkit)
    assert str(toolkit / "lib64") in said.split()
    assert "without GPU kernels" not in said


def test_it_looks_for_libcudart_before_it_compiles(toolkit):
    # The compiler of a system that has the library knows where; this one knows nothing.
    said = linked_from(toolkit, CXX="echo")
    assert f"without GPU kernels: no libcudart.so in {toolkit}/lib64" in said
