"""A tiny benchmark of each mode: that it runs, reads and writes what it says, and what its JSON holds. No timing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from bench import (
    delta,
    duel,
    freshness,
    golang,
    ingest,
    latency,
    pipeline,
    registry,
    registry_codec,
    shapes,
    source,
    start,
)
from bench.into_iceberg import INTO_ICEBERG
from bench.turns import BenchPlan
from demo import processes

ROOT = Path(__file__).parents[2]
SECONDS = 840
SHARE = 0.001
SHORT = ["--rows", str(SHARE), "--repeats", "1", "--warm-ups", "0"]
CIRCUMSTANCES = {"cpu", "cores", "memory_gib", "load_before", "python", "java", "kafka", "spark-eos", "pyspark"}
#: Of the baseline to itself. So few rows are too short to compare; latency and commit may be.
RATIOS = {
    "latency": {1, None},
    "freshness": {1},
    "start": {1},
    "commit": {1, None},
    "shapes": {1},
    "registry": {1, None},
}
METRICS = {"rows_per_second", "client_core_us", "broker_core_us", "largest_worker_mib", "workers_mib"}


def check_source(found: dict[tuple[str, str], dict]) -> None:
    for (_, case), series in found.items():
        check_run(series, rows_of(case))


def check_pipeline(found: dict[tuple[str, str], dict]) -> None:
    contenders = {contender.name: contender for contender in pipeline.CONTENDERS}
    for (name, case), series in found.items():
        alone = contenders[name].mirror or contenders[name].copier is not None
        copied = rows_of(case, workloads=pipeline.COPIED_WORKLOADS)
        check_run(series, contenders[name].rows(copied), alone=alone)
    cases = map(str, pipeline.COPIED_WORKLOADS)
    there = {name for name in contenders if name != "loop in Go" or golang.is_there()}
    assert found.keys() == {(name, case) for case in cases for name in there}


def rows_of(case: str, unit: int = source.UNIT, workloads: Sequence[source.Workload] = source.WORKLOADS) -> int:
    full = {str(one): one.rows for one in workloads}
    return BenchPlan(SHARE, 1, 0).rows(full[case], unit)


@pytest.mark.parametrize(
    "modes",
    [
        ["source"],
        pytest.param(["pipeline"], marks=pytest.mark.chaos),
        pytest.param(["latency", "commit", "writes", "shapes"], marks=pytest.mark.chaos),
        pytest.param(["start"], marks=pytest.mark.chaos),
        pytest.param(["registry"], marks=pytest.mark.chaos),
        pytest.param(["ingest", "to-delta", "from-delta", "freshness"], marks=pytest.mark.chaos),
    ],
    ids=" ".join,
)
def test_a_mode_runs_and_reports(modes: list[str], tmp_path: Path):
    """A few thousand rows; every contender has read, and where it writes written, each of them: else the job fails."""
    out = tmp_path / "out"
    job = subprocess.Popen(
        [sys.executable, "-m", "bench", *modes, *SHORT, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    try:
        table, said = job.communicate(timeout=SECONDS)
    finally:
        if job.poll() is None:
            processes.kill(job.pid)
            job.communicate()
    assert job.returncode == 0, said
    for mode in modes:
        CHECKS[mode](series_of(out, mode))
        assert f"{mode}: 1 run; × is the ratio of" in table
    assert f", {os.cpu_count()} core" in table
    assert f", Spark {version('pyspark')}, Kafka " in table
    assert not [left for left in tmp_path.iterdir() if left.name.startswith("spark-eos-bench")]


def series_of(folder: Path, mode: str) -> dict[tuple[str, str], dict]:
    """By contender and case; the circumstances must be there, too."""
    result = json.loads((folder / f"{mode}.json").read_text())
    assert result["mode"] == mode
    assert result["circumstances"].keys() >= CIRCUMSTANCES
    found = {(series["name"], series["case"]): series for series in result["series"]}
    for _, case in found:
        assert found[result["baseline"], case]["ratio"] in RATIOS.get(mode, {None})
    return found


def check_run(series: dict, rows: int, *, alone: bool = False) -> None:
    (run,) = series["runs"]
    assert run.keys() >= METRICS, series["name"]
    assert run["rows"] == rows
    assert series["median"] == run
    if alone:  # which says nothing of its batches, and is mostly done with so few rows before anybody has looked
        assert (run["counted_rows"] or 0) <= rows
        return
    assert run["batches"] == source.BATCHES
    assert run["counted_rows"] == run["rows"] * run["counted_batches"] // run["batches"]
    assert run["counted_seconds"] > 0
    assert {run[metric] for metric in METRICS} == {None}  # so few rows say nothing of speed and cost


def check_commits(found: dict[tuple[str, str], dict]) -> None:
    assert {case for _, case in found} == {"1 task", "4 tasks"}
    for (_, case), series in found.items():
        (run,) = series["runs"]
        assert run["rows"] == run["counted_batches"] * int(case.split()[0])
        assert 0 < run["end_ms_p50"] <= run["end_ms_max"]


def check_latency(found: dict[tuple[str, str], dict]) -> None:
    assert {case for _, case in found} == {case.name for case in latency.LATENCY_CASES}
    bursts = {case.name: case.burst for case in latency.LATENCY_CASES}
    for (name, case), series in found.items():
        (run,) = series["runs"]
        assert run["rows"] == latency.FEWEST_ROUNDS * bursts[case], name
        percentiles = [run[f"latency_ms_p{p}"] for p in (50, 95, 99)]
        if run["counted_batches"] < latency.LEAST_BATCHES:
            assert percentiles == [None] * 3
        else:
            known = percentiles if run["counted_rows"] >= 100 else percentiles[:2]
            assert known[0] > 0
            assert known == sorted(known)


def check_writes(found: dict[tuple[str, str], dict]) -> None:
    for (_, case), series in found.items():
        (run,) = series["runs"]
        assert run["rows"] == run["counted_rows"] == rows_of(case, source.PARTITIONS)
        assert run["counted_seconds"] > 0


def check_shapes(found: dict[tuple[str, str], dict]) -> None:
    assert {name for name, _ in found} == {"× 1", "× 10"}
    assert all(any(shape.unit in case for _, case in found) for shape in shapes.SHAPES)
    for series in found.values():
        (run,) = series["runs"]
        assert run["took_ms"] > 0


def check_ingest(found: dict[tuple[str, str], dict]) -> None:
    rows = BenchPlan(SHARE, 1, 0).rows(ingest.ROWS, duel.FILES)
    assert found.keys() == {(name, case) for name in CONTENDERS for case in ingest.INGEST_CASES}
    for series in found.values():
        check_run(series, rows)


def check_into_delta(found: dict[tuple[str, str], dict]) -> None:
    plan = BenchPlan(SHARE * delta.SHARE, 1, 0)
    for (name, case), series in found.items():
        rows = plan.rows(next(one.rows for one in source.WORKLOADS if str(one) == case), source.UNIT)
        check_run(series, rows, alone=name in INTO_ICEBERG)
    names = {duel.BUILTIN_NAME, delta.COPY_NAME, delta.ICEBERG_NAME, *INTO_ICEBERG}
    assert {name for name, _ in found} == names


def check_from_delta(found: dict[tuple[str, str], dict]) -> None:
    names = (duel.BUILTIN_NAME, delta.COPY_NAME)
    assert found.keys() == {(name, case) for name in names for case in delta.DELTA_CASES}
    for (_, case), series in found.items():
        check_run(series, BenchPlan(SHARE, 1, 0).rows(delta.DELTA_CASES[case].rows, 2 * duel.FILES))


def check_registry(found: dict[tuple[str, str], dict]) -> None:
    rows = BenchPlan(SHARE, 1, 0).rows(registry.ROWS, source.UNIT)
    ways = {(way.name, registry.CASE): way for way in registry.WAYS}
    for key, way in ways.items():
        check_run(found[key], way.rows(rows), alone=way.copier is not None)
    alone = {(name, case) for case in registry_codec.CODEC_CASES for name in (duel.OURS_NAME, registry.BASELINE)}
    assert {found[key]["median"]["rows"] for key in alone} == {registry_codec.UNIT}
    assert found.keys() == ways.keys() | alone


def check_start(found: dict[tuple[str, str], dict]) -> None:
    assert {case for _, case in found} == set(start.CASES)
    for series in found.values():
        (run,) = series["runs"]
        assert 0 < run["first_row_s"] < start.SECONDS


def check_freshness(found: dict[tuple[str, str], dict]) -> None:
    assert found.keys() == {(name, freshness.CASE) for name in freshness.CONTENDERS}
    for series in found.values():
        (run,) = series["runs"]
        assert run["rows"] == freshness.RATE * freshness.LEAST_SECONDS
        assert 0 < run["counted_rows"] < run["rows"]
        assert run["commits"] > 0
        assert 0 < run["latency_ms_p50"] <= run["latency_ms_p95"] <= run["latency_ms_p99"]


CONTENDERS = {duel.OURS_NAME, duel.BUILTIN_NAME}
CHECKS = {
    "source": check_source,
    "pipeline": check_pipeline,
    "latency": check_latency,
    "start": check_start,
    "commit": check_commits,
    "writes": check_writes,
    "shapes": check_shapes,
    "registry": check_registry,
    "ingest": check_ingest,
    "to-delta": check_into_delta,
    "from-delta": check_from_delta,
    "freshness": check_freshness,
}
