"""Formulas as MathML, written by the build: no script, no font and no other host.

Docutils brings the translator from LaTeX; every current browser draws the result. The
LaTeX stays in an attribute, for readers that cannot draw.
"""

from html import escape

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.util import logging

logger = logging.getLogger(__name__)


def mathml(node: nodes.Element, *, block: bool) -> str:
    """Translate the node's LaTeX, or warn at its place in the source."""
    try:
        drawn = latex2mathml.tex2mathml(node.astext(), as_block=block)
        return drawn.replace("<math ", f'<math alttext="{escape(node.astext())}" ', 1)
    except MathError as error:
        logger.warning("formula not understood: %s", error, location=node)
        return f"<code>{node.astext()}</code>"


def visit_math(self, node: nodes.math) -> None:
    """Write a formula inside a line."""
    self.body.append(mathml(node, block=False))
    raise nodes.SkipNode


def visit_math_block(self, node: nodes.math_block) -> None:
    """Write a displayed formula."""
    self.body.append(f'<div class="math">{mathml(node, block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app):
    """Register the renderer under the name ``mathml``."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
