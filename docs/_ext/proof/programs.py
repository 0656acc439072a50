"""A block of a page as a complete program: with the earlier statements that it needs.

Names connect statements. Where they do not tell what a block needs, as with a file of
the repository, there is no program.
"""

import ast
import builtins
import re
import symtable
from collections.abc import Iterator
from dataclasses import dataclass
from sys import stdlib_module_names

from .page import Block, Result

PACKAGES = stdlib_module_names | {"numpy", "opbook", "pytest", "torch", "triton"}
PROCESS = ""  # the name of what all statements share: seeds, variables, ATen's kernels
KNOWN = {PROCESS, *dir(builtins), "aten", "prims"}
_IMPORT = re.compile(r"^\s*(?:import|from) (\w+)", re.MULTILINE)
# A file of the repository, or one that another block or a command may have made.
_FILE = re.compile(
    r"\b(build|csrc|docs|examples_src|src|starter|tests|tools|tutorials)/"
    r"|/[\w.-]+\.(py|cpp|h|cu|so|json|toml)\b|\bPath\(\W\w|(?<![.\w])open\("
)
_LOOKUP = re.compile(r"globals\(\)|(?<![.\w])(eval|exec)\(|sys\.modules")  # of names
# A namespace of operators is a name as well.
_DEFINES = re.compile(r"""(?:\bLibrary\(["']|TORCH_LIBRARY\w*\(|["'](?=\w+::))(\w+)""")
_USES = re.compile(r"""(?:torch\.ops\.(?!load_)|["'](?=\w+::))(\w+)""")
# Calls that change nothing although nobody uses their values, and calls that do.
_LOOKS = re.compile(r"print|assert_\w+|opcheck|\w*gradcheck|mkdir|insert")
_CHANGES = re.compile(r"\w*[^_]_|backward|_destroy|impl|define|register\w*")
_INTERPRET = 'import os\n\nos.environ.setdefault("TRITON_INTERPRET", "1")\n\n'


@dataclass(frozen=True)
class Statement:
    """A statement of a page: its text, and the names that connect it with others."""

    node: ast.stmt
    text: str
    worked: bool
    binds: set[str]
    reads: set[str]
    changes: set[str]


def complete(blocks: list[Block], results: list[Result], number: int) -> str:
    """The program of a block that stands on earlier ones; "" where that is unsure."""
    block, result = blocks[number], results[number]
    if result.status != "ok":
        return ""
    page, imports = [], set()
    for each, ended in zip(blocks[: number + 1], results, strict=False):
        own = len(page)
        page += _statements(each, ended, imports)
    needed = _needed(page, range(own, len(page)))
    text = "\n".join(page[index].text for index in needed if index < own)
    if not text:
        return ""
    text += f"\n\n{_with_print(block.code, page) if result.text else block.code}\n"
    if "import triton" in text and "TRITON_INTERPRET" not in text:
        text = _INTERPRET + text
    is_alone = PACKAGES.issuperset(_IMPORT.findall(text))
    if not is_alone or _FILE.search(text) or _LOOKUP.search(text):
        return ""
    return re.sub(r"\n{4,}", "\n\n\n", text).strip() + "\n"


def _statements(block: Block, result: Result, imports: set[str]) -> Iterator[Statement]:
    """The statements of a block, each with the comments above it."""
    lines, end = ["", *block.code.splitlines()], 0
    worked = {"ok": len(lines), "failed": (result.line or 1) - 1}.get(result.status, 0)
    try:
        body = ast.parse(block.code).body if block.language == "python" else ()
    except SyntaxError:  # of a block that shows one
        return
    for node in body:
        text = "\n".join(lines[end and end + 1 : node.end_lineno + 1])
        end = node.end_lineno
        is_shown = node is body[-1] and bool(result.text)
        yield Statement(node, text, end <= worked, *_names(node, imports, is_shown))


def _names(node: ast.stmt, imports: set[str], is_shown: bool) -> tuple[set[str], ...]:
    """The names that a statement binds, reads, and changes; note those it imports."""
    source = ast.unparse(node)
    table = symtable.symtable(source, "", "exec")
    symbols = table.get_symbols()
    binds = {s.get_name() for s in symbols if s.is_assigned() or s.is_imported()}
    reads = {s.get_name() for s in symbols if s.is_referenced()} | {*_globals(table)}
    reads |= {PROCESS, *_USES.findall(source)}
    if isinstance(node, ast.Import | ast.ImportFrom):
        imports |= binds
        is_part = isinstance(node, ast.Import) and "." in source
        return (set(), reads, binds) if is_part else (binds, reads, set())
    looks = isinstance(node, ast.Expr) and (is_shown or _looks(node))
    changes = set() if _looks(node) else {*_DEFINES.findall(source)}
    changes |= {PROCESS} if "aten" in changes else set()
    for part in _outside_functions(node):
        names = None if part is node and looks else _changed(part)
        if names is not None:
            changes |= names - imports or {PROCESS}
        for decorator in getattr(part, "decorator_list", ()):
            changes |= _loaded(decorator) - imports
    if isinstance(node, ast.For):
        reads -= _loaded(node.target)
        changes |= _loaded(node.iter) if changes & _loaded(node.target) else set()
    return binds, reads, changes


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    """The names of the page that the functions and classes of a statement use."""
    for child in table.get_children():
        yield from (s.get_name() for s in child.get_symbols() if s.is_global())
        yield from _globals(child)


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """A statement and its parts, but not what a function in it does when called."""
    yield node
    is_function = isinstance(node, ast.FunctionDef | ast.Lambda)
    for part in () if is_function else ast.iter_child_nodes(node):
        yield from _outside_functions(part)


def _looks(node: ast.AST) -> bool:
    """Whether a statement is a call that changes nothing."""
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return is_call and bool(_LOOKS.fullmatch(_called(node.value)))


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _changed(part: ast.AST) -> set[str] | None:
    """The names of what a part of a statement changes; None if it changes nothing."""
    match part:
        case ast.Expr(ast.Call()) if not _looks(part):
            call = part.value
        case ast.Call() if _CHANGES.fullmatch(_called(part)):
            call = part
        case ast.Attribute() | ast.Subscript() if not isinstance(part.ctx, ast.Load):
            return _loaded(part.value)
        case _:
            return None
    owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return {name for each in (*owner, *call.args) for name in _loaded(each)}


def _loaded(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _needed(page: list[Statement], own: range) -> list[int]:
    """The statements without which these would not do what they did; [] if unsure."""
    new, taken = {*own}, set()
    while new := new - taken:
        taken |= new
        try:
            new = {source for index in new for source in _sources(page, index)}
        except LookupError:
            return []
    return sorted(taken)


def _sources(page: list[Statement], index: int) -> Iterator[int]:
    """The statements that bind what this one reads, and those that change it.

    Raises:
        LookupError: when a name is bound nowhere, or where a block failed.
    """
    here = page[index]
    for name in here.binds | here.reads:
        bound, is_read = index, name in here.reads
        if is_read:
            binding = [i for i, s in enumerate(page) if name in s.binds and i != index]
            before = [i for i in binding if i < index]
            # A function may read what is bound after it.
            late = [] if name in here.binds else binding
            bound = (before or late or [-1])[-1]
        rest = enumerate(page[bound + 1 :], bound + 1)
        changing = [i for i, s in rest if s.worked and name in s.changes]
        yield from changing
        if is_read and bound >= 0:
            yield bound
        is_known = bound >= 0 or changing or name in KNOWN | here.binds
        if not is_known or not page[bound].worked:
            raise LookupError(name)


def _with_print(code: str, page: list[Statement]) -> str:
    """The code; it prints the value of its end, which the page shows."""
    last = ast.parse(code).body[-1]
    if not isinstance(last, ast.Expr) or _returns_nothing(last.value, code, page):
        return code
    lines = code.splitlines(keepends=True)
    before, end = "".join(lines[: last.lineno - 1]), "".join(lines[last.lineno - 1 :])
    shown = ast.get_source_segment(code, last)
    after = end.removeprefix(shown)  # a comment, if anything
    if isinstance(last.value, ast.Tuple):
        shown = ast.unparse(last.value)
    return f"{before}print({shown}){after}"


def _returns_nothing(value: ast.expr, code: str, page: list[Statement]) -> bool:
    """Whether it is a call that prints, asserts or tidies up."""
    if not isinstance(value, ast.Call):
        return False
    name, functions = _called(value), [s.node for s in page if "def " in s.text]
    made = [node for node in functions if getattr(node, "name", "") == name]
    if made:
        return not any(isinstance(n, ast.Return) for m in made for n in ast.walk(m))
    tidies = not value.args and "print(" in code
    return tidies or bool(re.fullmatch(r"print|assert_\w+", name))
