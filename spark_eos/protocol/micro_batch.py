"""A micro-batch as its tasks have reported it."""

from __future__ import annotations

from dataclasses import dataclass

from spark_eos.protocol.head import DIGEST_BITS, Digest, Offsets, Pair, Written
from spark_eos.protocol.task import TaskReport


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch when every task has reported. ``offsets``, and the ``group`` that is to have them, only where they
    are asked for; ``partitioner`` only where the user has chosen one. ``two_phase``: its transactions never expire."""

    run: str
    id: int
    reports: tuple[TaskReport, ...]
    offsets: Offsets | None = None
    partitioner: str | None = None
    group: str | None = None
    two_phase: bool = False

    @property
    def rows(self) -> int:
        return sum(report.rows for report in self.reports)

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
