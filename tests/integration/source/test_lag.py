"""What the source says about how far it is behind, and about who holds it."""

from __future__ import annotations

import json
import logging

import pytest

from spark_eos.base.log import logger
from spark_eos.source import lag
from tests.support.queries.source_calls import run, until_ends
from tests.support.waiting import TIMEOUT, wait_for


@pytest.fixture(autouse=True)
def look_often(monkeypatch):
    """High watermarks are asked for every time, not every second."""
    monkeypatch.setattr(lag, "_LOOK_S", 0.0)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The library's own; clients of other tests' clusters may complain that these are gone."""
    return [r.message for r in caplog.records if r.name == logger.name and r.levelno >= logging.WARNING]


def test_the_lag_of_a_query_that_is_limited(reader, topic, write):
    """Up to the last stable offset, which is the high watermark where nothing is open."""
    name = topic(2)
    write(name, *"abcdef")
    source = reader(name, maxOffsetsPerTrigger=2)
    start = source.latestOffset(source.initialOffset(), source.getDefaultReadLimit())
    source.latestOffset(start, source.getDefaultReadLimit())
    report = json.loads(json.dumps(source.reportLatestOffset()))
    assert report[name] == {"0": 6, "1": 0}
    assert report["#lag"][name] == {
        "0": {"stable": 4, "high": 4, "heldMs": 0},
        "1": {"stable": 0, "high": 0, "heldMs": 0},
    }
    assert report["#losses"] == 0


def test_a_partition_that_an_open_transaction_holds(reader, topic, write, transactions):
    """For as long as it is open the time grows; when it ends all is zero again."""
    name = topic()
    source = reader(name)
    write(name, "a")
    transactions.producer.begin_transaction()
    transactions.put(name, *"bc")
    _, at = run(source)

    def lag_now() -> dict:
        source.latestOffset(at, source.getDefaultReadLimit())
        return source.reportLatestOffset()["#lag"][name]["0"]

    wait_for(lambda: lag_now()["heldMs"] >= 200, "a lag that is held for 200 ms")
    now = lag_now()
    assert (now["stable"], now["high"]) == (0, 2)
    transactions.producer.commit_transaction(TIMEOUT)
    wait_for(lambda: lag_now()["heldMs"] == 0, "a lag that nothing holds")


def test_the_log_names_who_holds_a_partition_for_long(reader, topic, write, transactions, caplog):
    """With transactional id, producer id, and for how long; once, not at every look."""
    name = topic()
    transactions.producer.begin_transaction()
    transactions.put(name, *"ab")
    write(name, "c")
    source = reader(name, openTransaction__warnMs=100)
    _, at = run(source)

    def warned() -> list[str]:
        source.latestOffset(at, source.getDefaultReadLimit())
        return warnings(caplog)

    wait_for(warned, "the warning")
    (text,) = warned()
    assert f"{name}-0: its last stable offset has been 0" in text
    assert "up to 3" in text
    assert f"transactional id {transactions.transactional_id} (producer id" in text
    assert "from offset 0), open for" in text


def test_an_idle_stream_is_neither_held_nor_warned_of(reader, topic, write, transactions, caplog):
    """Its last stable offset stands still, but at the end of the log; markers of an abort lie below it."""
    name = topic()
    transactions.abort(name, "x")
    source = reader(name, openTransaction__warnMs=1)
    until_ends(reader(name), name, 2)
    _, at = run(source)
    for _ in range(10):
        source.latestOffset(at, source.getDefaultReadLimit())
    assert source.reportLatestOffset()["#lag"][name]["0"] == {"stable": 0, "high": 0, "heldMs": 0}
    assert warnings(caplog) == []
