"""The benchmark's arithmetic: which micro-batches count, what the meter says of a stretch of time, medians, ratios."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from bench import drain, latency
from bench.meter import BROKER, CLIENT, Meter, ProcessUsage, UsageSample
from bench.result import ModeResult, Series


def batch(at: str, rows: int, ms: int) -> dict:
    return {"timestamp": f"2026-01-01T00:00:{at}Z", "numInputRows": rows, "batchDuration": ms}


def test_the_first_micro_batches_do_not_count():
    """The rest counts from the begin of its first to the end of its last, with the gap between them."""
    progress = [batch("00.000", 9, 5000), batch("05.000", 9, 900), batch("06.000", 10, 1000), batch("07.500", 20, 500)]
    found = drain.stretch(progress)
    assert (found.batches, found.rows, round(found.end - found.begin, 6)) == (2, 30, 2.0)


def test_too_few_micro_batches_are_refused():
    """A stretch that has only micro-batches to be left out is an error, not a rate."""
    with pytest.raises(ValueError, match="too few"):
        drain.stretch([batch("00.000", 9, 5000)] * drain.LEFT_OUT)


def watched(*samples: UsageSample) -> Meter:
    found = Meter({CLIENT: [1], BROKER: [2]})
    found._samples = list(samples)
    return found


def worker(pid: int, cpu: float, mib: int) -> ProcessUsage:
    return ProcessUsage(pid, "python", cpu, mib << 20)


def test_processor_time_between_two_looks_grows_evenly():
    """The cost of a stretch that begins between two samples is interpolated."""
    cost = watched(
        UsageSample(0.0, {CLIENT: 1.0, BROKER: 10.0}, {}),
        UsageSample(1.0, {CLIENT: 3.0, BROKER: 10.0}, {}),
        UsageSample(2.0, {CLIENT: 3.0, BROKER: 14.0}, {}),
    ).between(0.5, 1.5)
    assert cost.cpu == {CLIENT: 1.0, BROKER: 2.0}


def test_only_workers_that_work_count():
    """One that an earlier query has left is large, and idle."""
    looks = [
        {7: worker(7, 0.0, 100), 8: worker(8, 0.0, 80), 9: worker(9, 5.0, 900)},
        {7: worker(7, 0.5, 120), 8: worker(8, 0.5, 90), 9: worker(9, 5.0, 900)},
    ]
    samples = [UsageSample(float(at), {CLIENT: 0, BROKER: 0}, workers) for at, workers in enumerate(looks)]
    cost = watched(*samples).between(0.0, 1.0)
    assert (cost.largest_worker_mib, cost.workers_mib) == (120, 210)


#: Waits for a line, and works half a second in a child, which ends at the end of its input. The last line comes
#: when it has ended, or, where it lasts, from itself: what a child has used is its parent's once that knows of its end.
WORK = "import sys, time\nwhile time.process_time() < 0.5: pass\nprint(sys.argv[1], flush=True)\nsys.stdin.read()"
ENDING, LASTING = 'read go; "$0" -c "$1" "" < /dev/null; echo done; read end', 'read go; "$0" -c "$1" done; read end'


def test_the_meter_sees_every_process_of_a_group_with_its_children():
    """Spark's Python processes are children of another process than its JVM, and some end before the query does."""
    with ExitStack() as stack:
        roots = []
        for script in (ENDING, LASTING):
            command = ["sh", "-c", script, sys.executable, WORK]
            root = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(root)
            stack.callback(root.kill)
            roots.append(root)
        with Meter({CLIENT: [root.pid for root in roots]}) as seen:
            begin = time.time()
            for root in roots:
                root.stdin.write("go\n")
                root.stdin.flush()
            for root in roots:
                assert "done\n" in iter(root.stdout.readline, "")
    cost = seen.between(begin, time.time())
    assert cost.cpu[CLIENT] > 0.9


def test_percentiles_leave_the_first_quarter_out():
    """Rows of the rounds 2 to 7 of 8, with the micro-batches that began after the first of them was written; 99 rows
    have no p99."""
    seen = [[number, 1767225600.0 + number, 9.0 if number < 2 else 0.1 * number] for number in range(8)] * 20
    progress = [batch("01.000", 1, 9000), batch("03.000", 1, 100), batch("04.000", 0, 7)]
    progress += [batch("05.000", 1, ms) for ms in (150, 200, 300, 400)]
    found = latency.judge_rounds(seen, progress, 8)
    assert (found["counted_rows"], found["counted_batches"], found["batch_ms_p50"]) == (120, 5, 200)
    assert found["latency_ms_p50"] == pytest.approx(450)
    assert found["latency_ms_p99"] == pytest.approx(700)
    few = latency.judge_rounds([[1, 0.0, 0.1]] * 99, [batch("01.000", 1, 100)] * 5, 1)
    assert (few["latency_ms_p95"] is None, few["latency_ms_p99"]) == (False, None)


ALL = {"rows_per_second": 60_000, "client_core_us": 50, "broker_core_us": 10, "workers_mib": 0}


@pytest.mark.parametrize(
    ("seconds", "rows", "broker", "known"),
    [
        (1.0, 60_000, 0.6, ALL),
        (1.0, 60_000, 0.09, {name: value for name, value in ALL.items() if name != "broker_core_us"}),
        (0.99, 60_000, 0.6, {}),
        (1.0, 59_999, 0.6, {}),
    ],
)
def test_a_run_that_is_too_short_says_nothing(seconds: float, rows: int, broker: float, known: dict):
    """Nothing below a second, or of small micro-batches; below ten ticks of the clock nothing of the processor."""
    cpu = [{CLIENT: 0.0, BROKER: 0.0}, {CLIENT: 3.0, BROKER: broker}]
    looks = watched(UsageSample(10.0, cpu[0], {}), UsageSample(10.0 + seconds, cpu[1], {}))
    run = vars(drain.measured(80_000, 8, drain.Stretch(6, rows, 10.0, 10.0 + seconds), looks))
    assert (run["rows"], run["batches"], run["counted_rows"], run["counted_batches"]) == (80_000, 8, rows, 6)
    assert run["counted_seconds"] == pytest.approx(seconds)
    metrics = ("rows_per_second", "client_core_us", "broker_core_us", "workers_mib")
    assert {name: run[name] for name in metrics if run[name] is not None} == pytest.approx(known)


def test_a_ratio_is_of_medians_in_the_same_case():
    """Each case is compared with the baseline of that case only."""
    result = ModeResult("m", baseline="b", compared="x")
    result.series = [
        Series("a", "one", [{"x": 3.0, "y": None}, {"x": 1.0, "y": 2.0}, {"x": 2.0, "y": 2.0}]),
        Series("b", "one", [{"x": 4.0, "y": 1.0}]),
        Series("b", "two", [{"x": 400.0, "y": 1.0}]),
        Series("c", "three", [{"x": 1.0, "y": 1.0}]),
    ]
    assert [result.ratio(series) for series in result.series] == [0.5, 1.0, 1.0, None]
    assert result.series[0].median == {"x": 2.0, "y": None}


def test_there_is_no_ratio_of_what_is_unknown():
    """Of a run that was too short, on either side."""
    result = ModeResult("m", baseline="b", compared="x")
    for n, (mine, theirs) in enumerate([(20.0, 10.0), (None, 20.0), (20.0, None)]):
        result.series += [Series("a", str(n), [{"x": mine}]), Series("b", str(n), [{"x": theirs}])]
    assert [result.ratio_text(series) for series in result.series[::2]] == ["× 2.00", "–", "–"]
