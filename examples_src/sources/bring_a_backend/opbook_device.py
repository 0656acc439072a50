"""The Python half of the backend: it builds the C++ half, and is ``torch.opbook``."""

import hashlib
import os
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch
from torch.utils.cpp_extension import get_cxx_compiler, include_paths, library_paths

SOURCES = Path(__file__).parent
COMPILER = shutil.which(get_cxx_compiler().split()[-1])  # no ccache
FLAGS = ["-std=c++20", "-O1", "-g0", "-fPIC"]
FLAGS += [f"-isystem{folder}" for folder in include_paths()]
STABLE = "-DTORCH_TARGET_VERSION=0x020b000000000000"
FILES = {
    "bring_a_backend": [],
    "bring_a_backend_guard": [],
    "bring_a_backend_neg": [STABLE],
}
LINK = [f"-L{folder}" for folder in library_paths()]
LINK += ["-ltorch", "-ltorch_cpu", "-lc10"]
LINK += ["-Wl,--exclude-libs,ALL"]  # errors must not meet a second libstdc++
PROCESS = os.getpid()


def build(folder: Path) -> dict[str, float]:
    """Make an object of each source, and ``backend.so``; return the CPU seconds."""
    seconds = {}
    objects = [folder / f"{name}.o" for name in FILES]
    for (name, flags), built in zip(FILES.items(), objects, strict=True):
        source = SOURCES / f"{name}.cpp"
        seconds[name] = run(*FLAGS, *flags, "-c", source, "-o", built)
    seconds["link"] = run("-shared", *objects, "-o", folder / "backend.so", *LINK)
    return seconds


def built() -> Path:
    """The library of these sources, which one page of the book compiles for all."""
    texts = [path.read_text() for path in sorted(SOURCES.glob("*.[ch]*"))]
    compiler = subprocess.check_output([COMPILER, "--version"])
    key = repr((torch.__version__, compiler, FLAGS, FILES, texts)).encode()
    library = Path("build/backend", hashlib.sha256(key).hexdigest()[:16], "backend.so")
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir="build/backend") as folder:
            build(Path(folder))
            Path(folder, library.name).replace(library)  # others may compile it too
    return library


def run(*arguments: str | Path) -> float:
    """Run the compiler; return the CPU seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([COMPILER, *arguments], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# [load]
def load(library: Path) -> None:
    """Make a library the device ``opbook`` of this process."""
    torch.utils.rename_privateuse1_backend("opbook")
    torch.ops.load_library(library)
    torch._register_device_module("opbook", Backend())
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    # [/load]


# [module]
class Backend:
    """The module ``torch.opbook``."""

    @staticmethod
    def is_available() -> bool:
        """Whether a tensor can be put on the device."""
        return True

    is_initialized = is_available  # there is no slow first use

    @staticmethod
    def _lazy_init() -> None:
        """Start nothing; without it, some versions of PyTorch never synchronize."""

    @staticmethod
    def device_count() -> int:
        """Count the devices."""
        return torch.ops.opbook_backend.device_count()

    @staticmethod
    def current_device() -> int:
        """Number of the device that new tensors are put on."""
        return torch.accelerator.current_device_index()

    @staticmethod
    def device(device: torch.device):
        """Make a device the current one, in a ``with`` block."""
        return torch.accelerator.device_index(torch.device(device).index or 0)

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return os.getpid() != PROCESS

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        """The dtypes that autocast may choose."""
        return [torch.float16, torch.bfloat16]

    # [/module]
    # [seeds]
    _initialized = True  # else checkpointing ignores the generators of the device

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        """Seed every device; ``torch.manual_seed`` calls it."""
        for index in range(Backend.device_count()):
            torch.ops.opbook_backend.default_generator(index).manual_seed(seed)

    @staticmethod
    def get_rng_state(device: int | str | torch.device = "opbook") -> torch.Tensor:
        """State of a device's generator; checkpointing and ``fork_rng`` keep it."""
        return generator_of(device).get_state()

    @staticmethod
    def set_rng_state(
        state: torch.Tensor, device: int | str | torch.device = "opbook"
    ) -> None:
        """Continue at a state; the random numbers after it come again."""
        generator_of(device).set_state(state)

    # [/seeds]


def generator_of(device: int | str | torch.device) -> torch.Generator:
    """Return the default generator of a device."""
    index = device if isinstance(device, int) else torch.device(device).index
    if index is None:
        index = torch.accelerator.current_device_index()
    return torch.ops.opbook_backend.default_generator(index)
