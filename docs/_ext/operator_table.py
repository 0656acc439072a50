"""``operator-table``: every ATen operator of the PyTorch that builds the site.

The rows are read from PyTorch's dispatcher in a process of their own, before anything
is registered in it. The filter above the table is ``operator_table.js``, in the page.
"""

from html import escape

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from proof import run

# The groups that a reader looks for, by the names of their operators.
GROUPS = {
    "unary": "abs neg exp exp2 log log2 log10 sqrt rsqrt ceil floor round trunc sign "
    "sin cos tan asin acos atan sinh cosh tanh sigmoid erf erfc reciprocal bitwise_not",
    "binary": "add sub mul div pow fmod remainder maximum minimum atan2 bitwise_and "
    "bitwise_or bitwise_xor logical_and logical_or logical_xor",
    "reductions": "sum prod mean std var max min argmax argmin all any norm logsumexp",
    "matrices": "mm bmm addmm addmv addr matmul dot mv ger linear",
    "activations": "relu leaky_relu gelu silu mish hardswish hardsigmoid softplus "
    "softshrink threshold",
    "normalization": "batch_norm layer_norm group_norm instance_norm native_batch_norm "
    "native_layer_norm native_group_norm rms_norm",
    "pooling": "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d "
    "adaptive_max_pool2d adaptive_avg_pool2d _adaptive_avg_pool2d "
    "max_pool2d_with_indices",
    "convolution": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d "
    "conv_transpose3d convolution convolution_overrideable",
    "memory": "copy copy_ clone contiguous fill zero ones_like zeros_like empty_like "
    "empty empty_strided",
    "indexing": "index index_put gather scatter scatter_add masked_fill masked_select "
    "where",
    "shapes": "view reshape transpose permute squeeze unsqueeze expand repeat cat "
    "stack split chunk as_strided",
}
KINDS = {
    "CompositeImplicitAutograd": "implicit",
    "CompositeExplicitAutogradNonFunctional": "structured",
    "CompositeExplicitAutograd": "explicit",
    "CPU": "kernel",
}
FORM = """\
<form class="operator-filter" hidden onsubmit="return false">
<label>Name or schema <input type="search" name="text" placeholder="neg"></label>
<label>Kind <select name="kind"><option value="">all</option>{kinds}</select></label>
<label>Group <select name="group"><option value="">all</option>{groups}</select></label>
<output></output>
</form>
"""
TABLE = """\
<div class="operator-rows" tabindex="0" role="region" aria-label="ATen operators">
<table class="table"><thead><tr><th>Operator<th>Kind<th>Gradient<th>Schema
<tbody>
{rows}
</table></div>
"""


def operators() -> tuple[str, int, list[tuple[str, str, str, str]]]:
    """Read the dispatcher: PyTorch's version, all operators, the rows of the table.

    Left out are the ``out=`` forms that PyTorch generates from another form, and the
    private operators that are made of others.
    """
    import torch

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = torch._C._dispatch_get_all_op_names()
    names = sorted(name for name in names if name.startswith("aten::"))
    rows = []
    for name in names:
        base, _, overload = name.removeprefix("aten::").partition(".")
        op = getattr(getattr(torch.ops.aten, base), overload or "default")
        kind = next(
            (kind for key, kind in KINDS.items() if has(name, key)), "elsewhere"
        )
        if kind == "structured" and not has(name, "CPU"):
            kind = "explicit"  # its one kernel is not an ``out=`` form's
        private = base.startswith("_") and kind != "kernel"
        if private or torch.Tag.generated in op.tags:
            continue
        own = has(name, "Autograd")
        gradient = "own" if own else "parts" if kind == "implicit" else "none"
        arguments = str(op._schema).removeprefix(name)
        rows.append((name.removeprefix("aten::"), kind, gradient, arguments))
    return torch.__version__, len(names), rows


class OperatorTable(SphinxDirective):
    """The table, with a line that says where it comes from."""

    def run(self) -> list[nodes.Node]:
        done = run.call(operators)
        if done.error:
            raise self.error(done.error)
        version, count, rows = done.value
        group_of = {
            name: group for group, names in GROUPS.items() for name in names.split()
        }
        html = FORM.format(
            kinds="".join(f"<option>{kind}" for kind in [*KINDS.values(), "elsewhere"]),
            groups="".join(f"<option>{group}" for group in GROUPS),
        ) + TABLE.format(rows="\n".join(row(*cells, group_of) for cells in rows))
        line = (
            f"Read in this build from PyTorch {version.partition('+')[0]}: "
            f"{len(rows):,} of its {count:,} operators. Not listed: out= forms that "
            "are generated, and private operators that are made of others."
        )
        return [
            nodes.raw("", html, format="html", classes=["operator-table"]),
            nodes.paragraph("", line, classes=["support-origins"]),
        ]


def row(name: str, kind: str, gradient: str, schema: str, group_of: dict) -> str:
    """One row. HTML lets us leave out the closing tags, a tenth of the page's size."""
    base = name.partition(".")[0]
    group = group_of.get(base) or group_of.get(base.removesuffix("_"))
    attribute = f" data-g={group}" if group else ""
    cells = "<td>".join(escape(cell, quote=False) for cell in (kind, gradient, schema))
    return f"<tr{attribute}><td>{escape(name)}<td>{cells}"


def add_script(app, pagename, templatename, context, doctree) -> None:
    """Load the filter on the pages that have the table."""
    raw = doctree.findall(nodes.raw) if doctree else []
    if any("operator-table" in node["classes"] for node in raw):
        app.add_js_file("operator_table.js", loading_method="defer")


def setup(app):
    app.add_css_file("operator_table.css")
    app.add_directive("operator-table", OperatorTable)
    app.connect("html-page-context", add_script)
    return {"version": "1", "parallel_read_safe": True}
