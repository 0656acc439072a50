"""Build csrc/ into ``starter._C``."""

import os
import shutil
import subprocess
import sys
from glob import glob

import torch
from setuptools import setup
from torch.utils import cpp_extension


def missing_for_gpu() -> str | None:
    """Say why the GPU kernels cannot be built; None if they can."""
    if os.environ.get("USE_CUDA") == "0":
        return "USE_CUDA=0"
    if not (torch.version.cuda or torch.version.hip):
        return f"torch {torch.__version__} is a build for the CPU"
    if torch.version.cuda and not os.environ.keys() & {"CUDA_HOME", "CUDA_PATH"}:
        # torch guesses from PATH, where nvcc may be a script or a link: ask nvcc.
        said = subprocess.getoutput("nvcc --dryrun -x cu -c /dev/null -o /dev/null")
        if root := said.partition("#$ TOP=")[2].partition("\n")[0]:
            cpp_extension.CUDA_HOME = os.path.normpath(root)
    compiler = "hipcc" if torch.version.hip else "nvcc"
    home = cpp_extension.ROCM_HOME if torch.version.hip else cpp_extension.CUDA_HOME
    if home is None or not shutil.which(compiler, path=f"{home}/bin"):
        return f"{compiler} not found (set CUDA_HOME or ROCM_HOME)"
    find = f"{cpp_extension.get_cxx_compiler()} -B{home}/lib64 -B{home}/lib"
    library = subprocess.getoutput(f"{find} -print-file-name=libcudart.so")
    if torch.version.cuda and not os.path.exists(library):
        return f"no libcudart.so in {home}/lib64 (install cuda-cudart-dev)"
    return None


# The oldest torch that the build works with, 2.11, in the two highest bytes.
macros = [("TORCH_TARGET_VERSION", "0x020b000000000000")]
make, sources = cpp_extension.CppExtension, glob("csrc/*.cpp")
sources = [name for name in sources if not name.endswith("_hip.cpp")]
if missing := missing_for_gpu():
    if os.environ.get("USE_CUDA") == "1":
        sys.exit(f"USE_CUDA=1, but {missing}")
    print(f"starter: building without GPU kernels: {missing}", file=sys.stderr)
else:
    make, sources = cpp_extension.CUDAExtension, sources + glob("csrc/*.cu")
    macros.append(("USE_CUDA", "1"))
    if not torch.cuda.is_available():
        # torch builds for the GPUs that it sees. Where it sees none, name them.
        os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "8.0;9.0+PTX")
        os.environ.setdefault("PYTORCH_ROCM_ARCH", "gfx90a;gfx942")

# DEBUG=1: for a debugger, which needs line numbers and variables.
optimize = ["-O0", "-g"] if os.environ.get("DEBUG") == "1" else ["-O3"]
exact = ["-fno-trapping-math"]  # vectors of comparisons, which change no value
hide = "-fvisibility=hidden"  # nvcc hands it to the C++ compiler
hide = hide if torch.version.hip else f"-Xcompiler={hide}"
extension = make(
    "starter._C",
    sorted(sources),
    depends=glob("csrc/*.h"),
    define_macros=macros,
    extra_compile_args={
        "cxx": ["-g0", *optimize, *exact, "-std=c++20", "-fvisibility=hidden"],
        "nvcc": [*optimize, "-std=c++20", hide],
    },
    # Some toolchains link a second libstdc++ in. Exported, it would break exceptions.
    extra_link_args=["-Wl,--exclude-libs,ALL"] if sys.platform == "linux" else [],
    py_limited_api=True,  # one library for every version of Python
)
build = {"build_ext": cpp_extension.BuildExtension}
tag = {"bdist_wheel": {"py_limited_api": "cp310"}}
setup(ext_modules=[extension], cmdclass=build, options=tag)
