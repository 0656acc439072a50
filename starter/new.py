"""Make a project of your own from this one, or add an operator to yours.

python new.py ../mykernels --operator reglu     a new project
python new.py --add geglu                       inside your project
"""

import argparse
import keyword
import re
import sys
from functools import partial
from pathlib import Path

# What is renamed. In your project, this file has your names here.
PACKAGE, OPERATOR, AUTHOR = "starter", "swiglu", "Opbook contributors"
HERE = Path(__file__).resolve().parent
COPIED = set(".cpp .cu .h .in .md .patch .py .toml .yml LICENSE .gitignore".split())
NOT_COPIED = {"build", "dist", ".git", ".venv", "__pycache__", ".pytest_cache"}
RESERVED = set(  # of PyTorch and C++; Python's are in `keyword`
    "aten at c10 prim prims std torch triton pytest asm catch delete do enum extern"
    " friend goto int long mutable new private protected public register requires short"
    " signed sizeof this throw typedef typeid union unsigned virtual volatile".split()
)
CODE = {".cpp", ".cu", ".h", ".py"}
FORMULA = re.compile(r"(#|//) \[/?(math|reference)\]")
WORDS = re.compile(r'// \w+: |    """Compute `|.*\bIt computes\s*(`|$)')  # in words
NOT_CODE = re.compile(r'"""[\s\S]*?"""|"[^"\n]*"|(#|//).*')  # strings and comments


def read(folder: Path) -> dict[Path, str]:
    """Return the text of each file of a project, by its path in the folder."""
    paths = [path.relative_to(folder) for path in sorted(folder.rglob("*"))]
    paths = [path for path in paths if NOT_COPIED.isdisjoint(path.parts)]
    paths = [path for path in paths if path.suffix in COPIED or path.name in COPIED]
    return {path: (folder / path).read_text(encoding="utf-8") for path in paths}


def rename(texts: dict[Path, str], names: dict[str, str]) -> dict[Path, str]:
    """Replace words in paths and texts; ``swiglu`` in ``launch_swiglu`` is one too."""
    words = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(names)})(?![A-Za-z0-9])")
    new = partial(words.sub, lambda match: names[match[0]])
    return {Path(new(str(path))): new(text) for path, text in texts.items()}


def check_name(what: str, name: str, texts: dict[Path, str]) -> None:
    """Exit with the reason if a name cannot be used in a project."""
    code = [NOT_CODE.sub("", texts[path]) for path in texts if path.suffix in CODE]
    words = {word for text in code for word in re.findall(r"\w+", text)}
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        problem = "must be lower-case letters, digits and _, and begin with a letter"
    elif keyword.iskeyword(name) or name in RESERVED:
        problem = "is reserved in Python, C++ or PyTorch"
    elif what == "package" and name in sys.stdlib_module_names:
        problem = "is a module of Python"
    elif name in words.union(*(word.split("_") for word in words)):
        problem = "is taken: the code of the project uses this name already"
    else:
        return
    sys.exit(f"new.py: {what} {name!r} {problem}")


def write(folder: Path, texts: dict[Path, str]) -> None:
    """Write the files, and say what to do with them."""
    places, words = [], []
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
        name, lines = path.as_posix(), [*enumerate(text.split("\n"), 1)]
        if marked := [n for n, line in lines if FORMULA.match(line)]:
            places.append(f"  {name}, lines {marked[0]} to {marked[-1]}")
        words += [f"{name}:{n}" for n, line in lines if WORDS.match(line)]
    print("  python -m pip install --no-build-isolation -e .\n  python -m pytest")
    print(f"It still computes {OPERATOR}. Write your formula here:", *places, sep="\n")
    print(f"Describe it in words in {', '.join(words)}.")


def create(folder: Path, package: str, operator: str, kind: str) -> None:
    """Write a project into a new folder."""
    if not (HERE / kind).is_dir():
        sys.exit("new.py: in a project like this one, only --add NAME works")
    texts = read(HERE / kind)
    if package != PACKAGE:
        check_name("package", package, texts)
    if operator != OPERATOR:
        check_name("operator", operator, texts)
    if package == operator:
        sys.exit(f"new.py: package and operator are both {package!r}: use --package")
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        sys.exit(f"new.py: {folder} exists and is not an empty folder")
    names = {PACKAGE: package, OPERATOR: operator, AUTHOR: f"The authors of {package}"}
    names[PACKAGE.upper()] = package.upper()
    texts[Path("new.py")] = Path(__file__).read_text(encoding="utf-8")
    texts[Path("README.md")] += "\n## Add an operator\n\n`python new.py --add NAME`\n"
    print(f"Made the package {package} with the operator {operator}. Next:")
    print(f"  cd {folder}")
    write(folder, rename(texts, names))
    if kind == "cpp":
        print("For other arguments, read softcap.patch in the starter.")


def add(name: str) -> None:
    """Copy the operator of this project under another name."""
    init = Path("src", PACKAGE, "__init__.py")
    texts = read(HERE)
    own = {f"{OPERATOR}{end}" for end in (".h", ".cu", "_op.cpp", ".py")}
    copied = {p: t for p, t in texts.items() if p.name.removeprefix("test_") in own}
    if not copied or init not in texts:
        sys.exit(f"new.py: --add works in a project, but {HERE} is none")
    check_name("operator", name, texts)
    line = f"from {PACKAGE}.{OPERATOR} import"
    exports = texts[init].replace("__all__ = [", f'__all__ = ["{name}", ')
    exports = exports.replace(line, f"from {PACKAGE}.{name} import {name}\n{line}")
    new = rename(copied, {OPERATOR: name})
    print(f"Added {', '.join(sorted(path.as_posix() for path in new))}. Next:")
    write(HERE, new | {init: exports})


def main() -> None:
    """Read the command line."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("folder", nargs="?", type=Path, help="where the project goes")
    parser.add_argument("--operator", help="name of its operator")
    parser.add_argument("--package", help="name of the package (default: the folder's)")
    parser.add_argument("--triton", action="store_true", help="Triton, no build")
    parser.add_argument("--add", metavar="NAME", help="add an operator to this project")
    args = parser.parse_args()
    if bool(args.add) == bool(args.folder) or bool(args.folder) != bool(args.operator):
        parser.error("give a folder and --operator NAME, or --add NAME alone")
    if args.add:
        return add(args.add)
    package = args.package or args.folder.resolve().name.replace("-", "_")
    create(args.folder, package, args.operator, "triton" if args.triton else "cpp")


if __name__ == "__main__":
    main()
