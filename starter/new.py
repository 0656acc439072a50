"""Make a project of your own from the starter, or add an operator to one.

python new.py ../mykernels --operator reglu              a new project
python new.py ../mykernels --add my_norm --kind rows     another operator in it

The kinds of operators, by what an element of the result depends on:
  elementwise  the same element of the arguments: swiglu
  rows         all elements of a row: softmax_lse
  inplace      as elementwise, but the result replaces an argument: ema_update_
"""

import argparse
import keyword
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE, AUTHOR = "starter", "Opbook contributors"  # what is renamed
KINDS = {"elementwise": "swiglu", "rows": "softmax_lse", "inplace": "ema_update"}
# By kind, and whether in Triton: the files of its own. The others are of "elementwise".
FOLDERS = {
    ("elementwise", False): "cpp",
    ("rows", False): "rows",
    ("inplace", False): "inplace",
    ("elementwise", True): "triton_elementwise",
    ("rows", True): "triton_rows",
    ("inplace", True): "triton_inplace",
}
# Headers of the first folder that not every kind needs.
HEADERS = {"elementwise.h": {"elementwise"}, "vectors.h": {"elementwise", "inplace"}}
COPIED = set(".cpp .cu .h .in .md .py .toml .yml LICENSE .gitignore".split())
NOT_COPIED = set("build dist .git .venv __pycache__ .pytest_cache .ruff_cache".split())
RESERVED = set(  # of PyTorch and C++; Python's are in `keyword`
    "aten at c10 prim prims std torch triton pytest asm catch delete do enum extern"
    " friend goto int long mutable new private protected public register requires short"
    " signed sizeof this throw typedef typeid union unsigned virtual volatile".split()
)
CODE = {".cpp", ".cu", ".h", ".py"}
FORMULA = re.compile(r"(#|//) \[/?(math|reference)\]")
GUIDE = re.compile(r"(#|//) \[/?(?!math\]|/?reference\])\w+/?\] ?")  # marks its pages
SAVED = re.compile(r'.*(_backward(\(|"\)|\.)|saved_tensors|backward = )')
WORDS = re.compile(
    r'// \w+: |    """Compute `|.*\bIt (?:computes|writes)\s*(`|$)'
)  # in words
# Strings, comments, and attributes, of which a project may have the name too.
NOT_CODE = re.compile(r'"""[\s\S]*?"""|"[^"\n]*"|(#|//).*|(?<=\w|\)|\])\.[a-z]\w*')
INIT = re.compile(r"^(import torch|from \w+ import _C)  # ", re.MULTILINE)
Texts = dict[Path, str]


def read(folder: Path) -> Texts:
    """Return the text of each file of a project, by its path in the folder."""
    paths = [path.relative_to(folder) for path in sorted(folder.rglob("*"))]
    paths = [path for path in paths if NOT_COPIED.isdisjoint(path.parts)]
    paths = [path for path in paths if path.suffix in COPIED or path.name in COPIED]
    return {path: (folder / path).read_text(encoding="utf-8") for path in paths}


def without_marks(path: Path, text: str) -> str:
    """Leave out what marks the regions that the pages of the guide show."""
    lines = []
    for line in text.split("\n"):
        mark = GUIDE.search(line)
        rest = line[mark.end() :] if mark else ""
        if mark and rest:  # a comment that goes on after the mark
            line = f"{line[: mark.start()]}{mark[1]} {rest[0].upper()}{rest[1:]}"
        elif mark:
            line = line[: mark.start()].rstrip()
        if line or not mark:
            lines.append(line)
    most = 3 if path.suffix == ".py" else 2  # line breaks in a row
    return re.sub(rf"\n{{{most + 1},}}", "\n" * most, "\n".join(lines))


def function_of(kind: str, operator: str) -> str:
    """Return the function's name; PyTorch's end in _ if they write to an argument."""
    return operator + "_" * (kind == "inplace")


def sections(markdown: str) -> dict[str, str]:
    """Split a text at its headings."""
    return {part.partition("\n")[0]: part for part in markdown.split("\n## ")}


def template(kind: str, is_triton: bool) -> tuple[Texts, Texts]:
    """Return the files of an operator as they are here, and those of its project."""
    operator, readme = KINDS[kind], Path("README.md")
    shared = read(HERE / FOLDERS["elementwise", is_triton])
    swiglu = {path: text for path, text in shared.items() if "swiglu" in path.name}
    headers = {path: text for path, text in shared.items() if path.name in HEADERS}
    shared = {p: text for p, text in shared.items() if p not in swiglu | headers}
    own = swiglu if kind == "elementwise" else read(HERE / FOLDERS[kind, is_triton])
    own |= {path: headers[path] for path in headers if kind in HEADERS[path.name]}
    if kind != "elementwise":
        parts = sections(shared[readme]) | sections(own.pop(readme))
        shared[readme] = "\n## ".join(parts.values()).replace("swiglu", operator)
    own = {path: without_marks(path, text) for path, text in own.items()}
    shared = {path: without_marks(path, text) for path, text in shared.items()}
    init = Path("src", PACKAGE, "__init__.py")
    text = shared[init].replace(f"{PACKAGE}.swiglu", f"{PACKAGE}.{operator}")
    text = re.sub(r"\bswiglu\b", function_of(kind, operator), text)
    shared[init] = INIT.sub(r"\1  # noqa: F401 - ", text)
    return own, shared


def flatten(texts: Texts) -> Texts:
    """Move the package from src/ to the project's own folder."""
    where, what = 'where = ["src"]', f'include = ["{PACKAGE}*"]'
    flat = partial(re.compile(r"\bsrc/").sub, "")  # not csrc/
    return {
        Path(flat(path.as_posix())): flat(text.replace(where, what))
        for path, text in texts.items()
    }


def rename(texts: Texts, names: dict[str, str]) -> Texts:
    """Replace words in paths and texts; ``swiglu`` in ``launch_swiglu`` is one too."""
    words = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(names)})(?![A-Za-z0-9])")
    new = partial(words.sub, lambda match: names[match[0]])
    return {Path(new(str(path))): new(text) for path, text in texts.items()}


def words_of(texts: Texts) -> set[str]:
    """Return the words of the code."""
    code = [NOT_CODE.sub("", texts[path]) for path in texts if path.suffix in CODE]
    return {word for text in code for word in re.findall(r"\w+", text)}


def is_taken(name: str, operator: str, texts: Texts, mine: Texts) -> bool:
    """Say whether the starter's code uses a name, or yours one that is made of it."""
    words = words_of(texts)
    made = {word.replace(operator, name) for word in words if operator in word}
    others = {part for word in words for part in word.replace(operator, "").split("_")}
    return name in words - {operator} | others or not words_of(mine).isdisjoint(made)


def check_name(what: str, name: str, operator: str, texts: Texts, mine: Texts) -> None:
    """Exit with the reason if a name cannot take the operator's place."""
    if not re.fullmatch("[a-z][a-z0-9_]*[a-z0-9]|[a-z]", name):
        problem = "must be lower-case letters, digits and _, and begin with a letter"
    elif keyword.iskeyword(name) or name in RESERVED:
        problem = "is reserved in Python, C++ or PyTorch"
    elif what == "package" and name in sys.stdlib_module_names:
        problem = "is a module of Python"
    elif is_taken(name, operator, texts, mine):
        problem = "is taken: the code of the project uses this name already"
    else:
        return
    sys.exit(f"new.py: {what} {name!r} {problem}")


def write(folder: Path, texts: Texts, name: str, kind: str, made: str) -> None:
    """Write the files, and say what was made and what to do with it."""
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    if shutil.which("ruff"):  # names of other lengths: lines may be broken elsewhere
        code = [str(path) for path in texts if path.suffix == ".py"]
        ruff = ("ruff", "format", "--quiet", "--no-cache")
        subprocess.run([*ruff, *code], cwd=folder, check=False)
    places, words, saved = [], [], []
    for path in texts:
        text = (folder / path).read_text(encoding="utf-8")
        place, lines = path.as_posix(), [*enumerate(text.split("\n"), 1)]
        marks = (n for n, line in lines if FORMULA.search(line))
        marked = zip(marks, marks, strict=True)
        places += [f"  {place}, lines {first} to {last}" for first, last in marked]
        words += [f"{place}:{n}" for n, line in lines if WORDS.match(line)]
        numbers = [str(n) for n, line in lines if SAVED.match(line)]
        saved += [f"  {place}, lines {', '.join(numbers)}"] if numbers else []
    print(f"{made}\n  python -m pip install --no-build-isolation -e .")
    print("  python -m pytest")
    mine, starters = function_of(kind, name), function_of(kind, KINDS[kind])
    print(f"{mine} still computes what {starters} of the starter does.")
    print("Write your formula here:", *places, sep="\n")
    print(f"Describe it in words in {', '.join(words)}.")
    if saved:
        print("If the gradient needs other tensors, edit also:", *saved, sep="\n")
    print("Other arguments or results: see the page 'Change the arguments'.")


def create(folder: Path, package: str, name: str, kind: str, options: set[str]) -> None:
    """Write a project into a new folder."""
    own, shared = template(kind, "triton" in options)
    texts = shared | own
    check_name("package", package, KINDS[kind], texts, {})
    check_name("operator", name, KINDS[kind], texts, {})
    if package == name:
        sys.exit(f"new.py: package and operator are both {package!r}: use --package")
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        sys.exit(f"new.py: {folder} exists and is not an empty folder")
    texts = flatten(texts) if "flat" in options else texts
    names = {KINDS[kind]: name, AUTHOR: f"The authors of {package}"}
    names |= {PACKAGE: package, PACKAGE.upper(): package.upper()}
    made = f"Made the package {package} with the operator {name}. Next:\n  cd {folder}"
    write(folder, rename(texts, names), name, kind, made)


def add(folder: Path, name: str, kind: str) -> None:
    """Write an operator of the starter, whatever yours look like, into a project."""
    inits = [*folder.glob("src/*/__init__.py"), *folder.glob("*/__init__.py")]
    if not inits:
        sys.exit(f"new.py: --add needs a project, but {folder} is none")
    init, package = inits[0], inits[0].parent.name
    own, shared = template(kind, is_triton=not (folder / "csrc").is_dir())
    texts = read(folder)
    check_name("operator", name, KINDS[kind], shared | own, texts)
    own = own if init.parent.parent.name == "src" else flatten(own)
    names = {KINDS[kind]: name, PACKAGE: package, PACKAGE.upper(): package.upper()}
    own = {path: text for path, text in rename(own, names).items() if path not in texts}
    function, text = function_of(kind, name), init.read_text(encoding="utf-8")
    names = re.findall(r'"(\w+)"', text.partition("__all__ = [")[2])
    exported = ", ".join(f'"{name}"' for name in sorted([*names, function]))
    text = re.sub(r"__all__ = \[[^]]*\]", f"__all__ = [{exported}]", text)
    lines = re.findall(rf"^from {package}\..*\n", text, re.MULTILINE)
    start = text.index(lines[0]) if lines else len(text)
    for line in lines:
        text = text.replace(line, "", 1)
    lines = sorted([*lines, f"from {package}.{name} import {function}\n"])
    text = text[:start] + "".join(lines) + text[start:]
    init.write_text(text, encoding="utf-8")
    made = f"Added {', '.join(sorted(path.as_posix() for path in own))}. Next:"
    write(folder, own, name, kind, made)


def main() -> None:
    """Read the command line."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("folder", type=Path, help="where the project goes, or is")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--operator", metavar="NAME", help="make a project with this one")
    what.add_argument("--add", metavar="NAME", help="add this operator to a project")
    parser.add_argument("--kind", choices=KINDS, default="elementwise")
    parser.add_argument("--package", help="name of the package (default: the folder's)")
    parser.add_argument("--triton", action="store_true", help="Triton, no build")
    parser.add_argument("--flat", action="store_true", help="no folder src/")
    args = parser.parse_args()
    name = args.add or args.operator
    name = name.removesuffix("_") if args.kind == "inplace" else name
    options = {option for option in ("triton", "flat") if getattr(args, option)}
    if args.add and (options or args.package):
        parser.error("--add finds package, language and folders in the project")
    if args.add:
        return add(args.folder, name, args.kind)
    package = args.package or args.folder.resolve().name.replace("-", "_")
    create(args.folder, package, name, args.kind, options)


if __name__ == "__main__":
    main()
