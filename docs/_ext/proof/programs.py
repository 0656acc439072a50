"""A block of a page as a complete program: the page's earlier Python blocks, and it.

Of a block that failed on purpose, the statements before the failure are taken. Where
a block needs more than these, as a file of the repository, there is no program.
"""

import ast
import builtins
import re
import symtable
from collections.abc import Iterator
from sys import stdlib_module_names

from .page import Block, Result

PACKAGES = stdlib_module_names | {"numpy", "opbook", "pytest", "torch", "triton"}
KNOWN = {*dir(builtins), "__name__"}
_IMPORT = re.compile(r"^\s*(?:import|from) (\w+)", re.MULTILINE)
# A file of the repository, or one that another block or a command may have made.
_FILE = re.compile(
    r"\b(build|csrc|docs|examples_src|src|starter|tests|tools|tutorials)/"
    r"|/[\w.-]+\.(py|cpp|h|cu|so|json|toml)\b|\bPath\(\W\w|(?<![.\w])open\("
)
_LOOKUP = re.compile(r"globals\(\)|(?<![.\w])(eval|exec)\(|sys\.modules")  # of names
_INTERPRET = 'import os\n\nos.environ.setdefault("TRITON_INTERPRET", "1")'


def complete(blocks: list[Block], results: list[Result], number: int) -> str:
    """The program of a block that stands on earlier ones; "" where that is unsure."""
    pairs = [*zip(blocks, results, strict=True)]
    *codes, code = [_worked(*pair) for pair in pairs[: number + 1]]
    codes = [*filter(None, codes), code]
    if not code or results[number].status == "failed" or len(codes) < 2:
        return ""
    text = "\n\n\n".join(codes)
    names = symtable.symtable(text, "", "exec")
    bound = {s.get_name() for s in names.get_symbols() if not _is_only_read(s)}
    is_whole = KNOWN | bound >= {*_read(names)}
    is_alone = PACKAGES.issuperset(_IMPORT.findall(text)) and not _FILE.search(text)
    if not (is_whole and is_alone) or _LOOKUP.search(text):
        return ""
    if results[number].text:
        codes[-1] = _with_print(code, text)
    if "import triton" in text and "TRITON_INTERPRET" not in text:
        codes.insert(0, _INTERPRET)
    return "\n\n\n".join(codes) + "\n"


def _worked(block: Block, result: Result) -> str:
    """The part of a Python block that ran to its end."""
    if block.language != "python" or result.status == "not_run":
        return ""
    code = block.code.strip("\n")
    if result.status == "ok":
        return code
    try:
        ends = [node.end_lineno for node in ast.parse(code).body]
    except SyntaxError:  # which it shows
        return ""
    last = max((end for end in ends if end < (result.line or 1)), default=0)
    return "\n".join(code.splitlines()[:last])


def _is_only_read(symbol: symtable.Symbol) -> bool:
    return not (symbol.is_assigned() or symbol.is_imported())


def _read(table: symtable.SymbolTable) -> Iterator[str]:
    """The names of the page that it uses, also in its functions and classes."""
    is_page = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() if is_page else symbol.is_global():
            yield symbol.get_name()
    for child in table.get_children():
        yield from _read(child)


def _with_print(code: str, program: str) -> str:
    """The code; it prints the value of its end, which the page shows."""
    last = ast.parse(code).body[-1]
    if not isinstance(last, ast.Expr) or _returns_nothing(last.value, code, program):
        return code
    lines = code.splitlines(keepends=True)
    before, end = "".join(lines[: last.lineno - 1]), "".join(lines[last.lineno - 1 :])
    shown = ast.get_source_segment(code, last)
    after = end.removeprefix(shown)  # a comment, if anything
    if isinstance(last.value, ast.Tuple):
        shown = ast.unparse(last.value)
    return f"{before}print({shown}){after}"


def _returns_nothing(value: ast.expr, code: str, program: str) -> bool:
    """Whether it is a call that prints, asserts or tidies up."""
    if not isinstance(value, ast.Call):
        return False
    name = ast.unparse(value.func).rpartition(".")[2]
    nodes = [n for n in ast.walk(ast.parse(program)) if isinstance(n, ast.FunctionDef)]
    if made := [node for node in nodes if node.name == name]:
        return not any(isinstance(n, ast.Return) for m in made for n in ast.walk(m))
    tidies = not value.args and "print(" in code
    return tidies or bool(re.fullmatch(r"print|assert_\w+", name))
