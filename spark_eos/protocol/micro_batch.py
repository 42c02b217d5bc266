"""A micro-batch as its tasks have reported it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_eos.protocol.head import DIGEST_BITS, Digest, Offsets, Pair, Written
from spark_eos.protocol.notes import Notes
from spark_eos.protocol.ranges import Direct, merged, union
from spark_eos.protocol.task import TaskReport, Work


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch when every task has reported. ``offsets``, and the ``group`` that is to have them, only where they
    are asked for; ``partitioner`` only where the user has chosen one. ``planned_ms``: when the driver had planned it,
    and so before any task of it began, by `Ports.elapsed_ms` of the process that commits; None if nobody has noted it.
    ``two_phase``: its transactions never expire.
    ``one_of_several``: Spark passes the micro-batch whatever became of this write of it. ``notes`` become visible with
    the decision."""

    run: str
    id: int
    reports: tuple[TaskReport, ...]
    offsets: Offsets | None = None
    partitioner: str | None = None
    group: str | None = None
    two_phase: bool = False
    one_of_several: bool = False
    notes: Notes | None = None
    planned_ms: int | None = None

    @property
    def rows(self) -> int:
        return sum(report.rows for report in self.reports)

    @property
    def dead_letters(self) -> int:
        """Rows that were written to the dead-letter topic, by this run of the micro-batch."""
        return sum(w.dead_letters for w in self.written)

    @property
    def bytes(self) -> int:
        """Of the direct way: what the tasks have written (`TaskReport`)."""
        return sum(report.bytes for report in self.reports)

    @property
    def direct(self) -> Direct | None:
        """Of the direct way: all that is read; None where rows are Spark's."""
        given = [report.direct for report in self.reports if report.direct is not None]
        return union(given) if given else None

    @property
    def direct_of_rest(self) -> Direct | None:
        """The same for a decision: its ranges are those of tasks that wrote nothing."""
        rest = [r for report in self.reports if report.written is None and report.direct for r in report.direct.ranges]
        return replace(self.direct, ranges=merged(rest)) if self.direct is not None else None

    @property
    def digest(self) -> int:
        return sum(report.digest for report in self.reports) % (1 << DIGEST_BITS)

    @property
    def digests(self) -> frozenset[Digest]:
        """How the tasks have digested their rows; one, unless executors have different versions of the library."""
        return frozenset(report.digest_by for report in self.reports)

    @property
    def written(self) -> tuple[Written, ...]:
        return tuple(report.written for report in self.reports if report.written is not None)

    @property
    def pairs(self) -> frozenset[Pair]:
        return frozenset(w.pair for w in self.written)

    @property
    def topics(self) -> frozenset[str]:
        """Of all transactions: where rows went, and what was written beside them."""
        return frozenset(topic for report in self.reports for topic in report.topics)

    @property
    def replayed(self) -> bool:
        """Whether its tasks were not simply to write."""
        return any(report.work is not Work.WRITE for report in self.reports)
