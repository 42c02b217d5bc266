"""The picture of a demo: for each sink the rows over time, the kills, and the duplicate rows at the end."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from demo.side import OUR_FORMAT, CountSample, JobEvent, Kind
from demo.watch import Count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ONCE, _TWICE, _UNSEEN, _DOWN, _GREY = "#2a9d66", "#d1352b", "#e9b949", "#ececec", "#666666"
_NAMES = {OUR_FORMAT: "eos-kafka", "kafka": "kafka, Spark's own sink"}
_DPI = 110


@dataclass(frozen=True)
class SinkStory:
    """What happened to one sink: its output over time, and the events. ``duplicated``: as counted at the end."""

    sink: str
    samples: Sequence[CountSample]
    events: Sequence[JobEvent]
    duplicated: int

    def from_first_row(self) -> SinkStory:
        """The story without the start of the job: its time begins with the first row in the output."""
        begin = next((sample.at_s for sample in self.samples if sample.count != Count()), 0.0)
        samples = [replace(sample, at_s=sample.at_s - begin) for sample in self.samples if sample.at_s >= begin]
        return replace(self, samples=samples, events=[replace(event, at_s=event.at_s - begin) for event in self.events])

    @property
    def end(self) -> float:
        return max([*(sample.at_s for sample in self.samples), *(event.at_s for event in self.events)])


def draw(stories: Sequence[SinkStory], expected: int, file: Path) -> bool:
    """Write the PNG; False if matplotlib is missing (it is in the extra ``demo``)."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    stories = [story.from_first_row() for story in stories]
    lines = max(len(_kills(story)) for story in stories)
    figure = Figure(figsize=(5.4 * max(len(stories), 1.4), 4.2 + 0.2 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    every = figure.subplots(1, len(stories), sharex=True, sharey=True, squeeze=False)[0]
    for axes, story in zip(every, stories, strict=True):
        _areas(axes, story)
        _marks(axes, story)
        _frame(axes, story, expected)
    every[0].set_xlim(0, 1.02 * max(story.end for story in stories))
    every[0].set_ylim(top=1.25 * max(expected, *(sample.count.visible for s in stories for sample in s.samples)))
    every[0].set_ylabel("rows in the output topics")
    figure.legend(*every[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.suptitle(_title(stories), fontsize=13, fontweight="bold")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=_DPI)
    return True


def _areas(axes: Axes, story: SinkStory) -> None:
    """Visible rows upwards, with duplicates on top; rows that were never visible downwards."""
    counts = [sample.count for sample in story.samples]
    counts.append(counts[-1])
    times = [*(sample.at_s for sample in story.samples), story.end]
    once, visible = [count.once for count in counts], [count.visible for count in counts]
    unseen, zero = [-count.rewritten for count in counts], [0] * len(counts)
    for low, high, color, label in (
        (zero, once, _ONCE, "visible"),
        (once, visible, _TWICE, "visible twice"),
        (zero, unseen, _UNSEEN, "aborted after a kill, never visible"),
    ):
        axes.fill_between(times, low, high, color=color, label=label, step="post", linewidth=0)


def _marks(axes: Axes, story: SinkStory) -> None:
    """A numbered line at each kill; the time until the job was back is grey."""
    axes.axvspan(0, 0, color=_DOWN, label="killed, starting again")
    down = None
    for event in story.events:
        if event.kind is Kind.KILLED:
            down = event.at_s if down is None else down
            axes.axvline(event.at_s, color="black", linewidth=1)
        elif event.kind is Kind.RECOVERED and down is not None:
            axes.axvspan(down, event.at_s, color=_DOWN, zorder=0)
            down = None
    for number, kill in enumerate(_kills(story), 1):
        place = (kill.at_s, 0.99)
        axes.annotate(f" ✗ {number}", place, xycoords=("data", "axes fraction"), va="top", fontweight="bold")


def _frame(axes: Axes, story: SinkStory, expected: int) -> None:
    axes.axhline(expected, color="black", linewidth=1, linestyle=(0, (4, 3)))
    label, place = f"{expected:,} expected", (0, expected)
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # the line of a kill would run through the text
    axes.annotate(label, place, color=_GREY, xytext=(4, 4), textcoords="offset points", fontsize=9, bbox=behind)
    axes.axhline(0, color=_GREY, linewidth=0.8)
    axes.set_title(_NAMES[story.sink], loc="left", fontsize=12, family="monospace")
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):,.0f}")
    kills = "\n".join(f"✗ {number}  {kill.text}" for number, kill in enumerate(_kills(story), 1))
    axes.set_xlabel(f"seconds since the first row\n{kills}", fontsize=9, loc="left")


def _kills(story: SinkStory) -> list[JobEvent]:
    return [event for event in story.events if event.kind is Kind.KILLED]


def _title(stories: Sequence[SinkStory]) -> str:
    counts = "   ·   ".join(f"{story.sink}: {story.duplicated:,} rows duplicated" for story in stories)
    return f"Killed in mid-batch, {len(_kills(stories[0]))} times   –   {counts}"
