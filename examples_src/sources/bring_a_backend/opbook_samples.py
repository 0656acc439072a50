"""PyTorch's samples of some operators, on the backend and on the CPU."""

import unittest

import torch
from torch.testing._internal.common_device_type import (
    instantiate_device_type_tests,
    ops,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase

# [test]
NAMES = {"neg", "add", "sum", "mm", "clone", "t", "index_select", "softmax"}
DTYPES = (torch.float32, torch.bfloat16, torch.int64)


def on_cpu(value):
    """Copy a tensor to the CPU; leave the rest."""
    return value.cpu() if isinstance(value, torch.Tensor) else value


class TestOperators(TestCase):
    """Each operator gives what the CPU gives, and leaves it on the device."""

    @ops([op for op in op_db if op.name in NAMES], allowed_dtypes=DTYPES)
    def test_same_as_cpu(self, device, dtype, op):
        """Call the operator with every sample."""
        for sample in op.sample_inputs(device, dtype):
            twin = sample.transform(on_cpu)
            result = op(sample.input, *sample.args, **sample.kwargs)
            assert result.device.type == "opbook"
            expected = op(twin.input, *twin.args, **twin.kwargs)
            torch.testing.assert_close(result.cpu(), expected)


instantiate_device_type_tests(TestOperators, globals(), only_for="opbook")
# [/test]


def run_tests() -> unittest.TestResult:
    """Run the class that was made for the device."""
    kind = globals()["TestOperatorsPRIVATEUSE1"]
    outcome = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(kind).run(outcome)
    return outcome
