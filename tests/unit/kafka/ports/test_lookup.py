"""What became of a transaction, by the log at the place of its first record."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.ports import lookup
from spark_eos.kafka.ports.lookup import RecordLookup
from spark_eos.protocol.head import Pair, Probe
from spark_eos.protocol.ports import Found

PAIR, PLACE = Pair("eos-q-1-0-0", 1000, 3), Probe("out", 0, 0)


def found(patch: pytest.MonkeyPatch, **batch: object) -> Found | None:
    """What is said where the log has this batch at the place."""
    there = {"base": 0, "last": 0, "producer_id": 1000, "epoch": 3, "control": False, "aborted": False}
    answer = SimpleNamespace(error=0, high_watermark=9, stable=9, size=1, aborted=())
    patch.setattr(lookup, "fetch_once", lambda *_, **__: (answer, b""))
    patch.setattr(lookup, "walk_batches", lambda *_: iter([SimpleNamespace(**there | batch)]))
    return RecordLookup(KafkaProperties({"bootstrap.servers": "none:1"})).look(PAIR, PLACE)


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        ({}, Found.THERE),
        ({"aborted": True}, Found.MISSING),
        ({"epoch": 4}, Found.GONE),
        ({"base": 1, "last": 1}, Found.GONE),
        ({"control": True}, Found.GONE),
    ],
)
def test_what_the_record_at_the_place_says(
    batch: dict[str, object], says: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A marker of the same producer is no row of its transaction: in a topic that was created anew after its rows were
    written, an abort's may be there."""
    assert found(monkeypatch, **batch) is says
