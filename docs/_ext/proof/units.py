"""What can be proven: pages, scripts, notebooks, docstrings, kernels and recordings."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from . import (
    blocks,
    build,
    compiles,
    gallery,
    machine,
    notebook,
    page,
    process,
    projects,
)
from .evidence import Record, store
from .files import ROOT, digests, relative
from .origins import CHANGED, Origin
from .page import Result
from .recordings import Entry, manifest

# What PyTorch's logger, Python's warnings and Inductor's search print among the
# results, the first time that something is compiled: with paths of the machine.
_LOGS = re.compile(
    r"^(?:[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ .*\n"
    r"|/\S+\.py:\d+: \w+Warning: .*\n(?:  .*\n)?"
    r"|Autotune Choices Stats:\n.*\n)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Unit:
    """Something that is run by itself and has one record.

    Attributes:
        what: the name of the record.
        run: makes the record; what went wrong is in it (see `problem`).
        alone: whether nothing may run meanwhile, as it times something.
    """

    what: str
    run: Callable[[], Record]
    alone: bool = False

    @property
    def kind(self) -> str:
        return self.what.partition(":")[0]


def units() -> list[Unit]:
    """All that this machine can run."""
    found = [
        Unit(f"page:{page.name(p)}", partial(run_page, p), page.runs_alone(p))
        for p in page.pages()
    ]
    files = (
        ("script", gallery.scripts(), gallery.run),
        ("notebook", notebook.notebooks(), notebook.run),
        ("doctest", modules_with_examples(), run_docstrings),
    )
    found += [
        Unit(f"{kind}:{relative(path)}", partial(run, path))
        for kind, paths, run in files
        for path in paths
    ]
    found += [
        Unit(what, partial(build.compile_kernel, *job))
        for what, job in build.kernels().items()
    ]
    gpus = machine.gpus()
    return found + [
        Unit(f"gpu:{name}", partial(run_command, name, entry), alone=True)
        for name, entry in manifest().items()
        if entry.runs_on(gpus)
    ]


def record_of(docname: str) -> str:
    """The name of the record of a page: of its blocks, its script or its notebook."""
    if script := gallery.source_of(docname):
        return f"script:{relative(script)}"
    is_notebook = docname.startswith("tutorials/")
    return f"notebook:{docname}.ipynb" if is_notebook else f"page:{docname}"


def problem(record: Record) -> str:
    """What is wrong with how a run ended; empty if nothing."""
    if record.kind == "failed":
        return record.detail["reason"]
    kind, _, name = record.what.partition(":")
    if kind != "page":
        return ""
    pairs = zip(page.parse(page.DOCS / f"{name}.md"), record.outputs, strict=False)
    found = ((block, page.problem(block, result)) for block, result in pairs)
    return "\n".join(f"line {block.line}: {said}" for block, said in found if said)


def run_page(path: Path) -> Record:
    """Run the blocks of a page, in order, in one process and one namespace."""
    parsed, name, step = page.parse(path), page.name(path), page.project(path)
    run = process.call(
        f"page:{name}",
        blocks.run_blocks,
        name,
        parsed,
        fresh=page.starts_fresh(path),
        where=projects.write(name, step) if step else ROOT,
    )
    record, ended = run.record, run.record.outputs
    if run.error and len(ended) < len(parsed):
        ended.append(Result(status="failed", reason=run.error))
    while len(ended) < len(parsed):
        ended.append(Result(status="not_run", reason="an earlier block failed"))
    for block, result in zip(parsed, ended, strict=True):
        result.code = page.digest(path, block)
        if result.status == "not_run":
            words = re.findall(r"[\w./+-]+", block.code)
            named = dict.fromkeys(compiles.native_files(words), result.reason)
            record.skipped |= named
            record.inputs |= digests(ROOT / name for name in named)
    record.inputs |= projects.inputs(step) if step else {}
    return record


def is_of(record: Record, path: Path) -> bool:
    """Whether a record is of the blocks that a page has now."""
    codes = [page.digest(path, block) for block in page.parse(path)]
    return [output.code for output in record.outputs] == codes


@dataclass
class Shown:
    """What a page shows of a block: what it printed, and where that is from."""

    result: Result
    origin: Origin


def shown(path: Path) -> list[Shown]:
    """The best that the store has for each block: of here, of elsewhere, or stale."""
    parsed, name, source = page.parse(path), page.name(path), relative(path)
    why = f"the page has not run since its last edit: `nox -s page -- {name}`"
    unknown = Shown(Result(status="not_run"), Origin("", source=source, reason=why))
    found = [unknown] * len(parsed)
    # A block may print what an earlier one says, so a record of all blocks comes first.
    known = store().known(f"page:{name}")
    for record in sorted(known, key=lambda record: not is_of(record, path)):
        outputs, is_whole = record.outputs, is_of(record, path)
        if not is_whole:
            of = {output.code: output for output in outputs}
            outputs = [of.get(page.digest(path, block)) for block in parsed]
        wrong = [r and page.problem(b, r) for b, r in zip(parsed, outputs, strict=True)]
        for number, result in enumerate(outputs):
            had = found[number].result.status
            if result and (
                found[number] is unknown or had == "not_run" != result.status
            ):
                if any(wrong):  # where it is another block's fault, that one says so
                    origin = Origin("", reason=wrong[number] or "")
                elif result.stale or record.changed or not is_whole:
                    origin = Origin("stale", record.where, reason=CHANGED)
                elif result.status == "not_run":
                    origin = Origin("not_run", reason=result.reason)
                else:
                    kind = "fails" if result.status == "failed" else "ran"
                    origin = Origin(kind, record.where)
                found[number] = Shown(result, replace(origin, source=source))
    return found


def modules_with_examples() -> list[Path]:
    """The modules of the package whose docstrings have examples."""
    found = sorted((ROOT / "src").rglob("*.py"))
    return [path for path in found if ">>> " in path.read_text(encoding="utf-8")]


def run_docstrings(path: Path) -> Record:
    """Run the examples in a module's docstrings."""
    name = relative(path)
    module = ".".join(Path(name).relative_to("src").with_suffix("").parts)
    module = module.removesuffix(".__init__")
    run = process.call(f"doctest:{name}", blocks.run_doctest, module, file=path)
    wrong = run.error or run.value
    return run.failed(wrong) if wrong else run.record


def run_command(name: str, entry: Entry) -> Record:
    """Run a command of docs/recordings.toml on the GPUs that it asks for."""
    here, first = machine.gpus(), range(entry.gpus)
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, first))}
    visible = visible if len(here) > entry.gpus else {}
    run = process.shell(f"gpu:{name}", entry.command, visible)
    record = run.record
    data = record.detail.get("data")
    for figure in data.get("figures", ()) if isinstance(data, dict) else ():
        figure["svg"] = figure["svg"].splitlines()
    device = here[0] if entry.gpus == 1 else f"{entry.gpus} x {here[0]}"
    record.detail = {"command": entry.command, "device": device} | record.detail
    # bash is not traced: the script that it runs is a word of the command.
    named = digests(ROOT / word for word in blocks._words(entry.command))
    record.inputs = named | record.inputs
    record.outputs = [Result(text=blocks.sanitise(_LOGS.sub("", run.value)))]
    return run.failed(run.error) if run.error else record
