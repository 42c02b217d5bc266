"""The errors: a tree, condition names, and travel between processes."""

from __future__ import annotations

import ast
import pickle
import re
import string
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from spark_eos import errors
from spark_eos.errors import EosError, phrase, stop

ROOT = Path(__file__).parents[2]
#: What follows "a new checkpoint" in a hint: from where it goes on, or that it would be of no use.
_FROM_WHERE = re.compile(
    rf"{re.escape(phrase('from_group'))}|'(?:source\.)?startingOffsets'|at the offsets|source\.startingVersion"
    r"|has to begin|reads the table (?:as|from)|would leave|does not help"
)
#: Conditions with a hint in which a new checkpoint is no advice to begin one: a name changes with it.
_NO_ADVICE = {"EOS_USE_UNSUPPORTED"}


def every_class() -> list[type[EosError]]:
    found: list[type[EosError]] = [EosError]
    for cls in found:
        found += cls.__subclasses__()
    return found


@cache
def calls() -> list[tuple[str, str, ast.Call]]:
    """Every call of a plain name in the library and the jobs: its file and line, the name, and the call."""
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno}", node.func.id, node)
        for folder in ("spark_eos", "jobs")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]


def entry_of(call: ast.Call) -> str:
    """The entry of the table that a call of `stop` names; names that are put together could not be looked for."""
    first = call.args[0]
    assert isinstance(first, ast.Constant) and isinstance(first.value, str), ast.unparse(call)
    return first.value


def texts() -> dict[str, Mapping[str, str]]:
    """Message and hint of every entry of conditions.toml."""
    found = {}
    for name, row in errors.conditions().items():
        wordings = {f"{name}.{key}": row[key] for key in row if isinstance(row[key], dict)}
        assert bool(wordings) != ("message" in row), f"{name} has one message and hint, or wordings"
        found |= wordings or {name: row}
    return found


def placeholders(text: str) -> set[str]:
    """The names that a template fills in."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


class AnyValue:
    """Takes every format and every conversion."""

    def __format__(self, spec: str) -> str:
        return "*"

    __repr__ = __str__ = lambda self: "*"


@pytest.mark.parametrize("entry", sorted(texts()))
def test_every_template_is_filled_in(entry):
    """By what its placeholders name, into a text in which no brace is left by mistake."""
    wording = texts()[entry]
    names = placeholders(wording["message"]) | placeholders(wording["hint"])
    assert all(name.isidentifier() for name in names)
    error = stop(entry, **dict.fromkeys(names, AnyValue()))
    assert error.entry == entry and error.condition == entry.partition(".")[0]
    assert str(error).startswith(f"[{error.condition}] ") and error.message and error.hint
    assert not re.search(r"\{\w*\}", str(error).replace('{"id":"QUERY ID"}', "").replace("${NAME}", ""))


def test_every_entry_is_raised_with_what_it_fills_in():
    """The code names no entry that is not in the table, gives each what its texts need, and uses each."""
    known, used = texts(), set()
    for where, name, call in calls():
        if name not in ("stop", "raised") or not call.args:  # `raised` is what jobs call
            continue
        entry, given = entry_of(call), {keyword.arg for keyword in call.keywords}
        assert entry in known, f"{where}: there is no {entry}"
        needed = placeholders(known[entry]["message"]) | placeholders(known[entry]["hint"])
        assert None in given or needed <= given, f"{where}: {entry} needs {sorted(needed - given)}"
        used.add(entry)
    assert known.keys() - used == set()


def test_every_row_of_the_table_says_what_it_has_to():
    """A class of the tree, and where in a query's run it is raised."""
    classes = {cls.__name__ for cls in every_class()}
    for name, row in errors.conditions().items():
        assert re.fullmatch(r"EOS(_[A-Z]+)+", name)
        assert row["class"] in classes, name
        assert row["raised"] and set(row["raised"]) <= {"start", "task", "commit", "tool"}, name
        assert row.get("restart") in (None, True), name


def test_a_condition_with_several_wordings_says_what_they_have_in_common():
    """In a few words without parameters, as docs/errors.md has no message for it; one with a single message has none,
    which would say the same twice."""
    for name, row in errors.conditions().items():
        several = "message" not in row
        assert several == ("about" in row), f"{name}: `about` is for conditions with several wordings, and all of them"
        if several:
            assert re.fullmatch(r"[A-Z][^.:;{}]+", row["about"]) and len(row["about"].split()) <= 10, name


def test_errors_are_made_by_the_table_only():
    """Else a message would not be in the tests above; what says an error again may copy it."""
    names = {cls.__name__ for cls in every_class()}
    assert [where for where, name, _ in calls() if name in names] == []


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


def new_checkpoints() -> list[tuple[str, str]]:
    """For every wording of every hint: its condition, and what follows "new checkpoint" in the same sentence."""
    found = []
    for condition, hint in {(entry.partition(".")[0], text["hint"]) for entry, text in texts().items()}:
        for sentence in re.split(r"(?<=\.) ", hint):
            parts = re.split(r"new checkpoint|(?<!not )begin with a new one", sentence)[1:]
            found += [(condition, rest) for rest in parts]
    return found


def test_a_hint_that_asks_for_a_new_checkpoint_says_from_where():
    """Who begins elsewhere loses or repeats rows."""
    found = new_checkpoints()
    assert len(found) > 20
    assert {name for name, _ in found} >= _NO_ADVICE
    silent = [(name, rest) for name, rest in found if name not in _NO_ADVICE and not _FROM_WHERE.search(rest)]
    assert silent == []
