"""The tests' own house: every error condition has a test, every test says what it holds, no file is too long."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
FILES = sorted(TESTS.rglob("*.py"))
#: The model raises conditions of its own accord there, so a name proves nothing.
SIMULATION = TESTS / "simulation"
MOST_LINES = 400


def name_of(path: Path) -> str:
    """The path within tests/."""
    return str(path.relative_to(TESTS))


def said(path: Path) -> Iterator[str]:
    """Every text in a module's code; docstrings and comments are none."""
    tree = ast.parse(path.read_text())
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


def test_every_error_condition_is_named_by_a_test():
    """Whatever the library and the jobs raise by name, some test expects by that name."""
    files = [path for path in FILES if path.name.startswith("test_") and not path.is_relative_to(SIMULATION)]
    named = {name for path in files for text in said(path) for name in re.findall(r"\bEOS(?:_[A-Z0-9]+)+", text)}
    conditions = {condition.name for condition in runpy.run_path(str(ROOT / "docs" / "pages.py"))["conditions"]()}
    assert len(conditions) > 90
    assert conditions - named == set()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_test_says_what_it_holds(path):
    """A docstring on each test function: what is held, not how; and at the head of each file of tests its subject."""
    tree = ast.parse(path.read_text())
    found = [tree] if path.name.startswith("test_") else []
    found += [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
    silent = [getattr(node, "name", "the file") for node in found if not ast.get_docstring(node)]
    assert silent == []


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_file_is_too_long_to_be_read_at_once(path):
    """A file with more lines has more than one subject."""
    assert len(path.read_text().splitlines()) <= MOST_LINES


def test_every_folder_is_a_package():
    """Else pytest would put the folder itself on the path, where tests/unit/kafka would hide a client's module."""
    assert [name_of(path) for path in FILES if not (path.parent / "__init__.py").exists()] == []
