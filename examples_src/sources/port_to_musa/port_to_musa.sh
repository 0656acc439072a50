# On a machine with a Moore Threads GPU, the MUSA toolkit and torch_musa.
set -eu
mkdir -p build/musa
cat > build/musa/setup.py <<'PYTHON'
from setuptools import setup
from torch_musa.utils.musa_extension import BuildExtension, MUSAExtension

neg = MUSAExtension(
    "neg_musa",
    sources=["examples_src/sources/port_to_musa/neg.mu"],
    include_dirs=["csrc"],
    extra_compile_args={"cxx": ["-std=c++20"], "mcc": ["-std=c++20", "-O3"]},
)
setup(name="neg_musa", ext_modules=[neg], cmdclass={"build_ext": BuildExtension})
PYTHON
python build/musa/setup.py build_ext --build-lib build/musa

cat > build/musa/check.py <<'PYTHON'
from pathlib import Path

import torch
import torch_musa

x = torch.randn(4, 6)
views = [x, x.half(), x.t(), x[:, ::2], x.int(), x[:0]]
expected = [torch.neg(view.to("musa")) for view in views]
torch.ops.load_library(next(Path("build/musa").glob("neg_musa*.so")))
table = torch._C._dispatch_dump_table("aten::neg").splitlines()
print(next(line for line in table if line.startswith("PrivateUse1:")))
for view, right in zip(views, expected, strict=True):
    result = torch.neg(view.to("musa"))
    print(result.stride() == right.stride(), torch.equal(result.cpu(), right.cpu()))
PYTHON
OPBOOK_ENABLE_OVERRIDES=1 python build/musa/check.py
