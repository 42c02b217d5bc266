"""What the source says about how far it is behind, and about who holds it."""

from __future__ import annotations

import json
import logging

import pytest

from spark_eos.base.log import logger
from spark_eos.source import lag
from tests.support.queries.source_calls import run
from tests.support.waiting import wait_for


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The library's own; clients of other tests' clusters may complain that these are gone."""
    return [r.message for r in caplog.records if r.name == logger.name and r.levelno >= logging.WARNING]


def test_the_log_names_who_holds_a_partition_for_long(reader, topic, write, transactions, caplog, monkeypatch):
    """With transactional id, producer id, and for how long; once, not at every look. The lag says so, too."""
    monkeypatch.setattr(lag, "_LOOK_S", 0.0)  # high watermarks are asked for every time, not every second
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
    report = json.loads(json.dumps(source.reportLatestOffset()))
    held_ms = report["#lag"][name]["0"].pop("heldMs")
    assert (report[name], report["#lag"][name]["0"]) == ({"0": 0}, {"stable": 0, "high": 3})
    assert held_ms >= 100
    assert report["#losses"] == 0
