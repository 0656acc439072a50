"""``torch.compile`` for the backend: Inductor's C++ kernels, called on its memory."""

from types import SimpleNamespace

import torch
import torch._inductor.config
from torch._dynamo.device_interface import (
    DeviceInterface,
    register_interface_for_device,
)
from torch._inductor.codegen.common import (
    register_backend_for_device,
    register_device_op_overrides,
)
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.codegen.cpu_device_op_overrides import CpuDeviceOpOverrides
from torch._inductor.codegen.wrapper import PythonWrapperCodegen


# [wrapper]
class Wrapper(PythonWrapperCodegen):
    """The Python code around the kernels."""

    @staticmethod
    def create(is_subgraph: bool, *args) -> PythonWrapperCodegen:
        """Make the wrapper of a graph; PyTorch's own does for a part of one."""
        create = PythonWrapperCodegen.create
        return create(is_subgraph, *args) if is_subgraph else Wrapper()

    def make_allocation(self, name, device, *args, **options) -> str:
        """Name the device with its number, which the base class leaves out."""
        line = super().make_allocation(name, device, *args, **options)
        return line.replace(f"'{device.type}'", f"'{device}'")

    def _generate_kernel_call_helper(self, kernel, args, *, device, **options) -> None:
        stream = f"torch.accelerator.current_stream('{device}')"
        self.writeline(f"{stream}.synchronize()")  # the kernel runs at once
        self.writeline(self.wrap_kernel_call(kernel, args))


# [/wrapper]


# [interface]
class Interface(DeviceInterface):
    """What the compiler asks about the device."""

    class Worker:
        """The questions that a process which only compiles may ask."""

        @staticmethod
        def get_device_properties(device=None) -> SimpleNamespace:
            """How much of a reduction can run side by side."""
            return SimpleNamespace(multi_processor_count=1)

    @staticmethod
    def get_compute_capability(device=None) -> str:
        """The device's generation; this one has none."""
        return ""

    is_available = staticmethod(torch.accelerator.is_available)
    device_count = staticmethod(torch.accelerator.device_count)
    current_device = staticmethod(torch.accelerator.current_device_index)
    synchronize = staticmethod(torch.accelerator.synchronize)


# [/interface]


# [register]
def register() -> None:
    """Let ``torch.compile`` make code for the device."""
    register_interface_for_device("opbook", Interface)
    register_device_op_overrides("opbook", CpuDeviceOpOverrides())
    register_backend_for_device("opbook", CppScheduling, Wrapper)
    # A device that Inductor does not know counts as one whose kernels are Triton's.
    torch._inductor.config.cuda_backend = "cpp"
    # [/register]
