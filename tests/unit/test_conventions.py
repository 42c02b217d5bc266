"""The rules of the house: tests of conditions, docstrings of tests, units of durations, constants."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from spark_eos.errors import conditions

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
FILES = sorted(TESTS.rglob("*.py"))
#: All the code that people read here.
FOLDERS = ("bench", "demo", "docs", "jobs", "release", "spark_eos", "tests")
CODE = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
#: What has a docstring.
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
#: The model raises conditions of its own accord there, so a name proves nothing; its scenarios show the protocol's own.
SIMULATION, SCENARIOS = TESTS / "simulation", TESTS / "simulation" / "scenarios"
#: Names that say how long something takes, and not in which unit.
UNITLESS = {"delay", "interval", "pause", "period", "seconds", "timeout", "took", "wait"}
#: Where such a name is right.
WITHOUT_UNIT = {
    "jobs/runner/models.py pause": "a key of the YAML file; its text has a unit",
    "jobs/runner/values.py interval": "a text that has a unit",
}


def name_of(path: Path) -> str:
    """The path within tests/."""
    return str(path.relative_to(TESTS))


@cache
def tree_of(path: Path) -> ast.Module:
    """The module, read once."""
    return ast.parse(path.read_text())


def said(path: Path) -> Iterator[str]:
    """Every text in a module's code; docstrings and comments are none."""
    tree = tree_of(path)
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


def test_every_error_condition_is_named_by_a_test():
    """Whatever the library and the jobs raise by name, some test expects by that name."""
    files = [path for path in FILES if path.parent == SCENARIOS or not path.is_relative_to(SIMULATION)]
    files = [path for path in files if path.name.startswith("test_")]
    named = {name for path in files for text in said(path) for name in re.findall(r"\bEOS(?:_[A-Z0-9]+)+", text)}
    assert len(conditions()) > 90
    assert conditions().keys() - named == set()


def silent(path: Path) -> list[str]:
    """What lacks a docstring: tests, and the head of a file of tests."""
    tree = tree_of(path)
    found: list[ast.Module | ast.FunctionDef] = [tree] if path.name.startswith("test_") else []
    found += [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
    return [getattr(node, "name", "the file") for node in found if not ast.get_docstring(node)]


def test_every_test_says_what_it_holds():
    """A docstring on each test function says what is held, and one at the head of each file its subject."""
    assert {name_of(path): names for path in FILES if (names := silent(path))} == {}


def test_every_folder_is_a_package():
    """Else pytest would put the folder itself on the path, where tests/unit/kafka would hide a client's module."""
    assert [name_of(path) for path in FILES if not (path.parent / "__init__.py").exists()] == []


def durations_of(path: Path) -> Iterator[str]:
    """The parameters and annotated fields of a module named after a duration, without a unit; flags are none."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            found = [(one.arg, one.annotation) for one in arguments]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found = [(node.target.id, node.annotation)]
        else:
            found = []
        yield from (name for name, type_ in found if name in UNITLESS and not (type_ and ast.unparse(type_) == "bool"))


def test_a_duration_names_its_unit():
    """By ``_s`` or ``_ms``: half of the clients count in milliseconds."""
    paths = [
        path
        for folder in ("bench", "demo", "jobs", "release", "spark_eos")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    found = {f"{path.relative_to(ROOT)} {name}" for path in paths for name in durations_of(path)}
    assert found == set(WITHOUT_UNIT)


def strings_alone(path: Path) -> Iterator[int]:
    """Lines with a string that is a statement, and not the docstring of a module, class or function."""
    for node in ast.walk(tree_of(path)):
        for block in (getattr(node, name, []) for name in ("body", "orelse", "finalbody")):
            for statement in (block if isinstance(block, list) else [])[isinstance(node, DOCUMENTED) :]:
                value = getattr(statement, "value", None) if isinstance(statement, ast.Expr) else None
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield statement.lineno


def test_a_constant_is_documented_above_it():
    """By a comment that begins with ``#:``; a string below would be a second way."""
    assert {str(path.relative_to(ROOT)): lines for path in CODE if (lines := [*strings_alone(path)])} == {}
