"""Leader epochs tell whether a log is still the one that was read (KIP-101, KIP-320).

Each record batch has the epoch of the leader that wrote it. An epoch has one leader, and a follower first truncates
records that its leader does not have. So two logs with a batch of the same epoch at the same offset are equal up to
there. An unclean leader election, or a broker that loses records before they are synced, truncates a log; later records
have a later epoch. So the offset log has, with an offset, the epoch of the record before it: as long as the leader's
log has records of that epoch up to the offset, everything before it is unchanged.

No request maps an offset to an epoch, but OffsetForLeaderEpoch maps an epoch to its end offset. A query that keeps up
reads behind the offset at which the current leader's epoch began, so one request for each new leader is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from spark_eos.base.retry import retrying
from spark_eos.base.topic_partition import OffsetRange, TopicPartition, by_topic, flat, name_of_partition
from spark_eos.errors import stop
from spark_eos.kafka.admin.topics import begin_offsets, end_offsets, epoch_ends
from spark_eos.kafka.codes import FETCH_RETRIES, OK, Code, meaning_of
from spark_eos.kafka.errors import refusal
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.records.batches import Damage, OtherEpoch, RecordBatch, walk_batches
from spark_eos.kafka.requests.fetch import fetch_once
from spark_eos.kafka.requests.offset_for_leader_epoch import NOTHING, UNKNOWN, EpochEnd
from spark_eos.source.losses import HIDDEN_S

T = TypeVar("T")

#: Stands for the current leader's epoch. It differs from every real epoch, so `diverged` always asks the leader.
ANY_LEADER = 2**31 - 1
_LOOK_BYTES = 64 * 1024
#: Yields epochs, and is sent the leader's answer for each.
_EpochPlan = Generator[int, EpochEnd, T]


@dataclass(frozen=True)
class Noted:
    """An offset of a partition, and the epoch of the record before it; `UNKNOWN` where that is not known."""

    offset: int
    epoch: int


class Unanswered(Exception):
    """A leader did not answer a question about its log; the text says why."""


@dataclass(frozen=True)
class Leaders:
    """Requests to the partitions' leaders. ``ends``: where an epoch ends, one epoch for each partition. ``begins``: the
    first offsets of the logs. ``first_batch``: base offset and epoch of the batch that holds an offset, or of the next
    one; the log's end and `UNKNOWN` if it has neither. Raises Unanswered; it is called again for ``timeout_s``.
    ``servers``: for that error."""

    ends: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, EpochEnd]]
    begins: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, int]]
    first_batch: Callable[[TopicPartition, int], tuple[int, int]]
    timeout_s: float = HIDDEN_S
    servers: str = ""


class LeaderEpochs:
    """The leader epochs in the logs of some partitions. Answers of a leader are kept for as long as it leads.

    ``leaders`` is, in each call, the newest epoch of each partition's leader that is known. Raises as
    `spark_eos.kafka.admin.topics.epoch_ends` does, and ConnectionFailed where a log can be told by its records only,
    and no leader gives them.
    """

    def __init__(self, ask: Leaders) -> None:
        self._ask = ask
        self._heard: dict[TopicPartition, tuple[int, dict[int, EpochEnd]]] = {}

    def at(
        self,
        offsets: Mapping[TopicPartition, int],
        leaders: Mapping[TopicPartition, int],
        least: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Return the epoch of the record before each offset; `UNKNOWN` if the log begins there, or has no epochs.

        ``least``: lower bounds for these epochs, where known.
        """
        questions = {
            partition: _search(offset, leaders.get(partition, UNKNOWN), least.get(partition, UNKNOWN))
            for partition, offset in offsets.items()
        }
        answers = self._answered(questions, leaders)
        doubtful = [partition for partition, (_, sure) in answers.items() if not sure]
        begins = self._ask.begins(doubtful) if doubtful else {}
        return {
            partition: epoch if sure or offsets[partition] > begins[partition] else UNKNOWN
            for partition, (epoch, sure) in answers.items()
        }

    def diverged(
        self, noted: Mapping[TopicPartition, Noted], leaders: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the partitions whose log before the noted offset is not the one that was read, each with the offset
        from which it differs, as far as that is known.

        A compacted log may have lost all records of an epoch, and a replica that was filled from it never knew that
        epoch. So a log differs only where it has a record of another epoch, or ends.
        """
        waiting = {
            partition: at
            for partition, at in noted.items()
            if UNKNOWN not in (at.epoch, leaders.get(partition, UNKNOWN))
            and at.offset
            and at.epoch != leaders[partition]
        }
        answers: dict[TopicPartition, EpochEnd] = {}
        for _ in retrying(HIDDEN_S):  # a leader that was replaced unnoticed knows only smaller epochs: `NOTHING`
            open_ = [partition for partition in waiting if answers.get(partition, NOTHING) == NOTHING]
            answers |= self._answered({partition: _ask_one(noted[partition].epoch) for partition in open_}, leaders)
            if NOTHING not in answers.values():
                break
        other = {
            partition: at.offset
            for partition, at in waiting.items()
            if not self._same(partition, at, answers[partition])
        }
        return {
            partition: offset if answers[partition] == NOTHING else min(offset, answers[partition].end)
            for partition, offset in other.items()
        }

    def forget(self, topic: str) -> None:
        """Drop all answers about a topic that was recreated."""
        self._heard = {partition: heard for partition, heard in self._heard.items() if partition[0] != topic}

    def _same(self, partition: TopicPartition, at: Noted, answer: EpochEnd) -> bool:
        if answer == NOTHING:
            return False
        if answer.epoch == at.epoch and answer.end >= at.offset:
            return True
        base, epoch = self._insist_on_first_batch(partition, min(answer.end, at.offset - 1))
        return base >= at.offset or (answer.end >= at.offset and epoch == at.epoch)

    def _insist_on_first_batch(self, partition: TopicPartition, offset: int) -> tuple[int, int]:
        reason = ""
        for _ in retrying(self._ask.timeout_s):
            try:
                return self._ask.first_batch(partition, offset)
            except Unanswered as unanswered:
                reason = str(unanswered)
        raise stop(
            "EOS_KAFKA_UNREACHABLE.brokers",
            bootstrap_servers=self._ask.servers,
            waited_s=self._ask.timeout_s,
            reason=reason,
            about=f" about {name_of_partition(partition)} at offset {offset}",
        )

    def _answered(
        self, questions: dict[TopicPartition, _EpochPlan[T]], leaders: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, T]:
        """Return the results of all questions. Each round is one request for all partitions together."""
        results: dict[TopicPartition, T] = {}
        pending: dict[TopicPartition, int] = {}

        def go_on(partition: TopicPartition, answer: EpochEnd | None) -> None:
            try:
                epoch = next(questions[partition]) if answer is None else questions[partition].send(answer)
                while (known := self._of(partition, leaders[partition]).get(epoch)) is not None:
                    epoch = questions[partition].send(known)
                pending[partition] = epoch
            except StopIteration as stop:
                results[partition] = stop.value

        for partition in questions:
            go_on(partition, None)
        while pending:
            epochs, pending = pending, {}
            for partition, answer in self._ask.ends(epochs).items():
                if answer != NOTHING:
                    self._of(partition, leaders[partition])[epochs[partition]] = answer
                go_on(partition, answer)
        return results

    def _of(self, partition: TopicPartition, leader: int) -> dict[int, EpochEnd]:
        if self._heard.get(partition, (UNKNOWN,))[0] != leader:
            self._heard[partition] = leader, {}
        return self._heard[partition][1]


def _ask_one(epoch: int) -> _EpochPlan[EpochEnd]:
    return (yield epoch)


def _search(offset: int, leader: int, least: int) -> _EpochPlan[tuple[int, bool]]:
    """Return the smallest epoch that does not end before an offset, and whether the log certainly has it: if the log
    begins with a later epoch, the leader's answer repeats the requested one."""
    if leader == UNKNOWN or offset <= 0:
        return UNKNOWN, True
    if leader == 0:
        return 0, True
    before = yield leader - 1
    if before == NOTHING:
        return UNKNOWN, True
    if before.end < offset:
        return leader, True
    low, high, sure = max(least, 0), before.epoch, least != UNKNOWN
    if low > high:  # as in a log that was compacted
        return UNKNOWN, True
    middle = low
    while low < high:
        answer = yield middle
        if answer.end >= offset:
            high = max(low, min(middle, answer.epoch))
        else:
            low, sure = middle + 1, True
        middle = (low + high) // 2
    return high, sure


def leaders_of(client: BrokerClient, timeout_s: float) -> Leaders:
    """Return `Leaders` that send requests to a cluster."""

    def begins(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return flat(begin_offsets(client, by_topic(partitions), timeout_s))

    return Leaders(
        lambda epochs: epoch_ends(client, epochs, timeout_s),
        begins,
        partial(_first_batch, client, timeout_s),
        timeout_s,
        client.bootstrap_servers,
    )


def _first_batch(client: BrokerClient, timeout_s: float, partition: TopicPartition, offset: int) -> tuple[int, int]:
    wait_ms = client.fetch_wait_ms
    fetched = fetch_once(client, *partition, offset, _LOOK_BYTES, isolation="read_uncommitted", max_wait_ms=wait_ms)
    if fetched is None:
        raise Unanswered("no answer from its leader")
    answer, records = fetched
    if answer.error == Code.OFFSET_OUT_OF_RANGE or (answer.error == OK and not answer.size):
        return _where_no_batch_is(client, timeout_s, partition, offset)
    if answer.error in FETCH_RETRIES:
        raise Unanswered(meaning_of(answer.error))
    if answer.error != OK:
        raise refusal(client.bootstrap_servers, name_of_partition(partition), answer.error, 0.0)
    try:
        for batch in walk_batches(records, answer.size, ()):
            if batch.last >= offset:
                return batch.base, batch.leader_epoch
    except Damage as unreadable:
        raise Unanswered(str(unreadable)) from unreadable
    raise Unanswered("its answer has no whole record batch")


def _where_no_batch_is(
    client: BrokerClient, timeout_s: float, partition: TopicPartition, offset: int
) -> tuple[int, int]:
    """Return the first batch of a log that begins behind the offset, or the log's end, if that is not behind it. A
    Fetch cannot tell: the high watermark of a new leader may be that of a while ago, but it does not answer ListOffsets
    before that has caught up."""
    (begin,) = flat(begin_offsets(client, by_topic([partition]), timeout_s)).values()
    if begin > offset:
        return _first_batch(client, timeout_s, partition, begin)
    (end,) = flat(end_offsets(client, by_topic([partition]), "read_uncommitted", timeout_s)).values()
    if end > offset:
        raise Unanswered(f"no record from there on, though the log goes on to {end}")
    return end, UNKNOWN


class RangeEpochs:
    """Checks the epochs of one range's batches as they are read, in order. ``last``: the epoch of the record before the
    next offset to read, or `UNKNOWN`. ``at_end``: whether the batch with the range's last offset was seen."""

    def __init__(self, range_: OffsetRange) -> None:
        self.last = range_.first_epoch
        self.at_end = False
        self._range = range_

    def see(self, batch: RecordBatch) -> None:
        """Check the next batch. Raises OtherEpoch if this is not the log for which the range was planned."""
        epoch, r = batch.leader_epoch, self._range
        if epoch == UNKNOWN or batch.base >= r.end:
            return
        ends_here = batch.last >= r.end - 1
        later = r.most_epoch != UNKNOWN and epoch > r.most_epoch
        if later or epoch < self.last or (ends_here and r.last_epoch not in (UNKNOWN, epoch)):
            raise OtherEpoch(batch.base, epoch)
        self.last, self.at_end = epoch, ends_here
