"""Run Python programs with packages loaded already: each costs a fork, not a start.

A process reads a request from each line of its input and answers it by an exit status.
"""

import atexit
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from functools import cache
from pathlib import Path

SPHINX = ("sphinx.cmd.build", "sphinx.builders.html", "myst_parser.sphinx_ext.main")
SPHINX += ("multiprocessing.forkserver", "concurrent.futures.thread", "tomllib")


@cache
def server(loaded: tuple[str, ...], thread: int) -> subprocess.Popen:
    """A thread's process that has these modules loaded, none of this repository."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    started = subprocess.Popen(
        [sys.executable, __file__, *loaded], env=variables, **pipes
    )
    atexit.register(started.communicate)  # which closes its input, and so ends it
    return started


def run(
    arguments, cwd: Path, env: dict[str, str], loaded: tuple[str, ...] = SPHINX
) -> subprocess.CompletedProcess:
    """Run Python with -c CODE, -m MODULE or a FILE; return what it printed."""
    # Two threads run two programs at once, as two processes would.
    process = server(loaded, threading.get_ident())
    with tempfile.TemporaryDirectory() as folder:
        printed = [Path(folder, name) for name in ("stdout", "stderr")]
        request = [[*map(str, arguments)], str(cwd), env, [*map(str, printed)]]
        print(json.dumps(request), file=process.stdin, flush=True)
        status = int(process.stdout.readline())
        texts = [path.read_text(encoding="utf-8") for path in printed]
    return subprocess.CompletedProcess(arguments, status, *texts)


def answer(arguments: list[str], cwd: str, env: dict[str, str], printed: list[str]):
    """Do in a fork what a new Python would."""
    for number, path in enumerate(printed, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:1] = ["", *env.get("PYTHONPATH", "").split(os.pathsep)]
    if arguments[0] == "-m":
        _, program, *sys.argv[1:] = arguments
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = [arguments[0], *arguments[2:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(arguments[1], vars(main))
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


def main() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            try:
                answer(*json.loads(line))
                status = 0
            except SystemExit as end:
                is_text = not isinstance(end.code, int | None)
                status = 1 if is_text else end.code or 0
                if is_text:
                    print(end.code, file=sys.stderr)
            except BaseException:
                traceback.print_exc()
                status = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
