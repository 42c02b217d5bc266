"""What must hold of the rows that a query has taken, and of the losses that it has reported."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.simulation.world import Violation

from .cluster import Cluster, Event, Row
from .query import Query, Reported

NOT_LOST = "each visible row is taken, or a loss that covers it is reported"
NOT_DOUBLED = "no row is taken twice"
IN_ORDER = "rows of a partition keep their order"
TRUE_LOSSES = "a loss that is reported is one"
PINNED = "a pinned run takes no row that came later"
ARRIVES = "a query that is left alone catches up"
BY_NAME = "a stop has a name, and a start after it helps"


@dataclass(frozen=True)
class _Known:
    """The first offset of a partition that the offset log has, and when it was written there."""

    offset: int
    step: int


class Judge:
    def __init__(self, cluster: Cluster, query: Query) -> None:
        self._cluster, self._query = cluster, query
        query.reported = self.check_loss

    def check_loss(self, loss: Reported) -> None:
        """When it is reported."""
        if not self._is_true(loss):
            raise Violation(TRUE_LOSSES, f"{loss.error.message} ({loss.error.parameters})")

    def _is_true(self, loss: Reported) -> bool:
        topic, partition = loss.place
        log = self._cluster.log(topic, partition)
        if log is None:
            return True
        is_planned = not loss.ranges or loss.raised
        if loss.found is None and loss.ids.get(topic) == log.topic_id:
            if is_planned and not self._is_selected(topic, partition):
                return True
            return self._cluster.was_hidden(topic, for_long=True)  # else it would have been seen some seconds later
        if self._cluster.is_stale() or self._cluster.was_hidden(topic):
            return True
        # No offset log says in which one of several the first micro-batch began.
        only = log.topic_id if self._cluster.lives[topic] == 1 else ""
        if loss.ids.get(topic, only) != log.topic_id:
            return True
        if loss.recreated:
            return self._cluster.lives[topic] > 1
        if not self._is_selected(topic, partition):
            return True
        if loss.found is None:
            return self._cluster.lives[topic] > 1  # it may have had fewer partitions when it was looked at
        if loss.found > loss.expected:
            return log.first > loss.expected
        return log.cut_at is not None and log.cut_at <= loss.expected

    def _is_selected(self, topic: str, partition: int) -> bool:
        return topic in self._query.selected and partition in self._query.selected[topic]

    def check_rows(self) -> None:
        """When the query has caught up."""
        written = self._query.written
        taken = [number for batch in sorted(written) for number in written[batch]]
        for number, count in Counter(taken).items():
            if count > 1:
                raise Violation(NOT_DOUBLED, f"{self._cluster.rows[number]}")
        newest: dict[tuple[str, int], Row] = {}
        for number in taken:
            row = self._cluster.rows[number]
            before = newest.get((row.topic_id, row.partition))
            if before is not None and before.number > number:
                raise Violation(IN_ORDER, f"{row} after {before}")
            newest[row.topic_id, row.partition] = row
        self._check_nothing_is_lost(set(taken))
        for batch, ends in self._query.pins.items():
            for row in map(self._cluster.rows.__getitem__, written.get(batch, ())):
                if row.offset >= ends.get((row.topic_id, row.partition), 0):
                    raise Violation(PINNED, f"{row}")

    def _check_nothing_is_lost(self, taken: set[int]) -> None:
        known = self._known()
        for row in self._cluster.rows.values():
            if row.number in taken or not row.visible or row.gone is Event.COMPACT:
                continue
            if self._is_owed(row, known.get((row.topic_id, row.partition))) and not self._is_excused(row):
                raise Violation(NOT_LOST, f"{row}")

    def _known(self) -> dict[tuple[str, int], _Known]:
        known: dict[tuple[str, int], _Known] = {}
        for line in self._query.lines:
            for topic, offsets in line.position.offsets.items():
                for p, offset in offsets.items():
                    known.setdefault((line.position.ids.get(topic, ""), p), _Known(offset, line.step))
        return known

    def _is_owed(self, row: Row, known: _Known | None) -> bool:
        begin = self._query.begin
        assert begin is not None
        of_begin = begin.offsets.get(row.topic, {}) if begin.ids.get(row.topic) == row.topic_id else {}
        if row.offset < of_begin.get(row.partition, 0):
            return False
        if row.gone is None:
            return self._is_selected(row.topic, row.partition)
        if known is None or known.step >= row.gone_step or row.offset < known.offset:
            return self._is_logged_from_the_begin(row, of_begin)
        if row.gone is Event.CUT:
            ends = [
                line.position.offsets.get(row.topic, {}).get(row.partition, 0)
                for line in self._query.lines
                if line.step < row.gone_step and line.position.ids.get(row.topic) == row.topic_id
            ]
            return max(ends, default=0) > row.offset
        return True

    def _is_logged_from_the_begin(self, row: Row, of_begin: dict[int, int]) -> bool:
        """Whether micro-batch 0 was to read it, as it may where there is no second one. What expires before it is
        replayed is not noticed."""
        if row.gone is not Event.EXPIRE or row.partition not in of_begin or not self._query.lines:
            return False
        first, again = self._query.lines[0], self._query.replay_begin
        assert again is not None
        in_batch = row.offset < first.position.offsets.get(row.topic, {}).get(row.partition, 0)
        replayed = row.offset < again.offsets.get(row.topic, {}).get(row.partition, 0)
        return in_batch and first.step < row.gone_step and not replayed

    def _is_excused(self, row: Row) -> bool:
        if row.gone is Event.EXPIRE and self._is_after_a_cut(row) and row.offset < self._reached(row):
            return True  # no log tells of a cut behind which all has expired
        return any(self._excuses(loss, row) for loss in self._query.losses if not loss.raised)

    def _excuses(self, loss: Reported, row: Row) -> bool:
        topic, partition = loss.place
        if topic != row.topic or loss.ids.get(topic, row.topic_id) != row.topic_id:
            return False
        whole_topic = loss.recreated
        if partition != row.partition and not whole_topic:
            return False
        left_out = any(
            r.topic == topic and r.partition == row.partition and r.start <= row.offset < r.end for r in loss.ranges
        )
        if loss.found is None and loss.ranges:  # a micro-batch was read without it
            return left_out
        if left_out and loss.found is not None and loss.found <= loss.expected and row.offset >= loss.found:
            return True  # a task has read its range up to there, as the log has ended
        if row.gone is None:
            return loss.found is not None and loss.expected <= row.offset < loss.found and not whole_topic
        if whole_topic:
            return True
        if loss.found is None:  # also what was written to it after a cut that nobody has noticed
            return row.gone is Event.DELETE or (loss.expected <= row.offset and not self._is_read_again(row))
        if row.gone is Event.CUT:
            return loss.found <= row.offset < loss.expected or loss.expected <= row.offset < loss.found
        return loss.expected <= row.offset < loss.found

    def _reached(self, row: Row) -> int:
        """Up to where the query had read, or left, that partition when the row went."""
        position = next(line.position for line in reversed(self._query.lines) if line.step < row.gone_step)
        left = position.left.get(row.topic)
        if left is not None and left.id == row.topic_id:
            return left.offsets.get(row.partition, 0)
        is_same = position.ids.get(row.topic) == row.topic_id
        return position.offsets[row.topic].get(row.partition, 0) if is_same else 0

    def _is_after_a_cut(self, row: Row) -> bool:
        log = self._cluster.log(row.topic, row.partition)
        if log is None or log.topic_id != row.topic_id:
            return False
        return log.cut_rows is not None and row.number >= log.cut_rows

    def _is_read_again(self, row: Row) -> bool:
        position = self._query.lines[-1].position
        is_same = position.ids.get(row.topic) == row.topic_id
        return is_same and row.partition in position.offsets.get(row.topic, {})
