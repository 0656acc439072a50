"""Build the operators of csrc/ into ``opbook._C``, one library for all of them.

Environment variables:
    USE_CUDA: 1 requires the GPU kernels, 0 leaves them out; unset builds them when
        torch has CUDA or ROCm and the compiler (nvcc or hipcc) fits it, and otherwise
        says why not.
    DEBUG: 1 builds with -O0 -g (and -G in device code), to step through in a debugger.
    TORCH_CUDA_ARCH_LIST, PYTORCH_ROCM_ARCH, MAX_JOBS: read by torch's BuildExtension.
"""

import importlib.util
import os
import sys
from pathlib import Path

import setuptools

ROOT = Path(__file__).resolve().parent


def load(path: Path):
    """Import a module of the package, which is not installed yet."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


toolchain = load(ROOT / "src/opbook/toolchain.py")


def require(name: str, version: str) -> None:
    """Exit where a package that builds is too old to, before it fails at something."""
    least = toolchain.LEAST[name]
    if toolchain.numbers(version) < toolchain.numbers(least):
        remedy = f"python -m pip install '{name}>={least}'"
        sys.exit(f"opbook needs {name} {least} or later, but has {version}: {remedy}")


require("setuptools", setuptools.__version__)
# pip asks for name and version in processes of their own, before it builds: each would
# spend seconds on importing PyTorch for nothing.
BUILDS = not {"egg_info", "dist_info"} & {*sys.argv}
if BUILDS:
    if not importlib.util.find_spec("torch"):
        sys.exit("opbook is built with the torch that runs it: install torch first")
    import torch

    require("torch", torch.__version__)
    if torch.version.cuda and (home := toolchain.cuda_home()):
        # Else torch guesses from PATH, where nvcc may be a link or a script.
        os.environ["CUDA_HOME"] = str(home)
    from torch.utils import cpp_extension

# LibTorch Stable ABI of 2.11: major in byte 7, minor in byte 6. One build serves every
# torch from 2.11 on.
TORCH_TARGET_VERSION = "0x020b000000000000"
DEBUG = os.environ.get("DEBUG", "0") == "1"
# A toolchain that links libstdc++ statically would otherwise export its copy, and the
# first exception that crosses into torch's copy ends in a segmentation fault.
LINK_ARGS = ["-Wl,--exclude-libs,ALL"] if sys.platform == "linux" else []


def gpu_fault() -> str | None:
    """What keeps GPU kernels from being built, and the remedy."""
    for kind in ("cuda", "hip"):
        if version := getattr(torch.version, kind):
            fault = toolchain.gpu_fault(kind, version)
            return fault and "; ".join(fault)
    return f"torch {torch.__version__} is built without CUDA and ROCm"


def use_gpu() -> bool:
    """Decide from USE_CUDA, torch and the compiler; exit where they contradict."""
    wanted = os.environ.get("USE_CUDA")
    if wanted not in (None, "0", "1"):
        sys.exit(f"USE_CUDA must be 0 or 1, but is {wanted!r}")
    fault = gpu_fault()
    if wanted == "1" and fault:
        sys.exit(f"USE_CUDA=1, but {fault}")
    if wanted is None and fault and (torch.version.cuda or torch.version.hip):
        # pip shows it with -v alone; what is left out also says so when it is called.
        print(f"opbook: no GPU kernels will be built: {fault}", file=sys.stderr)
    return wanted != "0" and fault is None


def sources(gpu: bool) -> list[Path]:
    """What is compiled; exit where a file of csrc/ would be left out unnoticed."""
    csrc = Path("csrc")
    # For ROCm, torch writes NAME_hip.cpp beside NAME.cpp, and compiles that.
    cpp = {path for path in csrc.rglob("*.cpp") if not path.stem.endswith("_hip")}
    found = [csrc / "module.cpp", *sorted(cpp & {*csrc.glob("*/*.cpp")})]
    kernels = sorted(csrc.glob("*/*.cu"))
    if missed := {*cpp, *csrc.rglob("*.cu")} - {*found, *kernels}:
        names = ", ".join(sorted(map(str, missed)))
        sys.exit(f"{names}: not in a folder csrc/NAME/, so it would not be compiled")
    without = {path.parent for path in found[1:]} - {path.parent for path in kernels}
    if gpu and without:
        names = ", ".join(sorted(map(str, without)))
        sys.exit(f"{names}: no .cu file there, so its GPU kernel cannot be built")
    return found + kernels if gpu else found


def operators() -> dict:
    """What is built: CPU sources always, GPU sources where possible."""
    gpu, library_dirs = use_gpu(), []
    optimize = ["-O0", "-g"] if DEBUG else ["-O3", "-g0"]
    define = [("TORCH_TARGET_VERSION", TORCH_TARGET_VERSION)]
    cxx = [
        *optimize,
        "-std=c++20",
        "-fvisibility=hidden",
        # As PyTorch builds itself: they let the compiler vectorize selects and roots.
        "-fno-math-errno",
        "-fno-trapping-math",
        # Error messages name csrc/..., wherever the build ran.
        f"-ffile-prefix-map={ROOT}/=",
    ]
    compile_args = {"cxx": cxx}
    make = cpp_extension.CppExtension
    if gpu:
        make = cpp_extension.CUDAExtension
        # The stable ABI declares the current stream's getter only under USE_CUDA.
        define.append(("USE_CUDA", "1"))
        device = ["-O0", "-g"] if DEBUG else ["-O3"]  # nvcc has no -g0
        if DEBUG and torch.version.cuda:
            device.append("-G")
        hidden = "-fvisibility=hidden"  # nvcc hands it to the C++ compiler
        hidden = hidden if torch.version.hip else f"-Xcompiler={hidden}"
        compile_args["nvcc"] = [*device, "-std=c++20", hidden]
        if torch.version.cuda:
            home = toolchain.cuda_home()
            library_dirs = [str(toolchain.cudart(home))]
        if not torch.cuda.is_available():
            # Without a visible GPU torch has no architecture to default to.
            if torch.version.cuda:
                known = toolchain.architectures(toolchain.find("nvcc"))
                os.environ.setdefault("TORCH_CUDA_ARCH_LIST", known)
            else:
                os.environ.setdefault("PYTORCH_ROCM_ARCH", "gfx90a;gfx942")
    extension = make(
        "opbook._C",
        [str(source) for source in sources(gpu)],
        # Paths relative to setup.py: what setuptools asks for, and what hipify keeps.
        depends=[str(header) for header in sorted(Path("csrc").rglob("*.h"))],
        define_macros=define,
        library_dirs=library_dirs,
        extra_compile_args=compile_args,
        extra_link_args=LINK_ARGS,
        py_limited_api=True,  # torch adds -DPy_LIMITED_API: one build for all Pythons
    )
    return {
        "ext_modules": [extension],
        "cmdclass": {"build_ext": cpp_extension.BuildExtension},
        "options": {"bdist_wheel": {"py_limited_api": "cp311"}},
    }


os.chdir(ROOT)
setuptools.setup(**operators() if BUILDS else {})
