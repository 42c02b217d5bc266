"""How the generated pages find what they show: wordings of messages, and tests that strike at a failpoint."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from pathlib import Path

import pytest

from spark_eos.failpoints import POINTS
from spark_eos.options.table import SINK, SOURCE

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from _pages import code, failpoints, places, raised  # noqa: E402
from _pages.elsewhere import ELSEWHERE  # noqa: E402

MADE = runpy.run_path(str(ROOT / "docs" / "pages.py"))

#: What KafkaSourceProvider of Spark 4.2 accepts for reading.
SPARKS = """
assign subscribe subscribePattern startingOffsets startingOffsetsByTimestamp startingTimestamp endingOffsets
endingOffsetsByTimestamp endingTimestamp startingOffsetsByTimestampStrategy failOnDataLoss minPartitions
maxRecordsPerPartition maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay fetchOffset.numRetries
fetchOffset.retryIntervalMs kafkaConsumer.pollTimeoutMs groupIdPrefix includeHeaders
"""


def wordings(monkeypatch: pytest.MonkeyPatch, **files: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """What the errors page finds in these modules: path, message and hints."""
    modules = {name: code.Module(name, f"{name}.py", ast.parse(text)) for name, text in files.items()}
    monkeypatch.setattr(raised, "modules", lambda *_: modules)
    return [(found.path, found.message, found.hints) for found in raised.all_raised()]


def test_a_message_names_what_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Placeholders are named after the expression, and constants are filled in."""
    text = """
SECONDS = 60.0
def f(self, group, members):
    raise KafkaError("EOS_A", f"{group} has {len(members)}: {', '.join(sorted(members))} for {SECONDS:.0f} s", hint="h")
"""
    assert wordings(monkeypatch, m=text) == [("m.py", "{group} has {number of members}: {members} for 60 s", ("h",))]


def test_a_message_of_a_helper_is_worded_for_each_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a caller in another file, and for one whose argument cannot be followed."""
    helper = """
def bad(option, what, hint):
    return OptionError("EOS_A", f"Option '{option}' {what}", hint=hint)
def caller(option):
    raise bad(option, "is empty.", hint="Fill it.")
"""
    other = """
from helper import bad
def caller(text):
    raise bad("topic", f"is '{text}'.", "It takes a name.")
def unknown(what):
    raise bad("topic", compute(), hint="Look.")
"""
    assert wordings(monkeypatch, helper=helper, other=other) == [
        ("helper.py", "Option '{option}' is empty.", ("Fill it.",)),
        ("helper.py", "Option 'topic' is '{text}'.", ("It takes a name.",)),
        ("helper.py", "Option 'topic' {what}", ("Look.",)),
    ]


def test_a_function_of_the_same_name_in_another_file_is_no_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only who imports the helper from its file calls it."""
    helper = 'def bad(what):\n    return OptionError("EOS_A", f"It {what}.", hint="h")'
    other = 'def bad(what):\n    pass\ndef f():\n    bad("is not meant")'
    assert wordings(monkeypatch, helper=helper, other=other) == [("helper.py", "It {what}.", ("h",))]


def test_branches_keep_message_and_hint_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locals that are assigned in two branches give two messages, each with its own hint."""
    text = """
def f(known):
    if known:
        message, hint = "It is known.", "Use it."
    else:
        message, hint = "It is unknown.", "Remove it."
    return OptionError("EOS_A", message, hint=hint)
"""
    found = [("m.py", "It is known.", ("Use it.",)), ("m.py", "It is unknown.", ("Remove it.",))]
    assert wordings(monkeypatch, m=text) == found


def test_two_values_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """`batch` and `last.batch` in one message."""
    text = 'def f(batch, last):\n    raise ProtocolStop("EOS_A", f"at {batch}, not {last.batch}", hint="h")'
    assert [message for _, message, _ in wordings(monkeypatch, m=text)] == ["at {batch}, not {last batch}"]


def test_every_place_that_makes_an_error_is_found() -> None:
    """For each condition, every file that names it as the first argument of an error."""
    found = {(each.name, each.path) for each in raised.all_raised()}
    for module in code.modules("spark_eos", "jobs").values():
        for call, _ in module.calls:
            first = call.args[0] if call.args else None
            if isinstance(first, ast.Constant) and re.fullmatch(r"EOS_[A-Z_]+", str(first.value)):
                assert (first.value, module.path) in found


def test_the_table_of_places_names_files_and_conditions_that_exist() -> None:
    """What is renamed or removed in the code is renamed or removed there."""
    assert [path for path in places.BY_PATH if not (ROOT / path).exists()] == []
    assert places.BY_NAME.keys() - {condition.name for condition in MADE["conditions"]()} == set()


@pytest.mark.parametrize("point", POINTS)
def test_a_process_is_killed_at_every_failpoint(point: str) -> None:
    """By at least one test, as docs/failpoints.md shows."""
    assert MADE["killed_at"](point)


STRIKES = """
import pytest
from spark_eos.failpoints import POINTS

TABLE = {"commit.taken": "commit.taken=hold@2"}
EVERY = [(point, 1) for point in POINTS]

def slow(*values):
    return pytest.param(*values, marks=pytest.mark.chaos)

def share():
    return [random.choice(list(POINTS))]

def strike(point):
    with running(TABLE[point]) as victim:
        victim.kill()

def pause(spark, point):
    with armed(spark, f"{point}=hold"):
        pass

@pytest.mark.parametrize("point", [*map(slow, ["open.taken"]), "open.settled"])
def test_pauses(point, spark):
    'It sleeps.'
    pause(spark, point)

@pytest.mark.chaos
@pytest.mark.parametrize(("point", "nth"), EVERY)
def test_kills_everywhere(point, nth):
    strike(point)

@pytest.mark.parametrize("point", share())
def test_kills_somewhere(point):
    strike(point)

@pytest.mark.parametrize("point", TABLE)
def test_kills_by_table(point):
    strike(point)

@pytest.mark.parametrize("fault", ["prepare.wrote=die@2", "commit.entered=fail"])
def test_dies_or_fails(fault):
    run(fault)

def test_kills_where_it_says():
    strike("abort.entered")

def test_strikes_nowhere():
    strike("not.a_point")
"""


def test_where_tests_strike() -> None:
    """By parameters, tables and texts; a kill is a call or the action `die`, everything else is another fault."""
    module = code.Module("test_m", "tests/chaos/test_m.py", ast.parse(STRIKES))
    every = set(POINTS)
    assert {s.test: (set(s.points), set(s.kills), s.slow, s.drawn) for s in failpoints.in_module(module)} == {
        "test_pauses": ({"open.taken", "open.settled"}, set(), False, False),
        "test_kills_everywhere": (every, every, True, False),
        "test_kills_somewhere": (every, every, False, True),
        "test_kills_by_table": ({"commit.taken"}, {"commit.taken"}, False, False),
        "test_dies_or_fails": ({"prepare.wrote", "commit.entered"}, {"prepare.wrote"}, False, False),
        "test_kills_where_it_says": ({"abort.entered"}, {"abort.entered"}, False, False),
    }


def test_every_option_of_sparks_own_format_is_compared() -> None:
    """For reading and for writing."""
    source = {option.name for option in SOURCE if option.parity}
    sink = {option.name for option in SINK if option.parity} | {other.name for other in ELSEWHERE if other.sink}
    assert source >= set(SPARKS.split())
    assert sink >= {"topic", "includeHeaders", "checkpointLocation"}


def test_every_key_of_a_job_says_what_it_means() -> None:
    """The page lists the keys of all models; a field without a text below it would have an empty cell."""
    rows = [line for line in MADE["PAGES"]["keys.md"]().splitlines() if line.startswith("| `")]
    assert len(rows) > 40
    assert [row for row in rows if row.endswith("|  |")] == []
