"""Signature and docstring for operators made by ``torch.library.custom_op``.

The decorator returns an object that shows neither; both are on the function behind it.
"""

import inspect

from sphinx.util.inspect import stringify_signature


def function_of(operator: object) -> object | None:
    """The decorated function; None for whatever is no custom operator."""
    if type(operator).__name__ != "CustomOpDef":  # without importing torch
        return None
    return operator._init_fn


def process_signature(app, what, name, operator, options, signature, returns):
    """Replace ``(*args, **kwargs)`` by the function's own parameters."""
    function = function_of(operator)
    if function is None:
        return None
    signature = inspect.signature(function)
    text = stringify_signature(signature, unqualified_typehints=True)
    parameters, _, returns = text.partition(" -> ")
    return parameters, returns or None


def process_docstring(app, what, name, operator, options, lines) -> None:
    """Replace the docstring of the wrapping class by the function's."""
    function = function_of(operator)
    if function is not None:
        lines[:] = [*inspect.getdoc(function).splitlines(), ""]


def setup(app):
    """Listen to autodoc, before napoleon reads the docstrings."""
    app.connect("autodoc-process-signature", process_signature)
    app.connect("autodoc-process-docstring", process_docstring, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
