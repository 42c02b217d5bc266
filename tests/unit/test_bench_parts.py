"""The benchmark's arithmetic: which micro-batches count, what the meter says of a stretch of time, medians, ratios."""

from __future__ import annotations

import os
import time

import pytest

from jobs._bench import drain, latency, meter
from jobs._bench.meter import BROKER, CLIENT, Meter, Process, Sample
from jobs._bench.result import Result, Series
from jobs._bench.turns import Plan


def batch(at: str, rows: int, ms: int) -> dict:
    return {"timestamp": f"2026-01-01T00:00:{at}Z", "numInputRows": rows, "batchDuration": ms}


def test_the_first_micro_batches_do_not_count():
    """The rest counts from the begin of its first to the end of its last, with the gap between them."""
    progress = [batch("00.000", 9, 5000), batch("05.000", 9, 900), batch("06.000", 10, 1000), batch("07.500", 20, 500)]
    found = drain.stretch(progress)
    assert (found.batches, found.rows, round(found.end - found.begin, 6)) == (2, 30, 2.0)


def test_too_few_micro_batches_are_refused():
    with pytest.raises(ValueError, match="too few"):
        drain.stretch([batch("00.000", 9, 5000)] * drain.LEFT_OUT)


def watched(*samples: Sample) -> Meter:
    found = Meter({CLIENT: 1, BROKER: 2})
    found._samples = list(samples)
    return found


def worker(pid: int, cpu: float, mib: int) -> Process:
    return Process(pid, 1, "python", cpu, mib << 20)


def test_processor_time_between_two_looks_grows_evenly():
    cost = watched(
        Sample(0.0, {CLIENT: 1.0, BROKER: 10.0}, {}),
        Sample(1.0, {CLIENT: 3.0, BROKER: 10.0}, {}),
        Sample(2.0, {CLIENT: 3.0, BROKER: 14.0}, {}),
    ).between(0.5, 1.5)
    assert cost is not None
    assert cost.cpu == {CLIENT: 1.0, BROKER: 2.0}


def test_only_workers_that_work_count():
    """One that an earlier query has left is large, and idle."""
    cost = watched(
        Sample(0.0, {CLIENT: 0, BROKER: 0}, {7: worker(7, 0.0, 100), 8: worker(8, 0.0, 80), 9: worker(9, 5.0, 900)}),
        Sample(1.0, {CLIENT: 0, BROKER: 0}, {7: worker(7, 0.5, 120), 8: worker(8, 0.5, 90), 9: worker(9, 5.0, 900)}),
    ).between(0.0, 1.0)
    assert cost is not None
    assert (cost.largest_worker_mib, cost.workers_mib) == (120, 210)


def test_without_a_process_table_nothing_is_known(monkeypatch):
    monkeypatch.setattr(meter, "process_table", dict)
    with Meter({CLIENT: 1, BROKER: 2}) as blind:
        pass
    assert blind.between(0.0, time.time()) is None
    assert drain.costs(None, 10) == {}


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_the_meter_sees_this_process_work():
    """Half a second of it; its children, such as brokers of other tests, come on top."""
    with Meter({CLIENT: os.getpid(), BROKER: os.getpid()}) as seen:
        begin, used = time.time(), time.process_time()
        while time.process_time() - used < 0.5:
            pass
        end = time.time()
    cost = seen.between(begin, end)
    assert cost is not None
    assert cost.cpu[CLIENT] > 0.3


def test_percentiles_leave_the_first_quarter_out():
    """Rows of the rounds 2 to 7 of 8, with the micro-batches that began after the first of them was written."""
    seen = [[number, 1767225600.0 + number, 9.0 if number < 2 else 0.1 * number] for number in range(8)]
    progress = [batch("01.000", 1, 9000), batch("03.000", 1, 100), batch("04.000", 0, 7), batch("05.000", 1, 300)]
    found = latency.judge(seen, progress, 8)
    assert (found["counted_rows"], found["counted_batches"], found["batch_ms_p50"]) == (6, 2, 200)
    assert found["latency_ms_p50"] == pytest.approx(450)
    assert found["latency_ms_p99"] == pytest.approx(695)


def test_a_ratio_is_of_medians_in_the_same_case():
    result = Result("m", baseline="b", compared="x")
    result.series = [
        Series("a", "one", [{"x": 3.0, "y": None}, {"x": 1.0, "y": 2.0}, {"x": 2.0, "y": 2.0}]),
        Series("b", "one", [{"x": 4.0, "y": 1.0}]),
        Series("b", "two", [{"x": 400.0, "y": 1.0}]),
        Series("c", "three", [{"x": 1.0, "y": 1.0}]),
    ]
    assert [result.ratio(series) for series in result.series] == [0.5, 1.0, 1.0, None]
    assert result.series[0].median == {"x": 2.0, "y": None}


def test_a_table_is_aligned_and_says_what_is_unknown():
    result = Result("m", baseline="b", compared="rows_per_second")
    result.series = [
        Series("a", "1 B", [{"rows_per_second": 1234567.0, "client_core_us": None, "rows": 1}]),
        Series("b", "1 B", [{"rows_per_second": 1000.0, "client_core_us": 2.5, "rows": 1}]),
    ]
    head, first, second = result.table().splitlines()
    assert head.split() == ["case", "what", "rows/s", "client", "µs/row", "ratio"]
    assert first.split() == ["1", "B", "a", "1,234,567", "–", "×", "1234.57"]
    assert second.split() == ["1", "B", "b", "1,000", "2.50", "×", "1.00"]
    assert len(head) == len(first) == len(second)


def test_rows_come_in_units():
    assert [Plan(scale, 1, 1).rows(1000, 32) for scale in (0.0001, 0.05, 1.0)] == [32, 64, 992]


def test_turns_go_back_and_forth():
    turns = Plan(1.0, repeats=2, warm_ups=1).turns("ab")
    assert list(turns) == [(0, "b"), (0, "a"), (1, "a"), (1, "b"), (2, "b"), (2, "a")]
