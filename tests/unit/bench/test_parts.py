"""The benchmark's arithmetic: which micro-batches count, percentiles, medians, ratios."""

from __future__ import annotations

import pytest

from bench import drain, latency
from bench.result import ModeResult, Series


def batch(at: str, rows: int, ms: int) -> dict:
    return {"timestamp": f"2026-01-01T00:00:{at}Z", "numInputRows": rows, "batchDuration": ms}


def test_the_first_micro_batches_do_not_count():
    """The rest counts from the begin of its first to the end of its last, with the gap between them."""
    progress = [batch("00.000", 9, 5000), batch("05.000", 9, 900), batch("06.000", 10, 1000), batch("07.500", 20, 500)]
    found = drain.stretch(progress)
    assert (found.batches, found.rows, round(found.end - found.begin, 6)) == (2, 30, 2.0)


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
