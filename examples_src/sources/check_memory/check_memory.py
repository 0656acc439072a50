"""Run compute-sanitizer on a right and on three faulty kernels, with and without torch.

Prints what the tool found, without paths and addresses. Needs nvcc, compute-sanitizer
and a GPU; ``torch`` as an argument is the script's call of itself.
"""

import ctypes
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import nvcc

SOURCE = Path(__file__).with_name("check_memory.cu")
# The line that opens a finding, the lines that belong to it, and the last word.
OPENS = re.compile(r"Invalid|Error: Race|Uninitialized")
BELONGS = re.compile(r"and (Read|Write) access|at neighbour_sum|by thread|A.* out of b")
LAST = re.compile(r"(ERROR SUMMARY: \d+ errors?$|RACECHECK SUMMARY|last element)")


def main() -> None:
    """Compile, then check each variant with the tool that is for its fault."""
    compiler, sanitizer = nvcc.path(), nvcc.path("compute-sanitizer")
    with tempfile.TemporaryDirectory() as folder:
        program, library = Path(folder, "check_memory"), Path(folder, "neighbour.so")
        command = [compiler, *"-O2 -lineinfo -arch=native".split(), SOURCE]
        subprocess.run([*command, "-o", program], check=True)
        shared = ["-shared", "-Xcompiler", "-fPIC", "-o", library]
        subprocess.run([*command, *shared], check=True)
        for tool, fault in (
            ("memcheck", 0),
            ("memcheck", 1),
            ("racecheck", 2),
            ("initcheck", 3),
        ):
            check(sanitizer, tool, f"check_memory {fault}", [str(program), str(fault)])
        python = [sys.executable, __file__, "torch", str(library)]
        check(sanitizer, "memcheck", "python, torch's caching allocator", python)
        check(
            sanitizer,
            "memcheck",
            "python, PYTORCH_NO_CUDA_MEMORY_CACHING=1",
            ["env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1", *python],
        )


def check(sanitizer: str, tool: str, title: str, command: list[str]) -> None:
    """Run a command under one tool and print the first lines that say something."""
    done = subprocess.run(
        [sanitizer, "--tool", tool, "--target-processes", "all", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = [plain(line) for line in done.stdout.splitlines()]
    last = [line for line in lines if LAST.match(line)]
    if not last:
        raise SystemExit(f"{tool} did not come to its end:\n{done.stdout[-2000:]}")
    print(f"--tool {tool}: {title}")
    for line in [*first_finding(lines), *last]:
        print("   ", line)


def first_finding(lines: list[str]) -> list[str]:
    """The first fault that the tool reports, without the host's part of the stack."""
    starts = [number for number, line in enumerate(lines) if OPENS.match(line)]
    if not starts:
        return []
    rest = lines[starts[0] + 1 : starts[1] if len(starts) > 1 else None]
    return [lines[starts[0]], *(line for line in rest if BELONGS.match(line))]


def plain(line: str) -> str:
    """Take the margin, addresses and folders out of a line."""
    line = re.sub(r"^=+\s*", "", line)
    line = line.replace("(const float *, float *, int, int)", "")
    line = re.sub(r"\+0x[0-9a-f]+", "", line)
    line = re.sub(r"0x[0-9a-f]+", "0x...", line)
    return re.sub(r"\S*/", "", line)


def in_torch(library: str) -> None:
    """Call the out-of-bounds variant with tensors' memory."""
    import torch

    input = torch.ones(1000, device="cuda")
    output = torch.empty_like(input)
    function = ctypes.CDLL(library).neighbour_sum_on_gpu
    function(
        ctypes.c_void_p(input.data_ptr()), ctypes.c_void_p(output.data_ptr()), 1000, 1
    )
    torch.cuda.synchronize()
    print("last element:", output[-1].item())


if __name__ == "__main__":
    if sys.argv[1:2] == ["torch"]:
        in_torch(sys.argv[2])
    else:
        main()
