"""The rules of the house: tests of conditions, docstrings of tests, units of durations, constants, words and names."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
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
#: How often words that say little stand in spark_eos/. Whoever removes some lowers the number.
WORDS = {r"\bfound\b": 116, r"\bplaces?\b": 210, r"\b(?:what|those|whoever|whatever)\b": 245}
#: Where such a name is right.
WITHOUT_UNIT = {
    "jobs/runner/models.py pause": "a key of the YAML file; its text has a unit",
    "jobs/runner/values.py interval": "a text that has a unit",
}


@dataclass
class Facts:
    """What the rules ask of one module. ``texts``: all in code that names a condition; ``silent``: functions without a
    docstring, and "the file"; ``durations``: parameters and annotated fields named after a duration, without a unit;
    ``strings``: lines of texts that are statements, and no docstrings; ``classes``: those of the module, with the names
    of their methods."""

    texts: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    durations: list[str] = field(default_factory=list)
    strings: list[int] = field(default_factory=list)
    classes: dict[str, set[str]] = field(default_factory=dict)


def is_text(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The tree and what is in it, but no expression and nothing within one: those are most of it."""
    waiting = [tree]
    while waiting:
        yield (node := waiting.pop())
        waiting += [part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.expr)]


@cache
def facts(path: Path) -> Facts:
    """Read and walked once, as there are a thousand files."""
    found, alone, code = Facts(), set(), path.read_text()
    for node in statements(tree := ast.parse(code)):
        if isinstance(node, ast.FunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            found.durations += [one.arg for one in arguments if is_duration(one.arg, one.annotation)]
            found.silent += [] if ast.get_docstring(node) else [node.name]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.durations += [node.target.id] if is_duration(node.target.id, node.annotation) else []
        for block in (getattr(node, name, []) for name in ("body", "orelse", "finalbody")):
            for number, statement in enumerate(block if isinstance(block, list) else []):
                if isinstance(statement, ast.Expr) and is_text(statement.value):
                    alone.add(statement.value)
                    found.strings += [] if isinstance(node, DOCUMENTED) and number == 0 else [statement.lineno]
    if "EOS_" in code:
        found.texts = [node.value for node in ast.walk(tree) if is_text(node) and node not in alone]
    found.silent += [] if ast.get_docstring(tree) else ["the file"]
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found.classes[node.name] = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


def is_duration(name: str, type_: ast.expr | None) -> bool:
    """Whether the name lacks a unit; flags need none."""
    return name in UNITLESS and not (type_ and ast.unparse(type_) == "bool")


def test_every_error_condition_is_named_by_a_test():
    """Whatever the library and the jobs raise by name, some test expects by that name."""
    files = [path for path in FILES if path.parent == SCENARIOS or not path.is_relative_to(SIMULATION)]
    files = [path for path in files if path.name.startswith("test_")]
    named = {name for path in files for name in re.findall(r"\bEOS(?:_[A-Z0-9]+)+", " ".join(facts(path).texts))}
    assert len(conditions()) > 90
    assert conditions().keys() - named == set()


def test_every_test_says_what_it_holds():
    """A docstring on each test function says what is held, and one at the head of each file its subject."""
    silent = {
        (str(path.relative_to(TESTS)), name)
        for path in FILES
        for name in facts(path).silent
        if name.startswith("test_") or (name == "the file" and path.name.startswith("test_"))
    }
    assert silent == set()


def test_every_folder_is_a_package():
    """Else pytest would put the folder itself on the path, where tests/unit/kafka would hide a client's module."""
    assert [str(path) for path in FILES if not (path.parent / "__init__.py").exists()] == []


def test_a_duration_names_its_unit():
    """By ``_s`` or ``_ms``: half of the clients count in milliseconds."""
    paths = [path for path in CODE if path.relative_to(ROOT).parts[0] not in ("docs", "tests")]
    assert {f"{path.relative_to(ROOT)} {name}" for path in paths for name in facts(path).durations} == set(WITHOUT_UNIT)


def test_a_constant_is_documented_above_it():
    """By a comment that begins with ``#:``; a string below would be a second way."""
    assert {str(path.relative_to(ROOT)): lines for path in CODE if (lines := facts(path).strings)} == {}


def test_words_that_say_little_become_no_more():
    """A name says what a value is, and a sentence names its thing."""
    prose = "\n".join(path.read_text() for path in CODE if path.is_relative_to(ROOT / "spark_eos"))
    counts = {word: len(re.findall(word, prose, re.IGNORECASE)) for word in WORDS}
    assert {word: count for word, count in counts.items() if count > WORDS[word]} == {}


def test_a_name_of_a_class_stands_once():
    """So that a search for it finds one thing; and no method is called ``of``."""
    product = [path for path in CODE if path.relative_to(ROOT).parts[0] in ("jobs", "spark_eos")]
    classes = [each for path in product for each in facts(path).classes.items()]
    assert [name for name, count in Counter(name for name, _ in classes).items() if count > 1] == []
    assert [name for name, methods in classes if "of" in methods] == []
