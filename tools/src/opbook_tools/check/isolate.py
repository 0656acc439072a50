"""Runs functions in a child process: what they break, and how they end, stays there."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import torch

from opbook_tools.check.errors import Crashed, line


def isolated(function: Callable[[], Any], seconds: float = 60) -> Any:
    """Return what a function returns in a child, or raise what it raises there.

    Raises:
        Crashed: A signal ended the child, or it ran for too long.
    """
    return next(iter(stream(lambda: (function() for _ in range(1)), seconds)))


def stream(work: Callable[[], Iterable[Any]], seconds: float = 60) -> Iterator[Any]:
    """Yield what a generator yields in a child, each value as it comes.

    The child is forked, so that the work may be a closure. CUDA does not survive a
    fork: in a process that has used it, the work is done right here. A child may be
    the first to use it.

    Raises:
        Crashed: A signal ended the child, or one value took too long.
    """
    if not can_isolate():
        yield from work()
        return
    forked = multiprocessing.get_context("fork")
    reader, writer = forked.Pipe(duplex=False)
    child = forked.Process(target=_run, args=(work, writer))
    with warnings.catch_warnings():
        # Python warns of a fork beside threads, PyTorch's or those of a test runner.
        warnings.simplefilter("ignore")
        child.start()
    writer.close()
    try:
        yield from _values(reader, child, seconds)
    finally:
        child.kill()
        child.join()
        reader.close()


def can_isolate() -> bool:
    """Whether this process can have children that use what it uses."""
    return hasattr(os, "fork") and not torch.cuda.is_initialized()


def lost_device() -> str:
    """What has ended CUDA in this process; "" where it has not been used, or works."""
    if not torch.cuda.is_initialized():
        return ""
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        return line(error)
    return ""


def _run(work: Callable[[], Iterable[Any]], pipe: Connection) -> None:
    """Send the values and end the process, without the clean-up of its parent."""

    def send(worked: bool | None, value: Any) -> None:
        packed = io.BytesIO()
        torch.save((worked, value), packed)
        pipe.send_bytes(packed.getbuffer())

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

    # OpenMP's threads did not come along, and the thread that forked would wait for
    # them. A new thread gets new ones.
    thread = threading.Thread(target=every)
    thread.start()
    thread.join()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _values(
    reader: Connection, child: multiprocessing.Process, seconds: float
) -> Iterator[Any]:
    while True:
        if not reader.poll(seconds):
            raise Crashed("no end in the time that a check has")
        try:
            packed = io.BytesIO(reader.recv_bytes())
        except (EOFError, OSError):  # it has ended before, or while it wrote
            break
        worked, value = torch.load(packed, weights_only=False)
        if worked is None:
            child.join()
            return
        if not worked:
            raise value
        yield value
    child.join()
    if child.exitcode < 0:
        raise Crashed(f"ended by {signal.Signals(-child.exitcode).name}")
    raise Crashed(f"ended the process with status {child.exitcode}")
