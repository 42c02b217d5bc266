"""The errors: a tree, condition names, and travel between processes."""

from __future__ import annotations

import ast
import pickle
import re
import runpy
from pathlib import Path

import pytest

import spark_eos
from spark_eos import errors
from spark_eos.errors import EosError
from spark_eos.protocol.checks import FROM_GROUP

PACKAGE = Path(spark_eos.__file__).parent
ROOT = Path(__file__).parents[2]
#: What follows "a new checkpoint" in a hint: from where it goes on, or that it would be of no use.
_FROM_WHERE = re.compile(
    rf"{re.escape(FROM_GROUP)}|'(?:source\.)?startingOffsets'|at the offsets|source\.startingVersion|has to begin"
    r"|reads the table (?:as|from)|would leave|does not help"
)
#: Hints in which a new checkpoint is no advice to begin one: a name that changes with it, and what a command makes.
_NO_ADVICE = {"EOS_WRITE_WITHOUT_QUERY", "EOS_REPLAY_OPTIONS", "EOS_REPLAY_TARGET_USED"}


def every_class() -> list[type[EosError]]:
    found: list[type[EosError]] = [EosError]
    for cls in found:
        found += cls.__subclasses__()
    return found


def raised() -> list[tuple[str, ast.Call]]:
    """Every call in the package that makes an error of the tree: its file and line, and the call."""
    names = {cls.__name__ for cls in every_class()}
    calls = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                calls.append((f"{path.relative_to(PACKAGE)}:{node.lineno}", node))
    return calls


def test_every_error_has_a_condition_and_a_hint():
    """Wherever one is made in the package: a name for machines, a next step for people."""
    calls = raised()
    assert len(calls) > 50
    for where, call in calls:
        first = call.args[0] if call.args else None
        if isinstance(first, ast.Constant):
            assert re.fullmatch(r"EOS(_[A-Z]+)+", first.value), f"{where}: {first.value}"
        assert "hint" in {keyword.arg for keyword in call.keywords}, where


def test_the_docstring_draws_the_tree_as_it_is():
    """Names and depths."""
    drawn = re.findall(r"^    ([│ ]*)[├└]── (\w+)", errors.__doc__, re.MULTILINE)
    depths = {name: 1 + len(indent) // 4 for indent, name in drawn} | {"EosError": 0}
    assert depths == {cls.__name__: len(cls.__mro__) - len(EosError.__mro__) for cls in every_class()}


@pytest.mark.parametrize("cls", every_class())
def test_an_error_survives_the_way_from_a_worker(cls):
    """Its parameters are not in the arguments of Exception, which is what pickle would keep."""
    error = cls("EOS_X", "What is wrong.", hint="What to do.", option="topic", value=3)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert (copy.condition, copy.message, copy.hint, copy.parameters) == (
        "EOS_X",
        "What is wrong.",
        "What to do.",
        {"option": "topic", "value": 3},
    )
    assert str(copy) == str(error) == "[EOS_X] What is wrong. Hint: What to do."


def test_every_condition_has_one_class():
    """Whoever catches a class gets the condition wherever it is raised."""
    classes: dict[str, set[str]] = {}
    for path in [*(ROOT / "spark_eos").rglob("*.py"), *(ROOT / "jobs").rglob("*.py")]:
        for name, condition in re.findall(r'(\w+)\(\s*"(EOS_[A-Z0-9_]+)"', path.read_text()):
            classes.setdefault(condition, set()).add(name)
    assert len(classes) > 80
    assert {condition: names for condition, names in classes.items() if len(names) > 1} == {}


def new_checkpoints() -> list[tuple[str, str]]:
    """For every wording of every hint: its condition, and what follows "new checkpoint" in the same sentence."""
    found = []
    for condition in runpy.run_path(str(ROOT / "docs" / "pages.py"))["conditions"]():
        for hint in {hint for _, hints in condition.messages for hint in hints}:
            for sentence in re.split(r"(?<=\.) ", hint):
                found += [
                    (condition.name, rest)
                    for rest in re.split(r"new checkpoint|(?<!not )begin with a new one", sentence)[1:]
                ]
    return found


def test_a_hint_that_asks_for_a_new_checkpoint_says_from_where():
    """Who begins elsewhere loses or repeats rows."""
    found = new_checkpoints()
    assert len(found) > 20
    assert {name for name, _ in found} >= _NO_ADVICE
    silent = [(name, rest) for name, rest in found if name not in _NO_ADVICE and not _FROM_WHERE.search(rest)]
    assert silent == []
