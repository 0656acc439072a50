"""What can be proven: pages, scripts, notebooks, docstrings, kernels and recordings."""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
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
    found += [
        Unit(f"script:{relative(path)}", partial(gallery.run, path))
        for path in gallery.scripts()
    ]
    found += [
        Unit(f"notebook:{relative(path)}", partial(notebook.run, path))
        for path in notebook.notebooks()
    ]
    found += [
        Unit(f"doctest:{relative(path)}", partial(run_docstrings, path))
        for path in modules_with_examples()
    ]
    found += [
        Unit(what, partial(build.compile_kernel, *job))
        for what, job in build.kernels().items()
    ]
    return found + recordings()


def recordings() -> list[Unit]:
    """The commands that the GPUs of this machine can run."""
    gpus = machine.gpus()
    return [
        Unit(f"gpu:{name}", partial(run_command, name, entry), alone=True)
        for name, entry in manifest().items()
        if not entry.lacks(gpus)
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
    path = page.DOCS / f"{name}.md"
    pairs = zip(page.parse(path), map(result, record.outputs), strict=False)
    found = ((block, page.problem(block, result)) for block, result in pairs)
    return "\n".join(f"line {block.line}: {said}" for block, said in found if said)


def result(output: dict) -> Result:
    """The result of a page's block, of what its record has."""
    names = Result.__dataclass_fields__
    return Result(**{name: output[name] for name in names if name in output})


def run_page(path: Path) -> Record:
    """Run the blocks of a page, in order, in one process and one namespace."""
    parsed, name, step = page.parse(path), page.name(path), page.project(path)
    run = process.call(
        blocks.run_blocks,
        name,
        parsed,
        fresh=page.starts_fresh(path),
        where=projects.write(name, step) if step else ROOT,
    )
    ended = run.results
    if run.error and len(ended) < len(parsed):
        ended.append(Result(status="failed", reason=run.error))
    while len(ended) < len(parsed):
        ended.append(Result(status="not_run", reason="an earlier block failed"))
    skipped = {
        name: result.reason
        for block, result in zip(parsed, ended, strict=True)
        if result.status == "not_run"
        for name in compiles.native_files(re.findall(r"[\w./+-]+", block.code))
    }
    inputs = run.inputs | digests(ROOT / name for name in skipped)
    inputs |= projects.inputs(step) if step else {}
    outputs = [
        {"code": page.digest(path, block), **_without_defaults(result)}
        for block, result in zip(parsed, ended, strict=True)
    ]
    return run.record(f"page:{name}", inputs=inputs, outputs=outputs, skipped=skipped)


def _without_defaults(result: Result) -> dict:
    given = {k: v for k, v in asdict(result).items() if v not in ("", None)}
    return {"status": result.status, "text": "", **given}


def is_of(record: Record, path: Path) -> bool:
    """Whether a record is of the blocks that a page has now."""
    codes = [page.digest(path, block) for block in page.parse(path)]
    return [output["code"] for output in record.outputs] == codes


@dataclass
class Shown:
    """What a page shows of a block: its result, and where that is from.

    Attributes:
        result: what the block printed and how it ended.
        where: the machine and the date, empty for a run in this checkout.
        stale: whether something that the result depends on has changed since.
        problem: what is wrong with it, empty if another block of the page is to blame.
    """

    result: Result = field(default_factory=lambda: Result(status="not_run"))
    where: str = ""
    stale: bool = False
    problem: str | None = None


def shown(path: Path) -> list[Shown]:
    """The best that the store has for each block: of here, of elsewhere, or stale."""
    parsed = page.parse(path)
    name = page.name(path)
    why = f"the page has not run since its last edit: `nox -s page -- {name}`"
    unknown = Shown(problem=why)
    found = [unknown] * len(parsed)
    # A block may print what an earlier one says, so a record of all blocks comes first.
    known = store().known(f"page:{name}")
    known = sorted(known, key=lambda found: not is_of(found[0], path))
    for record, is_here, is_stale in known:
        outputs = _outputs(record, path)
        ended = [output and result(output) for output in outputs]
        wrong = [r and page.problem(b, r) for b, r in zip(parsed, ended, strict=True)]
        for number, (output, known) in enumerate(zip(outputs, ended, strict=True)):
            had = found[number].result.status
            if known and (found[number] is unknown or had == "not_run" != known.status):
                found[number] = Shown(
                    known,
                    "" if is_here else record.where,
                    is_stale or output.get("stale", False) or not is_of(record, path),
                    wrong[number] or ("" if any(wrong) else None),
                )
    return found


def _outputs(record: Record, path: Path) -> list[dict | None]:
    """The recorded outputs of the blocks that a page has now."""
    if is_of(record, path):
        return record.outputs
    known = {output["code"]: output for output in record.outputs}
    return [known.get(page.digest(path, block)) for block in page.parse(path)]


def modules_with_examples() -> list[Path]:
    """The modules of the package whose docstrings have examples."""
    found = sorted((ROOT / "src").rglob("*.py"))
    return [path for path in found if ">>> " in path.read_text(encoding="utf-8")]


def run_docstrings(path: Path) -> Record:
    """Run the examples in a module's docstrings."""
    name = relative(path)
    module = ".".join(Path(name).relative_to("src").with_suffix("").parts)
    module = module.removesuffix(".__init__")
    run = process.call(blocks.run_doctest, module, file=path)
    if wrong := run.error or run.value:
        return run.record(f"doctest:{name}", "failed", detail={"reason": wrong})
    return run.record(f"doctest:{name}")


def run_command(name: str, entry: Entry) -> Record:
    """Run a command of docs/recordings.toml on the GPUs that it asks for."""
    here = machine.gpus()
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(entry.gpus)))}
    run = process.shell(entry.command, visible if len(here) > entry.gpus else {})
    device = here[0] if entry.gpus == 1 else f"{entry.gpus} x {here[0]}"
    text = blocks.sanitise(_LOGS.sub("", run.value))
    figures = run.data.get("figures", ()) if isinstance(run.data, dict) else ()
    for figure in figures:
        figure["svg"] = figure["svg"].splitlines()
    detail = {"command": entry.command, "device": device}
    detail |= {"reason": run.error} if run.error else {}
    # bash is not traced: the script that it runs is a word of the command.
    named = digests(ROOT / word for word in blocks._words(entry.command))
    return run.record(
        f"gpu:{name}",
        "failed" if run.error else "ran",
        inputs=named | run.inputs,
        outputs=[{"status": "ok", "text": text}],
        detail=detail,
    )
