"""Results of a run: a flat list of rows, printed as tables and stored as JSON.

The recorder names a file in the variable RECORD_DATA. What is written there becomes the
data of the recording. With BENCHMARK_TRACEBACK set, who cannot take part says where it
failed.
"""

import json
import math
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import clock
import contenders
import torch

TOLERANCE = 2.0  # units in the last place of the largest value


class Report:
    """Collects the rows of a run."""

    def __init__(self, title: str) -> None:
        self.began = time.perf_counter()
        self.rows: list[dict] = []
        self.absent: list[dict] = []
        device = torch.cuda.get_device_name() if clock.GPU else "CPU"
        self.about = {"device": device, "versions": contenders.versions()}
        print(f"{title}: {device}, {self.about['versions']}", flush=True)

    def prepare(self, table: contenders.Table, make: Callable, reference, **case):
        """Make every contender's call and compare its first result.

        Args:
            table: The contenders.
            make: Makes the call of a function.
            reference: What the results must be: see :func:`error`.
            **case: Task, shape and dtype, kept in the rows.

        Returns:
            Calls and errors, by contender.
        """
        calls, errors = {}, {}
        for name, get in table.items():
            begin = time.perf_counter()
            try:
                call = make(get())
                errors[name] = error(call(), reference)
                clock.one_call(call)  # raises for a launch that no flush hides
            except Exception as problem:  # a peer may fail in any way: name it, go on
                self.leave_out(problem, **case, contender=name)
                continue
            calls[name] = call
            if (taken := time.perf_counter() - begin) > 1:
                print(f"  {name}: {taken:.1f} s until the first result", flush=True)
        return calls, errors

    def leave_out(self, problem: Exception, **case) -> None:
        """Note who cannot take part in a case, and why."""
        reason = f"{type(problem).__name__}: {problem}".split("\n")[0][:200]
        self.absent.append(case | {"reason": reason})
        if "BENCHMARK_TRACEBACK" in os.environ:
            traceback.print_exception(problem)

    def add(self, times: dict, errors: dict, **case) -> None:
        """Keep and print what was measured for one case."""
        print(*case.values(), f"[{self.seconds():.0f} s]")
        for name, found in times.items():
            error = errors.get(name)
            wrong = error is not None and error > TOLERANCE
            row = case | {"contender": name, **found, "error": error, "wrong": wrong}
            self.rows.append(row)
            print("   ", line(row), flush=True)

    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def save(self, **more) -> None:
        """Print who was absent; write everything where the recorder asks for it."""
        reasons = Counter(
            f"{row['contender']}, {row['task']}: {row['reason']}" for row in self.absent
        )
        for reason, cases in reasons.items():
            print(f"absent: {reason} (cases: {cases})")
        print(f"{self.seconds():.0f} s in all")
        data = self.about | more | {"rows": self.rows, "absent": self.absent}
        if file := os.environ.get("RECORD_DATA"):
            Path(file).write_text(json.dumps(data, indent=1))


def line(row: dict) -> str:
    """One contender's row, for a reader."""
    text = f"{row['contender']:18} {row['median']:9.1f} us, p95 {row['p95']:9.1f}"
    if "bytes" in row:
        text += f" {row['bytes'] / row['median'] / 1e3:7.0f} GB/s"
    if "operations" in row:
        text += f" {row['operations'] / row['median'] / 1e6:7.1f} TFLOP/s"
    if row["error"] is not None:
        text += f", error {row['error']:.2f}"
    times = {"dirty median": "dirty", "graph": "in a graph", "launch": "call to call"}
    for kind, words in times.items():
        if row.get(kind) is not None:
            text += f", {words} {row[kind]:.1f} us"
    return text + " WRONG" * row["wrong"]


def error(results, reference: list) -> float:
    """The largest error, in units in the last place of the largest value.

    Args:
        results: A tensor or several.
        reference: For each tensor the rows to look at (or None for all of it), and what
            should be there, in fp64.
    """
    results = results if isinstance(results, tuple | list) else [results]
    worst = 0.0
    for result, (rows, wanted) in zip(results, reference, strict=True):
        found = (result if rows is None else result[rows]).double()
        unit = torch.finfo(result.dtype).eps * wanted.abs().max()
        distance = ((found - wanted).abs().max() / unit).item()
        # No comparison with a NaN is true, so that max() would pass one over.
        worst = max(worst, float("inf") if math.isnan(distance) else distance)
    return worst
