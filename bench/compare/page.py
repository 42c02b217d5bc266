"""docs/compare.md: the results as tables, beside what they mean."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from bench.compare.cell import Cell
from bench.compare.contenders import CONTENDERS, Contender
from bench.compare.faults import FAULTS, Fault

#: That are wanted of each cell.
SEEDS = 3
_HEAD = """\
# Under the same faults

What becomes of rows when processes and brokers die, for several systems that copy a topic to another one on a cluster
of three brokers. Each cell has the same input, the same faults at moments that are drawn from the same seed, and is
judged by one plain `read_committed` consumer that none of the systems has a part in. A program that ends by itself is
started again at once, up to three times, as by a supervisor.

    make compare                              # what has no result yet, seed by seed
    make compare ARGS="--only flink/zombie/2 --again"   # one cell once more

The results are in [compare.json](compare.json): {count} cells of {all}, which are {seeds} seeds of each system and
fault. A cell without a result says so. A fault comes at the moment that its column names, or the cell is run again.

## Rows

Of all seeds together: rows that are lost, doubled, or aborted and yet visible; "clean" where there are none. *Lost*: a
later row of the same partition is visible, and this one did not come within {longest:.0f} s, nor after a restart. *With
an error*: the program has ended by one, and went on when it was started again. *n* × stopped: in so many runs, it
failed after every restart and was given up. *n* × stood still: alone on the machine, it kept running but did not write
the last rows; a restart did not always help. What was not written in the end is *missing*, not lost: it may be written
yet.
{strange}

![A square for each system and fault](compare.png)

"""
_STRANGE = "*Strange*, in the {} newest cells: rows that nobody has written, or with another key."
_MEANING = """\
*Believed dead* is a process that is stopped (SIGSTOP); a second one is started in its place, with the same settings,
and the first one then goes on. Nothing elects one of them: there is no ZooKeeper or Kubernetes, by which Flink's
[high availability](https://nightlies.apache.org/flink/flink-docs-stable/docs/deployment/ha/overview/) has one manager
of a job at a time. *Stopped* is {short:.0f} s with transactions that live for {live:.0f} s: all systems
have that setting there, and their own elsewhere. In an *unclean election*, a broker without the newest rows
becomes the leader of a partition with two replicas: Kafka itself loses rows that it has acknowledged, whoever has
written them. What differs is whether a system notices.

## Order

Rows that come behind a later one of their input partition, within a partition of the output.

"""
_RECOVERY = """\
## Until the next row

From the end of the fault until a row is visible that was written after it: median, and the longest. After a kill, the
start of the program is part of it. Two cores run the brokers, too. *Not timed*: something else ran meanwhile.

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
    wanted = SEEDS * sum(fault.strikes(one) for one in CONTENDERS for fault in FAULTS)
    looked = sum(cell.verdict.strange is not None for cell in own)
    parts = [
        _HEAD.format(count=len(own), all=wanted, seeds=SEEDS, longest=LONGEST_S, strange=_STRANGE.format(looked)),
        _table(own, rows),
        "\n" + _MEANING.format(short=STOPPED_S, live=SHORT_MS / 1000),
        _table(own, _order),
        "\n" + _RECOVERY,
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
    return text(own) if own else "not run"


def cells_of(cells: Iterable[Cell], contender: Contender, fault: Fault) -> list[Cell]:
    """Those of each seed that has been run."""
    return [cell for cell in cells if (cell.contender, cell.fault) == (contender.name, fault.name)]


def rows(cells: Sequence[Cell]) -> str:
    """What became of the rows, of all seeds together."""
    stopped = sum(cell.stopped for cell in cells)
    lost = [cell for cell in cells if cell.verdict.lost]
    counts = {
        "lost": sum(cell.verdict.lost for cell in lost if not cell.errors),
        "lost with an error": sum(cell.verdict.lost for cell in lost if cell.errors),
        "doubled": sum(cell.verdict.doubled for cell in cells),
        "aborted": sum(cell.verdict.aborted for cell in cells),
        "strange": sum(cell.verdict.strange or 0 for cell in cells),
    }
    found = [f"{count:,} {name}" for name, count in counts.items() if count]
    stuck = sum(cell.stuck for cell in cells)
    missing = sum(cell.verdict.missing for cell in cells)
    stops = [f"{count} × {what}" for count, what in ((stopped, "stopped"), (stuck, "stood still")) if count]
    if missing:
        stops.append(f"{missing:,} missing")
    return ", ".join([*(found or ([] if missing else ["clean"])), *stops])


def _order(cells: Sequence[Cell]) -> str:
    return f"{sum(cell.verdict.reordered for cell in cells):,}"


def goes_on(cells: Sequence[Cell]) -> str:
    """Seconds until the next row: median, and the longest; and after how many strikes none came."""
    timed = [seconds for cell in cells if cell.is_timed for seconds in cell.recoveries]
    times = [seconds for seconds in timed if seconds is not None]
    if not timed:
        return "not timed"
    never = f"{timed.count(None)} × never" if None in timed else ""
    shown = f"{statistics.median(times):.1f} s, {max(times):.1f} s" if times else ""
    return ", ".join(filter(None, (shown, never)))
