"""Note the files and folders that a run reads or writes, and the tools it asks for.

A run executes this file in its own process and puts this folder on ``PYTHONPATH``, so
that each Python it starts does the same: ``$ pytest`` on a page has inputs too.
"""

import os
import sys
import tokenize
from importlib.util import source_from_cache

METADATA = os.path.join("importlib", "metadata")


def _watch(log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    seen = set()

    def note(sign: str, path: object) -> None:
        if isinstance(path, bytes | os.PathLike):
            path = os.fsdecode(path)
        if not isinstance(path, str) or (sign, path) in seen:
            return
        seen.add((sign, path))
        path = os.path.abspath(path or ".")
        if path.endswith(".pyc") and "__pycache__" in path:
            try:
                path = source_from_cache(path)
            except ValueError:
                return
        write(f"{sign}{path}")

    def write(line: str) -> None:
        os.write(descriptor, f"{line}\n".encode())

    def reader() -> str:
        frame = sys._getframe()
        while frame and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        # None: Python opens its main script.
        return frame.f_code.co_filename if frame else "<frozen importlib"

    def is_import() -> bool:
        return reader().startswith("<frozen importlib")

    def looks_for_packages() -> bool:
        """A look through a whole folder, for one module or for installed packages."""
        return is_import() or METADATA in reader()

    def hook(event: str, args: tuple) -> None:
        if event == "open":
            path, _, flags = args
            changes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            # Python reads sources to run them, and to find a definition in them. Who
            # else reads a file may show its text.
            runs = is_import() or reader() == tokenize.__file__
            read = "r" if runs else "t"
            note("w" if changes and not str(path).endswith(".pyc") else read, path)
        elif event in ("os.listdir", "os.scandir"):
            if not looks_for_packages():
                note("r", args[0])
        elif event == "import":
            note("r", args[1])
        elif event == "ctypes.dlopen":
            note("r", args[0])
        elif event == "subprocess.Popen":
            words = args[1] if isinstance(args[1], list | tuple) else [args[1]]
            for word in words:
                if isinstance(word, str | os.PathLike) and os.path.isfile(word):
                    note("r", word)
            program = str(words[0]).partition(" ")[0] if words else ""
            write(f"?{os.path.basename(program)}")
        elif event == "opbook.find":
            write(f"?{args[0]}")
        elif event == "opbook.not_compiled":
            write(f"!{args[0]}\0{args[1].partition(':')[0]}")

    sys.addaudithook(hook)


if log := os.environ.get("PROOF_OPENED"):
    _watch(log)
