"""Fixtures of the tests that run GPU kernels on the CPU.

A plugin of pytest: a file of tests loads it with ``pytest_plugins``.
"""

import functools
from pathlib import Path

import pytest

from emulated import FEW, build

CSRC = Path(__file__).parents[1] / "csrc"
# The emulator passes pointers and numbers, and no structs.
PLAIN = {
    "rms_norm": """
template <typename T, typename W, typename C>
const char* launch_rms_norm(const T* input, int64_t input_stride, const W* weight,
                            T* output, int64_t output_stride, C* rrms, int64_t rows,
                            int64_t hidden, double eps, void* stream) {
  const rms_norm_args<T, W> args{{input, input_stride}, weight,
                                 {output, output_stride}, rrms, rows, hidden, C(eps)};
  return launch_rms_norm(args, stream);
}
""",
    "add_rms_norm": """
template <typename T, typename W, typename C>
const char* launch_add_rms_norm(const T* input, int64_t input_stride, const T* residual,
                                int64_t residual_stride, const W* weight, T* output,
                                T* sum, C* rrms, int64_t rows, int64_t hidden,
                                double eps, void* stream) {
  const rms_norm_args<T, W> args{{input, input_stride}, weight, {output, hidden},
                                 rrms, rows, hidden, C(eps)};
  const Residual<T> added{{residual, residual_stride}, {sum, hidden}};
  return launch_add_rms_norm(args, added, stream);
}
""",
    "rms_norm_backward": """
template <typename T, typename W, typename C>
const char* launch_rms_norm_backward(const T* grad, int64_t grad_stride, const T* input,
                                     int64_t input_stride, const W* weight,
                                     const C* rrms, const T* added, T* grad_input,
                                     C* partial, W* grad_weight, int64_t rows,
                                     int64_t hidden, void* stream) {
  const rms_norm_backward_args<T, W> args{{grad, grad_stride}, {input, input_stride},
                                          weight, rrms, added, grad_input, partial,
                                          grad_weight, rows, hidden};
  return launch_rms_norm_backward(args, stream);
}
""",
}
INSTANCES = """
#undef OPBOOK_INSTANTIATE
#define OPBOOK_INSTANTIATE(T, W)                     \\
  template decltype(launch_NAME<T, W, compute_t<T>>) \\
      launch_NAME<T, W, compute_t<T>>
OPBOOK_FOR_INPUT_AND_WEIGHT(OPBOOK_INSTANTIATE);
"""


def plain_launcher(operator: str) -> str:
    """C++ to append to an operator's .cu file: its launcher, without structs."""
    instances = INSTANCES.replace("NAME", operator)
    return f"namespace opbook {{\n{PLAIN[operator]}{instances}}}  // namespace opbook\n"


@pytest.fixture(scope="session")
def built(request, tmp_path_factory):
    """Compile each source once per warp size in a session."""
    folder = tmp_path_factory.mktemp("emulated")
    every = None if request.config.getoption("--all") else FEW

    @functools.cache
    def built(source, lanes, more="", types=every):
        return build(source, lanes, folder, types, more)

    return built


@pytest.fixture(params=[32, 64], ids="warp_{}".format)
def warp_size(request) -> int:
    return request.param


@pytest.fixture(params=["ascending", "descending", "random"])
def launch(request, built, warp_size):
    """Launch on the emulated GPU: launch("rms_norm", arguments of launch_rms_norm)."""

    def launch(operator, *arguments, folder="", launcher=""):
        source = CSRC / (folder or operator) / f"{operator}.cu"
        gpu = built(source, warp_size, plain_launcher(operator))
        name = f"launch_{launcher or operator}"
        gpu.launch(name, *arguments, order=request.param)

    return launch
