"""Compile csrc/ into ``starter._C``."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

extension = CppExtension(
    "starter._C",
    ["csrc/swiglu_op.cpp"],
    # The oldest torch that the library will work with: 2.11, in the two highest bytes.
    define_macros=[("TORCH_TARGET_VERSION", "0x020b000000000000")],
    extra_compile_args=["-O3", "-std=c++20"],
    py_limited_api=True,
)
setup(
    name="starter",
    package_dir={"": "src"},
    packages=["starter"],
    ext_modules=[extension],
    cmdclass={"build_ext": BuildExtension},
)
