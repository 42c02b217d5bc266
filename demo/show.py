"""The demo's output: a live table on a terminal, plain lines otherwise, and a table at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from demo.check import OutputFindings
from demo.load import Loaded
from demo.side import OUR_FORMAT, JobEvent, Kind, Side
from demo.watch import Count

_REFRESH_S = 0.2
_SINK_WIDTH = len(OUR_FORMAT)
_LOOK = {OUR_FORMAT: "green", "kafka": "red"}
_TITLES = {OUR_FORMAT: 'format("eos-kafka")', "kafka": 'format("kafka"): Spark\'s own sink'}
#: How rows of each kind are drawn. They differ without colours, too.
_SEGMENTS = {"once": ("█", "green"), "again": ("▓", "red"), "rewritten": ("░", "yellow"), "waiting": ("·", "cyan")}
#: What a panel needs beside bar and numbers; how wide it must be to have all numbers.
_REST, _WIDE = 14, 50
_MARKS = {Kind.KILLED: ("✗", "red"), Kind.RECOVERED: ("↻", "yellow"), Kind.ENDED: ("✓", "green")}


@dataclass(frozen=True)
class _Column:
    """Numbers beside the bars; ``style`` for those above 0."""

    title: str
    number: Callable[[Count], int]
    style: str

    def cell(self, count: Count) -> Text:
        number = self.number(count)
        return Text(f"{number:,}", style=self.style if number else "dim")


_COLUMNS = (
    _Column("visible", lambda count: count.visible, "bold"),
    _Column("  twice", lambda count: count.again, "bold red"),
    _Column("rewritten", lambda count: count.rewritten, "yellow"),
)


class Show:
    """Lines that stay, and on a terminal a live table below them while the jobs run."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self._live: Live | None = None
        self._sides: Sequence[Side] = ()
        self._expected = 0
        self._drawn = 0.0

    def line(self, text: str | Text) -> None:
        """A line that stays; whole where it does not go to a terminal."""
        self.console.print(text, soft_wrap=not self.console.is_terminal)

    def event(self, event: JobEvent, kills: int) -> None:
        """A kill or a recovery, as it happens."""
        mark, style = _MARKS[event.kind]
        what = {
            Kind.KILLED: f"kill {event.kill} of {kills}",
            Kind.RECOVERED: f"back in {event.took_s:.1f} s",
            Kind.ENDED: "done",
        }[event.kind]
        head = f"{_clock(event.at_s)}  {event.sink:<{_SINK_WIDTH}}  "
        self.line(Text.assemble((head, "dim"), (f"{mark} {what:<14}", style), f"  {event.text}"))

    @contextmanager
    def live(self, sides: Sequence[Side], expected: int) -> Iterator[None]:
        """The sides, drawn by ``refresh`` meanwhile and left as they are at the end. ``expected``: rows of each."""
        self._sides, self._expected = sides, expected
        if not self.console.is_terminal:
            yield
            return
        with Live(console=self.console, auto_refresh=False) as self._live:
            try:
                yield
            finally:
                self.refresh(force=True)
                self._live = None

    def refresh(self, *, force: bool = False) -> None:
        """Draw again, unless that was done just now."""
        if self._live and (force or time.monotonic() - self._drawn > _REFRESH_S):
            self._live.update(both(self._sides, self._expected, self.console.width), refresh=True)
            self._drawn = time.monotonic()


def both(sides: Sequence[Side], expected: int, width: int) -> RenderableType:
    """The sides beside one another; ``width`` is the terminal's, in columns."""
    grid = Table.grid(expand=True)
    for _ in sides:
        grid.add_column(ratio=1)
    grid.add_row(*(panel(side, expected, width // len(sides)) for side in sides))
    return Group(grid, legend())


def panel(side: Side, expected: int, width: int) -> Panel:
    """The bars of a side's output partitions. ``expected``: rows that it must write; ``width`` in columns."""
    counts, total = side.watch.counts, side.watch.total
    # As if keys were spread evenly, with some room: a scale that seldom has to change.
    scale = max(1.3 * expected / max(1, len(counts)), *(_written(count) for count in counts.values()))
    columns = _COLUMNS if width >= _WIDE else _COLUMNS[:1]
    rows = Table.grid(padding=(0, 1, 0, 0))
    for _ in range(2):
        rows.add_column(no_wrap=True)
    for _ in columns:
        rows.add_column(justify="right", no_wrap=True)
    space = width - _REST - sum(len(column.title) + 1 for column in columns)
    rows.add_row("", " " * space, *(Text(column.title, style="dim") for column in columns))
    for (topic, partition), count in sorted(counts.items()):
        name = f"{topic.removeprefix(side.job.topic_prefix).removeprefix('delays-')} {partition}"
        rows.add_row(name, bar(count, scale, space), *(column.cell(count) for column in columns))
    rows.add_row("all", Text(f"of {expected:,}", style="dim"), *(column.cell(total) for column in columns))
    return Panel(Group(rows, _state(side)), title=_TITLES[side.sink], title_align="left", border_style=_LOOK[side.sink])


def _state(side: Side) -> Text:
    style = "green" if side.ended else "red" if side.down else "cyan"
    return Text.assemble((side.state, style), (f" · {side.kills} of {len(side.strikes)} kills", "dim"))


def bar(count: Count, scale: float, width: int) -> Text:
    """The rows of a partition, ``scale`` of them to the whole width."""
    text = Text()
    done = drawn = 0.0
    for name, (glyph, style) in _SEGMENTS.items():
        done += getattr(count, name)
        cells = round(done / scale * width) - round(drawn / scale * width)
        # What is there is seen, however little.
        text.append(glyph * max(cells, 1 if getattr(count, name) else 0), style)
        drawn = done
    text.truncate(width)
    return text


def legend() -> Text:
    meanings = {"once": "visible", "again": "visible twice", "rewritten": "aborted, never visible", "waiting": "open"}
    pairs = [part for name, word in meanings.items() for part in (_SEGMENTS[name], f" {word}   ")]
    return Text.assemble("  ", *pairs)


def _written(count: Count) -> int:
    return count.visible + count.rewritten + count.waiting


def _clock(time_s: float) -> str:
    return f"{int(time_s) // 60}:{int(time_s) % 60:02}"


def table(loaded: Loaded, found: Mapping[str, OutputFindings], kills: int) -> Table:
    """The result, for people: a column for each sink."""
    result = Table("rows", *(Column(sink, justify="right") for sink in found), "")
    judged = [findings.judgement for findings in found.values()]

    def add(name: str, values: Iterable[str], meaning: str) -> None:
        result.add_row(name, *values, meaning)

    aborted = f"and {loaded.aborted_rows:,} aborted ones, which nobody may see"
    add("in", (f"{f.rows_in:,}" for f in found.values()), aborted)
    add("expected", (f"{f.expected:,}" for f in found.values()), "delayed flights, as pandas finds them")
    add("out", (f"{j.visible:,}" for j in judged), "as a read_committed consumer sees them")
    add("lost", (_count(j.lost) for j in judged), "expected and not there")
    add("duplicated", (_count(j.doubled) for j in judged), "there more than once")
    add("out of order", (_count(j.out_of_order) for j in judged), "behind a later row of the same partition")
    add("aborted visible", (_count(j.aborted_visible) for j in judged), "of a transaction that was aborted")
    add("wrong", (_count(j.wrong) for j in judged), "not as expected, or not expected at all")
    add("rewritten", (f"{f.rewritten:,}" for f in found.values()), "aborted after a kill, never visible, written again")
    result.add_section()
    add("kills survived", (f"{kills:,}" for _ in found), "SIGKILL to the driver and its JVM")
    add("partitions held", (_count(f.held) for f in found.values()), "where an open transaction keeps readers back")
    add("group offsets", (_group(f.group_ok) for f in found.values()), "the consumer group, at the end of the input")
    return result


def _count(number: int) -> str:
    return f"[red]{number:,}[/]" if number else "[green]0[/]"


def _group(ok: bool | None) -> str:
    return {None: "none", True: "[green]ok[/]", False: "[red]WRONG[/]"}[ok]
