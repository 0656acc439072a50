"""Build csrc/ into ``starter._C``.

Environment variables:
    USE_CUDA: 1 requires the GPU kernels, 0 leaves them out. Unset builds them if torch
        has CUDA or ROCm and its compiler, nvcc or hipcc, is installed.
    TORCH_CUDA_ARCH_LIST, PYTORCH_ROCM_ARCH, MAX_JOBS: read by torch's BuildExtension.
"""

import os
import shutil
import sys
from glob import glob

import torch
from setuptools import setup
from torch.utils import cpp_extension


def missing_for_gpu() -> str | None:
    """Say what the GPU kernels lack to be built; None if nothing."""
    if os.environ.get("USE_CUDA") == "0":
        return "USE_CUDA=0"
    if not (torch.version.cuda or torch.version.hip):
        return f"torch {torch.__version__} is a build for the CPU"
    home, compiler = cpp_extension.CUDA_HOME, "nvcc"
    if torch.version.hip:
        home, compiler = cpp_extension.ROCM_HOME, "hipcc"
    if home is None or not shutil.which(compiler, path=f"{home}/bin"):
        return f"{compiler} not found (set CUDA_HOME or ROCM_HOME)"
    return None


make = cpp_extension.CUDAExtension
sources = sorted(glob("csrc/*.cpp") + glob("csrc/*.cu"))
# 2.11 as major and minor version in the two highest bytes: the oldest torch that the
# library works with. It works with every later one without being built again.
macros = [("TORCH_TARGET_VERSION", "0x020b000000000000")]
if missing := missing_for_gpu():
    if os.environ.get("USE_CUDA") == "1":
        sys.exit(f"USE_CUDA=1, but {missing}")
    print(f"starter: building without GPU kernels: {missing}", file=sys.stderr)
    make = cpp_extension.CppExtension
    sources = sorted(glob("csrc/*.cpp"))
else:
    macros.append(("USE_CUDA", "1"))
    if torch.version.cuda and not torch.cuda.is_available():
        # torch builds for the GPUs that it sees. Where it sees none, name them.
        os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "8.0;9.0+PTX")

extension = make(
    "starter._C",
    sources,
    depends=glob("csrc/*.h"),
    define_macros=macros,
    extra_compile_args={
        "cxx": ["-O3", "-g0", "-std=c++20", "-fvisibility=hidden"],
        "nvcc": ["-O3", "-std=c++20"],
    },
    # A toolchain that links libstdc++ statically must not export its copy: an exception
    # that crosses into torch's copy would end in a segmentation fault.
    extra_link_args=["-Wl,--exclude-libs,ALL"] if sys.platform == "linux" else [],
    py_limited_api=True,  # one library for every version of Python
)
setup(
    ext_modules=[extension],
    cmdclass={"build_ext": cpp_extension.BuildExtension},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
