"""Ranges of offsets, which take the place of Spark's rows: how a decision stores them, how a replay is compared with
it, and which ranges are read again.

A replay is equal if it has the same cluster, topics, transform and offsets, however these are dealt to tasks; with no
transaction lost, nothing is fetched. Rows of lost transactions are read again by the decision's ranges, not by Spark's.
They are the same if their number is, and their digest, which includes the offset of each row in the source.

The decision's extra has the ranges of tasks that wrote nothing; all others are stored with their transactions, as JSON
by topic. A range is followed by the texts that a transform has noted of it, such as unknown schema ids
(`spark_eos.pipelines.copy.plan.ByRange`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import EosError, stop
from spark_eos.pipelines.registry.unknown_ids import check_unknown
from spark_eos.spi import Decision, Digest, Kind, Reported, TaskReport, Written

_MOST_RANGES = 3


@dataclass(frozen=True)
class CopiedFrom:
    """Source of rows, and the transform that has made them.

    ``cluster`` is the source's id, ``topics`` are (name, id) of each topic, sorted. ``transform`` is the name of the
    function that rows went through, None where they were copied. ``ranges``: of a task, the ranges that Spark gave to
    it; of a decision, the ranges of tasks that wrote nothing, as all others are stored with their transactions.
    """

    cluster: str
    topics: tuple[tuple[str, str], ...]
    transform: str | None
    ranges: tuple[OffsetRange, ...] = ()

    @property
    def digest_by(self) -> Digest:
        """How rows of a new micro-batch are digested."""
        return Digest.BATCHES if self.transform is None else Digest.CHUNKS


def joined(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Join ranges where one begins at the end of another; sorted. No offset may be in two of them."""
    result: list[OffsetRange] = []
    for r in sorted(ranges):
        last = result[-1] if result else None
        if last is not None and (last.topic, last.partition, last.end) == (r.topic, r.partition, r.start):
            result[-1] = replace(r, start=last.start, first_epoch=last.first_epoch)
        else:
            result.append(r)
    return tuple(result)


# Ranges in reports of tasks, and in decisions


#: Texts that a decision keeps with a range, such as unknown schema ids.
Noted = Mapping[OffsetRange, tuple[str, ...]]


def reported(
    report: TaskReport, given: CopiedFrom, ranges: Iterable[OffsetRange] = (), noted: Noted | None = None
) -> TaskReport:
    """Add ranges to a task's report: ``given`` by Spark, and ``ranges`` that it has read for the rows that it wrote."""
    written = report.written
    if written is not None:
        written = replace(written, extra=read_from(ranges, noted or {}))
    return replace(report, extra=RANGES.extra(to_bytes(given)), written=written)


def read_from(ranges: Iterable[OffsetRange], noted: Noted) -> bytes:
    """Return the extra of a transaction whose rows were read from these ranges. The inverse of `noted_of`."""
    return _as_bytes(_by_topic(ranges, noted))


def copied_by(decision: Decision | None) -> CopiedFrom | None:
    """Return the source that a decision notes; None where rows came through Spark. Raises LedgerError for a decision by
    another version of spark-eos."""
    extra = None if decision is None else decision.extra
    return None if extra is None or extra.kind != CopiedRanges.name else _from_bytes(extra.body)


def ranges_of(written: Written) -> tuple[OffsetRange, ...]:
    """Return the ranges that a transaction's rows were read from. Raises LedgerError."""
    return tuple(noted_of(written))


def noted_of(written: Written) -> dict[OffsetRange, tuple[str, ...]]:
    """Return the texts that are kept with each range of a transaction's rows. Raises LedgerError."""
    try:
        return dict(_ranges_in(json.loads(written.extra or b"{}")))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CopiedRanges.unreadable(error) from None


def to_bytes(copied: CopiedFrom) -> bytes:
    """Return the extra of a decision, which `copied_by` parses."""
    fields = {"cluster": copied.cluster, "topics": copied.topics, "transform": copied.transform}
    return _as_bytes({**fields, "ranges": _by_topic(copied.ranges, {})})


def _from_bytes(body: bytes) -> CopiedFrom:
    try:
        fields = json.loads(body)
        topics = tuple((str(name), str(id_)) for name, id_ in fields.pop("topics"))
        ranges = tuple(range_ for range_, _ in _ranges_in(fields.pop("ranges")))
        return CopiedFrom(topics=topics, ranges=ranges, **fields)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CopiedRanges.unreadable(error) from None


def _by_topic(ranges: Iterable[OffsetRange], noted: Noted) -> dict[str, list[list[Any]]]:
    rows: dict[str, list[list[Any]]] = {}
    for r in ranges:
        texts = noted.get(r)
        rows.setdefault(r.topic, []).append(
            [r.partition, r.start, r.end, r.last_epoch, *([list(texts)] if texts else [])]
        )
    return rows


def _ranges_in(by_topic: Mapping[str, list[list[Any]]]) -> Iterator[tuple[OffsetRange, tuple[str, ...]]]:
    """Parse ranges and their notes. Raises ValueError for anything else."""
    for topic, rows in by_topic.items():
        for partition, start, end, epoch, *behind in rows:
            (texts,) = behind or ((),)
            yield OffsetRange(topic, partition, start, end, last_epoch=epoch, most_epoch=epoch), tuple(texts)


def _as_bytes(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


# The kind


class CopiedRanges(Kind):
    """See `Kind`."""

    name = "ranges of offsets"
    is_read = True

    def body(self, before: bytes | None, reports: Sequence[Reported]) -> bytes:
        """Return where rows come from, and the ranges of tasks that wrote nothing. Raises RegistryError where there are
        more notes than a decision may have."""
        written = [report.written for report in reports if report.written is not None]
        check_unknown(sum(len(texts) for w in written for texts in noted_of(w).values()))
        given = list(map(_given, reports))
        rest = [r for report, one in zip(reports, given, strict=True) if report.written is None for r in one.ranges]
        return to_bytes(_union(given, rest))

    def compare(self, last: Decision, reports: Sequence[Reported]) -> None:
        """See `Kind.compare`."""
        given = list(map(_given, reports))
        unlike = differences(last, _union(given, (r for one in given for r in one.ranges)))
        if unlike:
            raise self.diverged(last, unlike)

    def not_repaired(self, last: Decision, rows: int) -> EosError:
        """Return the error for lost rows that cannot be written again: the source does not have it any more as it
        was."""
        lost = last.lost
        return stop(
            "EOS_REPAIR_SOURCE_CHANGED",
            batch=last.batch,
            lost=len(lost),
            transactions=len(last.written),
            lost_rows=sum(w.rows for w in lost),
            ranges=_listed(joined(r for w in lost for r in ranges_of(w)), ()),
            rows=rows,
        )

    def described(self, reports: Sequence[Reported]) -> str:
        """See `Kind.described`. Joined ranges are counted, however they were dealt to tasks: each starts where no other
        range ends."""
        starts: set[tuple[str, int, int]] = set()
        ends: set[tuple[str, int, int]] = set()
        for report in reports:
            assert report.extra is not None, report
            for topic, rows in json.loads(report.extra.body)["ranges"].items():
                starts |= {(topic, partition, start) for partition, start, *_ in rows}
                ends |= {(topic, partition, end) for partition, _, end, *_ in rows}
        return f"bytes={sum(report.bytes for report in reports)} ranges={len(starts - ends)}"


RANGES = CopiedRanges()


def _given(report: Reported) -> CopiedFrom:
    assert report.extra is not None, report
    return _from_bytes(report.extra.body)


def _union(given: Sequence[CopiedFrom], ranges: Iterable[OffsetRange]) -> CopiedFrom:
    """Return the source of all tasks of a micro-batch, with these ranges. The tasks were ``given`` different ranges and
    topics, but all else is the same."""
    topics = tuple(sorted({pair for one in given for pair in one.topics}))
    return replace(given[0], topics=topics, ranges=joined(ranges))


# Replays


def ranges_to_read(
    last: Decision | None, batch: int, partition: int, tasks: int, given: CopiedFrom
) -> tuple[OffsetRange, ...]:
    """Return the ranges that one of a micro-batch's ``tasks`` reads: ``given`` ones by Spark's plan, or its share of
    the lost transactions where the micro-batch is decided already, by the ``last`` decision.

    Each of these transactions has its ranges, so any number of tasks can share them. Raises Diverged
    (EOS_REPLAY_DIVERGED) before anything is written that differs from the decision.
    """
    if last is None or last.batch != batch:
        return given.ranges
    unlike = list(_sources_differ(last, given))
    if unlike:
        raise CopiedRanges.diverged(last, unlike)
    # A partition's rows, in order.
    return tuple(sorted(r for w in last.lost[partition::tasks] for r in ranges_of(w)))


def differences(last: Decision, now: CopiedFrom) -> list[str]:
    """Describe how a replay differs from the decision; empty where they are equal."""
    unlike = list(_sources_differ(last, now))
    copied = copied_by(last)
    if unlike or copied is None:
        return unlike
    if copied.topics != now.topics:
        unlike.append(f"topics and their ids: decided {_named_topics(copied)}, now {_named_topics(now)}")
    decided = joined([*copied.ranges, *(r for w in last.written for r in ranges_of(w))])
    current = joined(now.ranges)
    unlike += _other_logs(decided, current)
    if decided != current:
        unlike.append(f"ranges: decided {_listed(decided, current)}, now {_listed(current, decided)}")
    return unlike


def _sources_differ(decided: Decision, now: CopiedFrom) -> Iterator[str]:
    """Name differences of kind, cluster and transform, which no ranges can make good."""
    copied = copied_by(decided)
    if copied is None:
        yield from CopiedRanges.differs_from(decided)
        return
    if copied.cluster != now.cluster:
        yield f"the source's cluster: decided {copied.cluster}, now {now.cluster}"
    if copied.transform != now.transform:
        yield f"the transform: decided {copied.transform or 'none'}, now {now.transform or 'none'}"


def _other_logs(decided: Iterable[OffsetRange], now: Iterable[OffsetRange]) -> Iterator[str]:
    """Describe partitions whose log was truncated and has grown again, so that the offsets now have other rows. The
    leader epochs show that, where both are known."""
    known = {(r.topic, r.partition, r.end): r.last_epoch for r in decided}
    for r in now:
        before = known.get((r.topic, r.partition, r.end), -1)
        if min(before, r.last_epoch) >= 0 and before != r.last_epoch:
            yield (
                f"the log of {r.topic}-{r.partition} up to offset {r.end}: decided with leader epoch {before}, now "
                f"{r.last_epoch}, as it was cut and has grown again"
            )


def _named_topics(copied: CopiedFrom) -> str:
    return ", ".join(f"{name} ({id_})" for name, id_ in copied.topics)


def _listed(ranges: Sequence[OffsetRange], others: Sequence[OffsetRange]) -> str:
    """Return ranges that are not among the others, as text; "fewer" where the others have all of them, and more."""
    own = [r for r in ranges if r not in others]
    listed = ", ".join(f"{r.topic}-{r.partition} {r.start} to {r.end}" for r in own[:_MOST_RANGES]) or "fewer"
    return listed + (f" and {len(own) - _MOST_RANGES} more" if len(own) > _MOST_RANGES else "")
