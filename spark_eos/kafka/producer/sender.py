"""Record batches on their way to the leaders of their partitions: each of them written once, in order, or an error.

Brokers know the last five batches of a producer in a partition, and drop one that comes again. So a batch whose fate is
not known is sent again as it is, with its sequence number, and so are all that came after it. Three rules make that
safe: of a partition no more than five batches are without an answer; all of them are on one connection, and go again
only when nothing is awaited there; and the first batch of a partition goes alone, since brokers before Kafka 4.1 take
any sequence number for a first one.

A broker takes no batch before it has all that come before, so that the answer to one counts for those, too. That is
needed after a broker was restarted: it knows only the last batch then, and calls the four before out of order.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field

from spark_eos.errors import EosError
from spark_eos.kafka.codes import LEADER_MOVED, OK, PRODUCE_RETRIES, Code
from spark_eos.kafka.config.handshake import silence_seconds
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.errors import Cause, delivery_error, too_large
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.net.connection import wait
from spark_eos.kafka.records.encode import Sealed
from spark_eos.kafka.requests.end_txn import end_own_txn
from spark_eos.kafka.requests.produce import Place, ProduceConnection, ProduceResponse, connection_pool
from spark_eos.protocol.head import Pair
from spark_eos.retry import FIRST_WAIT, LONGEST_WAIT

#: Batches of a partition of which a broker remembers that it has them.
_REMEMBERED = 5
#: Connections on which a partition may be without an answer before its time is over.
_TRIES = 3
#: A broker gives its replicas a part of the time for which it may be silent.
_REPLICAS_SHARE = 0.6
_SETTLE_SECONDS = 5.0
_ABORT_SECONDS = 10.0
#: Seconds for which a leader may say that it does not know its partition, as one does that has just started.
_UNKNOWN_PLACE_S = 30.0


@dataclass
class _PartitionQueue:
    """One partition's batches. ``sent``: those without an answer, on the way to ``node``; ``awaited``: how many answers
    are still to come. ``turning``: one was not written, so that all of ``sent`` go again when none is awaited.
    ``doubtful``: they have gone again, and none of them is known to be written yet."""

    place: Place
    moved_at: float
    waiting: deque[Sealed] = field(default_factory=deque)
    sent: deque[Sealed] = field(default_factory=deque)
    awaited: int = 0
    node: int = -1
    begun: bool = False
    turning: bool = False
    doubtful: bool = False
    unknown_since: float | None = None
    not_before: float = 0.0
    pause: float = 0.0

    def may_send(self, now: float) -> bool:
        room = len(self.sent) < (_REMEMBERED if self.begun else 1)
        return bool(self.waiting) and room and not self.turning and now >= self.not_before

    def written(self, sealed: Sealed, now: float) -> int:
        """This batch was written, and so were those before it; the bytes of them all."""
        size = 0
        while sealed in self.sent:
            size += len(self.sent.popleft().data)
        self.begun, self.doubtful, self.moved_at = True, False, now
        self.unknown_since, self.pause = None, 0.0
        return size

    def turn(self, now: float) -> None:
        """A batch was not written, or nobody knows: all of ``sent`` go again, after a pause that grows."""
        if not self.turning:
            self.turning, self.not_before = True, now + self.pause
            self.pause = min(max(2 * self.pause, FIRST_WAIT), LONGEST_WAIT)

    def settle(self) -> None:
        """To be called after each answer."""
        if self.turning and not self.awaited:
            self.waiting.extendleft(reversed(self.sent))
            self.sent.clear()
            self.turning, self.doubtful = False, True


class Sender:
    """The batches of one transaction. ``size``: bytes of those that have been added and are not known to be written;
    ``offsets``: where each partition's last batch begins, as far as a broker has told.

    ``timeout_s``: how long a partition may make no progress. Every call may raise RowError (EOS_ROW_TOO_LARGE),
    ProtocolStop (EOS_FENCED) or KafkaError (EOS_DELIVERY_FAILED); then no further call is of use but `abort` and
    `close`.
    """

    def __init__(self, kafka: KafkaProperties, transactional_id: str, timeout_s: float) -> None:
        self.size = 0
        self.offsets: dict[Place, int] = {}
        self._any_sent = False
        self._kafka = kafka
        self._client = broker_client(kafka)
        self._name = transactional_id
        self._timeout_s = timeout_s
        self._silence_s = min(silence_seconds(kafka), timeout_s / _TRIES)
        self._queues: dict[Place, _PartitionQueue] = {}
        self._busy: dict[Place, _PartitionQueue] = {}
        self._connections: dict[int, ProduceConnection] = {}
        self._requests: dict[tuple[int, int], list[tuple[_PartitionQueue, Sealed]]] = {}

    def add(self, place: Place, sealed: Sealed) -> None:
        """Queue a batch behind those of its partition."""
        queue = self._queues.get(place)
        if queue is None:
            queue = self._queues[place] = _PartitionQueue(place, time.monotonic())
        if place not in self._busy:
            self._busy[place] = queue
            queue.moved_at = time.monotonic()
        queue.waiting.append(sealed)
        self.size += len(sealed.data)

    def advance(self) -> None:
        """Take the answers that are there and send what may be sent, without waiting for either."""
        for connection in list(self._connections.values()):
            try:
                connection.push()
                answers = connection.answers()
            except OSError:
                self._disconnect(connection)
                continue
            for answer in answers:
                self._judge(connection.node, answer)
            if not connection.idle and time.monotonic() - connection.moved_at > self._silence_s:
                self._disconnect(connection)
        while self._send_round():
            pass

    def wait_until_below(self, size: int) -> None:
        """Until less than so many bytes are without an answer, or none for 0."""
        self.advance()
        while self.size and self.size >= size:
            self._check_progress()
            wait(self._connections.values(), self._next_moment())
            self.advance()

    def abort(self, own: Pair) -> None:
        """Abort the transaction, as well as it goes; the coordinator's time-out does the rest."""
        if self._any_sent:
            self._settle()  # what a broker has not looked at yet could begin it anew
            end_own_txn(self._client, astuple(own), commit=False, seconds=_ABORT_SECONDS)

    def _settle(self) -> None:
        """Take the answers to what was sent, whatever they are, and send nothing more."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        self._busy.clear()
        while time.monotonic() < deadline and any(not c.idle for c in self._connections.values()):
            wait(self._connections.values(), deadline)
            for connection in list(self._connections.values()):
                try:
                    connection.push()
                    connection.answers()
                except OSError:
                    self._connections.pop(connection.node).close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection_pool.give_back(self._kafka, connection)
        self._connections.clear()

    # Sending

    def _send_round(self) -> bool:
        """At most one batch of each partition, in one request to each broker; whether there was any."""
        now = time.monotonic()
        requests: dict[int, dict[Place, tuple[_PartitionQueue, Sealed]]] = {}
        for queue in self._busy.values():
            if queue.may_send(now) and self._find_node(queue, now):
                requests.setdefault(queue.node, {})[queue.place] = queue, queue.waiting[0]
        for node, batches in requests.items():
            self._send(self._connections[node], batches)
        return bool(requests)

    def _send(self, connection: ProduceConnection, batches: dict[Place, tuple[_PartitionQueue, Sealed]]) -> None:
        data = {place: sealed.data for place, (_, sealed) in batches.items()}
        for queue, _ in batches.values():
            queue.sent.append(queue.waiting.popleft())
        self._any_sent = True
        try:
            number = connection.send(self._name, data, int(1000 * self._silence_s * _REPLICAS_SHARE))
        except OSError:
            self._turn((queue for queue, _ in batches.values()), time.monotonic())
            self._disconnect(connection)
            return
        for queue, _ in batches.values():
            queue.awaited += 1
        self._requests[connection.node, number] = list(batches.values())

    def _find_node(self, queue: _PartitionQueue, now: float) -> bool:
        """Whether the partition's leader is known and connected; it does not change while answers are awaited."""
        if not queue.awaited:
            node = self._client.leader(*queue.place)
            if node is None:
                self._turn([queue], now)
                return False
            queue.node = node
        if queue.node in self._connections:
            return True
        try:
            self._connections[queue.node] = connection_pool.connect(self._client, queue.node)
        except OSError:
            self._client.forget_leader(*queue.place)
            self._turn([queue], now)
            return False
        return True

    # Answers

    def _judge(self, node: int, answer: ProduceResponse) -> None:
        now = time.monotonic()
        batches = self._requests.pop((node, answer.number))
        self.offsets.update(answer.offsets)
        for queue, _ in batches:
            queue.awaited -= 1
        for queue, sealed in batches:
            self._judge_one(queue, sealed, answer.errors[queue.place], now)
            queue.settle()
            if not queue.sent and not queue.waiting:
                self._busy.pop(queue.place, None)

    def _judge_one(self, queue: _PartitionQueue, sealed: Sealed, error: int, now: float) -> None:
        if error in (OK, Code.DUPLICATE_SEQUENCE_NUMBER):
            self.size -= queue.written(sealed, now)
        elif error in PRODUCE_RETRIES:
            if error in LEADER_MOVED:
                self._client.forget_leader(*queue.place)
            if error == Code.UNKNOWN_TOPIC_OR_PARTITION:
                queue.unknown_since = queue.unknown_since or now
                if now - queue.unknown_since > _UNKNOWN_PLACE_S:
                    raise self._failure(Cause.of(error))
            queue.turn(now)
        elif error == Code.MESSAGE_TOO_LARGE:
            raise too_large(queue.place, sealed.count, len(sealed.data))
        elif error != Code.OUT_OF_ORDER_SEQUENCE_NUMBER or not self._may_be_in_order(queue):
            raise self._failure(Cause.of(error))

    def _may_be_in_order(self, queue: _PartitionQueue) -> bool:
        """Whether "out of order" may come of a batch before that was not written, or of a broker that has forgotten
        that it has this one and will take a later one."""
        return queue.turning or (queue.doubtful and queue.awaited > 0)

    def _failure(self, cause: Cause) -> EosError:
        rows = sum(sealed.count for queue in self._queues.values() for sealed in (*queue.sent, *queue.waiting))
        return delivery_error(self._name, cause, rows)

    # Waiting, and connections that are lost

    def _next_moment(self) -> float:
        now = time.monotonic()
        moments = [now + self._silence_s]
        moments += [c.moved_at + self._silence_s for c in self._connections.values() if not c.idle]
        moments += [queue.not_before for queue in self._busy.values() if queue.may_send(queue.not_before)]
        moments += [queue.moved_at + self._timeout_s for queue in self._busy.values()]
        return min(moments)

    def _check_progress(self) -> None:
        now = time.monotonic()
        if any(now - queue.moved_at > self._timeout_s for queue in self._busy.values()):
            why = f"the brokers did not acknowledge them within {self._timeout_s:.0f} s"
            raise self._failure(Cause.timed_out(why))

    def _disconnect(self, connection: ProduceConnection) -> None:
        """Nobody knows what became of the batches that had no answer on this connection."""
        now = time.monotonic()
        connection_pool.lost(self._kafka, connection)
        self._connections.pop(connection.node, None)
        lost = [key for key in self._requests if key[0] == connection.node]
        for key in lost:
            batches = self._requests.pop(key)
            for queue, _ in batches:
                queue.awaited -= 1
            self._turn((queue for queue, _ in batches), now)
        for queue in self._busy.values():
            if queue.node == connection.node:
                self._client.forget_leader(*queue.place)

    def _turn(self, queues: Iterable[_PartitionQueue], now: float) -> None:
        for queue in queues:
            queue.turn(now)
            queue.settle()
