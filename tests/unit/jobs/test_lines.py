"""What a job says about its micro-batches, from the progress that Spark reports."""

from __future__ import annotations

import json
import threading

import pytest
from pyspark.sql.streaming.listener import QueryIdleEvent, QueryProgressEvent, StreamingQueryProgress

from jobs.runner.lines import Batch, BatchLines


def progress(
    *sources: dict[str, object], rows: int = 3998, out: int = 3588, ms: int = 2856, **more: int
) -> StreamingQueryProgress:
    """As Spark writes it. ``sources``: ``{latestOffset: …, endOffset: …}``, as values that become JSON. ``more``: other
    counts of rows."""
    parts = [
        {
            "description": "",
            "numInputRows": rows,
            "inputRowsPerSecond": 0.0,
            "processedRowsPerSecond": 0.0,
            "metrics": {},
        }
        | {"startOffset": "{}", "latestOffset": None}
        | {name: json.dumps(value) for name, value in source.items()}
        for source in sources
    ]
    return StreamingQueryProgress.fromJson(
        {"id": "8c7f0a9e-0d5c-4b41-8f0c-2f2c9d9d1c1a", "runId": "8c7f0a9e-0d5c-4b41-8f0c-2f2c9d9d1c1a", "name": None}
        | {"timestamp": "2026-01-01T00:00:00.000Z", "batchId": 5, "batchDuration": ms, "durationMs": {}}
        | {"eventTime": {}, "stateOperators": [], "sources": parts, "numInputRows": rows}
        | {
            "sink": {"description": "", "numOutputRows": -1, "metrics": {}},
            "observedMetrics": {"spark_eos_job_out": {"rows": out, **more}},
        }
    )


AT = {"flights": {"0": 100, "1": 200}}
FURTHER = {"flights": {"0": 10100, "1": 2210}}
IDS = {"#ids": {"flights": "6xQ"}, "#epochs": {"flights": {"0": 4, "1": 2}}}
OF_DELTA = {"sourceVersion": 1, "reservoirId": "dfb777ce", "reservoirVersion": 6, "index": -1}
LAG = {"#lag": {"flights": {"0": {"stable": 10000, "high": 10007, "heldMs": 9}}}, "#losses": 0}


@pytest.mark.parametrize(
    ("sources", "lag"),
    [
        ([{"latestOffset": FURTHER, "endOffset": AT}], ", lag 12,010"),
        ([{"latestOffset": AT, "endOffset": AT | IDS}], ", lag 0"),
        ([{"latestOffset": FURTHER | LAG, "endOffset": AT | IDS}], ", lag 12,010 and 7 in open transactions"),
        (
            [{"latestOffset": FURTHER, "endOffset": AT}, {"latestOffset": {"t": {"0": 3}}, "endOffset": {}}],
            ", lag 12,010",
        ),
        ([{"endOffset": AT}], ""),
        ([{"latestOffset": 7, "endOffset": 7}], ""),
        ([{"latestOffset": OF_DELTA, "endOffset": OF_DELTA}], ""),
    ],
    ids=["behind", "not behind", "held back", "a new topic", "a source that does not say", "another source", "Delta"],
)
def test_a_micro_batch_is_one_line(sources, lag):
    """The lag is what the source reports, and is left out where it is not known."""
    assert str(Batch.from_progress(progress(*sources))) == f"batch 5: 3,998 in, 3,588 out, 1.4 k rows/s{lag}"


def test_what_is_left_out_or_set_aside_adds_up(capsys: pytest.CaptureFixture[str]):
    """In the line of its micro-batch, and in the sums at the end."""
    batch = Batch(3, 10_000, 9_000, 1.0, files=4, dropped=990, letters=10)
    counts = "10,000 in, 9,000 out, 990 dropped, 10 dead letters"
    assert str(batch) == f"batch 3: 4 files, {counts}, 10 k rows/s"
    lines = BatchLines()
    lines.add(batch)
    assert lines.total == f"{counts}, in 1 micro-batch"


def test_dead_letters_of_the_plan_are_no_rows_of_the_output():
    """Spark reads the input as two sources then, and counts its rows twice."""
    source = {"latestOffset": AT, "endOffset": AT}
    assert "233 in, 2 out, 227 dead letters," in str(
        Batch.from_progress(progress(source, source, rows=233, out=229, letters=227))
    )
    refused = {"dead_letters": 1}
    assert "233 in, 2 out, 2 dead letters," in str(
        Batch.from_progress(progress(source, rows=233, out=4, letters=1), refused)
    )


@pytest.mark.parametrize(
    ("rows", "ms", "rate"),
    [
        (1, 1000, "1.0 rows/s"),
        (12, 1000, "12 rows/s"),
        (999, 1000, "999 rows/s"),
        (9996, 10_000, "1.0 k rows/s"),
        (12_345, 1000, "12 k rows/s"),
        (999_600, 1000, "1.0 M rows/s"),
        (1_234_567, 1000, "1.2 M rows/s"),
    ],
)
def test_a_rate_has_two_digits_that_count(rows, ms, rate):
    """Rates are rounded to two digits, with k and M."""
    assert f", {rate}" in str(Batch.from_progress(progress(rows=rows, ms=ms)))


def test_idle_is_said_once_and_again_only_after_rows(capsys):
    """Micro-batches without rows, such as the first of a new query, are no lines either."""
    lines = BatchLines()
    idle = QueryIdleEvent(None, None, "")
    for event in (idle, progress(rows=0, out=0), idle, progress(rows=7, out=6), idle, idle):
        if isinstance(event, QueryIdleEvent):
            lines.onQueryIdle(event)
        else:
            lines.onQueryProgress(QueryProgressEvent(event))
    said = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in said] == ["idle", "batch 5", "idle"]
    assert lines.total == "7 in, 6 out, in 1 micro-batch"


def test_rows_that_come_out_where_none_went_in_have_a_line(capsys):
    """As when a watermark has passed and an aggregation lets go of its groups."""
    BatchLines().onQueryProgress(QueryProgressEvent(progress(rows=0, out=3)))
    assert capsys.readouterr().err.startswith("batch 5: 0 in, 3 out")


COPY = {"#cluster": {"id": "c"}, "#copy": {}}
RANGES = {
    "startOffset": {**COPY, "t": {"0": 10, "1": 0}},
    "endOffset": {**COPY, "t": {"0": 1010, "1": 500}},
    "latestOffset": {"t": {"0": 1020, "1": 500}},
}
FILES = {"table": "dfb777ce", "version": 7, "file": 0, "commit": {"version": 6, "mark": "5f0c"}}
OF_TABLE = {"startOffset": FILES, "endOffset": FILES | {"version": 9}, "latestOffset": FILES | {"version": 9}}


@pytest.mark.parametrize(
    ("source", "committed", "line"),
    [
        (
            RANGES,
            {"rows": 3, "read": 9, "dropped": 4, "dead_letters": 2, "replayed": False},
            "9 in, 1 out, 4 dropped, 2 dead letters",
        ),
        (RANGES, {"rows": 3, "read": 0, "dropped": 0, "dead_letters": 0, "replayed": True}, "3 in, 3 out"),
        (OF_TABLE, {"rows": 3, "read": 4, "dropped": 0, "dead_letters": 0, "replayed": False}, "2 files, 4 in, 3 out"),
    ],
    ids=["topics", "decided before", "a table"],
)
def test_rows_past_the_jvm_are_counted_by_their_commit(source, committed, line, capsys: pytest.CaptureFixture[str]):
    """Spark counts ranges of offsets or files there. The event may come after Spark's progress; that of another
    micro-batch does not count."""
    lines = BatchLines()
    lines.take({"event": "committed", "at": 0.0, "batch": 4, "rows": 7, "read": 7})
    late = threading.Timer(0.05, lines.take, [{"event": "committed", "at": 0.0, "batch": 5, **committed}])
    late.start()
    lines.onQueryProgress(QueryProgressEvent(progress(source, rows=2, out=0, ms=1000)))
    late.join()
    assert capsys.readouterr().err.startswith(f"batch 5: {line}, ")


def test_a_batch_whose_event_is_lost_says_how_much_was_read(monkeypatch, capsys: pytest.CaptureFixture[str]):
    """As where no socket could be made."""
    monkeypatch.setattr("jobs.runner.lines._EVENT_S", 0.0)
    lines = BatchLines()
    lines.onQueryProgress(QueryProgressEvent(progress(RANGES, rows=2, out=0, ms=1000)))
    assert capsys.readouterr().err == "batch 5: 1,500 offsets, 1.0 s, lag 10\n"
    assert lines.total == "0 in, 0 out, in 1 micro-batch, 1 of them not counted"
