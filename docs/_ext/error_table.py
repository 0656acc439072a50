"""``error-table``: the errors that pages of the book meet, each with cause and cure.

It has every block that fails on purpose, says why, and did fail in this build. Messages
that no block can make are in ``reference/errors.toml``: some are in a recording, and
those that were only reported stand apart. The filter above the table is
``_static/error_table.js``.
"""

import re
import tomllib
from collections import Counter
from html import escape
from pathlib import Path
from typing import NamedTuple

from sphinx.errors import SphinxError

from proof import page, tables, units
from proof.evidence import store

# What a reader sees, and the words of its messages; the first that fits is taken.
SYMPTOMS = {
    "A build or an installation fails": r"\berror: (?!address|segmentation)|#error"
    r"|nvcc fatal|undefined reference|recompile with|cuda arch|use_cuda|named 'torch'"
    r"|setuptools|matching distribution|the requirement|list index out of range"
    r"|supported wheel|without gpu kernels|mismatches the version|depends on torch"
    r"|match the hashes|could not be located",
    "A library does not load, or its operator is not there": r"importerror|oserror"
    r"|undefined symbol|shared object|_opnamespace|does not exist"
    r"|torch_library|same name and overload|another copy|not built"
    r"|could not find schema",
    "A gradient is missing or wrong": r"autograd|backward|jacobian|derivative"
    r"|gradients|inplace operation|ellipsis|differentia",
    "A schema or a registration is refused": r"schema|dispatch key|namespace|arrow"
    r"|ident |specifier|default argument|annotation|tuple inputs|device type",
    "torch.compile or torch.export refuses": r"fake|dynamo|data.dependent|u0|guard"
    r"|alias|as mutable|effect|symint|resolve torch\.ops|unsupported:|meta ",
    "A kernel faults": r"gpufault|sanitizer|asan |segmentation|out of bounds"
    r"|past the end|memory location|shared (data|memory)",
    "A Triton kernel is refused": r"triton|tl\.|arange|active drivers|operands"
    r"|loop-carried|global variable|tensor index|index$|passmanager|ambiguous"
    r"|inline_asm|pointer",
    "Numbers are wrong, or a test fails": r"not close|mismatch|not equal|failed"
    r"|xpass|survives|do not match|difference: nan|must move|drew one mask"
    r"|outputs of the operator are different",
    "A call is refused": "",
}
REPORTED = "Reported in public threads, and not reproduced here"
FORM = """\
<form class="operator-filter error-filter" hidden onsubmit="return false">
<label>The message <input type="search" name="text" size="40"></label>
<output></output>
</form>
"""


class Row(NamedTuple):
    """A message and its cause, the page and block that show it, or who reported it."""

    message: str
    cause: str
    page: str
    block: int | None = None
    threads: tuple[str, ...] = ()


def errors(app, env) -> list[Row]:
    """What failed on purpose in this build, and what ``errors.toml`` adds."""
    made = [row for name in sorted(env.all_docs) for row in _made(env, name)]
    return made + _listed(app, env)


def _made(env, docname: str) -> list[Row]:
    claims = env.proof["claims"].get(docname, [])
    ours = [(n, c) for n, c in enumerate(claims) if c["how"] == "run"]
    if not ours:
        return []
    path, found = Path(env.doc2path(docname)), []
    blocks, shown = page.parse(path), units.shown(path)
    for number, claim in ours:
        block, result = blocks[claim["block"]], shown[claim["block"]].result
        failed = result and result.status == "failed"
        if not (block.cause and failed) or claim.get("output"):
            continue
        if match := re.search(block.fails, result.text):  # none in a stale result
            text = diagnostic(match)
            found.append(Row(text, block.cause, docname, number))
    return found


def _listed(app, env) -> list[Row]:
    path = Path(app.srcdir, "reference", "errors.toml")
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["row"]
    return [_row(env, **row) for row in rows]


def _row(env, message, cause, page, recording="", threads=()) -> Row:
    """A row of ``errors.toml``.

    Raises:
        SphinxError: If there is no such page, or the message is not in the recording.
    """
    if page not in env.all_docs:
        raise SphinxError(f"errors.toml: there is no page {page}")
    if threads:
        return Row(message, cause, page, threads=tuple(threads))
    record = store().kept(f"gpu:{recording}")
    if not record or message not in record.outputs[0]["text"]:
        raise SphinxError(f"errors.toml: recording {recording!r} lacks {message!r}")
    claims = env.proof["claims"].get(page, [])
    shown = (n for n, c in enumerate(claims) if c.get("what") == f"gpu:{recording}")
    block = next(shown, None)
    return Row(message, cause, page, block)


def diagnostic(match: re.Match) -> str:
    """The line of the output that matched, cut where it gets long."""
    start = match.string.rfind("\n", 0, match.start()) + 1
    line = match.string[start:].partition("\n")[0].strip()
    return line if len(line) <= 200 else f"{line[:200]} …"


def _html(app, here: str, known: list[Row]) -> str:
    groups = {symptom: [] for symptom in (*SYMPTOMS, REPORTED)}
    used = Counter()
    for row in known:
        used[name := _name(row.message)] += 1
        name += f"-{used[name]}" * (used[name] > 1)
        mark = f'<a class="headerlink" href="#{name}" title="Link to this row">#</a>'
        message = f"<code>{escape(row.message)}</code>{mark}"
        cells = (message, _inline(row.cause), _seen_on(app, here, row))
        text = "".join(f"<td>{cell}</td>" for cell in cells)
        group = REPORTED if row.threads else _symptom(row.message)
        groups[group].append(f'<tr id="{name}">{text}</tr>')
    head = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("The error says", "Cause and cure", "Seen on")
    )
    body = "".join(
        f'<tbody><tr><th colspan="3" scope="rowgroup">{symptom}</th></tr>'
        f"{''.join(rows)}</tbody>"
        for symptom, rows in groups.items()
        if rows
    )
    return (
        f'{FORM}<div class="pst-scrollable-table-container">'
        f'<table class="table error-table"><thead><tr>{head}</tr></thead>{body}</table>'
        "</div>"
    )


def _seen_on(app, here: str, row: Row) -> str:
    """Links to the page, at the block if there is one, and to the threads."""
    address = app.builder.get_relative_uri(here, row.page)
    address += f"#block-{row.block}" * (row.block is not None)
    links = [(address, app.env.titles[row.page].astext())]
    for thread in row.threads:
        project, number = thread.split("#")
        links.append((f"https://github.com/{project}/issues/{number}", thread))
    return ", ".join(f'<a href="{a}">{escape(text)}</a>' for a, text in links)


def _symptom(text: str) -> str:
    message = text.lower()
    return next(name for name, words in SYMPTOMS.items() if re.search(words, message))


def _name(text: str) -> str:
    """An anchor of the message's first words, without what changes between runs."""
    words = re.findall(r"[A-Za-z_]{2,}", re.sub(r"\S*/\S*", "", text))
    return "-".join(["error", *words[:8]]).lower()


def _inline(text: str) -> str:
    """Prose whose `code` is marked as in Markdown."""
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", escape(text))


def setup(app):
    tables.add(app, "error-table", errors, _html)
    return {"version": "1", "env_version": 4, "parallel_read_safe": False}
