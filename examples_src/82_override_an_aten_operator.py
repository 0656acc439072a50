"""Override an ATen operator, with switches and a call log
=======================================================

Put kernels of your own into ``torch.neg`` and ``torch.abs``, so that code which calls
them runs your kernels and need not change. Environment variables switch the overrides
on, switch a single one off, and log each call.
:doc:`/dispatch/override_an_aten_operator` has a kernel for every dtype and all strides.

It needs torch, ninja and a C++ compiler, and uses a GPU if nvcc or hipcc is there too.

.. topics:: 35 37 39
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch.utils import cpp_extension

os.environ["PATH"] += os.pathsep + sysconfig.get_path("scripts")  # pip's ninja
for tool in ("ninja", cpp_extension.get_cxx_compiler().split()[-1]):
    if shutil.which(tool) is None:
        print(f"skipped: needs {tool}")
        sys.exit(77)

# %%
# Each kernel serves the tensors that it was written for, contiguous ones in fp32, and
# hands the others on. It must not call its own operator for them: the call would come
# back to the override, again and again. ``neg.out`` is another operator, which is not
# overridden. It resizes the empty output that it gets.
#
# The environment is read when the library is loaded. What is not registered then costs
# nothing, and cannot be switched on later.

SOURCE = r"""
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

using torch::stable::Tensor;

bool is_set(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  return value != nullptr && std::string(value) == "1";
}

bool is_enabled(const char* name) {
  return is_set("DEMO_ENABLE") && !is_set(std::string("DEMO_DISABLE_") + name);
}

void log_call(const char* name, const Tensor& input, const char* by) {
  static const bool is_wanted = is_set("DEMO_LOG");
  const auto dtype = torch::headeronly::toString(input.scalar_type());
  if (is_wanted) std::fprintf(stderr, "demo: %s of %s by %s\n", name, dtype, by);
}

#if defined(USE_CUDA)
#define DEVICE CUDA
#define HOST_DEVICE __host__ __device__
template <typename Element>
__global__ void kernel(Element compute, int64_t count) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < count) compute(i);
}

template <typename Element>
void for_each(const Tensor& tensor, Element compute) {
  const int64_t count = tensor.numel(), blocks = (count + 255) / 256;
  const torch::stable::accelerator::DeviceGuard guard(tensor.get_device_index());
  void* stream;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  if (count > 0) kernel<<<blocks, 256, 0, (cudaStream_t)stream>>>(compute, count);
  STD_TORCH_CHECK(cudaGetLastError() == cudaSuccess, "demo: the launch failed");
}
#else
#define DEVICE CPU
#define HOST_DEVICE
template <typename Element>
void for_each(const Tensor& tensor, Element compute) {
  torch::stable::parallel_for(0, tensor.numel(), 4096, [=](int64_t i, int64_t end) {
    for (; i < end; ++i) compute(i);
  });
}
#endif

struct Neg {
  static constexpr const char* name = "neg";
  const float* x;
  float* output;
  HOST_DEVICE void operator()(int64_t i) const { output[i] = -x[i]; }
};

struct Abs {
  static constexpr const char* name = "abs";
  const float* x;
  float* output;
  HOST_DEVICE void operator()(int64_t i) const { output[i] = fabsf(x[i]); }
};

Tensor by_eager(const char* name, const Tensor& input) {
  using torch::stable::detail::from, torch::stable::detail::to;
  const Tensor output = torch::stable::new_empty(input, {0});
  std::array<StableIValue, 2> stack{from(input), from(output)};
  const std::string full = std::string("aten::") + name;
  TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher(full.c_str(), "out", stack.data(), TORCH_ABI_VERSION));
  return to<Tensor>(stack[0]);
}

template <typename Element>
Tensor overriding(const Tensor& input) {
  const bool is_ours = input.is_contiguous() &&
                       input.scalar_type() == torch::headeronly::ScalarType::Float;
  log_call(Element::name, input, is_ours ? "the override" : "eager");
  if (!is_ours) return by_eager(Element::name, input);
  const Tensor output = torch::stable::empty_like(input);
  for_each(output, Element{(const float*)input.data_ptr(), (float*)output.data_ptr()});
  return output;
}

STABLE_TORCH_LIBRARY_IMPL(aten, DEVICE, m) {
  if (is_enabled("neg")) m.impl("neg", TORCH_BOX(&overriding<Neg>));
  if (is_enabled("abs")) m.impl("abs", TORCH_BOX(&overriding<Abs>));
}
"""

# %%
# This process builds the library, and loads it too. It has set no variable, so nothing
# is overridden here: the table of the dispatcher still has ATen's kernels.

gpu = torch.cuda.is_available() and (cpp_extension.CUDA_HOME or cpp_extension.ROCM_HOME)
device = "cuda" if gpu else "cpu"
FOLDER = tempfile.TemporaryDirectory(prefix="demo-")
cpp_extension.load_inline(
    "demo",
    cpp_sources="" if gpu else SOURCE,
    cuda_sources=SOURCE if gpu else "",
    extra_cflags=["-O3"],
    extra_cuda_cflags=["-O3", "-DUSE_CUDA"],
    # A libstdc++ that is linked in would catch no exception of PyTorch's own.
    extra_ldflags=["-Wl,--exclude-libs,ALL"] * (sys.platform == "linux"),
    build_directory=FOLDER.name,
    is_python_module=False,
    no_implicit_headers=True,
)
table = torch._C._dispatch_dump_table("aten::neg").splitlines()
(row,) = [row for row in table if row.startswith(f"{device.upper()}: ")]
print(row.split(" [")[0].rpartition("/")[2])

# %%
# The overrides do their work in other processes, which ask eager PyTorch for the
# expected results before they load the library. PyTorch still computes the gradient of
# ``abs``: an override of a device's row leaves autograd's row as it was.

PROGRAM = """
import sys, torch

library, device = sys.argv[1:]
inputs = {
    "contiguous": torch.randn(3, 5, device=device),
    "transposed": torch.randn(3, 5, device=device).t(),
    "integers": torch.arange(5, device=device),
    "empty": torch.empty(0, device=device),
}
expected = {name: (torch.neg(x), torch.abs(x)) for name, x in inputs.items()}
torch.ops.load_library(library)
for name, x in inputs.items():
    results = torch.neg(x), torch.abs(x)
    print(name, "equals eager's:", all(map(torch.equal, results, expected[name])))
x = inputs["contiguous"].requires_grad_()
x.abs().sum().backward()
print("gradient of abs:", torch.equal(x.grad, x.sign()))
"""


def run(**variables: str) -> str:
    """Run the program with some variables set; return what it says."""
    library = Path(FOLDER.name, "demo.so")
    quiet = {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # PyTorch warns of each override
    done = subprocess.run(
        [sys.executable, "-u", "-c", PROGRAM, library, device],
        env=os.environ | quiet | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.stdout + (f"exit status {done.returncode}\n" if done.returncode else "")


settings = [
    {"DEMO_ENABLE": "1", "DEMO_LOG": "1"},
    {"DEMO_ENABLE": "1", "DEMO_LOG": "1", "DEMO_DISABLE_neg": "1"},
]
with ThreadPoolExecutor() as pool:
    ends = list(pool.map(lambda variables: run(**variables), settings))
for variables, said in zip(settings, ends, strict=True):
    print(*(f"{name}={value}" for name, value in variables.items()))
    print(said)
