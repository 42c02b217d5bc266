"""``spark-eos plot``: draws the timeline of a query: micro-batches and their steps, kills and recoveries, lag, and
throughput."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_eos.errors import stop
from spark_eos.ops.answer import Answer
from spark_eos.ops.timeline import BatchAttempt, EventReader, Span, Timeline, TopicLag, chosen, cut, timeline_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from spark_eos.checkpoint.files import Checkpoint
    from spark_eos.ledger.owners import Cluster

#: Colours that can be told apart with colour blindness (Okabe and Ito).
_BLUE, _SKY, _GREEN, _YELLOW, _RED, _PURPLE, _GREY = (
    *("#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#9AA0A6"),
)
_INK, _FAINT = "#333333", "#E8EAED"
_WHOLE = {"committed": "#C9D1D9", "replayed": _PURPLE, "repaired": _YELLOW}
_STEPS = {"prepare": _SKY, "verify": _GREY, "decide": _BLUE, "EndTxn": _GREEN}
#: The id of a query, of which its first part is shown.
_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: Digits of a micro-batch's number that fit side by side into the whole width.
_DIGITS = 150
#: Line width in points, at which milliseconds of an hour are still visible.
_THIN = 0.8


def plot(source: str, file: str, query: str | None = None, last_s: float | None = None) -> Answer:
    """Draw the recorded events of a query into a file; with ``last_s``, only its last seconds. Raises OptionError,
    UnsupportedError."""
    if is_checkpoint(source):
        raise stop("EOS_PLOT_IMPOSSIBLE.no_servers", source=source)
    events = EventReader(source).read()
    timeline = timeline_of(events, chosen(events, query, source))
    return _drawn(timeline, max(float(event["at"]) for event in events), source, file, last_s)


def is_checkpoint(source: str) -> bool:
    """Whether a source is a checkpoint, and not recorded events."""
    return Path(source, "offsets").is_dir() or bool(re.match(r"(?!https?:)[A-Za-z][\w+.-]+://", source))


def plot_checkpoint(checkpoint: Checkpoint, cluster: Cluster, file: str, last_s: float | None = None) -> Answer:
    """Draw a query without recorded events, from its checkpoint and the ledger. Raises EosError."""
    from spark_eos.ops.checkpoint_timeline import timeline_from, traces_of

    timeline = timeline_from(traces_of(checkpoint, cluster))
    end = max([0.0, *(run.end for run in timeline.runs), *(batch.span[1] for batch in timeline.batches)])
    return _drawn(timeline, end, checkpoint.location, file, last_s)


def _drawn(timeline: Timeline, end: float, source: str, file: str, last_s: float | None) -> Answer:
    """Draw a timeline into a file. ``end``: the end of the last ``last_s`` seconds."""
    if last_s is not None:
        timeline = cut(timeline, end - last_s)
    if not timeline.batches and not timeline.lags:
        raise stop("EOS_PLOT_IMPOSSIBLE.empty", source=source, query=timeline.query, then=" in that time")
    try:
        draw(timeline, Path(file))
    except (OSError, ValueError) as error:  # ValueError: an unknown format
        raise stop("EOS_PLOT_IMPOSSIBLE.unwritable", file=file, error=error) from None
    text = f"{file}: {len(timeline.batches)} micro-batches of {timeline.query}"
    return Answer(_counts(timeline) | {"file": file}, text)


def _counts(timeline: Timeline) -> dict[str, object]:
    outcomes: dict[str, int] = {}
    for batch in timeline.batches:
        name = batch.outcome or ("not finished" if timeline.unknown else "running")
        outcomes[name] = outcomes.get(name, 0) + 1
    unended = "unknown" if timeline.unknown else "running"
    return {
        "query": timeline.query,
        "runs": [run.how or unended for run in timeline.runs],
        "batches": outcomes,
        "unknown": list(timeline.unknown),
    }


def draw(timeline: Timeline, file: Path) -> None:
    """Draw a timeline into a PNG, or the format that the file's name ends with. Raises UnsupportedError without
    matplotlib, OSError, and ValueError for an unknown format."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise stop("EOS_NOT_INSTALLED.extra", use="A plot", modules="matplotlib", extra="plot") from None
    figure = Figure(figsize=(12, 7.5), dpi=130, layout="constrained")
    heights = (2.6, 1.2) if timeline.unknown else (2.6, 1.4, 1.2)
    all_axes = list(figure.subplots(len(heights), 1, sharex=True, height_ratios=heights))
    _draw_steps(all_axes[0], timeline)
    _draw_throughput(all_axes[-1], timeline)
    if timeline.unknown:
        figure.set_size_inches(12, 6)
        style: dict[str, Any] = {"x": 0.01, "ha": "left", "linespacing": 1.5}
        figure.supxlabel("\n".join(timeline.unknown), fontsize=8.5, color="#666666", **style)
    else:
        _draw_lag(all_axes[1], timeline)
    _draw_ends(figure, all_axes, timeline)
    _finish(figure, all_axes, timeline)
    figure.savefig(file)


def _when(time_s: float) -> Any:  # noqa: ANN401  # matplotlib takes times so
    return datetime.fromtimestamp(time_s).astimezone()


def _bars(axes: Axes, lane: int, spans: Iterable[Span], colour: str, label: str | None = None, **how: Any) -> None:  # noqa: ANN401  # matplotlib's own
    found: Any = [(_when(begin), timedelta(seconds=max(0.0, end - begin))) for begin, end in spans]
    if found:
        style: dict[str, Any] = {"facecolors": colour, "edgecolors": colour, "linewidth": _THIN, "label": label} | how
        axes.broken_barh(found, (lane - 0.36, 0.72), **style)


def _draw_steps(axes: Axes, timeline: Timeline) -> None:
    steps = {step: [span for batch in timeline.batches if (span := batch.steps[step])] for step in _STEPS}
    lanes = ["micro-batch", *(step for step, spans in steps.items() if spans)]
    for outcome, colour in _WHOLE.items():
        spans = [batch.span for batch in timeline.batches if batch.outcome == outcome]
        white: dict[str, Any] = {"edgecolors": "white"}
        _bars(axes, 0, spans, colour, None if outcome == "committed" else outcome, **white)
    cut = [batch for batch in timeline.batches if batch.outcome and not batch.done]
    _bars(axes, 0, (batch.span for batch in cut), "white", "not committed", edgecolors=_RED, hatch="////")
    for lane, step in enumerate(lanes[1:], 1):
        _bars(axes, lane, steps[step], _STEPS[step])
    _number(axes, timeline.batches)
    axes.set_yticks(range(len(lanes)), lanes)
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def _number(axes: Axes, batches: Sequence[BatchAttempt]) -> None:
    """The numbers of micro-batches that are wide enough for that."""
    if not batches:
        return
    begin, end = min(b.span[0] for b in batches), max(b.span[1] for b in batches)
    for batch in batches:
        left, right = batch.span
        if right - left > (end - begin) * (len(str(batch.number)) + 1) / _DIGITS:
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "color": _INK, "clip_on": True}
            axes.text(_when((left + right) / 2), 0, str(batch.number), **style)


def _draw_lag(axes: Axes, timeline: Timeline) -> None:
    topics = sorted({lag.topic for lag in timeline.lags})
    for topic, lags in _stretches(timeline):
        times = [_when(lag.at) for lag in lags]
        colour = (_BLUE, _GREEN, _PURPLE, _SKY)[topics.index(topic) % 4]
        of = f" of {topic}" if len(topics) > 1 else ""
        high, stable = [lag.high for lag in lags], [lag.stable for lag in lags]
        line: dict[str, Any] = {"where": "post", "color": colour}
        axes.step(times, high, lw=1, ls=":", label=f"to the high watermark{of}", **line)
        axes.step(times, stable, lw=1.6, label=f"to the last stable offset{of}", **line)
        axes.fill_between(times, stable, step="post", color=colour, alpha=0.15, lw=0)
        held = [lag.stalled > 0 for lag in lags]
        if any(held):
            shade: dict[str, Any] = {"color": _YELLOW, "alpha": 0.25, "lw": 0, "transform": axes.get_xaxis_transform()}
            axes.fill_between(times, 0, 1, where=held, step="post", label="held by an open transaction", **shade)
    axes.set_ylabel("lag, offsets")
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))  # each run has lines of its own
    if once:
        style: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 0.98), "ncols": 4, "frameon": False}
        axes.legend(list(once.values()), list(once), fontsize=9, **style)


def _stretches(timeline: Timeline) -> Iterator[tuple[str, list[TopicLag]]]:
    """The lag of each topic, run by run: between two runs, it was not measured."""
    begins = [run.begin for run in timeline.runs[1:]]
    of: dict[tuple[str, int], list[TopicLag]] = {}
    for lag in timeline.lags:
        of.setdefault((lag.topic, sum(begin <= lag.at for begin in begins)), []).append(lag)
    yield from ((topic, lags) for (topic, _), lags in sorted(of.items()))


def _draw_throughput(axes: Axes, timeline: Timeline) -> None:
    """Rows over the time of each micro-batch. An area, as micro-batches differ in length."""
    points: list[tuple[float, float]] = []
    until = 0.0
    done = [batch for batch in timeline.batches if batch.done and batch.rows]
    for batch in sorted(done, key=lambda batch: batch.span):
        begin, end = batch.span
        if end > begin:  # micro-batches may overlap by clocks of two machines: draw the overlap once
            points += [(max(begin, until), batch.rows / (end - begin)), (max(end, until), 0.0)]
            until = points[-1][0]
    if points:
        times, rates = [_when(at) for at, _ in points], [rate for _, rate in points]
        axes.fill_between(times, rates, step="post", color=_GREEN, alpha=0.55, lw=_THIN)
    axes.set_ylabel("rows per second")


def _draw_ends(figure: Figure, all_axes: Sequence[Axes], timeline: Timeline) -> None:
    """How runs ended, and when the next one began."""
    for number, run in enumerate(timeline.runs):
        later = number + 1 < len(timeline.runs)
        if run.how not in (None, "stopped"):
            for axes in all_axes:
                axes.axvline(_when(run.end), color=_RED, lw=1.4)
            _say(all_axes[0], run.end, str(run.how), _RED)
        if later and timeline.runs[number + 1].begin > run.end:
            after = timeline.runs[number + 1].begin
            for axes in all_axes:
                axes.axvspan(_when(run.end), _when(after), color=_RED, alpha=0.06, lw=0)
                axes.axvline(_when(after), color=_GREEN, lw=1.2, ls="--")
            _say(all_axes[0], after, f"run {number + 2}", _GREEN)


def _say(axes: Axes, at: float, text: str, colour: str) -> None:
    place: dict[str, Any] = {"xy": (_when(at), 1), "xycoords": ("data", "axes fraction"), "xytext": (0, 3)}
    style: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 9, "color": colour, "annotation_clip": False}
    axes.annotate(text, **place, textcoords="offset points", **style)


def _finish(figure: Figure, all_axes: Sequence[Axes], timeline: Timeline) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import EngFormatter

    for axes in all_axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(_GREY)
        axes.grid(axis="x", color=_FAINT, lw=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(colors=_INK)
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
