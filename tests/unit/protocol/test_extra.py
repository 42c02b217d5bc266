"""What decisions carry for a feature: who may go on from it, and how much it may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from spark_eos.errors import Diverged, EosError, LedgerError, stop
from spark_eos.protocol.commit import _next_decision
from spark_eos.protocol.extra import Kind, Reported
from spark_eos.protocol.head import Decision, Extra, Head, Pair, Probe, Verdict, Written
from spark_eos.protocol.task import MicroBatch, TaskReport, Work

HEAD = Head("r", 3, (), 5)


class Counted(Kind):
    """Counts decisions, and compares nothing but a word."""

    name = "a count"
    lasting = True

    def __init__(self, word: bytes = b"") -> None:
        self.word = word

    def body(self, before: bytes | None, reports: Sequence[Reported]) -> bytes:
        return (before or b"") + b"I" + self.word

    def compare(self, last: Decision, reports: Sequence[Reported]) -> None:
        if last.extra is None or self.word not in last.extra.body:
            raise stop("EOS_REPLAY_DIVERGED.ranges", differences="the word", batch=last.batch, instead_of_replay="")


class OfOne(Counted):
    """Belongs to one micro-batch."""

    name = "a word"
    lasting = False


def batch(number: int, kind: Kind | None, *reports: TaskReport) -> MicroBatch:
    return MicroBatch("r", number, reports or (TaskReport(Work.WRITE, 0, 0, 0),), kind=kind)


def decided(kind: Kind | None, head: Head = HEAD) -> Head:
    number = 0 if head.decision is None else head.decision.batch + 1
    return replace(head, decision=_next_decision(None, batch(number, kind), head, None))


def written(partition: int, extra: bytes, verdict: Verdict | None = None) -> Written:
    return Written(partition, Pair("p", partition, 0), 1, 1, Probe("t", 0, 0), verdict, extra=extra)


def test_each_decision_goes_on_from_the_extra_of_the_last_one():
    """As long as that is of the same kind; one that belongs to its micro-batch alone ends with it."""
    third = decided(Counted(), decided(Counted(), decided(Counted())))
    assert third.decision is not None and third.decision.extra == Extra("a count", b"III", lasting=True)
    assert decided(OfOne(), decided(None)).decision.extra == Extra("a word", b"I")
    assert decided(None, decided(OfOne())).decision.extra is None
    assert decided(Counted(), decided(OfOne())).decision.extra == Extra("a count", b"I", lasting=True)


@pytest.mark.parametrize("kind", [None, OfOne()])
def test_an_extra_that_each_decision_must_have_is_never_left_out(kind: Kind | None):
    """A run that does not know its kind stops, by name, before anything is decided."""
    with pytest.raises(LedgerError, match=rf"a count.*query of {'rows through Spark' if kind is None else 'a word'}"):
        decided(kind, decided(Counted()))


@pytest.mark.parametrize(
    ("was", "now", "named"),
    [
        (Counted(), None, "decided a count, now rows through Spark"),
        (None, OfOne(), "decided rows through Spark, now a word"),
        (Counted(), OfOne(), "decided a count, now a word"),
        (Counted(b"a"), Counted(b"b"), "the word"),
    ],
)
def test_a_replay_is_compared_by_the_kind_of_its_extra(was: Kind | None, now: Kind | None, named: str):
    """And with a decision of another kind it has nothing in common."""
    head = decided(was)
    with pytest.raises(Diverged, match=named):
        _next_decision(None, batch(0, now), head, None)
    assert _next_decision(None, batch(0, was), head, None) == head.decision


def test_a_repair_keeps_the_extra_and_those_of_other_transactions():
    """What was lost comes with its own."""
    last = Decision(
        0,
        0,
        2,
        2,
        2,
        None,
        (written(0, b"a", Verdict.COMMITTED), written(1, b"b", Verdict.LOST)),
        extra=Extra("k", b"x"),
    )
    again = replace(TaskReport(Work.REPAIR, 1, 1, 1), written=replace(written(1, b"c"), pair=Pair("q", 7, 0)))
    count = replace(TaskReport(Work.COUNT, 0, 1, 1))
    counted = type("K", (OfOne,), {"name": "k"})()
    repaired = _next_decision(None, batch(0, counted, count, again), replace(HEAD, decision=last), None)
    assert (repaired.rev, repaired.extra, [w.extra for w in repaired.written]) == (1, last.extra, [b"a", b"c"])


def test_tasks_of_another_version_report_another_kind():
    """Which nobody may leave out."""
    one = replace(TaskReport(Work.WRITE, 0, 0, 0), extra=Extra("later", b""))
    for kind in (None, OfOne()):
        with pytest.raises(EosError, match=r"EOS_MIXED_VERSIONS.*later"):
            _next_decision(None, batch(0, kind, one), HEAD, None)


def test_an_extra_has_a_limit_with_those_of_its_transactions():
    """Nothing is decided that no record of the ledger would hold."""
    most = 4 << 20
    report = TaskReport(Work.WRITE, 0, 1, 1, written(0, b"x" * (most - 1)))
    assert _next_decision(None, batch(0, OfOne(), report), HEAD, None).extra == Extra("a word", b"I")
    with pytest.raises(
        LedgerError, match=f"EOS_LEDGER_NOT_WRITABLE.*{most + 1:,} bytes of a word, and may have {most:,}"
    ):
        _next_decision(None, batch(0, OfOne(b"!"), report), HEAD, None)
