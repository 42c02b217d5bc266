"""The tests' own house: every error condition has a test."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
FILES = sorted(TESTS.rglob("*.py"))
#: The model raises conditions of its own accord there, so a name proves nothing.
SIMULATION = TESTS / "simulation"


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
