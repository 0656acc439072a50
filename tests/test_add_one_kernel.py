"""The GPU kernel of add_one, run on the CPU by the emulator: see gpu_emulator.h."""

import pytest
import torch

from gpu import needs_emulator
from operands import DTYPES, not_written

pytest_plugins = "emulator_fixtures"
pytestmark = needs_emulator


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 31, 255, 256, 257, 1000])
def test_add_one(launch, count, dtype):
    input = torch.randn(count, dtype=dtype)
    output = not_written(count, dtype=dtype)
    launch("add_one", input, output, count)
    torch.testing.assert_close(output, input + 1, rtol=0, atol=0)
    launch("add_one", input, input, count)
    torch.testing.assert_close(input, output, rtol=0, atol=0)
