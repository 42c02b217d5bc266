"""What mode ``registry`` of the benchmark expects of each contender, and that it notices what is wrong."""

from __future__ import annotations

from collections import Counter

import pytest

from bench import orders
from bench.registry_queries import fastavro_decoder, fastavro_encoder
from bench.result import WrongResult
from bench.source import PARTITIONS, UNIT

ENCODE = fastavro_encoder(b"\0\0\0\0\1")
ROWS = 3 * orders.DIFFERENT + 5 * UNIT


def written(number: int) -> bytes:
    return ENCODE(orders.order(number))


@pytest.fixture
def without_a_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are read by fastavro alone."""
    decode = fastavro_decoder()
    monkeypatch.setattr(orders, "AvroDeserializer", lambda _: lambda value, ctx: decode(value))


def test_three_of_four_rows_are_paid_in_each_partition():
    """As the rows are written: to the partitions in turns, the same orders again and again."""
    paid = [row for row in range(ROWS) if orders.order(row % orders.DIFFERENT)["paid"]]
    assert orders.paid_among(ROWS) == Counter(row % orders.DIFFERENT for row in paid)
    assert set(Counter(row % PARTITIONS for row in paid).values()) == {ROWS // PARTITIONS * 3 // 4}


def test_every_wrong_row_is_noticed(without_a_registry):
    """One too many, one too few, one that is not paid, and one with another field."""
    right = Counter({written(number): times for number, times in orders.paid_among(ROWS).items()})
    first, unpaid = next(iter(right)), written(0)
    other = ENCODE(orders.order(PARTITIONS) | {"total": -1.0})
    orders.check_paid(right, "http://127.0.0.1:1", "topic", ROWS)
    for wrong in ({first: 1}, {first: -1}, {unpaid: 1}, {first: -1, other: 1}):
        changed = right.copy()
        changed.update(wrong)
        with pytest.raises(WrongResult):
            orders.check_paid(changed, "http://127.0.0.1:1", "topic", ROWS)
