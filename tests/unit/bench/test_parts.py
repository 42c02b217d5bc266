"""The benchmark's arithmetic: which micro-batches count, what the meter says of a stretch of time, medians, ratios."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench import drain, latency, machine, meter
from bench.meter import BROKER, CLIENT, Meter, ProcessUsage, UsageSample
from bench.plot import plot
from bench.result import ModeResult, Series
from bench.turns import BenchPlan


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
    return ProcessUsage(pid, 1, "python", cpu, mib << 20)


def test_processor_time_between_two_looks_grows_evenly():
    """The cost of a stretch that begins between two samples is interpolated."""
    cost = watched(
        UsageSample(0.0, {CLIENT: 1.0, BROKER: 10.0}, {}),
        UsageSample(1.0, {CLIENT: 3.0, BROKER: 10.0}, {}),
        UsageSample(2.0, {CLIENT: 3.0, BROKER: 14.0}, {}),
    ).between(0.5, 1.5)
    assert cost is not None
    assert cost.cpu == {CLIENT: 1.0, BROKER: 2.0}


def test_only_workers_that_work_count():
    """One that an earlier query has left is large, and idle."""
    cost = watched(
        UsageSample(
            0.0, {CLIENT: 0, BROKER: 0}, {7: worker(7, 0.0, 100), 8: worker(8, 0.0, 80), 9: worker(9, 5.0, 900)}
        ),
        UsageSample(
            1.0, {CLIENT: 0, BROKER: 0}, {7: worker(7, 0.5, 120), 8: worker(8, 0.5, 90), 9: worker(9, 5.0, 900)}
        ),
    ).between(0.0, 1.0)
    assert cost is not None
    assert (cost.largest_worker_mib, cost.workers_mib) == (120, 210)


def test_without_a_process_table_nothing_is_known(monkeypatch):
    """Where processes cannot be listed, costs are left out rather than zero."""
    monkeypatch.setattr(meter, "process_table", dict)
    with Meter({CLIENT: [1], BROKER: [2]}) as blind:
        pass
    assert blind.between(0.0, time.time()) is None
    assert drain.costs(None, 10) == {}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_the_meter_sees_this_process_work():
    """Half a second of it; its children, such as brokers of other tests, come on top."""
    with Meter({CLIENT: [os.getpid()], BROKER: [os.getpid()]}) as seen:
        begin, used = time.time(), time.process_time()
        while time.process_time() - used < 0.5:
            pass
    cost = seen.between(begin, time.time())
    assert cost is not None
    assert cost.cpu[CLIENT] > 0.3


#: Waits for a line, and works half a second in a child, which ends at the end of its input. The last line comes
#: when it has ended, or, where it lasts, from itself: what a child has used is its parent's once that knows of its end.
WORK = "import sys, time\nwhile time.process_time() < 0.5: pass\nprint(sys.argv[1], flush=True)\nsys.stdin.read()"
ENDING, LASTING = 'read go; "$0" -c "$1" "" < /dev/null; echo done; read end', 'read go; "$0" -c "$1" done; read end'


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
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
    assert cost is not None
    assert cost.cpu[CLIENT] > 0.9


def test_percentiles_leave_the_first_quarter_out():
    """Rows of the rounds 2 to 7 of 8, with the micro-batches that began after the first of them was written."""
    seen = [[number, 1767225600.0 + number, 9.0 if number < 2 else 0.1 * number] for number in range(8)] * 20
    progress = [batch("01.000", 1, 9000), batch("03.000", 1, 100), batch("04.000", 0, 7)]
    progress += [batch("05.000", 1, ms) for ms in (150, 200, 300, 400)]
    found = latency.judge_rounds(seen, progress, 8)
    assert (found["counted_rows"], found["counted_batches"], found["batch_ms_p50"]) == (120, 5, 200)
    assert found["latency_ms_p50"] == pytest.approx(450)
    assert found["latency_ms_p99"] == pytest.approx(700)


@pytest.mark.parametrize(
    ("rows", "batches", "known"),
    [
        (100, 5, ["p50", "p95", "p99"]),
        (99, 5, ["p50", "p95"]),
        (20, 5, ["p50", "p95"]),
        (19, 5, ["p50"]),
        (100, 4, []),
    ],
)
def test_a_percentile_takes_a_row_beyond_it_and_some_micro_batches(rows: int, batches: int, known: list[str]):
    """99 rows have no p99, 19 no p95."""
    found = latency.judge_rounds([[1, 0.0, 0.1]] * rows, [batch("01.000", 1, 100)] * batches, 1)
    assert [p for p in ("p50", "p95", "p99") if found[f"latency_ms_{p}"] is not None] == known


@pytest.mark.parametrize(
    ("seconds", "rows", "broker", "known"),
    [
        (1.0, 60_000, 0.6, {"rows_per_second": 60_000, "client_core_us": 50, "broker_core_us": 10, "workers_mib": 0}),
        (1.0, 60_000, 0.09, {"rows_per_second": 60_000, "client_core_us": 50, "workers_mib": 0}),
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


def test_there_is_no_ratio_of_what_is_too_small_or_unknown():
    """A few ticks of the clock, on either side; nor of a run that was too short."""
    result = ModeResult("m", baseline="b", compared="x", least=10.0)
    for n, (mine, theirs) in enumerate([(20.0, 10.0), (20.0, 9.0), (9.0, 20.0), (None, 20.0), (20.0, None)]):
        result.series += [Series("a", str(n), [{"x": mine}]), Series("b", str(n), [{"x": theirs}])]
    assert [result.ratio_text(series) for series in result.series[::2]] == ["× 2.00", "–", "–", "–", "–"]


def test_a_table_is_aligned_and_says_what_is_unknown():
    """Columns line up, and a missing number is a dash."""
    result = ModeResult("m", baseline="b", compared="rows_per_second")
    result.series = [
        Series("a", "1 B", [{"rows_per_second": n, "client_core_us": None, "rows": 1} for n in (1e6, 2e6, 3e6)]),
        Series("b", "1 B", [{"rows_per_second": 1000.0, "client_core_us": 2.5, "rows": 1}]),
    ]
    head, first, second = result.table().splitlines()
    assert head.split() == ["case", "what", "rows/s", "client", "µs/row", "rows/s,", "runs", "ratio"]
    assert first.split() == ["1", "B", "a", "2,000,000", "–", "1,000,000", "to", "3,000,000", "×", "2000.00"]
    assert second.split() == ["1", "B", "b", "1,000", "2.50", "–", "×", "1.00"]
    assert len(head) == len(first) == len(second)


CIRCUMSTANCES = {
    "cpu": "Some CPU 3000",
    "cores": 2,
    "memory_gib": 7.8,
    "system": "Linux x86_64",
    "python": "3.11.9",
    "java": "17.0.1",
    "kafka": "4.3.0",
    "spark-eos": "0.1",
    "pyspark": "4.2.0",
}


def test_a_picture_names_machine_versions_runs_and_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And has a dash where a run was too short, instead of a bar that means nothing."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    drawn: list = []
    monkeypatch.setattr(figure, "savefig", lambda self, file, **how: drawn.append(self))
    result = ModeResult("source", "kafka", "rows_per_second", "from a Kafka topic into nothing")
    for case, speeds in {"100 B": (2e6, 1e6), "1024 B": (3e5, None)}.items():
        for name, speed in zip(("eos-kafka", "kafka"), speeds, strict=True):
            result.series.append(Series(name, case, [{"rows_per_second": speed}] * 3))
    assert plot(result, machine.describe(CIRCUMSTANCES), tmp_path / "source.png")
    (picture,) = drawn
    texts = [text.get_text() for axes in picture.axes for text in axes.texts]
    assert texts == ["2,000,000   × 2.00", "1,000,000   × 1.00", "300,000   –", "–"]
    assert [[round(bar.get_width()) for bar in axes.patches] for axes in picture.axes] == [[2e6, 1e6], [3e5]]
    assert picture.get_suptitle() == "source: from a Kafka topic into nothing"
    assert picture.get_supxlabel().splitlines() == [
        "medians of 3 runs; × is the ratio of rows/s to kafka; – is too short to tell; a dot is a run",
        "Some CPU 3000, 2 cores, 8 GiB, Linux x86_64",
        "spark-eos 0.1, Spark 4.2.0, Kafka 4.3.0, Python 3.11.9, Java 17.0.1",
    ]


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        ("processor\t: 0\nmodel\t\t: 85\nmodel name\t: Intel(R) Xeon(R)  CPU @ 2.50GHz\n", "Intel Xeon CPU @ 2.50GHz"),
        ("processor\t: 0\nCPU part\t: 0xd0c\n", "Neoverse-N1"),
    ],
)
def test_the_processor_has_a_name(cpuinfo: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """From /proc, or, as on ARM, where it is not there, from lscpu."""
    file, lscpu = tmp_path / "cpuinfo", tmp_path / "lscpu"
    file.write_text(cpuinfo)
    lscpu.write_text("#!/bin/sh\necho 'Model name:   Neoverse-N1'\n")
    lscpu.chmod(0o755)
    monkeypatch.setattr(machine, "_CPU_INFO", file)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert machine.cpu_model() == name


def test_rows_come_in_units():
    """A scaled number of rows is a multiple of what the case needs, and never zero."""
    assert [BenchPlan(scale, 1, 1).rows(1000, 32) for scale in (0.0001, 0.05, 1.0)] == [32, 64, 992]


def test_turns_go_back_and_forth():
    """The order of the compared changes from turn to turn, so that none is always first."""
    turns = BenchPlan(1.0, repeats=2, warm_ups=1).turns("ab")
    assert list(turns) == [(0, "b"), (0, "a"), (1, "a"), (1, "b"), (2, "b"), (2, "a")]
