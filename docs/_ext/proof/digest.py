"""Digests of what a file means, so that an edit of a comment outdates no evidence.

Of C++, CUDA and HIP that is the sequence of tokens, of Python the syntax tree without
docstrings and positions. Any other file means its bytes.
"""

import ast
import hashlib
import json
import re

_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
NATIVE = {".h", ".hpp", ".cuh", ".c", ".cc", ".cpp", ".cu", ".hip", ".mu"}

# The order matters: what opens a comment or a string hides the rest of it.
_TOKEN = re.compile(
    r"""
      (?P<comment> //(?:\\\n|[^\n])* | /\*.*?\*/ )
    | (?P<space> (?:\\\n|[^\S\n])+ )
    | (?P<newline> \n )
    | R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"
    | "(?:\\.|[^"\\\n])*"
    | (?<!\w)\.?\d(?:[eEpP][+-]|'?[\w.])*
    | '(?:\\.|[^'\\\n])*'
    | \w+
    | <=>|->\*|\.\.\.|<<=|>>=|::|\#\#|\.\*|->|\+\+|--|<<|>>|&&|\|\||[-+*/%&|^=!<>]=
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


def of_bytes(data: bytes) -> str:
    """Digest a file by its content."""
    return hashlib.sha256(data).hexdigest()


def of_meaning(data: bytes, suffix: str) -> str:
    """Digest a file by what it means; "code:" marks that it is not by its bytes."""
    try:
        if suffix == ".py":
            text = json.dumps(_tree(ast.parse(data)))
        elif suffix in NATIVE:
            text = tokens(data.decode())
        else:
            return of_bytes(data)
    except (SyntaxError, ValueError):
        return of_bytes(data)
    return f"code:{of_bytes(text.encode())}"


def tokens(text: str) -> str:
    """The tokens of C++ without comments: one line, and one for each directive."""
    found, in_directive, at_start = [], False, True
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match[0]
        if kind == "newline":
            if in_directive:
                found.append("\n")
            in_directive, at_start = False, True
        elif kind not in ("comment", "space"):
            if token == "#" and at_start:
                found.append("\n")
                in_directive = True
            found.append(token)
            at_start = False
    return " ".join(found)


def _tree(node: object) -> object:
    """A syntax tree as data. Empty fields are left out: newer Pythons add some."""
    if isinstance(node, list):
        return [_tree(item) for item in node]
    if not isinstance(node, ast.AST):
        return node if isinstance(node, str | int | None) else repr(node)
    fields = {name: value for name, value in ast.iter_fields(node) if value}
    if isinstance(node, ast.Constant):
        fields["value"] = f"{type(node.value).__name__} {node.value!r}"
    elif isinstance(node, _DOCUMENTED) and ast.get_docstring(node, False) is not None:
        fields["body"] = node.body[1:]
    return [type(node).__name__, {name: _tree(value) for name, value in fields.items()}]
