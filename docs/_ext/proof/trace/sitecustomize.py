"""Note the files and folders that a run reads or writes, and the tools it asks for.

A run executes this file in its own process and puts this folder on ``PYTHONPATH``, so
that each Python it starts does the same: ``$ pytest`` on a page has inputs too.
"""

import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import source_from_cache


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

    def hook(event: str, args: tuple) -> None:
        if event == "open":
            path, mode, flags = args
            changes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            # Python reads its own sources as bytes; who reads text may show it.
            read = "t" if mode and "b" not in mode else "r"
            note("w" if changes and not str(path).endswith(".pyc") else read, path)
        elif event == "import":
            note("r", args[1])
        elif event in ("ctypes.dlopen", "os.listdir", "os.scandir"):
            note("r", args[0])
        elif event == "subprocess.Popen":
            words = args[1] if isinstance(args[1], list | tuple) else [args[1]]
            for word in words:
                if isinstance(word, str) and os.path.isfile(word):
                    note("r", word)
            program = str(words[0]).partition(" ")[0] if words else ""
            write(f"?{os.path.basename(program)}")
        elif event == "opbook.find":
            write(f"?{args[0]}")
        elif event == "opbook.not_compiled":
            write(f"!{args[0]}\0{args[1].partition(':')[0]}")

    sys.addaudithook(hook)


def _note_lines(config: str, ours: tuple[str, ...]) -> None:
    """Note which lines run, from the first file of ours on.

    Tracing slows all Python code of a process, so that `import torch` takes twice as
    long. It stops while an installed package is imported.
    """
    has_begun = False

    def begin(event: str, args: tuple) -> None:
        nonlocal has_begun
        name = getattr(args[0], "co_filename", "") if event == "exec" else ""
        is_ours = name[:1] not in ("", "<") and os.path.abspath(name).startswith(ours)
        if has_begun or not is_ours:
            return
        has_begun = True
        import coverage

        os.environ["COVERAGE_PROCESS_START"] = config
        coverage.process_startup()
        del os.environ["COVERAGE_PROCESS_START"]
        sys.meta_path.insert(0, Installed)

    class Installed:
        """Finds what Python's own finder finds."""

        @staticmethod
        def find_spec(name, path=None, target=None):
            if sys.gettrace() is None:
                return None
            spec = PathFinder.find_spec(name, path, target)
            loader = spec.loader if spec else None
            if type(loader) is SourceFileLoader and "-packages" in loader.path:
                loader.exec_module = lambda module: untraced(loader, module)
            return spec

    def untraced(loader, module) -> None:
        del loader.exec_module
        tracer = sys.gettrace()
        sys.settrace(None)
        try:
            loader.exec_module(module)
        finally:
            sys._getframe().f_trace = tracer  # which learns that this frame has ended
            sys.settrace(tracer)

    sys.addaudithook(begin)


if log := os.environ.get("PROOF_OPENED"):
    _watch(log)
if config := os.environ.get("PROOF_COVERAGE"):
    _note_lines(config, tuple(os.environ["PROOF_NOTED"].split(os.pathsep)))
