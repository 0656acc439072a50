"""``code-objects``: what the compilers made of a kernel, for every target."""

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from proof.evidence import store

COLUMNS = {
    "Registers": "registers",
    "Spilled bytes": "spill_bytes",
    "Shared bytes": "shared_bytes",
    "Shuffles": "shuffles",
    "Barriers": "barriers",
    "16-byte loads": "wide_loads",
}


class CodeObjects(SphinxDirective):
    """A table drawn from the figures that ``python -m proof`` read out of the code.

    One row a target; a cell is the range over the kernels of the source file, which
    are the instantiations of its templates.
    """

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        self.env.note_reread()
        figures = [f for f in read_figures() if f["source"] == self.arguments[0]]
        if not figures:
            text = "Nobody has compiled this source as it is now for a GPU."
            return [nodes.warning("", nodes.paragraph("", text))]
        head = ["Target", "Compiler", "Warp", "Kernels", *COLUMNS]
        rows = [head, ["---"] * len(head), *map(row, figures)]
        return self.parse_text_to_nodes("\n".join(f"|{'|'.join(r)}|" for r in rows))


def read_figures() -> list[dict]:
    """What the store has of each kernel source and target, stale or not."""
    names = sorted(what for what in store().names() if what.startswith("compile:"))
    found = filter(None, map(store().best, names))
    return [record.detail["figures"] for record in found if record.detail]


def row(figure: dict) -> list[str]:
    """One target: the range of each figure over its kernels."""
    kernels = figure["kernels"]
    cells = [figure["target"], figure["compiler"], figure["wave_size"], len(kernels)]
    for key in COLUMNS.values():
        low, high = (pick(kernel[key] for kernel in kernels) for pick in (min, max))
        cells.append(low if low == high else f"{low}–{high}")
    return [str(cell) for cell in cells]


def setup(app):
    app.add_directive("code-objects", CodeObjects)
    return {"version": "1", "parallel_read_safe": True}
