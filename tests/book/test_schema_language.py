"""The tables of the schema language: what PyTorch parses, and what hints become."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor  # the annotations name it
from torch.library import infer_schema

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/schema_language.md"
TEXT = PAGE.read_text(encoding="utf-8")
TYPES = re.findall(r"^\| `(.+?)` \| (.+?) \| ", TEXT, re.MULTILINE)
ANNOTATED = [(type_, hint) for type_, hint in TYPES if hint.startswith("`")]
FORMS = re.findall(r"^\| `([\w:.]+\([^`]+)` \|", TEXT, re.MULTILINE)
TAGS = re.findall(r"^\| (`\w.*?`) \|", TEXT.partition("\n## Tags")[2], re.MULTILINE)


def parsed(schema):
    """A schema as PyTorch prints it."""
    return str(torch._C.parse_schema(schema))


def schema_of(hint):
    """The schema of a function with one argument of this type hint."""

    def function(x) -> None: ...

    names = {"torch": torch, "Tensor": Tensor}
    function.__annotations__["x"] = eval(hint, names)
    return infer_schema(function, mutates_args=())


def test_the_page_has_its_tables():
    assert len(ANNOTATED) >= 10
    assert len(FORMS) >= 10
    assert len(TAGS) >= 8


@pytest.mark.parametrize("type_", [type_ for type_, _ in TYPES])
def test_a_type_parses(type_):
    schema = f"f({type_} x) -> {type_}"
    assert parsed(schema) == schema


@pytest.mark.parametrize(("type_", "hint"), ANNOTATED)
def test_a_type_hint_becomes_the_type_beside_it(type_, hint):
    assert schema_of(hint.strip("`").replace("\\", "")) == f"({type_} x) -> ()"


def test_int_is_no_int():
    assert schema_of("int") != "(int x) -> ()"


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_printed_as_it_stands(form):
    assert parsed(form) == form


def test_a_type_of_python_is_refused():
    with pytest.raises(RuntimeError, match="unknown type"):
        parsed("f(Optional x) -> ()")


@pytest.mark.parametrize("name", re.findall(r"\w+", " ".join(TAGS)))
def test_a_tag_is_there(name):
    assert hasattr(torch.Tag, name)
