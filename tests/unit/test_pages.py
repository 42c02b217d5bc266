"""How the generated pages find what they show: tests that strike at a failpoint, and options."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import pytest

from spark_eos.base.failpoints import POINTS
from spark_eos.options.table import SINK, SOURCE
from tests.support.kills import strikes

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from _pages import code, site  # noqa: E402
from _pages.elsewhere import ELSEWHERE  # noqa: E402

MADE = runpy.run_path(str(ROOT / "docs" / "pages.py"))

#: What KafkaSourceProvider of Spark 4.2 accepts for reading.
SPARKS = """
assign subscribe subscribePattern startingOffsets startingOffsetsByTimestamp startingTimestamp endingOffsets
endingOffsetsByTimestamp endingTimestamp startingOffsetsByTimestampStrategy failOnDataLoss minPartitions
maxRecordsPerPartition maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay fetchOffset.numRetries
fetchOffset.retryIntervalMs kafkaConsumer.pollTimeoutMs groupIdPrefix includeHeaders
"""


@pytest.mark.parametrize("point", POINTS)
def test_a_process_is_killed_at_every_failpoint(point: str) -> None:
    """By at least one test on real brokers, as docs/testing.md says."""
    assert strikes.killed_at(point)


STRIKES = """
import pytest
from spark_eos.base.failpoints import POINTS

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
    assert {strike.test: (set(strike.points), set(strike.kills)) for strike in strikes.in_module(module)} == {
        "test_pauses": ({"open.taken", "open.settled"}, set()),
        "test_kills_everywhere": (every, every),
        "test_kills_somewhere": (every, every),
        "test_kills_by_table": ({"commit.taken"}, {"commit.taken"}),
        "test_dies_or_fails": ({"prepare.wrote", "commit.entered"}, {"prepare.wrote"}),
        "test_kills_where_it_says": ({"abort.entered"}, {"abort.entered"}),
    }


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("[s](sink.md#columns)", "[s](sink.md#columns)"),
        ("[s](docs/sink.md)", "[s](sink.md)"),
        ("[r](../README.md#try-it)", "[r](index.md#try-it)"),
        ("[c](../spark_eos/pipelines/copy/README.md)", "[c](room-copy.md)"),
        ("[c](spark_eos/pipelines/copy/README.md)", "[c](room-copy.md)"),
        ("[t](../tables/README.md)", "[t](room-tables.md)"),
        ("[s](../../../docs/sink.md#columns)", "[s](sink.md#columns)"),
        ("[`plan`](../spark_eos/source/plan.py) decides", "`plan` decides"),
    ],
)
def test_links_lead_to_pages_of_the_website(link: str, shown: str) -> None:
    """All of its pages are in one folder, those of rooms among them; code is not on it."""
    assert site.on_page_markdown(link) == shown


def test_every_option_of_sparks_own_format_is_compared() -> None:
    """For reading and for writing."""
    source = {option.name for option in SOURCE if option.parity}
    sink = {option.name for option in SINK if option.parity} | {other.name for other in ELSEWHERE if other.sink}
    assert source >= set(SPARKS.split())
    assert sink >= {"topic", "includeHeaders", "checkpointLocation"}


def test_every_key_of_a_job_says_what_it_means() -> None:
    """The page lists the keys of all models; a field without a comment above it would have no text."""
    rows = [line for line in MADE["PAGES"]["keys.md"]().splitlines() if line.startswith("- `")]
    assert len(rows) > 40
    assert [row for row in rows if row.endswith(": ")] == []
