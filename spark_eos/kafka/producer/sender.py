"""Sends record batches to the leaders of their partitions: each is written exactly once and in order, or there is an
error.

Brokers remember the last five batches of a producer in a partition, and drop duplicates. So a batch with an unknown
outcome is sent again unchanged, with its sequence number, together with all later batches. Three rules make this safe:
a partition has at most five batches in flight; all of them are on one connection, and are sent again only when no
response is awaited there; and the first batch of a partition is sent alone, since brokers before Kafka 4.1 accept any
sequence number for a first batch.

With transaction.version 0 and 1, the coordinator has to know a partition before its first batch is sent (`Additions`).

A broker accepts a batch only after all previous ones, so its acknowledgement counts for them, too. This matters after a
broker was restarted: it then remembers only the last batch, and reports the four before it as out of order. Only after
an unclean election may a leader have lost all batches of a producer and accept a later one (with transaction.version 0
or 1, or before Kafka 4.1). It appends that one where the lost batches were, or beyond: the first case shows by an
offset that goes back, the second to `spark_eos.protocol.task.check_begins`.

`Splitting` replaces a batch that is refused for its size by smaller ones; `Refusals` also does so for a batch that is
refused for its rows. Later batches then get other sequence numbers. That is safe only if no copy of any of them is in
flight, which a broker might accept later. So the refusal must be the first response to a batch that was sent once,
and all batches sent after it must be answered, too; else the attempt fails.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import astuple

from spark_eos.base import system
from spark_eos.base.log import only_logged
from spark_eos.base.retry import ANNOUNCED_AFTER_S, Waiting
from spark_eos.base.topic_partition import TopicPartition, name_of_partition
from spark_eos.errors import ConnectionFailed, EosError
from spark_eos.kafka.codes import LEADER_MOVED, NOT_APPENDED, OK, PRODUCE_RETRIES, REFUSED_FOR_GOOD, Code, meaning_of
from spark_eos.kafka.errors import Cause, delivery_error, too_large
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.connection import wait
from spark_eos.kafka.producer.additions import Additions
from spark_eos.kafka.producer.partition_queue import UNKNOWN_OFFSET, PartitionQueue
from spark_eos.kafka.producer.refusals import Splitting, unclear
from spark_eos.kafka.records.encode import Sealed
from spark_eos.kafka.records.resealing import later
from spark_eos.kafka.requests.end_txn import end_own_txn
from spark_eos.kafka.requests.produce import ProduceConnection, ProduceResponse, version
from spark_eos.kafka.transactions import FENCING_END, ProducerIdentity

#: Connections that a partition can try, one after the other, before its timeout.
_TRIES = 3
#: The share of ``silence_s`` that is the timeout in the request, for acknowledgements by the replicas.
_REPLICAS_SHARE = 0.6
_DRAIN_S = 5.0
#: Seconds for which no broker may answer who leads a partition.
_UNHEARD_S = 60.0
_ABORT_S = 10.0
#: Seconds for which a leader that has just started may not know its partition.
_UNKNOWN_PLACE_S = 30.0


class Sender:
    """The batches of one transaction. ``size``: bytes of batches that were added and are not known to be written.
    ``offsets`` and ``firsts``: the offset of each partition's last and first batch, as far as brokers have returned it.

    Call `begin` first, unless the transaction is of transaction.version 2. ``timeout_s``: maximum seconds without
    progress in a partition. ``silence_s``: maximum seconds without a byte on a connection that owes a response, by
    default a third of ``timeout_s``; never more than the client's. ``refusals``: handles batches that are refused for
    good; without it, they are an error.

    Every call may raise RowError (EOS_ROW_TOO_LARGE), ProtocolStop (EOS_FENCED) or KafkaError (EOS_DELIVERY_FAILED);
    then only `abort` and `close` may be called.
    """

    def __init__(
        self, client: BrokerClient, transactional_id: str, timeout_s: float, *, silence_s: float | None = None
    ) -> None:
        self.size = 0
        self.offsets: dict[TopicPartition, int] = {}
        self.firsts: dict[TopicPartition, int] = {}
        self.refusals: Splitting | None = None
        self._any_sent = False
        self._client = client
        self._name = transactional_id
        self._timeout_s = timeout_s
        self._unheard_since = math.inf
        self._silence_s = min(client.silence_s, silence_s or timeout_s / _TRIES)
        self._version = FENCING_END
        self._additions: Additions | None = None
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._busy: dict[TopicPartition, PartitionQueue] = {}
        self._connections: dict[int, ProduceConnection] = {}
        self._requests: dict[tuple[int, int], list[tuple[PartitionQueue, Sealed]]] = {}
        self._waiting = Waiting(f"writing as {transactional_id}")

    def begin(self, producer: ProducerIdentity, endtxn_version: int) -> None:
        """Set the transaction's producer, and the version of EndTxn that will end it."""
        self._version = endtxn_version
        if endtxn_version < FENCING_END:
            self._additions = Additions(self._client, producer, self._timeout_s, self._silence_s)

    def add(self, partition: TopicPartition, sealed: Sealed) -> None:
        """Append a batch to the queue of its partition."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition, system.monotonic())
        if partition not in self._busy:
            self._busy[partition] = queue
            queue.moved_at = system.monotonic()
        queue.waiting.append(later(sealed, -queue.removed) if queue.removed else sealed)
        self.size += len(sealed.data)

    def leave_out(self, partition: TopicPartition, rows: int) -> None:
        """Skip the next rows of a partition, whose sequence numbers are assigned already."""
        if partition not in self._queues:
            self._queues[partition] = PartitionQueue(partition, system.monotonic())
        self._queues[partition].removed += rows

    @property
    def empty(self) -> frozenset[TopicPartition]:
        """After `wait_until_below(0)`: partitions without rows, as all were refused, that may be part of the
        transaction all the same."""
        return frozenset(partition for partition, queue in self._queues.items() if not queue.begun)

    def runs(self, partition: TopicPartition) -> tuple[tuple[int, int], ...]:
        """Return, after `wait_until_below(0)`, (first offset, number) of the rows in a partition, in order, where they
        lie without a gap; `UNKNOWN_OFFSET` where no response had the offset."""
        return tuple(self._queues[partition].runs) if partition in self._queues else ()

    @property
    def lasts(self) -> dict[TopicPartition, int]:
        """Sequence number of the last row in each partition that has rows, after `wait_until_below(0)`."""
        return {partition: queue.last for partition, queue in self._queues.items() if queue.begun}

    def bytes_written(self, besides: Collection[str]) -> int:
        """Return the bytes of all record batches that were written, except to the topics ``besides``."""
        return sum(queue.bytes for (topic, _), queue in self._queues.items() if topic not in besides)

    def advance(self) -> None:
        """Process available responses and send batches that may be sent, without waiting."""
        for connection in list(self._connections.values()):
            try:
                connection.push()
                answers = connection.answers()
            except OSError:
                self._disconnect(connection)
                continue
            for answer in answers:
                self._judge(connection.node, answer)
            if not connection.idle and system.monotonic() - connection.moved_at > self._silence_s:
                self._disconnect(connection)
        while self._send_round():
            pass
        self._tell_delays()

    def wait_until_below(self, size: int) -> None:
        """Wait until fewer bytes than this are in flight, or none for 0."""
        self.advance()
        while self.size and self.size >= size:
            self._check_progress()
            wait(self._connections.values(), self._next_moment())
            self.advance()

    def abort(self, producer: ProducerIdentity) -> None:
        """Try to abort the transaction; otherwise the coordinator does so after its timeout. Raises nothing, as the
        caller has an error of its own to raise."""
        if self._any_sent or (self._additions is not None and self._additions.asked):
            with only_logged(f"{producer.id} could not be aborted", EosError, OSError):
                self._drain()  # a batch that a broker has not processed yet could begin it again
                end_own_txn(self._client, astuple(producer), commit=False, timeout_s=_ABORT_S, version=self._version)

    def _drain(self) -> None:
        """Wait for all outstanding responses, and send nothing more."""
        deadline = system.monotonic() + _DRAIN_S
        self._busy.clear()
        while system.monotonic() < deadline and any(not c.idle for c in self._connections.values()):
            wait(self._connections.values(), deadline)
            for connection in list(self._connections.values()):
                try:
                    connection.push()
                    connection.answers()
                except OSError:
                    self._connections.pop(connection.node).close()

    def close(self) -> None:
        """Give the connections back to the pool, which closes one with a response outstanding."""
        for connection in self._connections.values():
            self._client.pool.give_back(connection)
        self._connections.clear()

    # Sending

    def _send_round(self) -> bool:
        """Send at most one batch of each partition, in one request to each broker. Returns whether any was sent."""
        now = system.monotonic()
        ready = [queue for queue in self._busy.values() if queue.may_send(now)]
        if self._additions is not None:
            refused = self._additions.add(queue.partition for queue in ready)
            if refused is not None:
                raise self._failure(refused)
        requests: dict[int, dict[TopicPartition, tuple[PartitionQueue, Sealed]]] = {}
        for queue in ready:
            if self._find_node(queue, now):
                requests.setdefault(queue.node, {})[queue.partition] = queue, queue.waiting[0]
        for node, batches in requests.items():
            if (connection := self._connections.get(node)) is not None:  # else lost when it was due, and is opened anew
                self._send(connection, batches)
        return bool(requests)

    def _send(
        self, connection: ProduceConnection, batches: dict[TopicPartition, tuple[PartitionQueue, Sealed]]
    ) -> None:
        data = {partition: sealed.data for partition, (_, sealed) in batches.items()}
        for queue, _ in batches.values():
            queue.sent.append(queue.waiting.popleft())
        self._any_sent = True
        try:
            number = connection.send(self._name, data, int(1000 * self._silence_s * _REPLICAS_SHARE))
        except OSError:
            self._lose(batches.values(), system.monotonic())
            self._disconnect(connection)
            return
        for queue, _ in batches.values():
            queue.awaited += 1
        self._requests[connection.node, number] = list(batches.values())

    def _leader(self, partition: TopicPartition, now: float) -> int | None:
        """Return the partition's leader; None if there is none now, or no broker answers. Raises ConnectionFailed after
        `_UNHEARD_S` without an answer of any broker: brokers that are restarted one by one answer within that time."""
        try:
            leader = self._client.leaders([partition])[0].get(partition)
        except ConnectionFailed:
            self._unheard_since = min(self._unheard_since, now)
            if system.monotonic() - self._unheard_since > _UNHEARD_S:
                raise
            return None
        self._unheard_since = math.inf
        return leader

    def _find_node(self, queue: PartitionQueue, now: float) -> bool:
        """Return whether the partition's leader is known and connected. It is not looked up while responses are
        awaited, so that it does not change."""
        if not queue.awaited:
            node = self._leader(queue.partition, now)
            if node is None:
                queue.why = meaning_of(Code.LEADER_NOT_AVAILABLE)
                _resend(queue, now)
                return False
            queue.node = node
        connection = self._connections.get(queue.node)
        if connection is not None and not connection.due:
            return True
        if connection is not None and not connection.idle:
            return False  # responses to earlier requests come first
        if connection is not None:
            self._connections.pop(queue.node).close()
        try:
            connection = self._client.connection(ProduceConnection, queue.node)
            self._connections[queue.node] = connection
            connection.version = version(self._client, queue.node, self._version)
        except OSError as error:
            queue.why = f"broker {queue.node} cannot be reached: {error}"
            if (connection := self._connections.pop(queue.node, None)) is not None:
                connection.close()
            self._client.forget_leader(*queue.partition)
            _resend(queue, now)
            return False
        return True

    # Responses

    def _judge(self, node: int, answer: ProduceResponse) -> None:
        now = system.monotonic()
        batches = self._requests.pop((node, answer.number))
        self.offsets.update(answer.offsets)
        for queue, _ in batches:
            queue.awaited -= 1
            if not queue.begun and queue.partition in answer.offsets:  # the first batch is sent alone
                self.firsts[queue.partition] = answer.offsets[queue.partition]
        for queue, sealed in batches:
            self._judge_one(queue, sealed, answer, now)
            queue.settle()
            if queue.refused is not None and not queue.awaited:
                assert self.refusals is not None
                self.size += queue.replace_refused(self.refusals)
                queue.moved_at = now
            if not queue.sent and not queue.waiting:
                self._busy.pop(queue.partition, None)

    def _judge_one(self, queue: PartitionQueue, sealed: Sealed, answer: ProduceResponse, now: float) -> None:
        error = answer.errors[queue.partition]
        if queue.refused is not None:
            self._judge_behind(queue, queue.refused[1], error)
        elif error in (OK, Code.DUPLICATE_SEQUENCE_NUMBER):
            offset = answer.offsets.get(queue.partition, UNKNOWN_OFFSET)
            if sealed in queue.sent and UNKNOWN_OFFSET < offset < queue.end:
                raise self._failure(_truncated(queue, offset))
            self.size -= queue.written(sealed, now, offset)
            if self._waiting.announced:
                self._waiting.over(name_of_partition(queue.partition))
        elif self.refusals is not None and error in self.refusals.codes:
            if not queue.resending:  # else it is sent again, and refused again
                queue.refused = sealed, error
        elif error in PRODUCE_RETRIES:
            self._retry(queue, sealed, error, now)
        elif error == Code.MESSAGE_TOO_LARGE:
            raise too_large(queue.partition, sealed.count, len(sealed.data))
        elif error != Code.OUT_OF_ORDER_SEQUENCE_NUMBER or not self._is_excused(queue):
            raise self._failure(Cause.from_code(error))

    def _judge_behind(self, queue: PartitionQueue, refused: int, error: int) -> None:
        """Handle the response to a batch that was sent after a refused one: no broker can have appended it."""
        if error in (OK, Code.DUPLICATE_SEQUENCE_NUMBER):
            raise unclear(queue.partition, refused)
        if error in LEADER_MOVED:
            self._client.forget_leader(*queue.partition)
        if error not in PRODUCE_RETRIES | REFUSED_FOR_GOOD | {Code.OUT_OF_ORDER_SEQUENCE_NUMBER}:
            raise self._failure(Cause.from_code(error))

    def _retry(self, queue: PartitionQueue, sealed: Sealed, error: int, now: float) -> None:
        if error not in NOT_APPENDED:
            queue.maybe_written.add(sealed.sequence)
        queue.why = meaning_of(error)
        if error in LEADER_MOVED:
            self._client.forget_leader(*queue.partition)
        if error == Code.UNKNOWN_TOPIC_OR_PARTITION:
            queue.unknown_since = queue.unknown_since or now
            if now - queue.unknown_since > _UNKNOWN_PLACE_S:
                raise self._failure(Cause.from_code(error))
        queue.resend(now)

    def _is_excused(self, queue: PartitionQueue) -> bool:
        """Return whether OUT_OF_ORDER_SEQUENCE_NUMBER is no failure: an earlier batch was not written, and all are sent
        again; or the broker has this batch, no longer remembers that, and will accept a later one."""
        return queue.resending or (queue.resent and queue.awaited > 0)

    def _failure(self, cause: Cause) -> EosError:
        rows = sum(sealed.count for queue in self._queues.values() for sealed in (*queue.sent, *queue.waiting))
        return delivery_error(self._name, cause, rows)

    # Waiting, and lost connections

    def _next_moment(self) -> float:
        now = system.monotonic()
        moments = [now + self._silence_s]
        moments += [c.moved_at + self._silence_s for c in self._connections.values() if not c.idle]
        moments += [queue.not_before for queue in self._busy.values() if queue.may_send(queue.not_before)]
        moments += [queue.moved_at + self._timeout_s for queue in self._busy.values()]
        moments += [at for queue in self._busy.values() if (at := queue.moved_at + ANNOUNCED_AFTER_S) > now]
        return min(moments)

    def _tell_delays(self) -> None:
        late = system.monotonic() - ANNOUNCED_AFTER_S
        for queue in self._busy.values():
            if queue.moved_at <= late and name_of_partition(queue.partition) not in self._waiting.announced:
                self._note_delays(late)
                return

    def _note_delays(self, late: float) -> None:
        """Log the delays of all partitions at once: all have waited for long when one has."""
        delayed = [queue for queue in self._busy.values() if queue.moved_at <= late]
        partitions = {name_of_partition(queue.partition): queue.why or "no answer from the leader" for queue in delayed}
        self._waiting.note(partitions, min(queue.moved_at for queue in delayed))

    def _check_progress(self) -> None:
        now = system.monotonic()
        if any(now - queue.moved_at > self._timeout_s for queue in self._busy.values()):
            reasons = sorted({queue.why for queue in self._busy.values() if queue.why})
            because = f" ({', '.join(reasons)})" if reasons else ""
            why = f"the brokers did not acknowledge them within {self._timeout_s:.0f} s{because}"
            raise self._failure(Cause.timed_out(why))

    def _disconnect(self, connection: ProduceConnection) -> None:
        """Drop a connection; the outcome of its batches without a response is unknown."""
        now = system.monotonic()
        self._client.pool.lost(connection)
        self._client.forget_versions(connection.node)
        self._connections.pop(connection.node, None)
        lost = [key for key in self._requests if key[0] == connection.node]
        for key in lost:
            batches = self._requests.pop(key)
            for queue, _ in batches:
                queue.awaited -= 1
            self._lose(batches, now)
        for queue in self._busy.values():
            if queue.node == connection.node:
                self._client.forget_leader(*queue.partition)

    def _lose(self, batches: Iterable[tuple[PartitionQueue, Sealed]], now: float) -> None:
        """Send batches again of which it is unknown whether they were or will be written."""
        for queue, sealed in batches:
            queue.maybe_written.add(sealed.sequence)
            if queue.refused is not None:
                raise unclear(queue.partition, queue.refused[1])
            _resend(queue, now)


def _resend(queue: PartitionQueue, now: float) -> None:
    queue.resend(now)
    queue.settle()


def _truncated(queue: PartitionQueue, offset: int) -> Cause:
    topic, partition = queue.partition
    text = f"{topic}-{partition} has lost rows up to offset {queue.end} that were acknowledged, and goes on at {offset}"
    return Cause(Code.NONE - 1, "TRUNCATED", text)
