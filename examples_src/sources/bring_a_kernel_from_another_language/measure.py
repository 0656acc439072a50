"""What the same operator costs with kernels of each language.

Without arguments it starts a process for each language and prints a table. With the
name of a language it measures that one, and prints a line of JSON.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec

import silu
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NEEDED = {  # to be installed beside PyTorch
    "torch": "",
    "nvrtc": "",
    "gluon": "triton",
    "helion": "helion",
    "tilelang": "tilelang",
    "cute": "cutlass",
    "cutile": "cuda.tile",
}
LANGUAGES = NEEDED if DEVICE == "cuda" else ("torch", "helion")
CALLS = 200


def close(found, expected):
    """Compare; the languages' functions for exp differ in the last bits."""
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def seconds(function):
    """How long one call takes, to the end of its kernels."""
    start = time.perf_counter()
    function()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def check_the_stream():
    """The kernel waits for what the same stream writes, after a delay, to its input."""
    x = torch.zeros(64, 65, device=DEVICE)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)
        x.fill_(1)
        y = silu.silu(x)
        close(y, torch.nn.functional.silu(x))


def measure(language):
    """Check the operator with kernels of this language, and time it."""
    x = torch.randn(64, 65, device=DEVICE, requires_grad=True)
    silu.LANGUAGE[DEVICE] = "torch"
    silu.silu(x.detach())  # what the device and custom_op start is not the language's
    silu.LANGUAGE[DEVICE] = language
    first = seconds(lambda: silu.silu(x.detach()))

    expected = torch.nn.functional.silu(x)
    close(silu.silu(x), expected)
    (grad,) = torch.autograd.grad(silu.silu(x).sum(), x)
    close(grad, torch.autograd.grad(expected.sum(), x)[0])
    torch.library.opcheck(silu.silu, (x,))
    compiled = torch.compile(lambda x: silu.silu(x + 1) * 2, fullgraph=True)
    close(compiled(x), torch.nn.functional.silu(x + 1) * 2)

    if DEVICE == "cuda":
        check_the_stream()
    x = x.detach()
    rounds = [seconds(lambda: [silu.silu(x) for _ in range(CALLS)]) for _ in range(7)]
    print(json.dumps({"first": first * 1e3, "call": sorted(rounds)[3] / CALLS * 1e6}))


def installed(module):
    """Whether the module can be imported; a part of a package needs the package."""
    package = module.partition(".")[0]
    return find_spec(package) is not None and find_spec(module) is not None


def row(language, environment):
    """One line of the table: two processes, of which the second finds the caches."""
    if (needed := NEEDED[language]) and not installed(needed):
        return f"{language:9}  {needed} is not installed"
    command = [sys.executable, __file__, language]
    answers = []
    for _ in range(2):
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{language}: {done.stderr}")
        answers.append(json.loads(done.stdout.splitlines()[-1]))
    first, again = answers
    return (
        f"{language:9}  {first['first']:13.1f}  {again['first']:16.1f}"
        f"  {again['call']:10.1f}"
    )


def main():
    """Print the table."""
    print("language   first call ms  next process ms  a call us")
    for language in LANGUAGES:
        with tempfile.TemporaryDirectory() as caches:
            environment = os.environ | {
                "TRITON_CACHE_DIR": f"{caches}/triton",
                "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
                "HELION_CACHE_DIR": f"{caches}/helion",
                "TILELANG_CACHE_DIR": f"{caches}/tilelang",
                "CUTE_DSL_CACHE_DIR": f"{caches}/cute",
            }
            if language == "cutile":  # its compiler would use what an older CUDA has
                environment.pop("CUDA_HOME", None)
            print(row(language, environment), flush=True)


if __name__ == "__main__":
    measure(*sys.argv[1:]) if sys.argv[1:] else main()
