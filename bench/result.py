"""Results: plain data, as JSON and as a table that people can read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

#: Metric → its heading and format in tables. Metrics that are not here are only in the JSON.
_COLUMNS = {
    "rows_per_second": ("rows/s", "{:,.0f}"),
    "client_core_us": ("client µs/row", "{:.2f}"),
    "broker_core_us": ("broker µs/row", "{:.2f}"),
    "largest_worker_mib": ("worker MiB", "{:,.0f}"),
    "workers_mib": ("workers MiB", "{:,.0f}"),
    "batch_ms_p50": ("batch ms", "{:,.0f}"),
    "took_ms": ("ms", "{:,.1f}"),
    "peak_mib": ("MiB", "{:,.0f}"),
    "first_row_s": ("first row s", "{:,.2f}"),
    "start_cpu_s": ("CPU s", "{:,.1f}"),
    "file_kib": ("file KiB", "{:,.0f}"),
    "latency_ms_p50": ("p50 ms", "{:,.0f}"),
    "latency_ms_p95": ("p95 ms", "{:,.0f}"),
    "latency_ms_p99": ("p99 ms", "{:,.0f}"),
}
#: In the place of a number that is not known, or that a run was too short to tell.
DASH = "–"


class WrongResult(Exception):
    """What was measured did not do its work: rows are missing or too many."""


@dataclass
class Series:
    """The runs of one contender in one case; each run is a mapping of metrics."""

    name: str
    case: str
    runs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def median(self) -> dict[str, float | None]:
        """Of each metric over the runs; None where a run has no value."""
        values = {metric: [run[metric] for run in self.runs] for metric in self.runs[0]} if self.runs else {}
        return {metric: None if None in found else median(found) for metric, found in values.items()}

    def spread(self, metric: str) -> str:
        """The least and the most of its runs, of two at least."""
        found = [run[metric] for run in self.runs if run.get(metric) is not None]
        return f"{cell(metric, min(found))} to {cell(metric, max(found))}" if len(found) > 1 else DASH


@dataclass
class ModeResult:
    """What a mode measured. Ratios are to the series ``baseline`` of the same case, in the metric ``compared``."""

    mode: str
    baseline: str
    compared: str
    series: list[Series] = field(default_factory=list)

    def caption(self) -> str:
        """How the numbers came about, in a line."""
        repeats = max((len(series.runs) for series in self.series), default=0)
        text = f"medians of {repeats} runs" if repeats > 1 else "1 run"
        return f"{text}; × is the ratio of {_COLUMNS[self.compared][0]} to {self.baseline}; {DASH} is too short to tell"

    def ratio(self, series: Series) -> float | None:
        """Median to median of the same run of the benchmark; None without a baseline in this case, or without values
        that can be compared."""
        for other in self.series:
            if (other.name, other.case) == (self.baseline, series.case):
                mine, theirs = series.median.get(self.compared), other.median.get(self.compared)
                return mine / theirs if mine and theirs else None
        return None

    def ratio_text(self, series: Series) -> str:
        ratio = self.ratio(series)
        return DASH if ratio is None else f"× {ratio:.2f}"

    def to_json(self) -> dict[str, Any]:
        """Runs and medians of every series."""
        return {
            "mode": self.mode,
            "baseline": self.baseline,
            "compared": self.compared,
            "series": [
                {"name": s.name, "case": s.case, "ratio": self.ratio(s), "median": s.median, "runs": s.runs}
                for s in self.series
            ],
        }

    def table(self) -> str:
        """The medians, one line for each series, and how far the runs of `compared` lie apart; the ratio is that of its
        median to the baseline's."""
        known = [metric for metric in _COLUMNS if any(metric in series.median for series in self.series)]
        compared = _COLUMNS[self.compared][0]
        head = ["case", "what", *(_COLUMNS[metric][0] for metric in known), f"{compared}, runs", "ratio"]
        return "\n".join(_aligned([head, *(self._line(series, known) for series in self.series)]))

    def _line(self, series: Series, metrics: Iterable[str]) -> list[str]:
        middle = series.median
        cells = [cell(metric, middle.get(metric)) for metric in metrics]
        return [series.case, series.name, *cells, series.spread(self.compared), self.ratio_text(series)]


def cell(metric: str, value: float | None) -> str:
    """A value of a metric as tables have it."""
    return DASH if value is None else _COLUMNS[metric][1].format(value)


def told(metric: str, value: float | None) -> str:
    """A value of a metric with its heading."""
    return f"{cell(metric, value)} {_COLUMNS[metric][0]}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The first two columns to the left, numbers to the right; two spaces between columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = list(zip(row, widths, strict=True))
        left, right = [cell.ljust(width) for cell, width in cells[:2]], [cell.rjust(width) for cell, width in cells[2:]]
        lines.append("  ".join(left + right))
    return lines
