"""The rules of the house: tests of conditions, docstrings of tests, short files and functions, names, constants."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
FILES = sorted(TESTS.rglob("*.py"))
#: All the code that people read here.
CODE = [path for folder in ("docs", "jobs", "spark_eos", "tests") for path in sorted((ROOT / folder).rglob("*.py"))]
#: What has a docstring.
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
#: The model raises conditions of its own accord there, so a name proves nothing.
SIMULATION = TESTS / "simulation"
MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 50
#: Constants with several definitions.
SHARED_CONSTANTS = {
    "EARLIEST": "options are read without a client, and have Kafka's number themselves",
    "LATEST": "options are read without a client, and have Kafka's number themselves",
    "ERROR": "the doctor's rules have short names for its severities",
    "WARNING": "the doctor's rules have short names for its severities",
    "UNKNOWN": "the doctor's rules have short names for its severities",
    "OK": "the doctor's rules have short names for its severities; elsewhere it is Kafka's code",
}
#: Functions of which each job, or each mode of the benchmark, has its own.
STEPS = {
    "main": "runs it by its command line",
    "plan": "what the job is going to do, by its config file",
    "cluster_of": "the cluster that the job reads or writes",
    "source_settings": "the options of its source",
    "sink_settings": "the options of its sink",
    "read": "the stream of its input",
    "write": "the query into its output",
    "measure": "runs the mode",
}
#: Names that say how long something takes, and not in which unit.
UNITLESS = {"delay", "interval", "pause", "period", "seconds", "timeout", "took", "wait"}
#: Where such a name is right.
WITHOUT_UNIT = {
    "spark_eos/restarts.py timeout": "Spark's StreamingQuery.awaitTermination has it",
    "jobs/files_taking.py timeout": "Spark's StreamingQuery.awaitTermination has it",
    "jobs/sections.py pause": "a key of the YAML file; its text has a unit",
    "jobs/checks.py interval": "a text that has a unit",
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
    files = [path for path in FILES if path.name.startswith("test_") and not path.is_relative_to(SIMULATION)]
    named = {name for path in files for text in said(path) for name in re.findall(r"\bEOS(?:_[A-Z0-9]+)+", text)}
    conditions = {condition.name for condition in runpy.run_path(str(ROOT / "docs" / "pages.py"))["conditions"]()}
    assert len(conditions) > 90
    assert conditions - named == set()


def silent(path: Path) -> list[str]:
    """What lacks a docstring: tests, and the head of a file of tests."""
    tree = tree_of(path)
    found: list[ast.Module | ast.FunctionDef] = [tree] if path.name.startswith("test_") else []
    found += [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
    return [getattr(node, "name", "the file") for node in found if not ast.get_docstring(node)]


def test_every_test_says_what_it_holds():
    """A docstring on each test function says what is held, and one at the head of each file its subject."""
    assert {name_of(path): names for path in FILES if (names := silent(path))} == {}


def test_no_file_is_too_long_to_be_read_at_once():
    """A file with more lines has more than one subject."""
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in CODE}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and lines of every function in a file, from `def` to its end: signature and docstring are read with it; its
    decorators, which are tables of cases or of options, are not."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.end_lineno - node.lineno + 1


def test_no_function_is_longer_than_a_screen():
    """A function with more lines has more than one idea."""
    lengths = [(str(path.relative_to(ROOT)), *function) for path in CODE for function in functions(path)]
    assert len(lengths) > 4000
    assert [place for place in lengths if place[-1] > MOST_LINES_OF_A_FUNCTION] == []


def test_every_folder_is_a_package():
    """Else pytest would put the folder itself on the path, where tests/unit/kafka would hide a client's module."""
    assert [name_of(path) for path in FILES if not (path.parent / "__init__.py").exists()] == []


def definitions(path: Path) -> Iterator[str]:
    """The public classes, type aliases, constants and functions of a module's top level. Type variables are none."""
    for node in tree_of(path).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found = [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            found = [node.name]
        else:
            found = []
        yield from (name for name in found if len(name) > 1 and not name.startswith("_"))


def repeated(folders: Sequence[str]) -> dict[str, list[str]]:
    """Names with several definitions, and where these are."""
    found: dict[str, list[str]] = {}
    for path in (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))):
        for name in set(definitions(path)):
            found.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert len(found) > 300
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def test_a_name_means_one_class_or_constant():
    """Who searches for a class, an alias or a constant finds one definition; in the wheel jobs are in the package."""
    found = {name: paths for name, paths in repeated(["spark_eos", "jobs"]).items() if name[0].isupper()}
    assert {name: paths for name, paths in found.items() if name not in SHARED_CONSTANTS} == {}
    assert found.keys() >= SHARED_CONSTANTS.keys()


def test_a_name_means_one_function_of_the_jobs():
    """Jobs and modes of the benchmark are alike where they have the same steps; other functions are named apart."""
    found = {name: paths for name, paths in repeated(["jobs"]).items() if name[0].islower()}
    assert {name: paths for name, paths in found.items() if name not in STEPS} == {}
    assert found.keys() == STEPS.keys()


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
    paths = [path for folder in ("spark_eos", "jobs") for path in sorted((ROOT / folder).rglob("*.py"))]
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
