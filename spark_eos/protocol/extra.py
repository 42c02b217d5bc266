"""Extras of decisions: opaque bytes of a feature, with a kind, a limit, and a comparison that the feature registers.

The protocol publishes an extra with its decision, in one record, keeps it as long, and reads no byte of it. Each
micro-batch brings the `Kind` that can, so that the committing process has it, whichever modules that has loaded. A
decision whose extra is of another kind stops a run by the names of both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from spark_eos.errors import EosError, stop
from spark_eos.protocol.checks import new_checkpoint_hint
from spark_eos.protocol.head import Decision, Extra, Written

#: Bytes of a decision's extra, with the extras of its transactions. A record of the ledger, which is compressed, has a
#: megabyte, if nobody has set another limit.
MOST_BYTES = 4 << 20

#: The description of a decision without an extra.
PLAIN = "rows through Spark"


@dataclass(frozen=True)
class FeatureRecords:
    """Records of a feature, key and value, that become visible with a decision, by the same transaction, in a topic of
    the feature's own."""

    topic: str
    partition: int
    records: tuple[tuple[bytes, bytes], ...]


class Reported(Protocol):
    """The parts of `spark_eos.protocol.task.TaskReport` that a feature needs."""

    @property
    def extra(self) -> Extra | None: ...
    @property
    def written(self) -> Written | None: ...
    @property
    def bytes(self) -> int: ...


class Kind(ABC):
    """Interface that a feature registers with a micro-batch, to make extras and to compare them. ``name``: of the kind,
    in heads and errors. ``lasting``: see `Extra`. ``is_read``: the feature's tasks read the rows themselves, and
    the extra says which; a replay reads only lost ones, so that its extra is compared instead of its rows."""

    name: ClassVar[str]
    lasting: ClassVar[bool] = False
    is_read: ClassVar[bool] = False

    @classmethod
    def extra(cls, body: bytes) -> Extra:
        """Return an extra of this kind."""
        return Extra(cls.name, body, cls.lasting)

    @property
    def records(self) -> FeatureRecords | None:
        """Records to publish with the decision on the micro-batch, once."""
        return None

    @abstractmethod
    def body(self, before: bytes | None, reports: Sequence[Reported]) -> bytes:
        """Return the extra of a new decision. ``before``: that of the decision before, if it was of this kind. Raises
        EosError where a decision cannot have as much."""

    @abstractmethod
    def compare(self, last: Decision, reports: Sequence[Reported]) -> None:
        """Raise Diverged where a replay differs from the decision."""

    def not_repaired(self, last: Decision, rows: int) -> EosError:
        """Return the error where so many rows, other ones than the lost ones, were written again by the extra."""
        raise NotImplementedError

    def described(self, reports: Sequence[Reported]) -> str:
        """Return the feature's words on the micro-batch, for the log."""
        return ""

    @classmethod
    def differs_from(cls, last: Decision) -> list[str]:
        """See `kinds_differ`."""
        return kinds_differ(last, cls.name)

    @staticmethod
    def diverged(last: Decision, unlike: Sequence[str]) -> EosError:
        """Return the error of a replay that reads other ranges than were decided, or makes something else of them."""
        return stop(
            "EOS_REPLAY_DIVERGED.ranges",
            batch=last.batch,
            differences="; ".join(unlike),
            instead_of_replay=new_checkpoint_hint(last),
        )

    @classmethod
    def unreadable(cls, error: Exception) -> EosError:
        """Return the error of an extra that the feature does not understand: another version has written it."""
        form = f"in another form ({type(error).__name__}: {error})"
        return _unknown(f"a decision with {cls.name} {form}", "cannot read that")


def next_extra(kind: Kind | None, last: Decision | None, batch: int, reports: Sequence[Reported]) -> Extra | None:
    """Return the extra of the decision on a new micro-batch. Raises LedgerError where the one before has an extra of a
    kind that must go on, and that this run does not have, and where the new one is too long."""
    _check_reports(kind, batch, reports)
    before = None if last is None else last.extra
    if before is not None and before.lasting and (kind is None or kind.name != before.kind):
        why = f"cannot do that in a query of {PLAIN if kind is None else kind.name}"
        raise _unknown(f"a decision with {before.kind}, which each later one must have, too", why)
    if kind is None:
        return None
    same = before.body if before is not None and before.kind == kind.name else None
    extra = kind.extra(kind.body(same, reports))
    size = len(extra.body) + sum(len(report.written.extra) for report in reports if report.written is not None)
    if size > MOST_BYTES:
        raise stop("EOS_LEDGER_NOT_WRITABLE.extra", batch=batch, kind=kind.name, bytes=size, most=MOST_BYTES)
    return extra


def kinds_differ(last: Decision, kind: str | None) -> list[str]:
    """Describe how a replay with extras of this kind, or with none, differs from the decision, if it does."""
    decided = last.extra.kind if last.extra is not None else None
    return [] if decided == kind else [f"the way of the rows: decided {decided or PLAIN}, now {kind or PLAIN}"]


def _unknown(what: str, why: str) -> EosError:
    return stop("EOS_LEDGER_FORMAT", what=what, why=why, wrote="the version of spark-eos that wrote it")


def _check_reports(kind: Kind | None, batch: int, reports: Sequence[Reported]) -> None:
    """Raise ProtocolStop where a task has reported an extra of another kind than the micro-batch's."""
    own = None if kind is None else kind.name
    others = {report.extra.kind for report in reports if report.extra is not None} - {own}
    if others:
        raise stop(
            "EOS_MIXED_VERSIONS",
            batch=batch,
            sign=f"they reported {', '.join(sorted(others))}, but the commit expects {own or PLAIN}",
        )
