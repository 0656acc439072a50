"""The directives ``run``, ``recorded`` and ``literalinclude``."""

import os
import re
from html import escape
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.directives.code import LiteralInclude
from sphinx.util.docutils import SphinxDirective

from . import page, programs, projects, recordings, units
from .evidence import Record, store
from .files import BuildError, relative


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
    """Show code, and what it printed when it ran with the other blocks of its page."""

    has_content = True
    required_arguments = 1
    option_spec: ClassVar = {
        "fails": directives.unchanged_required,
        "needs": directives.unchanged_required,
        "cause": directives.unchanged_required,
        "varies": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        path = Path(self.env.doc2path(self.env.docname))
        try:
            blocks = page.parse(path)
        except BuildError:
            return []  # `sphinx_ext.shown` reports it, once for the page
        # The first one that begins below the fence of this directive.
        lines = [block.line for block in blocks]
        number = next((n for n, line in enumerate(lines) if line > self.lineno), None)
        if number is None:
            raise self.error("cannot find this block in the page's file")
        known = self.env.temp_data  # of this page
        if "proof_shown" not in known:
            known["proof_shown"] = units.shown(path)
        shown = known["proof_shown"]
        block, result = blocks[number], shown[number].result
        claim = {
            "how": "run",
            "what": f"page:{page.name(path)}",
            "source": relative(path),
            "number": number,
            "block": block,
            "result": result,
            "found": shown[number].origin,
        }
        code_shown = [code(block.code, block.language, claim)]
        results = [found.result for found in shown]
        if program := programs.complete(blocks, results, number):
            pre = f'<pre hidden class="program" id="program-{number}">{{}}</pre>'
            code_shown.append(nodes.raw("", pre.format(escape(program)), format="html"))
        if result.text:
            failed = ["run-error"] if result.status == "failed" else []
            code_shown.append(output(result.text, claim, *failed))
        for node in code_shown:
            self.set_source_info(node)
        return code_shown


def recorded(record: Record) -> list[nodes.literal_block]:
    """The command of a recording and what it printed."""
    claim = {"how": "recorded", "what": record.what}
    shown = [code(f"$ {record.detail['command']}", "console", claim)]
    if printed := record.outputs[0].text.rstrip():
        shown.append(output(printed, claim))
    return shown


class Recorded(SphinxDirective):
    """Show a command and its output as recorded on the device that is named.

    Of what nobody has recorded yet, the command is shown.
    """

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        what = f"gpu:{self.arguments[0]}"
        if record := store().kept(what):
            shown = recorded(record)
        elif command := recordings.command(what):
            shown = [code(f"$ {command}", "console", {"how": "recorded", "what": what})]
        else:
            raise self.error(f"docs/recordings.toml has no {self.arguments[0]}")
        for node in shown:
            self.set_source_info(node)
        return shown


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
        _, path = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(path)
        source = relative(path) or path
        step = page.project(Path(self.env.doc2path(self.env.docname)))
        if there := projects.shown(step).get(source):  # the lines of it that there are
            self.arguments[0] = f"/{os.path.relpath(there, self.env.srcdir)}"
        shown = super().run()
        if any(isinstance(node, nodes.system_message) for node in shown):
            return shown
        for node in shown:
            for block in node.findall(nodes.literal_block):
                claim = {"how": "file", "source": source, "not_run": not_run}
                block["proof_claim"] = claim
                text = block.astext()
                if not to_copy:
                    lines = text.splitlines(keepends=True)
                    text = "".join(lines[index] for index in without_markers(lines))
                    text = _MARK_AT_THE_END.sub("", text)
                block.rawsource, block.children = text, []
                block += nodes.Text(text)
        return shown
