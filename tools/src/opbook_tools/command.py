"""``opbook check``: what it reads, prints and returns.

The exit status is 0 if nothing was found, 1 if something was, 2 if it was called in a
way that checks nothing, and 3 if a check itself failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import re
import sys
import traceback
from typing import Any
from unittest import mock

from opbook_tools import check
from opbook_tools.sample import Sample

NOTHING, FINDINGS, MISUSE, FAILURE = range(4)
PAGES = {
    "schema": "howto/mutate_an_input",
    "autograd key": "guide/5_autograd",
    "fake kernel": "guide/4_register",
    "strides": "explain/strides",
    "two devices": "guide/2_interface",
    "indices": "guide/2_interface",
    "every element written": "reduction/3_test",
    "half precision": "explain/why_fp32_sums",
    "gradient": "guide/5_autograd",
    "gradient in other ways": "guide/5_autograd",
    "second derivative": "guide/5_autograd",
    "forward mode": "howto/work_with_vmap_and_autocast",
    "vmap": "howto/work_with_vmap_and_autocast",
    "autocast": "howto/work_with_vmap_and_autocast",
    "torch.compile": "guide/4_register",
}
REST = "trouble/silent_wrong_answers"


class Misuse(Exception):
    """The command was called in a way that checks nothing."""


def run(chosen: argparse.Namespace) -> int:
    """Run ``opbook check`` with parsed arguments."""
    try:
        return _checked(chosen)
    except (Misuse, check.BadSample) as error:
        print(f"opbook check: {error}", file=sys.stderr)
        return MISUSE


def _page(path: str) -> str:
    """Where a page of the book is: on the site of OPBOOK_SITE, or in any copy of it."""
    site = os.environ.get("OPBOOK_SITE")
    return f"{site}/{path}.html" if site else f"{path} of Opbook"


def named(path: str) -> Any:
    """What ``package.module:name.of.it`` stands for, or ``package:torch.ops.name.it``.

    Raises:
        Misuse: There is nothing of that name, or its import fails.
    """
    module, colon, names = path.partition(":")
    if not colon or not names:
        raise Misuse(f"{path!r} is not of the form package.module:name")
    try:
        with mock.patch("os._exit", sys.exit):  # its status would be taken for ours
            found = importlib.import_module(module)
        if names.startswith("torch.ops."):  # an operator that the module registers
            found = importlib.import_module("torch")
            names = names.removeprefix("torch.")
        for name in names.split("."):
            found = getattr(found, name)
    except (Exception, SystemExit) as error:
        raise Misuse(f"cannot import {path}:\n{traceback.format_exc()}") from error
    return found


def _samples(path: str) -> list[Sample]:
    found = named(path)
    try:
        found = [Sample.of(each) for each in (found() if callable(found) else found)]
    except (Exception, SystemExit) as error:
        raise Misuse(f"{path} gives no samples:\n{traceback.format_exc()}") from error
    if not found:
        raise Misuse(f"{path} is empty: there is nothing to check")
    return found


def _names(chosen: argparse.Namespace) -> list[str]:
    asked = [*(chosen.select or ()), *chosen.skip]
    asked += [each.partition(":")[0] for each in chosen.expect]
    if unknown := [name for name in asked if name not in check.CHECKS]:
        known = ", ".join(check.CHECKS)
        raise Misuse(f"there is no check {unknown[0]!r}; there are: {known}")
    names = [n for n in chosen.select or check.CHECKS if n not in chosen.skip]
    if not names:
        raise Misuse("--select and --skip leave no check to run")
    return names


def _checked(chosen: argparse.Namespace) -> int:
    sys.path.insert(0, "")  # modules of the current folder, as with python -c
    names = _names(chosen)
    if chosen.timeout <= 0:
        raise Misuse(f"--timeout {chosen.timeout:g} leaves no time for a check")
    operator, samples = named(chosen.operator), _samples(chosen.samples)
    options = {
        "reference": named(chosen.reference) if chosen.reference else None,
        "nondifferentiable": [
            int(p) if p.isdigit() else p for p in chosen.nondifferentiable
        ],
        "strict": chosen.strict,
        "sizes": chosen.sizes,
        "names": names,
        "timeout": chosen.timeout,
        "device": chosen.device,
    }
    report = Report(chosen)
    for number, sample in enumerate(samples):
        report.sample(number, sample)
        for result in check.each(operator, sample, **options):
            report.add(result)
    return report.end()


@dataclasses.dataclass
class Line:
    """What is printed of one check, and what it counts as."""

    sample: int
    check: str
    verdict: str
    text: str
    page: str = ""


def _begins(result: check.Result, text: str) -> bool:
    """Whether it begins so, with whole words: argument 1 is not argument 10."""
    return bool(re.match(re.escape(text) + r"(?![\w\[])" * bool(text), result.text))


class Report:
    """Prints the verdicts as they come, and counts them."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen = chosen
        self.lines: list[Line] = []
        self.number = 0
        self.described = ""
        pairs = (each.partition(":") for each in chosen.expect)
        self.expected = {(name, text.strip()): False for name, _, text in pairs}

    def sample(self, number: int, sample: Sample) -> None:
        """Begin a sample."""
        self.number = number
        self.described = check.Leaves.of(sample).described()
        self._print(f"sample {number}: {self.described}")

    def add(self, result: check.Result) -> None:
        """Print and count one verdict."""
        verdict = "expected" if self._is_expected(result) else result.verdict
        verdict = "failed" if result.failed else verdict
        page = ""
        if verdict == "WRONG":
            page = _page(PAGES.get(result.name, REST))
        line = Line(self.number, result.name, verdict, result.text, page)
        self.lines.append(line)
        self._print(f"{line.check:24}{verdict:9}{line.text}".rstrip())
        if page:
            self._print(f"{'':33}see {page}")
        if self.chosen.verbose and result.trace:
            self._print(result.trace)
        if self.chosen.github and verdict in ("WRONG", "failed"):
            self._annotate(line)

    def _is_expected(self, result: check.Result) -> bool:
        found = [
            (name, text)
            for name, text in self.expected
            if result.name == name and result.verdict != "ok" and _begins(result, text)
        ]
        self.expected.update(dict.fromkeys(found, True))
        return bool(found)

    def _annotate(self, line: Line) -> None:
        text = f"{self.chosen.operator}, {self.described}: {line.text}"
        for sign, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
            text = text.replace(sign, code)
        sys.stdout.write(f"::error title=opbook check, {line.check}::{text}\n")
        sys.stdout.flush()

    def _print(self, text: str) -> None:
        if not self.chosen.json:
            print(text, flush=True)

    def end(self) -> int:
        """Print what there is at the end; return the exit status."""
        unmet = [
            f"{name}: {text}" for (name, text), met in self.expected.items() if not met
        ]
        counts: dict[str, int] = {}
        for line in self.lines:
            counts[line.verdict] = counts.get(line.verdict, 0) + 1
        for each in unmet:
            self._print(f"expected, and did not come: {each}")
        self._print(", ".join(f"{n} {verdict}" for verdict, n in counts.items()))
        if self.chosen.json:
            lines = [dataclasses.asdict(line) for line in self.lines]
            whole = {"operator": self.chosen.operator, "results": lines}
            print(json.dumps(whole | {"unmet": unmet, "counts": counts}, indent=1))
        if counts.get("failed"):
            return FAILURE
        checked = {line.verdict for line in self.lines if line.check != check.PLAIN}
        if checked and checked <= {"skipped", "refuses"} and not unmet:
            raise Misuse("every check was skipped or refused: nothing was checked")
        return FINDINGS if counts.get("WRONG") or unmet else NOTHING
