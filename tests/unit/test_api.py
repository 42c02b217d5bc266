"""The page of Python names: what is public, and that the pages import nothing else."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest

import spark_eos

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from _pages import api  # noqa: E402

NAMES = [name for names in api.PUBLIC.values() for name in names]


def imported(name: api.Name) -> object:
    return getattr(importlib.import_module(name.module), name.name)


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.full)
def test_a_public_name_is_where_the_page_says(name: api.Name):
    """With its members, and says what it is for."""
    assert inspect.getdoc(imported(name))
    assert [member for member in name.members if not hasattr(imported(name), member)] == []


def test_all_of_the_package_is_public():
    """What `from spark_eos import *` gives."""
    assert set(spark_eos.__all__) - {"__version__"} <= {name.name for name in NAMES if name.module == "spark_eos"}


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_pages_import_public_names_only(page: Path):
    """Whoever copies an example relies on nothing that may change unannounced."""
    public = {name.full for name in NAMES}
    for code in re.findall(r"^ *```python\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL):
        for module, names in re.findall(r"^ *from (spark_eos[\w.]*) import ([\w, ]+)", code, re.MULTILINE):
            assert {f"{module}.{name}" for name in names.split(", ")} <= public


@pytest.mark.parametrize("name", [name for name in NAMES if name.example], ids=lambda name: name.full)
def test_an_example_calls_what_it_is_an_example_of(name: api.Name):
    """With parameters that it has."""
    calls = [node for node in ast.walk(ast.parse(inspect.cleandoc(name.example))) if isinstance(node, ast.Call)]
    own = [
        call
        for call in calls
        if ast.unparse(call.func).split(".")[0 if inspect.isclass(imported(name)) else -1] == name.name
    ]
    assert own or name.full == "spark_eos.errors.EosError"
    for call in own:
        if isinstance(call.func, ast.Attribute) and inspect.isclass(imported(name)):
            target = getattr(imported(name), call.func.attr)
        else:
            target = imported(name)
        given = {keyword.arg for keyword in call.keywords}
        assert given <= inspect.signature(target).parameters.keys()


CODE = """
def plain(a, /, b: int = 1, *rest: str, c: list[int] | None = None, **more: object) -> str:
    "Takes ``a``."

class Made:
    "Made by this."
    def __init__(self, port: int = 0, *, host: str | None = None) -> None:
        self.port = port

class Fields:
    "Made of these."
    one: int
    two: str = "2"
"""


def test_how_a_signature_is_shown():
    """As a call is written, with types and defaults."""
    plain, made, fields = ast.parse(CODE).body
    assert isinstance(plain, ast.FunctionDef)
    assert isinstance(made, ast.ClassDef)
    assert isinstance(fields, ast.ClassDef)
    assert api.signature(plain, "m.plain") == (
        "m.plain(a, /, b: int = 1, *rest: str, c: list[int] | None = None, **more: object) -> str"
    )
    assert api.signature(made, "Made") == "Made(port: int = 0, *, host: str | None = None)"
    assert api.signature(fields, "Fields") == "Fields(one: int, two: str = '2')"
    assert api.signature(plain, "m" * 80).startswith("m" * 80 + "(\n    a,\n    /,\n    b: int = 1,\n")
