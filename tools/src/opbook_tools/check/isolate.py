"""Runs a function in a child process: what it breaks, and how it ends, stays there."""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from opbook_tools.check.errors import Crashed


def isolated(function: Callable[[], Any], seconds: float = 60) -> Any:
    """Return what the function returns in a child, or raise what it raises there.

    The child is forked, so that the function may be a closure. CUDA does not survive a
    fork: in a process that has used it, the function runs right here.

    Raises:
        Crashed: A signal ended the child, or it ran for too long.
    """
    if _uses_cuda() or not hasattr(os, "fork"):
        return function()
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python warns of a fork beside threads, PyTorch's or those of a test runner.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        os.close(reader)
        _run(function, writer)
    os.close(writer)
    answer, ended = _read(reader, time.monotonic() + seconds)
    os.close(reader)
    if not ended:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not ended:
        raise Crashed(f"no end after {seconds:g} s")
    if os.WIFSIGNALED(status):
        raise Crashed(f"ended by {signal.Signals(os.WTERMSIG(status)).name}")
    if not answer:
        raise Crashed(f"ended the process with status {os.WEXITSTATUS(status)}")
    worked, value = pickle.loads(answer)
    if worked:
        return value
    raise value


def _uses_cuda() -> bool:
    torch = sys.modules.get("torch")
    return bool(torch and torch.cuda.is_initialized())


def _run(function: Callable[[], Any], writer: int) -> None:
    """Answer through the pipe and end the process, without the parent's clean-up."""
    answers: list[bytes] = []
    # OpenMP's threads did not come along, and the thread that forked would wait for
    # them. A new thread gets new ones.
    thread = threading.Thread(target=lambda: answers.append(_answer(function)))
    thread.start()
    thread.join()
    with open(writer, "wb") as pipe:
        pipe.write(answers[0])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _answer(function: Callable[[], Any]) -> bytes:
    try:
        return pickle.dumps((True, function()))
    except BaseException as error:
        error.child_traceback = traceback.format_exc()
        try:
            answer = pickle.dumps((False, error))
            pickle.loads(answer)
        except Exception:  # an exception with arguments that cannot be sent
            plain = RuntimeError(f"{type(error).__name__}: {error}")
            plain.child_traceback = error.child_traceback
            answer = pickle.dumps((False, plain))
        return answer


def _read(reader: int, deadline: float) -> tuple[bytes, bool]:
    """What comes through the pipe until its end, and whether that came in time."""
    parts = []
    while (left := deadline - time.monotonic()) > 0:
        if select.select([reader], [], [], left)[0]:
            part = os.read(reader, 1 << 20)
            if not part:
                return b"".join(parts), True
            parts.append(part)
    return b"", False
