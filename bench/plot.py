"""A picture of a result, where matplotlib is there (the extra ``bench``)."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.result import DASH, ModeResult, Series, cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The compared metric → what it is called on the axis.
_AXES = {
    "rows_per_second": "rows/s (more is better)",
    "latency_ms_p50": "milliseconds, p50 (less is better)",
    "first_row_s": "seconds (less is better)",
    "took_ms": "milliseconds (less is better)",
    "end_ms_p50": "milliseconds, median (less is better)",
}
#: Of the library, of the contender that ratios are to, of others.
_OURS, _BASELINE, _OTHER = "#e4572e", "#5c6b7a", "#b8c0c8"
_GREY = "#666666"
#: Contenders that are the library from end to end, as the modes name them.
_LIBRARY = {"eos-kafka", "ours → ours", "ours"}
#: Inches.
_WIDTH, _BAR, _CASE, _REST = 9.0, 0.3, 0.42, 1.7
#: Beside the bars, as a share of the longest, room for the text at its end.
_ROOM = 0.3
_PAD = 0.012


def plot(result: ModeResult, circumstances: Sequence[str], file: Path) -> bool:
    """Bars of the compared metric by case, a dot for each run, as a PNG; False where matplotlib is missing.

    ``circumstances``: lines for the foot of the picture.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    cases = result.cases()
    bars = [len(series) for series in cases.values()]
    height = _REST + _CASE * len(cases) + _BAR * sum(bars)
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{result.mode}: {result.title}", x=0.01, ha="left", fontsize=12, fontweight="bold")
    panels = figure.subplots(len(cases), sharex=True, squeeze=False, height_ratios=bars)[:, 0]
    longest = max((_reach(series, result.compared) for series in result.series), default=0.0)
    for panel, (case, series) in zip(panels, cases.items(), strict=True):
        _draw_case(panel, result, case, series, longest or 1.0)
    if not longest:
        panels[-1].set_xticks([])  # a scale of nothing
    panels[-1].set_xlabel(_AXES[result.compared], fontsize=9)
    dots = ["a dot is a run"] if result.repeats() > 1 else []
    foot = "\n".join(["; ".join([result.caption(), *dots]), *circumstances])
    figure.supxlabel(foot, x=0.01, ha="left", fontsize=7.5, color=_GREY, linespacing=1.4)
    figure.savefig(file, dpi=150)
    return True


def _draw_case(axes: Axes, result: ModeResult, case: str, series: Sequence[Series], longest: float) -> None:
    """One bar below the other, each with its value and ratio."""
    metric = result.compared
    for at, one in enumerate(series):
        middle = one.median.get(metric)
        runs = [run[metric] for run in one.runs if run[metric] is not None]
        text = DASH
        if middle is not None:
            text = f"{cell(metric, middle)}   {result.ratio_text(one)}"
            axes.barh(at, middle, height=0.72, color=_colour(result, one), zorder=2)
            if len(runs) > 1:
                axes.plot(runs, [at] * len(runs), "o", color="black", markersize=3, zorder=3)
        axes.text(_reach(one, metric) + longest * _PAD, at, text, va="center", fontsize=8.5)
    axes.set_yticks(range(len(series)), [one.name for one in series], fontsize=9)
    axes.set_ylim(len(series) - 0.4, -0.6)  # the first on top
    axes.set_xlim(0, longest * (1 + _ROOM))
    axes.set_title(case, loc="left", fontsize=9.5)
    axes.tick_params(length=0, labelsize=9)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="x", color="#e6e6e6", zorder=0)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)


def _reach(series: Series, metric: str) -> float:
    """How far its bar and its dots go; 0 where nothing is known."""
    known = [run[metric] for run in series.runs if run[metric] is not None]
    return max(known) if known and series.median[metric] is not None else 0.0


def _colour(result: ModeResult, series: Series) -> str:
    if series.name == result.baseline:
        return _BASELINE
    return _OURS if series.name in _LIBRARY else _OTHER
