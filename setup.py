"""Build the operators of csrc/ into ``opbook._C``, one library for all of them.

Environment variables:
    USE_CUDA: 1 requires the GPU kernels, 0 leaves them out; unset builds them when
        torch has CUDA or ROCm and the compiler (nvcc or hipcc) is there.
    DEBUG: 1 builds with -O0 -g (and -G in device code), to step through in a debugger.
    TORCH_CUDA_ARCH_LIST, PYTORCH_ROCM_ARCH, MAX_JOBS: read by torch's BuildExtension.
"""

import os
import shutil
import sys
from pathlib import Path

from setuptools import setup

# pip asks for name and version in processes of their own, before it builds: each would
# spend seconds on importing PyTorch for nothing.
BUILDS = not {"egg_info", "dist_info"} & {*sys.argv}
if BUILDS:
    import torch
    from torch.utils import cpp_extension

ROOT = Path(__file__).resolve().parent
# LibTorch Stable ABI of 2.11: major in byte 7, minor in byte 6. One build serves every
# torch from 2.11 on.
TORCH_TARGET_VERSION = "0x020b000000000000"
DEBUG = os.environ.get("DEBUG", "0") == "1"
# A toolchain that links libstdc++ statically would otherwise export its copy, and the
# first exception that crosses into torch's copy ends in a segmentation fault.
LINK_ARGS = ["-Wl,--exclude-libs,ALL"] if sys.platform == "linux" else []


def gpu_compiler() -> str | None:
    """Path of the compiler that this torch's GPU kernels need, if it is there."""
    home, name = (
        (cpp_extension.ROCM_HOME, "hipcc")
        if torch.version.hip
        else (cpp_extension.CUDA_HOME, "nvcc")
    )
    return shutil.which(name, path=f"{home}/bin") if home else None


def use_gpu() -> bool:
    """Decide from USE_CUDA, torch and the compiler; exit where they contradict."""
    wanted = os.environ.get("USE_CUDA")
    if wanted not in (None, "0", "1"):
        sys.exit(f"USE_CUDA must be 0 or 1, but is {wanted!r}")
    missing = None
    if not (torch.version.cuda or torch.version.hip):
        missing = f"torch {torch.__version__} is built without CUDA and ROCm"
    elif gpu_compiler() is None:
        missing = "no nvcc or hipcc found (set CUDA_HOME or ROCM_HOME)"
    if wanted == "1" and missing:
        sys.exit(f"USE_CUDA=1, but {missing}")
    return wanted != "0" and missing is None


def operators() -> dict:
    """What is built: CPU sources always, GPU sources where possible."""
    sources = [Path("csrc/module.cpp"), *sorted(Path("csrc").glob("*/*.cpp"))]
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
    if use_gpu():
        make = cpp_extension.CUDAExtension
        sources += sorted(Path("csrc").glob("*/*.cu"))
        # The stable ABI declares the current stream's getter only under USE_CUDA.
        define.append(("USE_CUDA", "1"))
        device = ["-O0", "-g"] if DEBUG else ["-O3"]  # nvcc has no -g0
        if DEBUG and torch.version.cuda:
            device.append("-G")
        compile_args["nvcc"] = [*device, "-std=c++20"]
        if torch.version.cuda and not torch.cuda.is_available():
            # Without a visible GPU torch has no architecture to default to.
            os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "8.0;9.0;10.0+PTX")
    extension = make(
        "opbook._C",
        [str(source) for source in sources],
        # Paths relative to setup.py: what setuptools asks for, and what hipify keeps.
        depends=[str(header) for header in sorted(Path("csrc").rglob("*.h"))],
        define_macros=define,
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
setup(**operators() if BUILDS else {})
