"""The page of Python names: what is public, and that the pages import nothing else."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from functools import cache
from pathlib import Path

import griffe
import pytest

import spark_eos

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from _pages import api  # noqa: E402

STUB = cache(api.stub)
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
    """With parameters that it has; or names a class that users do not make themselves."""
    nodes = list(ast.walk(ast.parse(inspect.cleandoc(name.example))))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    named = {ast.unparse(node) for node in nodes if isinstance(node, (ast.Attribute, ast.Name))}
    own = [
        call
        for call in calls
        if ast.unparse(call.func).split(".")[0 if inspect.isclass(imported(name)) else -1] == name.name
    ]
    assert own or name.name in {each.split(".")[-1] for each in named}
    for call in own:
        if isinstance(call.func, ast.Attribute) and inspect.isclass(imported(name)):
            target = getattr(imported(name), call.func.attr)
        else:
            target = imported(name)
        given = {keyword.arg for keyword in call.keywords}
        assert given <= inspect.signature(target).parameters.keys()


RELEASED = (Path(__file__).parent / "public_names.txt").read_text()


def broken(old: str, new: str) -> list[str]:
    """What was public in ``old`` and has changed in ``new``: by griffe's words, or as the import that is gone."""
    first, second = (griffe.visit("spark_eos", filepath=Path("spark_eos.pyi"), code=code) for code in (old, new))
    imports = [set(re.findall(r"^# (from \S+ import \S+)$", text, re.MULTILINE)) for text in (old, new)]
    return [f"{each.obj.name}: {each.kind.value}" for each in griffe.find_breaking_changes(first, second)] + sorted(
        imports[0] - imports[1]
    )


def test_no_public_name_changes_by_accident():
    """From what the last release has; it may only be added to. CONTRIBUTING.md says when the file is written anew."""
    assert broken(RELEASED, STUB()) == []


def test_a_public_name_that_moves_is_seen():
    """griffe does not look at where a name is imported from."""
    stub, name = STUB(), "from spark_eos.errors import EosError"
    assert broken(stub, stub.replace(name, name.replace("errors", "error"))) == [name]
