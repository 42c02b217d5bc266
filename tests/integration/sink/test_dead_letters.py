"""Rows that brokers refuse for good, in the dead-letter topic by the same decision, as a plain consumer sees them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from tests.support.judges.kafka_view import KafkaView, Row
from tests.support.queries.sink_queries import ended_by
from tests.support.spark.session_faults import armed
from tests.support.waiting import wait_for

ROWS = "key string, value string, partition int"
LIMIT = 20_000
LARGE = "x" * 2 * LIMIT
WHY = {
    "__streams.errors.exception",
    "__streams.errors.message",
    "__spark_eos.target.topic",
    "__spark_eos.target.partition",
}
Letters = dict[tuple[str, int], list[str]]


@pytest.fixture
def letters(topic: Callable[..., str]) -> str:
    """A dead-letter topic."""
    return topic(2, max_message_bytes=10_000_000)


def short(row: Row) -> str:
    """A value without what makes it large."""
    return row.value.decode().rstrip("x")


def in_order(view: KafkaView, topic: str) -> dict[int, list[str]]:
    """What a read_committed consumer sees in each partition."""
    wait_for(lambda: view.held(topic) == {}, "the markers")
    found: dict[int, list[str]] = {}
    for row in view.rows(topic):
        found.setdefault(row.partition, []).append(short(row))
    return found


def letters_of(view: KafkaView, letters: str) -> Letters:
    """The dead letters, by the partition that they were meant for; each says why it is there."""
    wait_for(lambda: view.held(letters) == {}, "the markers")
    found: Letters = {}
    for row in view.rows(letters):
        said = {key: value.decode() for key, value in row.headers if key in WHY}
        assert said.keys() == WHY
        place = said["__spark_eos.target.topic"], int(said["__spark_eos.target.partition"])
        assert said["__streams.errors.message"].startswith(f"Partition {place[1]} of topic {place[0]} ")
        found.setdefault(place, []).append(short(row))
    return found


def some_rows() -> list[tuple[str, str, int]]:
    """In three partitions: large ones in the middle of one, only such in the second, none in the third."""
    rows = [(f"k{n}", f"a{n}" + (LARGE if n in (3, 4, 7) else ""), 0) for n in range(10)]
    rows += [(f"k{n}", f"b{n}{LARGE}", 1) for n in range(3)]
    return rows + [(f"k{n}", f"c{n}", 2) for n in range(5)]


def check(view: KafkaView, out: str, letters: str) -> None:
    """Of `some_rows`: what each partition takes, and what is refused there."""
    assert in_order(view, out) == {0: [f"a{n}" for n in (0, 1, 2, 5, 6, 8, 9)], 2: [f"c{n}" for n in range(5)]}
    refused = {0: [f"a{n}" for n in (3, 4, 7)], 1: [f"b{n}" for n in range(3)]}
    assert {place: sorted(rows) for place, rows in letters_of(view, letters).items()} == {
        (out, partition): rows for partition, rows in refused.items()
    }


@pytest.mark.parametrize(
    "faults",
    [
        "prepare.wrote=hold, commit.decided=fail",
        pytest.param("prepare.wrote=hold, commit.entered=fail", marks=pytest.mark.chaos),
    ],
)
def test_a_run_that_dies_with_dead_letters(faults, files, sink, topic, view, letters, spark, tmp_path):
    """In one partition all rows were refused, so that the transaction is never open there. The next run commits what
    was decided, and writes nothing again; what was not decided is written again, in both topics once."""
    out = topic(3, max_message_bytes=1_000_000)
    query, source = sink(topic=out, deadLetters__topic=letters), files(ROWS).add(some_rows())
    with armed(spark, faults, tmp_path / "faults") as fault:
        started = query.start(source.stream())
        fault.wait()
        view.configure(out, max_message_bytes=LIMIT)
        fault.release()
        ended_by(started, "FaultInjected")
    before = view.ends(letters)
    query.run(source.stream())
    check(view, out, letters)
    if "decided" in faults:
        assert len(view.rows(letters, committed=False)) == 6
        assert before != dict.fromkeys(before, 0)


def test_topics_by_column_and_headers(files, sink, topic, view, letters):
    """Each row's own topic counts; a letter has the row's headers, key and timestamp. A compacted topic refuses rows
    without keys, whatever their size."""
    small, large, compacted = topic(max_message_bytes=LIMIT), topic(), topic(**{"cleanup.policy": "compact"})
    schema = (
        "key string, value string, topic string, timestamp timestamp, headers array<struct<key:string,value:binary>>"
    )
    own = [{"key": "own", "value": b"1"}]
    rows = [("k", f"{name[:6]}{LARGE}", name, None, own) for name in (small, large)]
    rows += [(key, f"of {key}", compacted, None, own) for key in ("k", None)]
    sink(deadLetters__topic=letters).run(files(schema).add(rows).stream())
    wait_for(lambda: view.held(small, large, compacted, letters) == {}, "the markers")
    written = sorted((row.topic, row.key) for row in view.rows(small, large, compacted))
    assert written == sorted([(large, b"k"), (compacted, b"k")])
    keyless, with_key = sorted(view.rows(letters), key=lambda row: row.key or b"")
    assert (keyless.key, keyless.value) == (None, b"of None")
    assert (with_key.key, with_key.value) == (b"k", rows[0][1].encode())
    assert dict(keyless.headers)["own"] == dict(with_key.headers)["own"] == b"1"
    why = dict(with_key.headers)["__streams.errors.exception"]
    assert why == b"org.apache.kafka.common.errors.RecordTooLargeException"


def test_rows_that_a_topic_would_delete_at_once(files, sink, topic, refused):
    """Of 20 days ago, by their timestamps: the one that brokers refuse goes to the dead-letter topic with its own."""
    week_ms, then = 7 * 24 * 3600 * 1000, datetime.now() - timedelta(days=20)
    out = topic(3, max_message_bytes=LIMIT, retention_ms=-1)
    letters = topic(2, max_message_bytes=10_000_000, retention_ms=week_ms)
    source = files("value string, timestamp timestamp").add([("a", then), (LARGE, then)]).stream()
    query = sink(topic=out, deadLetters__topic=letters)
    refused(query, source, "EOS_ROWS_EXPIRED", out, letters, tasks=True, says=letters)
