"""See what fast math and the list of architectures change
========================================================

Two settings of a CUDA build change what your users get: ``--use_fast_math`` trades the
last digits for fewer instructions, and ``TORCH_CUDA_ARCH_LIST`` decides on which GPUs
the kernel can run. nvcc shows what it makes of both, and needs no GPU for that.
:doc:`/howto/configure_the_build` lists the other flags.

It needs torch and nvcc; where there is a GPU, the results are compared on it, too.

.. topics:: 45
"""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch.utils import cpp_extension

NVCC = shutil.which("nvcc")
if NVCC is None:
    print("skipped: needs nvcc (install the CUDA toolkit)")
    sys.exit(77)

# %%
# The kernels call one function each, so that their instructions are easy to compare.

FUNCTIONS = {
    "exp": "expf(x)",
    "sin": "sinf(x)",
    "divide": "1.5f / x",
    "square root": "sqrtf(x)",
    "multiply, add": "x * x + 1.5f",
}
KERNEL = """
extern "C" __global__ void kernel{number}(const float* input, float* output,
                                          int count) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float x = input[i];
  output[i] = {expression};
}}
extern "C" int run{number}(const float* input, float* output, int count) {{
  kernel{number}<<<(count + 255) / 256, 256>>>(input, output, count);
  return cudaDeviceSynchronize();
}}
"""
FOLDER = tempfile.TemporaryDirectory()
SOURCE = Path(FOLDER.name, "functions.cu")
SOURCE.write_text(
    "".join(
        KERNEL.format(number=number, expression=expression)
        for number, expression in enumerate(FUNCTIONS.values())
    )
)

# %%
# PTX, the assembly language of all NVIDIA GPUs, names what the flag chooses: ``approx``
# is a function of the chip that is fast and inexact, ``rn`` rounds as IEEE 754 demands,
# and ``ftz`` replaces numbers below 1.2e-38 by zero. The last kernel multiplies and
# adds in one instruction with and without the flag: nvcc fuses the two by default, and
# ``--fmad=false`` would keep them apart.


def ptx(*flags: str) -> list[str]:
    """Compile the kernels; return the PTX of each."""
    command = [NVCC, "-ptx", "-arch=sm_90", *flags, SOURCE, "-o", "-"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return text.split(".visible .entry")[1:]


def arithmetic(kernel: str) -> list[str]:
    """The instructions of a kernel that compute with floats."""
    words = re.findall(r"^\s+(?:@%p\d+ )?([\w.]+\.f32)\s", kernel, re.MULTILINE)
    moves = ("mov", "ld", "st", "setp", "selp")
    return [word for word in words if not word.startswith(moves)]


with ThreadPoolExecutor() as pool:
    exact, fast = pool.map(lambda flags: ptx(*flags), [(), ("--use_fast_math",)])
for name, *kernels in zip(FUNCTIONS, exact, fast, strict=True):
    for flag, kernel in zip(("", "--use_fast_math"), kernels, strict=True):
        found = arithmetic(kernel)
        words = " ".join(dict.fromkeys(found))
        print(f"{name:14} {flag:16} {len(found):3}: {words[:70]}")

# %%
# The flag applies to the whole file, whether a function can bear it or not. If only
# one function is hot, write its fast form there: ``__expf(x)``, ``__fdividef(x, y)``.
# On a GPU, the errors of both versions follow here:

if torch.cuda.is_available() and torch.version.cuda:
    x = torch.linspace(0.1, 88, 1 << 20, device="cuda")  # exp(89) is infinite
    eager = [x.double().exp(), x.double().sin(), 1.5 / x.double(), x.double().sqrt()]
    eager += [x.double() ** 2 + 1.5]
    for flags in ([], ["--use_fast_math"]):
        library = Path(FOLDER.name, f"functions{len(flags)}.so")
        options = ["-arch=native", "-shared", "-Xcompiler", "-fPIC", *flags]
        subprocess.run([NVCC, *options, SOURCE, "-o", library], check=True)
        functions = ctypes.CDLL(str(library))
        for number, (name, expected) in enumerate(zip(FUNCTIONS, eager, strict=True)):
            output = torch.empty_like(x)
            pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, output))
            torch.cuda.synchronize()  # the kernel runs in the default stream
            if error := functions[f"run{number}"](*pointers, x.numel()):
                sys.exit(f"{name}: CUDA error {error}")
            far = ((output - expected).abs() / expected.abs()).max().item()
            print(f"{name:14} {' '.join(flags):16} relative error {far:.1e}")
else:
    print("no NVIDIA GPU here to compare the results on")

# %%
# ``TORCH_CUDA_ARCH_LIST`` may have numbers (``9.0``), numbers with ``+PTX``, or names
# of generations. PyTorch makes nvcc's flags of them:


def flags_of(architectures: str) -> list[str]:
    """The flags that PyTorch gives nvcc for a list of architectures."""
    os.environ["TORCH_CUDA_ARCH_LIST"] = architectures
    return cpp_extension._get_cuda_arch_flags()


GENERATIONS = "Turing;Ampere;Ada;Hopper"
for architectures in (GENERATIONS, "9.0", "9.0+PTX", "9.0a"):
    print(architectures)
    print(*(f"  {flag}" for flag in flags_of(architectures)), sep="\n")

# %%
# ``code=sm_90`` is machine code, which runs on GPUs of compute capability 9.0 and of
# later ones with the same major number. ``code=compute_90`` is PTX, which the driver
# compiles for any GPU of 9.0 or later that finds no machine code. The name of a
# generation stands for several numbers, and each makes the library larger.


def size(architectures: str) -> str:
    """Compile the kernels for a list; describe the object that comes of it."""
    made = Path(FOLDER.name, f"{re.sub(r'[^0-9a-zA-Z]', '_', architectures)}.o")
    flags = flags_of(architectures)
    subprocess.run([NVCC, "-c", *flags, SOURCE, "-o", made, "--threads=0"], check=True)
    return f"{made.stat().st_size / 1024:6.0f} KiB from {len(flags)} targets"


for architectures in ("9.0", "9.0+PTX", GENERATIONS):
    try:
        print(f"{architectures:26} {size(architectures)}")
    except subprocess.CalledProcessError as error:
        print(f"{architectures:26} this nvcc refuses it: status {error.returncode}")

# %%
# A word that PyTorch does not know is an error before nvcc runs:

for architectures in ("Turing,Ampere", "sm_90"):
    try:
        flags_of(architectures)
    except ValueError as error:
        print(f"{architectures}: {error}")
