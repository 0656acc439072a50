"""Launch a kernel with wrong grids and on a wrong stream, on a CUDA device."""

import ctypes
import tempfile
from pathlib import Path

import nvcc
import torch

COUNT = 1024


def build() -> ctypes.CDLL:
    """Compile the launcher for the GPU of this machine."""
    source, folder = Path(__file__).with_suffix(".cu"), Path(tempfile.mkdtemp())
    loaded = ctypes.CDLL(str(nvcc.library(source, folder)))
    loaded.negate.restype = ctypes.c_char_p
    return loaded


def negate(
    input: torch.Tensor, output: torch.Tensor, blocks: int, threads: int, stream: int
) -> str:
    """Launch; return the runtime's words, or "no error"."""
    error = library.negate(
        ctypes.c_void_p(input.data_ptr()),
        ctypes.c_void_p(output.data_ptr()),
        ctypes.c_int64(COUNT),
        blocks,
        threads,
        ctypes.c_void_p(stream),
    )
    return error.decode() if error else "no error"


def grids() -> None:
    """Launch with a grid that the device takes, and with two that it does not."""
    stream = torch.cuda.current_stream().cuda_stream
    for blocks, threads in ((1, 256), (0, 256), (1, 2048)):
        output = torch.zeros(COUNT, device="cuda")
        error = negate(ones, output, blocks, threads, stream)
        torch.cuda.synchronize()
        written = int((output == -1).sum())
        print(f"{blocks} x {threads:4} threads: {written:4} elements written, {error}")


# [stream]
def streams() -> None:
    """Negate what a side stream will have written in a while."""
    side = torch.cuda.Stream()
    for name, stream in {"none": 0, "current": side.cuda_stream}.items():
        late, output = torch.zeros(2, COUNT, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000_000)  # cycles: about 0.1 s
            late.copy_(ones)
            negate(late, output, 4, 256, stream)
        torch.cuda.synchronize()
        print(f"stream {name:8} the result is {output[0].item():g}, the truth is -1")


# [/stream]

library = build()
ones = torch.ones(COUNT, device="cuda")
negate(ones, torch.empty_like(ones), 4, 256, 0)  # loads the kernel
torch.cuda.synchronize()
grids()
streams()
