"""Proof: every code block of the book ran, was compiled, or says why not.

``evidence`` keeps the records, ``page`` reads the ``{run}`` blocks of a page,
``process`` executes code in a process of its own, ``python -m proof`` builds and
compiles.
None of these needs Sphinx. The Sphinx extension is in ``sphinx_ext``.
"""


def setup(app):
    """Load the Sphinx side, which is imported only by a Sphinx build."""
    from .sphinx_ext import setup

    return setup(app)
