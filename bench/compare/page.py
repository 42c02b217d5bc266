"""docs/compare.md: the results as tables, beside what they mean."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from bench.compare.cell import Cell
from bench.compare.contenders import CONTENDERS, Contender
from bench.compare.faults import FAULTS, Fault

#: Runs of each system and fault, and of one whose first runs differ: it depends on chance.
SEEDS, OF_CHANCE = 3, 10
_HEAD = """\
# Under the same faults

What becomes of rows when processes and brokers die, for several systems that copy a topic to another one on a cluster
of three brokers. All get the same input, and the same faults at moments drawn from the same seed. One plain
`read_committed` consumer judges them. A program that ends by itself is started again at once, up to three times.

    make compare                              # what has no result yet, seed by seed
    make compare ARGS="--only flink/zombie/2 --again"   # one cell once more

The results are in [compare.json](compare.json): {count} runs, {seeds} of each system and fault, and {chance} where the
first ones differ: fewer are not shown, as they depend on chance.

## Rows

In how many runs rows were lost, doubled, or aborted and yet visible, and the most in one run. *Lost*: a later row of
the same partition is visible, and this one did not come within {longest:.0f} s, nor after a restart. *Missing*: it
may be written yet. *With an error*: the program has ended by one, and went on when it was started again. *Stopped*:
it failed after every restart. *Stood still*: alone on the machine, it kept running but did not write the last rows.
{strange}

![A square for each system and fault](compare.png)

"""
_STRANGE = "*Strange*, in the {} newest runs: rows that nobody has written, or with another key."
_MEANING = """\
- *Believed dead*: the process is stopped (SIGSTOP), a second one is started in its place, and the first one goes on.
  Nothing elects one of them, as
  [high availability](https://nightlies.apache.org/flink/flink-docs-stable/docs/deployment/ha/overview/) of Flink would.
- *Stopped*: {short:.0f} s, with transactions that live for {live:.0f} s in all systems.
- *Unclean election*: a broker without the newest rows becomes the leader, and Kafka itself loses rows that it has
  acknowledged. What differs is whether a system notices.
- *Fences*: Flink's sink logs that its transaction's producer is fenced, which it calls a likely loss, and goes on.
- *Order*: {order}.

"""
_RECOVERY = """\
## Until the next row

Seconds from the end of the fault until a row is visible that was written after it: median, and the longest, with the
start of the program after a kill. *Not timed*: something else ran meanwhile.

"""
_SETTINGS = """\
## Settings

Each has the settings that its own documentation asks for exactly-once, and no others but the brokers' address.

| | documentation | says of losses and doubles |
| --- | --- | --- |
"""


_KAFKA_SAYS = """
Kafka says of [unclean.leader.election.enable](https://kafka.apache.org/documentation/#topicconfigs_unclean.leader.election.enable)
that it may lose data, and leaves it off by default.
"""


def page(cells: Mapping[tuple[str, str, int], Cell]) -> str:
    """The page, of the cells by their keys."""
    from bench.compare.faults import SHORT_MS, STOPPED_S
    from bench.compare.scene import LONGEST_S

    own = list(cells.values())
    looked = sum(cell.verdict.strange is not None for cell in own)
    parts = [
        _HEAD.format(count=len(own), seeds=SEEDS, chance=OF_CHANCE, longest=LONGEST_S, strange=_STRANGE.format(looked)),
        _table(own, rows),
        "\n" + _MEANING.format(short=STOPPED_S, live=SHORT_MS / 1000, order=_order(own)),
        _RECOVERY,
        _table(own, goes_on),
        "\n" + _SETTINGS,
        *(f"| {one.label} | [{_title(one.advice)}]({one.advice}) | {one.admits} |\n" for one in CONTENDERS),
        _KAFKA_SAYS,
    ]
    return "".join(parts)


def _title(link: str) -> str:
    """The last part of a page's address."""
    return link.rstrip("/").rpartition("/")[2]


def _table(cells: Sequence[Cell], text: Callable[[Sequence[Cell]], str]) -> str:
    lines = ["| | " + " | ".join(fault.label for fault in FAULTS) + " |\n", "| --- " * (len(FAULTS) + 1) + "|\n"]
    for contender in CONTENDERS:
        row = [square(cells, contender, fault, text) for fault in FAULTS]
        lines.append(f"| {contender.label} | " + " | ".join(row) + " |\n")
    return "".join(lines)


def square(cells: Iterable[Cell], contender: Contender, fault: Fault, text: Callable[[Sequence[Cell]], str]) -> str:
    """What a table says of a system and a fault: the ``text`` of its cells, if there are any."""
    if not fault.strikes(contender):
        return "has no transactions"
    own = cells_of(cells, contender, fault)
    if is_open(own):
        return f"runs differ ({len(own)} of {OF_CHANCE})"
    return text(own) if own else "not run"


def is_open(cells: Sequence[Cell]) -> bool:
    """Whether the outcome depends on chance, and there are too few runs to tell of it."""
    return len(cells) < OF_CHANCE and depends_on_chance(cells)


def cells_of(cells: Iterable[Cell], contender: Contender, fault: Fault) -> list[Cell]:
    """Those of each seed that has been run."""
    return [cell for cell in cells if (cell.contender, cell.fault) == (contender.name, fault.name)]


def rows(cells: Sequence[Cell]) -> str:
    """In how many runs which kinds of faults were seen."""
    found = [text for kind in _KINDS if (text := _in_runs(cells, kind))]
    return "; ".join(found) if found else "clean"


def depends_on_chance(cells: Sequence[Cell]) -> bool:
    """Whether some runs have shown a kind of fault, and others have not."""
    return any(len({bool(count(cell)) for cell in cells}) > 1 for count in _KINDS.values())


#: Kinds of faults, and how much of each a run has shown. Of the last two, once is all there is.
_KINDS: dict[str, Callable[[Cell], int]] = {
    "lost": lambda cell: cell.verdict.lost if not cell.errors else 0,
    "lost with an error": lambda cell: cell.verdict.lost if cell.errors else 0,
    "doubled": lambda cell: cell.verdict.doubled,
    "aborted": lambda cell: cell.verdict.aborted,
    "strange": lambda cell: cell.verdict.strange or 0,
    "missing": lambda cell: cell.verdict.missing,
    "stopped": lambda cell: cell.stopped,
    "stood still": lambda cell: cell.stuck,
}


def _in_runs(cells: Sequence[Cell], kind: str) -> str:
    counts = [count for cell in cells if (count := _KINDS[kind](cell))]
    if not counts:
        return ""
    most = "" if kind in ("stopped", "stood still") else f", up to {max(counts):,}"
    return f"{kind} in {len(counts)} of {len(cells)}{most}"


def _order(cells: Sequence[Cell]) -> str:
    """Name each system, with the number of its rows that came behind a later one of their input partition."""
    by_label = {
        one.label: sum(cell.verdict.reordered for cell in cells if cell.contender == one.name) for one in CONTENDERS
    }
    counts = ", ".join(f"{label} {count:,}" for label, count in by_label.items() if count)
    return f"rows behind a later one of their input partition: {counts or 'none, in any run'}"


def goes_on(cells: Sequence[Cell]) -> str:
    """Seconds until the next row: median, and the longest; and after how many strikes none came."""
    timed = [seconds for cell in cells if cell.is_timed for seconds in cell.recoveries]
    times = [seconds for seconds in timed if seconds is not None]
    if not timed:
        return "not timed"
    never = f"{timed.count(None)} × never" if None in timed else ""
    shown = f"{statistics.median(times):.1f}, {max(times):.1f}" if times else ""
    return ", ".join(filter(None, (shown, never)))
