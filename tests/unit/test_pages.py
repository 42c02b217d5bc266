"""What the generated pages show: tests that kill at a failpoint, links, options and keys."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from spark_eos.base.failpoints import IN_QUERIES, POINTS
from spark_eos.options.table import SINK, SOURCE

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from _pages import site  # noqa: E402
from _pages.elsewhere import ELSEWHERE  # noqa: E402

MADE = runpy.run_path(str(ROOT / "docs" / "pages.py"))

#: What KafkaSourceProvider of Spark 4.2 accepts for reading.
SPARKS = """
assign subscribe subscribePattern startingOffsets startingOffsetsByTimestamp startingTimestamp endingOffsets
endingOffsetsByTimestamp endingTimestamp startingOffsetsByTimestampStrategy failOnDataLoss minPartitions
maxRecordsPerPartition maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay fetchOffset.numRetries
fetchOffset.retryIntervalMs kafkaConsumer.pollTimeoutMs groupIdPrefix includeHeaders
"""


#: What a test calls that kills a process, and the action of a failpoint.
KILLS = re.compile(r"\b(?:kill|kill_all_but|killpg|killed|dies)\(|=die\b")


def test_a_process_is_killed_at_every_failpoint() -> None:
    """A file of tests on real brokers that kills processes names it, as docs/testing.md says."""
    killed = set()
    for folder in ("chaos", "integration"):
        for path in (ROOT / "tests" / folder).rglob("test_*.py"):
            text = re.sub(r'== "[^"]+"', "", path.read_text())  # where it asks which point it is
            if KILLS.search(text):
                killed |= {point for point in POINTS if point in text or (point in IN_QUERIES and "IN_QUERIES" in text)}
    assert POINTS.keys() - killed == set()


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
