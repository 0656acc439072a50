"""Write an operator into this repository, in its five places: here.py --here NAME.

The files beside this one are a complete operator, softcap, which is copied under the
new name. It is then yours to change.
"""

import argparse
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "starter"))
import new

OPERATOR = "softcap"
PLACES = {
    "softcap.h": "csrc/softcap/softcap.h",
    "softcap.cu": "csrc/softcap/softcap.cu",
    "softcap_op.cpp": "csrc/softcap/softcap_op.cpp",
    "softcap.py": "src/opbook/ops/softcap.py",
    "tests.py": "tests/test_softcap.py",
    "faults.toml": "tests/faults/softcap.toml",
    "page.md": "docs/howto/softcap.md",
}
INIT, INDEX = "src/opbook/__init__.py", "docs/howto/index.md"


def exported(text: str, name: str) -> str:
    """Add the import and the name to the text of the package's ``__init__.py``."""
    lines = re.findall(r"^    from opbook\.ops\..*\n", text, re.MULTILINE)
    more = sorted([*lines, f"    from opbook.ops.{name} import {name}\n"])
    text = text.replace("".join(lines), "".join(more))
    found = re.search(r"^__all__ = \[([^]]*)\]", text, re.MULTILINE)
    names = sorted([*re.findall(r'"(\w+)"', found[1]), name])
    all_names = ", ".join(f'"{each}"' for each in names)
    return text.replace(found[0], f"__all__ = [{all_names}]")


def indexed(text: str, name: str) -> str:
    """Add a row and an entry of the table of contents, after those of another page."""
    row = f"| {{doc}}`{name}` | What is `opbook.{name}` for? |\n"
    text = re.sub(r"(\| \{doc\}`[^`]*<fuse_operators>`.*\n)", rf"\g<1>{row}", text)
    return re.sub(r"(\nfuse_operators\n)", rf"\g<1>{name}\n", text)


def renamed(name: str) -> new.Texts:
    """Return the operator's files under another name, or exit if it is taken."""
    texts = {Path(place): (HERE / file).read_text() for file, place in PLACES.items()}
    folders = (ROOT / "csrc", ROOT / "src" / "opbook")
    code = [path for folder in folders for path in folder.rglob("*.*")]
    taken = {path: path.read_text() for path in code if path.suffix in new.CODE}
    new.check_name("operator", name, OPERATOR, texts, taken)
    return new.rename(texts, {OPERATOR: name})


def write(name: str) -> list[str]:
    """Write the operator's files, and its entries into two others."""
    made = renamed(name)
    made |= {
        Path(INIT): exported((ROOT / INIT).read_text(), name),
        Path(INDEX): indexed((ROOT / INDEX).read_text(), name),
    }
    for path, text in made.items():
        (ROOT / path).parent.mkdir(exist_ok=True)
        (ROOT / path).write_text(text)
    return [path.as_posix() for path in made]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--here", metavar="NAME", required=True)
    name = parser.parse_args().here
    files = write(name)
    print(f"Wrote {', '.join(files)}.")
    print(f"opbook.{name} still computes what softcap does: the formula is between the")
    print(f"marks [math] in csrc/{name}/{name}.h, and again in composite of")
    print(f"src/opbook/ops/{name}.py and in eager of tests/test_{name}.py.")
    print("`nox -s lint -- --fix` breaks lines where the name's length asks for it.")


if __name__ == "__main__":
    main()
