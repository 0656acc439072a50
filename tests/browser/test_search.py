"""The site's search and its table of errors, as a reader uses them."""

import html
import re
from functools import cache

import pytest
from conftest import HTML

# What a reader types, and the page that answers. Several pages when each one does.
QUERIES = {
    "getting started": "guide/1_first_operator",
    "in-place": "howto/mutate_an_input",
    "mutates_args": "howto/mutate_an_input",
    "AMD": "howto/port_to_hip",
    "cuda to rocm": "howto/port_to_hip",
    "CUDA kernel": "guide/3_gpu_kernel",
    "register_autograd": "guide/7_autograd",
    "custom backward": "guide/7_autograd reduction/4_gradient",
    "undefined symbol": "reference/errors howto/bind_three_ways howto/find_a_fault",
    "fake tensor": "howto/compile_without_graph_breaks reference/glossary",
    "torch.compile graph break": "howto/compile_without_graph_breaks",
    "multiple outputs": "howto/return_several_outputs",
    "return a tuple of tensors": "howto/return_several_outputs",
    "nonzero unique dynamic shape": "howto/return_a_shape_that_depends_on_data",
    "pybind11": "howto/bind_three_ways",
    "mixed precision": "howto/work_with_vmap_and_autocast",
    "batching rule": "howto/work_with_vmap_and_autocast",
    "sharding distributed": "howto/work_with_tensor_subclasses",
    "activation checkpointing": "howto/save_memory",
    "saved tensors memory": "howto/save_memory",
    "dropped by the compiler": "howto/keep_a_side_effect",
    "manylinux": "howto/ship_a_wheel",
    "torch.export AOTInductor": "howto/ship_a_wheel",
    "py_limited_api abi3": "explain/the_stable_abi reference/build_flags",
    "nsight compute": "howto/profile",
    "compute-sanitizer": "howto/check_memory",
    "how to time a kernel": "howto/benchmark_honestly",
    "github actions": "howto/run_ci_on_a_gpu",
    "TORCH_CUDA_ARCH_LIST": "howto/configure_the_build",
    "slow build ccache": "howto/configure_the_build",
    "segfault": "howto/find_a_fault",
    "cmake": "dispatch/build_without_setuptools",
    "PrivateUse1": "dispatch/bring_a_backend",
    "replace torch.mm": "dispatch/override_an_aten_operator",
    "TORCH_LIBRARY_FRAGMENT": "dispatch/share_a_namespace",
    "cuda stream": "explain/streams",
    "memory bound": "explain/roofline",
    "cutlass": "howto/reach_for_a_library",
    "race condition": "howto/avoid_kernel_pitfalls",
    "run triton without a gpu": "triton/9_interpreter triton/10_ahead_of_time",
    "autotune": "examples/70_autotune_in_triton",
    "optional tensor argument": "reference/schema_language howto/design_the_interface",
    "non-contiguous input": "explain/strides dispatch/handle_edge_cases",
    "gradcheck": "howto/write_the_tests reduction/4_gradient",
    "project template": "guide/8_your_own howto/follow_the_checklist",
    "coding assistant": "howto/teach_an_agent",
}

# What a reader pastes, and the part of it by which its pages are known: the table of
# errors, and each page that shows the message.
MESSAGES = {
    "ImportError: /home/anna/.venv/lib/python3.12/site-packages/fastnorm/_C.abi3.so: "
    "undefined symbol: _ZN3c106detail14torchCheckFailEPKcS2_jRKSs": "undefined symbol",
    "/usr/bin/ld: /tmp/tmpx8k2/build/norm.o: relocation R_X86_64_PC32 against symbol "
    "`stderr@@GLIBC_2.2.5' can not be used when making a shared object; recompile "
    "with -fPIC": "recompile with -fPIC",
    "AttributeError: '_OpNamespace' 'fastnorm' object has no attribute "
    "'fused_norm'": "object has no attribute",
    "NotImplementedError: Could not run 'fastnorm::fused_norm' with arguments from the "
    "'CUDA' backend. This could be because the operator doesn't exist for this "
    "backend, or was omitted during the selective/custom build process (if using "
    "custom build).": "Could not run '",
    "torch._dynamo.exc.Unsupported: Operator does not support running with fake "
    "tensors\n  Explanation: unsupported operator: fastnorm.fused_norm.default\n"
    "  Hint: see https://docs.google.com/document/d/1GgvOe7C8": "running with fake",
    "NotImplementedError: There was no fake impl registered for "
    "<CustomOpDef(fastnorm::fused_norm)>. This is necessary for torch.compile/export/"
    "fx tracing to work. Please use `fused_norm_impl.register_fake` to add an fake "
    "impl.": "no fake impl registered",
    "RuntimeError: Trying to backward through fastnorm.fused_norm.default but no "
    "autograd formula was registered. Please use register_autograd to add "
    "one.": "no autograd formula was registered",
    "RuntimeError: Only a single TORCH_LIBRARY can be used to register the namespace "
    "fastnorm; please put all of your definitions in a single TORCH_LIBRARY block. "
    "Previous registration of TORCH_LIBRARY was registered at /workspace/csrc/a.cpp:12;"
    " latest registration was registered at /workspace/csrc/b.cpp:9": "a single TORCH_L",
    "RuntimeError: Tried to register an operator (fastnorm::fused_norm(Tensor x, float "
    "eps) -> Tensor) with the same name and overload name multiple times. Each "
    "overload's schema should only be registered with a single call to def(). "
    "Duplicate registration: registered at /workspace/csrc/ops.cpp:31. Original "
    "registration: registered at /dev/null:241": "same name and overload name multiple",
    "torch.autograd.gradcheck.GradcheckError: Jacobian mismatch for output 0 with "
    "respect to input 0,\nnumerical:tensor([[0.9980, 0.0000],\n        [0.0000, "
    "0.9980]])\nanalytical:tensor([[2., 0.],\n        [0., 2.]])": "Jacobian mismatch",
    "nvcc fatal   : Unsupported gpu architecture 'compute_120'": "Unsupported gpu arch",
    "Getting requirements to build wheel did not run successfully. exit code: 1 File "
    '"/tmp/pip-build-env-kq3x/overlay/setup.py", line 5, in <module> import torch '
    "ModuleNotFoundError: No module named 'torch'": "No module named 'torch'",
    '  File "/opt/conda/lib/python3.11/site-packages/torch/_ops.py", line 829, in '
    "__call__\n    return self._op(*args, **kwargs)\nRecursionError: maximum recursion "
    "depth exceeded while calling a Python object": "maximum recursion depth exceeded",
    "OSError: libc10.so: cannot open shared object file: No such file or "
    "directory": "cannot open shared object file",
    "ImportError: dynamic module does not define module export function "
    "(PyInit_fused_norm)": "define module export function",
    'RuntimeError: "fused_norm_cpu" not implemented for \'BFloat16\'': "ot implemented for '",
    "RuntimeError: one of the variables needed for gradient computation has been "
    "modified by an inplace operation: [torch.cuda.FloatTensor [32, 4096]], which is "
    "output 0 of SoftmaxBackward0, is at version 2; expected version 1 "
    "instead.": "modified by an inplace operation",
    "RuntimeError: CUDA error: invalid configuration argument\nCUDA kernel errors might"
    " be asynchronously reported at some other API call, so the stacktrace below might "
    "be incorrect.": "invalid configuration argument",
    "==31337==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x60b000001a38 "
    "at pc 0x7f3c2e1a5b2c bp 0x7ffd2b0 sp 0x7ffd2a8 READ of size 4 at 0x60b000001a38 "
    "thread T0": "heap-buffer-overflow",
    "triton.compiler.errors.CompilationError: at 9:14:\n    offsets = pid * BLOCK + "
    "tl.arange(0, BLOCK)\nValueError: arange's range must be a power of 2": "power of 2",
    "RuntimeError: 0 active drivers ([]). There should only be one.": "0 active drivers",
    "ValueError: infer_schema(func): Parameter alpha must have a type annotation. Got "
    "func with signature (x: torch.Tensor, alpha) -> torch.Tensor)": "have a type annot",
    "TypeError: save_for_backward can only save variables, but argument 2 is of type "
    "int": "save_for_backward can only save",
    "ERROR: fastnorm-0.1.0-cp312-cp312-linux_x86_64.whl is not a supported wheel on "
    "this platform.": "is not a supported wheel",
    "clang++: error: unknown argument: '-gencode'": "unknown argument: '-gencode'",
    "RuntimeError: function FusedNormBackward returned an incorrect number of gradients"
    " (expected 3, got 2)": "returned an incorrect number of gradients",
    "torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode: Could not guard "
    "on data-dependent expression Eq(u0, 0) (unhinted: Eq(u0, 0)).  (Size-like symbols:"
    " u0)": "Could not guard on data-dependent",
    "csrc/norm.cpp:57:31: error: ‘const class torch::stable::Tensor’ has no member "
    "named ‘const_data_ptr’; did you mean ‘data_ptr’?": "has no member named",
    "NotImplementedError: Operator fastnorm.fused_norm.default does not have a sharding "
    "strategy registered.": "does not have a sharding strategy",
    "csrc/norm.cu:3:10: fatal error: torch/headeronly/util/BFloat16.h: No such file or "
    "directory\n    3 | #include <torch/headeronly/util/BFloat16.h>\ncompilation "
    "terminated.": "BFloat16.h",
    'csrc/norm.cu(41): error: no suitable constructor exists to convert from "int" to '
    '"__half"': "no suitable constructor",
    "RuntimeError: unsupported operation: more than one element of the written-to "
    "tensor refers to a single memory location. Please clone() the tensor before "
    "performing the operation.": "more than one element of the written-to",
    "torch.testing._internal.optests.generate_tests.OpCheckError: opcheck(op, ...): "
    "test_faketensor failed with Stride mismatch! Strides are (1, 4) and (3, 1) at "
    "index 0": "test_faketensor failed with",
    "E   AssertionError: Tensor-likes are not close!\nE   \nE   Mismatched elements: 3 "
    "/ 4096 (0.1%)\nE   Greatest absolute difference: 0.0039 at index (7, 12) (up to "
    "1e-05 allowed)": "Tensor-likes are not close",
}
