"""A picture of a result, where matplotlib is there (the extra ``bench``)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from jobs._bench.result import Result


def plot(result: Result, file: Path) -> bool:
    """Bars of the compared metric by case, a dot for each run, as a PNG; False where matplotlib is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    cases = list(dict.fromkeys(series.case for series in result.series))
    names = list(dict.fromkeys(series.name for series in result.series))
    figure = Figure(figsize=(1.5 + 1.2 * len(result.series), 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    width = 0.8 / len(names)
    for series in result.series:
        at = cases.index(series.case) + (names.index(series.name) - (len(names) - 1) / 2) * width
        color = f"C{names.index(series.name)}"
        label = series.name if series.case == cases[0] else None
        axes.bar(at, series.median[result.compared] or 0, width * 0.9, color=color, label=label)
        values = [run[result.compared] for run in series.runs]
        axes.plot([at] * len(values), values, "o", color="black", markersize=3)
    axes.set_xticks(range(len(cases)), cases)
    axes.set_ylabel(result.compared.replace("_", " "))
    axes.set_title(f"{result.mode}: medians, and every run as a dot")
    axes.legend(frameon=False)
    figure.savefig(file, dpi=150)
    return True
