"""Runs functions in a child process: what they break, and how they end, stays there."""

from __future__ import annotations

import io
import os
import select
import signal
import struct
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from opbook_tools.check.errors import Crashed

LENGTH = struct.Struct("<Q")


def isolated(function: Callable[[], Any], seconds: float = 60) -> Any:
    """Return what a function returns in a child, or raise what it raises there.

    Raises:
        Crashed: A signal ended the child, or it ran for too long.
    """
    return next(iter(stream(lambda: (function() for _ in range(1)), seconds)))


def stream(work: Callable[[], Iterable[Any]], seconds: float = 60) -> Iterator[Any]:
    """Yield what a generator yields in a child, each value as it comes.

    The child is forked, so that the work may be a closure. CUDA does not survive a
    fork: in a process that has used it, the work is done right here.

    Raises:
        Crashed: A signal ended the child, or one value took too long.
    """
    if torch.cuda.is_initialized() or not hasattr(os, "fork"):
        yield from work()
        return
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python warns of a fork beside threads, PyTorch's or those of a test runner.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        os.close(reader)
        _run(work, writer)
    os.close(writer)
    try:
        yield from _values(reader, child, seconds)
    finally:
        try:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        except (ChildProcessError, ProcessLookupError):  # it is at its end
            pass
        os.close(reader)


def _run(work: Callable[[], Iterable[Any]], writer: int) -> None:
    """Send the values and end the process, without the clean-up of its parent."""

    def send(worked: bool | None, value: Any) -> None:
        packed = io.BytesIO()
        torch.save((worked, value), packed)
        pipe.write(LENGTH.pack(packed.tell()) + packed.getvalue())
        pipe.flush()

    def every() -> None:
        try:
            for value in work():
                send(True, value)
            send(None, None)  # an operator may end the process with any status
        except BaseException as error:
            if not isinstance(error, Exception):  # it would end the parent, too
                error = Crashed(f"ended by {type(error).__name__}")
            trace = traceback.format_exc()
            try:
                error.child_traceback = trace
                send(False, error)
            except Exception:  # an exception with something that cannot be sent
                plain = RuntimeError(f"{type(error).__name__}: {error}")
                plain.child_traceback = trace
                send(False, plain)

    with open(writer, "wb") as pipe:
        # OpenMP's threads did not come along, and the thread that forked would wait for
        # them. A new thread gets new ones.
        thread = threading.Thread(target=every)
        thread.start()
        thread.join()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _values(reader: int, child: int, seconds: float) -> Iterator[Any]:
    while True:
        deadline = time.monotonic() + seconds
        head = _read(reader, LENGTH.size, deadline)
        if len(head) < LENGTH.size:
            break
        packed = _read(reader, LENGTH.unpack(head)[0], deadline)
        worked, value = torch.load(io.BytesIO(packed), weights_only=False)
        if worked is None:
            os.waitpid(child, 0)
            return
        if not worked:
            raise value
        yield value
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise Crashed(f"ended by {signal.Signals(os.WTERMSIG(status)).name}")
    raise Crashed(f"ended the process with status {os.WEXITSTATUS(status)}")


def _read(reader: int, count: int, deadline: float) -> bytes:
    """So many bytes from the pipe, or fewer where it ends."""
    parts = bytearray()
    while len(parts) < count:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            raise Crashed("no end in the time that a check has")
        part = os.read(reader, count - len(parts))
        if not part:
            break
        parts += part
    return bytes(parts)
