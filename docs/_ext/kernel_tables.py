"""Tables of the library's kernels: what compilers made of them, which dtypes they take.

``code-objects`` shows one source for every target, ``support-matrix`` which operator
takes which dtype on which device, as the tests saw it.
"""

import re
from collections.abc import Iterator

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from proof import tables
from proof.evidence import store
from proof.origins import resolve

FIGURES = {
    "Registers": "registers",
    "Spilled bytes": "spill_bytes",
    "Shared bytes": "shared_bytes",
    "Shuffles": "shuffles",
    "Barriers": "barriers",
    "16-byte loads": "wide_loads",
}
RECORDING = "gpu:support"
DTYPES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "complex64": "complex64",
    "int32": "int32",
    "bool": "bool",
    "float8_e4m3fn": "fp8",
}
CXX_TYPES = {"Half": "float16", "BFloat16": "bfloat16", "float": "float32"}
CXX_TYPES |= {"double": "float64"}
DEVICES = {"cpu": "CPU", "cuda": "CUDA", "hip": "HIP", "meta": "meta"}


def code_objects(directive: SphinxDirective) -> Iterator[str]:
    """A table of the figures that the engine read out of the code of one source.

    One row a target; a cell is the range over the kernels of the source file, which
    are the instantiations of its templates.
    """
    directive.env.note_reread()
    source = directive.arguments[0]
    found = [figures for figures in read_figures() if figures["source"] == source]
    if found:
        head = ["Target", "Compiler", "Warp", "Kernels", *FIGURES]
        for cells in (head, ["---"] * len(head), *map(_target, found)):
            yield f"|{'|'.join(cells)}|"
    else:
        yield from (":::{warning}", "Nobody has compiled this source for a GPU.", ":::")


def _target(figures: dict) -> list[str]:
    """One target: the range of each figure over its kernels."""
    kernels = figures["kernels"]
    cells = [figures["target"], figures["compiler"], figures["wave_size"], len(kernels)]
    for key in FIGURES.values():
        low, high = (pick(kernel[key] for kernel in kernels) for pick in (min, max))
        cells.append(low if low == high else f"{low}–{high}")
    return [str(cell) for cell in cells]


def read_figures() -> list[dict]:
    """What the store has of each kernel source and target, stale or not."""
    names = sorted(what for what in store().names() if what.startswith("compile:"))
    found = filter(None, map(store().best, names))
    return [record.detail["figures"] for record in found if record.detail]


class SupportMatrix(SphinxDirective):
    """A table of operators, devices and dtypes, and a line on where it comes from.

    CPU and meta come from the test run of this machine, and so does CUDA where there is
    a GPU, or else from the recording. HIP is the kernels that clang compiled.
    """

    def run(self) -> list[nodes.Node]:
        self.env.note_reread()
        here = data_of(f"page:{self.env.docname}")
        if not here:
            return [nodes.warning("", nodes.paragraph("", "The tests have not run."))]
        names = sorted({key.split()[0] for key in here})
        seen = by_device(data_of(RECORDING), {"cuda"}) | by_device(here)
        shown = nodes.raw("", matrix(names, seen | compiled(names)), format="html")
        line = origins(any(key.endswith(" cuda") for key in here))
        return [shown, nodes.paragraph("", line, classes=["support-origins"])]


def data_of(what: str) -> dict:
    """What the run of the tests left: ``{"op cpu": {answer: [dtypes]}}``."""
    record = store().best(what)
    return record.detail.get("data", {}) if record else {}


def by_device(seen: dict, devices=frozenset(DEVICES)) -> dict[str, dict[str, str]]:
    """Turn ``{"op cpu": {answer: [dtypes]}}`` into ``{"op cpu": {dtype: answer}}``."""
    return {
        key: {dtype: answer for answer, dtypes in row.items() for dtype in dtypes}
        for key, row in seen.items()
        if key.split()[1] in devices
    }


def compiled(names: list[str]) -> dict[str, dict[str, str]]:
    """The dtypes that an operator's kernels were compiled for, on every AMD target."""
    rows: dict[str, dict[str, str]] = {}
    for name in names:
        folder = f"csrc/{name.rstrip('_')}/"
        found = [
            {dtype_of(kernel["name"]) for kernel in figure["kernels"]} - {None}
            for figure in amd_figures()
            if figure["source"].startswith(folder)
        ]
        dtypes = set.intersection(*found) if found else set()
        if found and not dtypes:
            raise LookupError(f"the kernels of {folder} have no dtype in their names")
        rows[f"{name} hip"] = dict.fromkeys(dtypes, "compiled")
    return rows


def dtype_of(kernel: str) -> str | None:
    """The first type among a kernel's template arguments: that of its input."""
    found = re.search(rf"\b({'|'.join(CXX_TYPES)})\b", kernel)
    return CXX_TYPES[found[0]] if found else None


def amd_figures() -> list[dict]:
    return [f for f in read_figures() if f["target"].startswith("gfx")]


def matrix(names: list[str], seen: dict[str, dict[str, str]]) -> str:
    """The rows of an operator follow each other; its name spans them."""
    lines = []
    for name in names:
        title = f'<td rowspan="{len(DEVICES)}"><code>{name}</code></td>'
        for device, written in DEVICES.items():
            answers = seen.get(f"{name} {device}", {})
            cells = [written, *(cell(answers.get(dtype)) for dtype in DTYPES)]
            lines.append(tables.row(cells).replace("<tr>", f"<tr>{title}", 1))
            title = ""
    head = ["operator", "device", *DTYPES.values()]
    return tables.table(head, "".join(lines), "support-matrix")


def cell(answer: str | None) -> str:
    """An answer in a word, and a class for its colour."""
    return f'<span class="support support-{answer}">{answer}</span>' if answer else "–"


def origins(gpu_here: bool) -> str:
    """Say where each device's rows come from."""
    recorded = resolve({"how": "recorded", "what": RECORDING}).label
    cuda = "the run above" if gpu_here else recorded
    targets = ", ".join(sorted({figure["target"] for figure in amd_figures()}))
    hip = f"kernels compiled for {targets}, not run" if targets else "not compiled here"
    return f"CPU and meta: the run above. CUDA: {cuda}. HIP: {hip}."


def setup(app):
    app.add_css_file("support.css")
    app.add_directive("support-matrix", SupportMatrix)
    tables.add_markdown(app, "code-objects", code_objects, arguments=1)
