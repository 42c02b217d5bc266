"""``spark-eos plot``: draws the timeline of a query: micro-batches and their steps, kills and recoveries, lag, and
throughput."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_eos.errors import stop
from spark_eos.ops.answer import Answer
from spark_eos.ops.timeline import STEPS, EventReader, Span, Timeline, TopicLag, chosen, cut, timeline_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colours that can be told apart with colour blindness (Okabe and Ito).
_BLUE, _SKY, _GREEN, _YELLOW = "#0072B2", "#56B4E9", "#009E73", "#E69F00"
_RED, _PURPLE, _GREY, _LIGHT = "#D55E00", "#CC79A7", "#9AA0A6", "#C9D1D9"
_INK = "#333333"
_OUTCOMES = {"committed": _LIGHT, "replayed": _PURPLE, "repaired": _YELLOW, "not committed": "white"}
_STEPS = dict(zip(STEPS, (_SKY, _GREY, _BLUE, _GREEN), strict=True))
#: The id of a query, of which its first part is shown.
_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: Digits of a micro-batch's number that fit side by side into the whole width.
_DIGITS = 150
#: Line width in points, at which milliseconds of an hour are still visible.
_THIN = 0.8


def plot(source: str, file: str, query: str | None = None, last_s: float | None = None) -> Answer:
    """Draw the events of a query into a file; with ``last_s``, only its last seconds. Raises OptionError,
    UnsupportedError."""
    events = EventReader(source).read()
    timeline = timeline_of(events, chosen(events, query, source))
    if last_s is not None:
        timeline = cut(timeline, max(float(event["at"]) for event in events) - last_s)
    if not timeline.batches and not timeline.lags:
        raise stop("EOS_PLOT_IMPOSSIBLE.empty", source=source, query=timeline.query, then=" in that time")
    try:
        _draw(timeline, Path(file))
    except (OSError, ValueError) as error:  # ValueError: an unknown format
        raise stop("EOS_PLOT_IMPOSSIBLE.unwritable", file=file, error=error) from None
    data = {
        "query": timeline.query,
        "runs": [run.how or "running" for run in timeline.runs],
        "batches": Counter(batch.outcome or "running" for batch in timeline.batches),
        "file": file,
    }
    return Answer(data, f"{file}: {len(timeline.batches)} micro-batches of {timeline.query}")


def _draw(timeline: Timeline, file: Path) -> None:
    """Draw a timeline into a PNG, or the format that the file's name ends with. Raises UnsupportedError without
    matplotlib, OSError, and ValueError for an unknown format."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise stop("EOS_NOT_INSTALLED.extra", use="A plot", modules="matplotlib", extra="plot") from None
    figure = Figure(figsize=(12, 7.5), dpi=130, layout="constrained")
    all_axes = list(figure.subplots(3, 1, sharex=True, height_ratios=(2.6, 1.4, 1.2)))
    _draw_steps(all_axes[0], timeline)
    _draw_lag(all_axes[1], timeline)
    _draw_throughput(all_axes[2], timeline)
    _draw_ends(all_axes, timeline)
    _finish(figure, all_axes, timeline)
    figure.savefig(file)


def _when(time_s: float) -> Any:  # noqa: ANN401  # matplotlib takes times so
    return datetime.fromtimestamp(time_s).astimezone()


def _bars(axes: Axes, lane: int, spans: Iterable[Span], colour: str, **style: Any) -> None:  # noqa: ANN401  # matplotlib's own
    bars: Any = [(_when(begin), timedelta(seconds=max(0.0, end - begin))) for begin, end in spans]
    if bars:
        how: dict[str, Any] = {"edgecolors": colour, "linewidth": _THIN, **style}
        axes.broken_barh(bars, (lane - 0.36, 0.72), facecolors=colour, **how)


def _draw_steps(axes: Axes, timeline: Timeline) -> None:
    for outcome, colour in _OUTCOMES.items():
        ended = [b for b in timeline.batches if b.outcome and (b.outcome if b.done else "not committed") == outcome]
        style: dict[str, Any] = {"edgecolors": "white", "label": None if outcome == "committed" else outcome}
        if outcome == "not committed":
            style |= {"edgecolors": _RED, "hatch": "////"}
        _bars(axes, 0, (batch.span for batch in ended), colour, **style)
    lanes = ["micro-batch", *(step for step in STEPS if any(step in batch.steps for batch in timeline.batches))]
    for lane, step in enumerate(lanes[1:], 1):
        _bars(axes, lane, (batch.steps[step] for batch in timeline.batches if step in batch.steps), _STEPS[step])
    begin = min((batch.span[0] for batch in timeline.batches), default=0.0)
    length = max((batch.span[1] for batch in timeline.batches), default=0.0) - begin
    for batch in timeline.batches:
        if batch.seconds > length * (len(str(batch.number)) + 1) / _DIGITS:  # wide enough for its number
            style = {"ha": "center", "va": "center", "fontsize": 8, "color": _INK, "clip_on": True}
            axes.text(_when(sum(batch.span) / 2), 0, str(batch.number), **style)
    axes.set_yticks(range(len(lanes)), lanes)
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def _draw_lag(axes: Axes, timeline: Timeline) -> None:
    topics = sorted({lag.topic for lag in timeline.lags})
    begins = [run.begin for run in timeline.runs[1:]]
    lines: dict[tuple[str, int], list[TopicLag]] = {}  # by topic and run: between two runs, it was not measured
    for lag in timeline.lags:
        lines.setdefault((lag.topic, sum(begin <= lag.at for begin in begins)), []).append(lag)
    for (topic, _), lags in sorted(lines.items()):
        times = [_when(lag.at) for lag in lags]
        of = f" of {topic}" if len(topics) > 1 else ""
        high, stable = [lag.high for lag in lags], [lag.stable for lag in lags]
        line: dict[str, Any] = {"where": "post", "color": (_BLUE, _GREEN, _PURPLE, _SKY)[topics.index(topic) % 4]}
        axes.step(times, high, lw=1, ls=":", label=f"to the high watermark{of}", **line)
        axes.step(times, stable, lw=1.6, label=f"to the last stable offset{of}", **line)
        axes.fill_between(times, stable, step="post", color=line["color"], alpha=0.15, lw=0)
        held = [lag.stalled > 0 for lag in lags]
        if any(held):
            shade: dict[str, Any] = {"color": _YELLOW, "alpha": 0.25, "lw": 0, "transform": axes.get_xaxis_transform()}
            axes.fill_between(times, 0, 1, where=held, step="post", label="held by an open transaction", **shade)
    axes.set_ylabel("lag, offsets")
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    if once:
        style: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 0.98), "ncols": 4, "frameon": False}
        axes.legend(list(once.values()), list(once), fontsize=9, **style)


def _draw_throughput(axes: Axes, timeline: Timeline) -> None:
    """Draw rows over the time of each micro-batch, as an area, since micro-batches differ in length."""
    points: list[tuple[float, float]] = []
    until = 0.0
    for batch in sorted((batch for batch in timeline.batches if batch.done and batch.rows), key=lambda b: b.span):
        begin, end = batch.span
        if end > begin:  # micro-batches may overlap by clocks of two machines: draw the overlap once
            points += [(max(begin, until), batch.rows / (end - begin)), (max(end, until), 0.0)]
            until = points[-1][0]
    if points:
        times, rates = [_when(at) for at, _ in points], [rate for _, rate in points]
        axes.fill_between(times, rates, step="post", color=_GREEN, alpha=0.55, lw=_THIN)
    axes.set_ylabel("rows per second")


def _draw_ends(all_axes: Sequence[Axes], timeline: Timeline) -> None:
    """Draw how runs ended, and when the next one began."""

    def say(at: float, text: str, colour: str, line: str) -> None:
        for axes in all_axes:
            axes.axvline(_when(at), color=colour, lw=1.3, ls=line)
        style: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 9, "color": colour}
        style |= {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "annotation_clip": False}
        all_axes[0].annotate(text, (_when(at), 1), (0, 3), **style)

    for number, run in enumerate(timeline.runs, 1):
        if run.how not in (None, "stopped"):
            say(run.end, str(run.how), _RED, "-")
        for later in timeline.runs[number : number + 1]:
            if later.begin > run.end:
                say(later.begin, f"run {number + 1}", _GREEN, "--")
                for axes in all_axes:
                    axes.axvspan(_when(run.end), _when(later.begin), color=_RED, alpha=0.06, lw=0)


def _finish(figure: Figure, all_axes: Sequence[Axes], timeline: Timeline) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import EngFormatter

    for axes in all_axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", color="#E8EAED", lw=0.8)
        axes.set_axisbelow(True)
    for axes in all_axes[1:]:
        axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
        axes.set_ylim(bottom=0)
        axes.margins(y=0.25)
    locator: Any = AutoDateLocator()  # type: ignore[no-untyped-call]  # so in its stubs
    all_axes[-1].xaxis.set_major_locator(locator)
    all_axes[-1].xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]  # likewise
    figure.suptitle(_title(timeline), fontsize=13, color=_INK, x=0.01, ha="left")
    handles, labels = all_axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper right", ncols=4, frameon=False, fontsize=9)


def _title(timeline: Timeline) -> str:
    done = timeline.done
    replayed = timeline.count(batch for batch in timeline.batches if batch.done and batch.outcome != "committed")
    count, rows = timeline.count(done), sum(batch.rows for batch in done)
    counts = ((count, "micro-batch", "es"), (rows, "row", "s"), (len(timeline.runs), "run", "s"))
    parts = [f"{number:,} {noun}{'' if number == 1 else ending}" for number, noun, ending in counts]
    parts += [f"{replayed} replayed or repaired"] if replayed else []
    name = f"query {timeline.query[:8]}…" if _ID.fullmatch(timeline.query) else timeline.query
    return f"{name}: {', '.join(parts)}"
