"""The judge of recorded histories: a clean one passes, and each anomaly that is planted in it is found, alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.judges.histories import (
    ABORTED,
    AHEAD,
    BACK,
    DOUBLED,
    GONE,
    HALVES,
    KINDS,
    SKIPPED,
    GroupPoll,
    History,
    Place,
    Poll,
    Reading,
    Seen,
    judge,
)

IN: Place = ("in", 0)
OUT: list[Place] = [("out", 0), ("also", 0)]
BATCHES, ROWS = 5, 4
#: Of the output: each micro-batch's rows in one transaction, then its marker; after micro-batch 1 an aborted row and
#: its marker.
LOG = [(b * (ROWS + 1) + (2 if b > 1 else 0) + i, f"{b}.{i}".encode()) for b in range(BATCHES) for i in range(ROWS)]
ABORTED_AT = 2 * (ROWS + 1)
END = LOG[-1][0] + 2
PART_3 = [offset for offset, value in LOG if value.startswith(b"3.")]


def rows(end: int, committed: bool = True, start: int = 0) -> list[Seen]:
    """What both topics have from one offset up to another."""
    log = LOG if committed else sorted([*LOG, (ABORTED_AT, b"1.x")])
    return [Seen(*place, offset, value) for place in OUT for offset, value in log if start <= offset < end]


def reading(name: str, since: float, end: int, committed: bool = True, start: int = 0) -> Reading:
    """From one offset to another in one poll, which ends half a second after it began."""
    poll = Poll(since + 0.5, rows(end, committed, start), dict.fromkeys(OUT, end))
    return Reading(name, committed, since, dict.fromkeys(OUT, start), [poll])


def end_of(batch: int) -> int:
    """Behind the marker of a micro-batch."""
    return max(offset for offset, value in LOG if value.startswith(b"%d." % batch)) + 2


def clean() -> History:
    """Five micro-batches, the group's offsets of which are seen at the seconds 1 to 5; passes follow by 0.2 s."""
    tail = Reading(
        "tail",
        True,
        0.0,
        dict.fromkeys(OUT, 0),
        [
            Poll(b + 1.1, rows(end_of(b), start=end_of(b - 1) if b else 0), dict.fromkeys(OUT, end_of(b)))
            for b in range(BATCHES)
        ],
    )
    passes = [reading(f"pass {b}", b + 1.2, end_of(b), level) for b in range(BATCHES) for level in (True, False)]
    return History(
        readings=[tail, *passes],
        group=[GroupPoll(b + 1.0, {IN: (b + 1) * ROWS}) for b in range(BATCHES)],
        closing={level: reading("closing", 10.0, END, level) for level in (True, False)},
        inputs={value: (IN, n) for n, (_, value) in enumerate(LOG)},
        plans={b: {IN: (b + 1) * ROWS} for b in range(BATCHES)},
    )


def with_reading(*more: Reading) -> History:
    history = clean()
    return replace(history, readings=[*history.readings, *more])


def without(read: Reading, place: Place, *offsets: int) -> Reading:
    """The reading, which has not seen these offsets."""
    (poll,) = read.polls
    kept = [row for row in poll.rows if row.place != place or row.offset not in offsets]
    return replace(read, polls=[replace(poll, rows=kept)])


def plus(read: Reading, *more: Seen) -> Reading:
    """The reading, which has seen these, too, each in its place."""
    (poll,) = read.polls
    return replace(read, polls=[replace(poll, rows=sorted([*poll.rows, *more]))])


def skipped() -> History:
    """Nobody has seen the row before; it appears where this reader was already."""
    history = clean()
    first = [r for r in history.readings if r.committed and r.name != "tail"][:3]
    odd = without(reading("odd", 4.0, end_of(3)), OUT[0], PART_3[2])
    return replace(history, readings=[*first, odd])


def went_back() -> History:
    """A reader that goes on gets rows once more."""
    tail = clean().readings[0]
    return with_reading(replace(tail, polls=[*tail.polls, Poll(6.0, rows(end_of(4), start=end_of(3)))]))


def doubled() -> History:
    """One input row at two offsets of a topic, both there for good. To write it twice is to have it for good."""
    history = clean()
    twice = Seen(*OUT[1], END, b"3.0")
    closing = {level: plus(read, twice) for level, read in history.closing.items()}
    return replace(history, closing=closing)


def halves() -> History:
    """For a moment the stable end was in the middle of what one task wrote to one partition."""
    middle = PART_3[2]
    return with_reading(reading("odd", 4.05, middle))


PLANTED: dict[str, Callable[[], History]] = {
    ABORTED: lambda: with_reading(plus(reading("odd", 6.0, END), Seen(*OUT[0], ABORTED_AT, b"1.x"))),
    # Seen in the log, which later has nothing there.
    GONE: lambda: with_reading(plus(reading("odd", 6.0, END + 2, False), Seen(*OUT[1], END, b"5.0"))),
    SKIPPED: skipped,
    BACK: went_back,
    DOUBLED: doubled,
    HALVES: halves,
    # The group was past micro-batch 4, and micro-batch 2 was not visible.
    AHEAD: lambda: with_reading(reading("odd", 6.0, end_of(1))),
}


def test_a_clean_history_has_no_anomaly():
    """With an aborted transaction, readers that go on, and passes that began while rows were still to come."""
    assert judge(clean()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_anomaly_that_is_planted_is_found(kind):
    """Under its name, and under no other."""
    assert {anomaly.kind for anomaly in judge(PLANTED[kind]())} == {kind}
