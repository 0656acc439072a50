"""The directives ``run``, ``recorded`` and ``literalinclude``."""

import json
import re
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.directives.code import LiteralInclude, LiteralIncludeReader
from sphinx.util.docutils import SphinxDirective

from . import page, projects, record, run
from .evidence import relative
from .origins import RECORDINGS
from .page import Result


def executes(config, docname: str) -> bool:
    """Whether this build runs a page: every page, none, or only the one named."""
    return config.proof_execute in (True, docname)


def code(text: str, language: str, claim: dict, *classes: str) -> nodes.literal_block:
    """A code block that carries its claim."""
    block = nodes.literal_block(text, text, language=language, classes=list(classes))
    block["proof_claim"] = claim
    return block


def output(text: str, claim: dict, *classes: str) -> nodes.literal_block:
    """What a block printed; the block before it carries the label of both."""
    claim = claim | {"output": True}
    language = "diff" if text.startswith("--- ") and "\n+++ " in text else "text"
    return code(text, language, claim, "run-output", *classes)


class RunBlock(SphinxDirective):
    """Show code, run it with the other blocks of its page, show what it printed."""

    has_content = True
    required_arguments = 1
    option_spec: ClassVar = {
        "fails": directives.unchanged_required,
        "needs": directives.unchanged_required,
        "cause": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        path = Path(self.env.doc2path(self.env.docname))
        try:
            blocks = page.parse(path)
            number = self._number(blocks)
        except ValueError as error:
            raise self.error(str(error)) from error
        block = blocks[number]
        if executes(self.config, self.env.docname):
            known = self.env.temp_data  # of this page
            if "proof_results" not in known:
                known["proof_results"] = run.run_page(path)
            results = known["proof_results"]
            result = results[number]
            problem = self._problem(blocks, results, number)
        else:
            results = run.known_results(path)
            result = results[number] if results else Result()
            problem = None if results else "the page has changed since it ran"
        claim = {
            "how": "run",
            "what": f"page:{page.name(path)}",
            "block": number,
            "fails": block.fails is not None,
            "problem": problem,
            "source": relative(path),
        }
        shown = [code(block.code, block.language, claim)]
        if result.text:
            failed = ["run-error"] if result.status == "failed" else []
            shown.append(output(result.text, claim, *failed))
        for node in shown:
            self.set_source_info(node)
        return shown

    def _number(self, blocks: list[page.Block]) -> int:
        """Find this block in the page: blocks of the same text come in order."""
        lines = [line.strip() for line in self.content]
        lines = "\n".join(lines).strip()
        taken = self.env.temp_data.setdefault("proof_taken", set())
        for number, block in enumerate(blocks):
            text = "\n".join(line.strip() for line in block.code.splitlines())
            if text == lines and number not in taken:
                taken.add(number)
                return number
        raise ValueError("cannot find this block in the page's file")

    @staticmethod
    def _problem(blocks, results, number: int) -> str | None:
        problems = list(map(page.problem, blocks, results))
        return problems[number] or ("" if any(problems) else None)


def recorded(name: str, recording: dict) -> list[nodes.literal_block]:
    """The command of a recording and what it printed."""
    claim = {"how": "recorded", "name": name}
    shown = [code(f"$ {recording['command']}", "console", claim)]
    if printed := recording["output"].rstrip():
        shown.append(output(printed, claim))
    return shown


class Recorded(SphinxDirective):
    """Show a command and its output as recorded on the device that is named.

    Of what nobody has recorded yet, the command is shown.
    """

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        file = RECORDINGS / f"{name}.json"
        self.env.note_dependency(str(file))
        if not file.exists() and (entry := record.manifest().get(name)):
            return [
                code(f"$ {entry.command}", "console", {"how": "recorded", "name": name})
            ]
        try:
            recording = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise self.error(f"cannot read docs/recordings/{name}.json") from error
        if absent := {"command", "output", "device", "date", "sources"} - set(
            recording
        ):
            raise self.error(f"{file.name} lacks {', '.join(sorted(absent))}")
        shown = recorded(name, recording)
        for node in shown:
            self.set_source_info(node)
        return shown


class _Line(str):
    """A line that knows its number, through all of Sphinx's filters."""

    number: int


class _Reader(LiteralIncludeReader):
    """Sphinx's reader, which also tells which lines it selects."""

    def read_file(self, filename, location=None):
        lines = []
        for number, text in enumerate(super().read_file(filename, location), 1):
            lines.append(_Line(text))
            lines[-1].number = number
        return lines

    def dedent_filter(self, lines, location=None):
        self.shown = [line.number for line in lines]
        return super().dedent_filter(lines, location)


_MARKER = re.compile(r"\s*(//|#) \[/?\w+\]\s*$")
_MARK_AT_THE_END = re.compile(r"(?m)[^\S\n]+(//|#) \[/?\w+/?\]$")


def without_markers(lines: list[str]) -> list[int]:
    """Indexes of the lines to show: no ``# [name]`` marker, no gap that one leaves.

    A part that a page selects ends before a marker, and often with blank lines.
    """
    kept, in_gap = [], False
    for index, line in enumerate(lines):
        is_blank = not line.strip()
        in_gap = bool(_MARKER.match(line)) or (in_gap and is_blank)
        # One blank line of a gap stays, between the lines before and after it.
        divides = is_blank and kept and lines[kept[-1]].strip()
        if not in_gap or divides:
            kept.append(index)
    shown = [index for index in kept if lines[index].strip()]
    return [index for index in kept if shown and shown[0] <= index <= shown[-1]]


class ProvenInclude(LiteralInclude):
    """Sphinx's ``literalinclude``, with a claim for the lines that it shows."""

    # Text that is in no file has no evidence.
    option_spec = {
        name: convert
        for name, convert in LiteralInclude.option_spec.items()
        if name not in ("prepend", "append", "diff")
    } | {"not-run": directives.unchanged_required, "with-markers": directives.flag}

    def run(self) -> list[nodes.Node]:
        not_run = self.options.pop("not-run", "")
        to_copy = "with-markers" in self.options
        shown = super().run()
        _, path = self.env.relfn2path(self.arguments[0])
        if any(isinstance(node, nodes.system_message) for node in shown):
            return shown
        numbers = self.selected(path)
        there = self.lines_of_step(path)
        claim = {
            "how": "file",
            "source": relative(path) or path,
            "lines": [n for n in numbers if there is None or n in there],
            "not_run": not_run,
        }
        for node in shown:
            for block in node.findall(nodes.literal_block):
                block["proof_claim"] = claim
                lines = block.astext().splitlines(keepends=True)
                if there is not None:
                    pairs = zip(lines, numbers, strict=True)
                    lines = [line for line, number in pairs if number in there]
                text = "".join(lines)
                if not to_copy:
                    text = "".join(lines[index] for index in without_markers(lines))
                    text = _MARK_AT_THE_END.sub("", text)
                block.rawsource, block.children = text, []
                block += nodes.Text(text)
        return shown

    def lines_of_step(self, path: str) -> set[int] | None:
        """The lines of the file that this page's project has; None for other pages."""
        step = page.project(Path(self.env.doc2path(self.env.docname)))
        files = projects.state(step).values() if step else ()
        numbers = [f.numbers for f in files if f.original == relative(path)]
        return set(numbers[0]) if numbers else None

    def selected(self, path: str) -> list[int]:
        """Numbers of the lines of the file that the options select."""
        reader = _Reader(path, self.options, self.config)
        reader.read()
        return reader.shown
