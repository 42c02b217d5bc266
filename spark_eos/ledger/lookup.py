"""The port ``Data``: the outcome of transactions and the open transactions of partitions, from the log itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from spark_eos.base import system
from spark_eos.base.topic_partition import TopicPartition
from spark_eos.kafka.admin.topics import begin_offsets, describe_topics, end_offsets, id_bytes
from spark_eos.kafka.codes import ANOTHER_TOPIC, OK, UNAUTHORIZED, Code
from spark_eos.kafka.errors import unreadable
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.records.batches import Damage, walk_batches
from spark_eos.kafka.requests.describe_producers import describe_producers, open_begins, open_lasts
from spark_eos.kafka.requests.fetch import FetchResponse, fetch_many, fetch_once, is_supported_by_id
from spark_eos.protocol.head import Pair, Probe, TransactionStart
from spark_eos.protocol.ports import PartitionState, Visibility

#: Seconds for which a partition must be missing until its records count as gone.
MISSING_S = 20.0
#: Seconds after which an earlier look counts no more.
LOOKS_S = 120.0

#: Timeout for the responses of all leaders, in seconds.
_ANSWERS_S = 5.0

#: Instead of a partition's number: the whole topic.
_ALL = -1


class Absences:
    """Times for which partitions have been missing, by the requests of this process: a broker that has just started may
    not know a topic yet, and a process may live through many such starts. Where a topic is missing, a look at one of
    its partitions counts for all: a look takes a second, and they may be many.

    ``least``: for how long a partition has to be missing until it counts as gone. ``gap``: after so long without a
    look, an earlier one says nothing of the time between. Both in the units of the caller's clock.
    """

    def __init__(self, least: float, gap: float) -> None:
        self._least, self._gap = least, gap
        self._spans: dict[TopicPartition, tuple[float, float]] = {}  # the first and the last look in a row

    def is_gone(self, partition: TopicPartition, now: float, *, as_topic: bool = False) -> bool:
        """Return whether a partition that is missing now has been so for long enough. ``as_topic``: its whole topic is
        missing."""
        whole = partition[0], _ALL
        if as_topic:
            partition = whole
        else:
            self._spans.pop(whole, None)
        first, last = self._spans.get(partition, (now, now))
        if now - last > self._gap:
            first = now
        self._spans[partition] = first, now
        return now - first > self._least

    def is_there(self, partition: TopicPartition) -> None:
        """Note an answer for this partition: when it is missing again, it is counted anew."""
        self._spans.pop(partition, None)
        self._spans.pop((partition[0], _ALL), None)


class RecordLookup:
    """The port ``Data``. Only headers of record batches are read, no records."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        self._absences = Absences(MISSING_S, LOOKS_S)

    def look(self, pair: Pair, probe: Probe) -> Visibility | None:
        fetched = self._fetch(probe, probe.offset)
        if fetched is None:
            return Visibility.EXPIRED if self._gone([(probe.topic, probe.partition)]) else None
        answer, data = fetched
        self._note(probe, answer)
        if answer.error == Code.OFFSET_OUT_OF_RANGE:  # a response with an error has no offsets
            return None if self._is_within(probe) else self._look_behind(pair, probe)
        if answer.error in UNAUTHORIZED:
            raise unreadable(probe.topic, self._client.bootstrap_servers)
        if answer.error == OK and answer.high_watermark <= probe.offset and not self._is_within(probe):
            return Visibility.EXPIRED
        if answer.error != OK or answer.stable <= probe.offset or not answer.lists_aborted:
            return None
        try:
            batch = next((b for b in walk_batches(data, answer.size, answer.aborted) if b.last >= probe.offset), None)
        except Damage:
            return None  # no outcome; the next response, of another leader perhaps, may be sound
        if batch is None or batch.base > probe.offset:
            return Visibility.EXPIRED
        if batch.control or (batch.producer_id, batch.epoch) != (pair.producer_id, pair.epoch):
            return (
                Visibility.EXPIRED
            )  # also if a marker of the same producer is there, in a topic that was created anew
        return Visibility.ABORTED if batch.aborted else Visibility.VISIBLE

    def look_each(self, starts: Collection[TransactionStart]) -> Mapping[TransactionStart, Visibility | None]:
        """Return the outcome of many transactions, without fetching records.

        A Fetch response lists the aborted transactions whose markers lie behind the requested offset, even if it
        returns no bytes. So a Fetch from the offset behind a transaction's first record lists the transaction if and
        only if it was aborted: its marker cannot lie before that offset. From tiered storage, a leader returns no list
        without records: such a transaction is looked up alone.

        The lowest offsets come first: a transaction that holds readers back at one offset does so at all later ones.

        Where a topic's id is known, it is fetched by that, so that a recreated topic does not answer for the deleted
        one.
        """
        states: dict[TransactionStart, Visibility | None] = {}
        for ids, some in self._by_ids(starts):
            states |= self._look_each(some, ids)
        return states

    def _by_ids(self, starts: Collection[TransactionStart]) -> list[tuple[dict[str, str], list[TransactionStart]]]:
        """Divide the starts into parts that one request can have: without topic ids, or with one id for each topic. As
        a rule, there is one part."""
        by_id = any(probe.topic_id for _, probe in starts) and is_supported_by_id(self._client)
        parts: list[tuple[dict[str, str], list[TransactionStart]]] = []
        for start in starts:
            topic, id_ = start[1].topic, start[1].topic_id if by_id else ""
            fits = (part for part in parts if bool(part[0]) is bool(id_) and part[0].get(topic, id_) == id_)
            ids, some = next(fits, ({}, []))
            if not some:
                parts.append((ids, some))
            if id_:
                ids[topic] = id_
            some.append(start)
        return parts

    def _look_each(
        self, starts: Collection[TransactionStart], ids: Mapping[str, str]
    ) -> dict[TransactionStart, Visibility | None]:
        """Return the outcomes, by Fetch requests. ``ids``: of the topics; empty to fetch by name."""
        states: dict[TransactionStart, Visibility | None] = {}
        left: dict[TopicPartition, list[TransactionStart]] = {}
        for start in sorted(starts, key=lambda start: -start[1].offset):
            left.setdefault((start[1].topic, start[1].partition), []).append(start)
        begins = {at: {probe.offset for _, probe in own} for at, own in left.items()}
        as_bytes = {topic: id_bytes(id_) for topic, id_ in ids.items()}
        while left:
            wanted = {at: (own[-1][1].offset + 1, 0) for at, own in left.items()}
            answers = fetch_many(
                self._client, wanted, isolation="read_committed", max_bytes=0, timeout_s=_ANSWERS_S, ids=as_bytes
            )
            gone = self._gone(left.keys() - answers.keys())
            for at, own in [*left.items()]:
                pair, probe = own.pop()
                if at in answers:
                    state = self._state(pair, probe, answers[at][0], begins[at])
                else:
                    state = None if at not in gone else Visibility.DELETED if ids else Visibility.EXPIRED
                states[pair, probe] = state
                if state is None or state is Visibility.BLOCKED or at in gone:
                    states |= dict.fromkeys(own, state)
                    own.clear()
                if not own:
                    del left[at]
        return states

    def _state(self, pair: Pair, probe: Probe, answer: FetchResponse, begins: Collection[int]) -> Visibility | None:
        """Return the outcome, from a response for the offset behind the transaction's first record. ``begins``: first
        offsets of all transactions that are looked up in this partition."""
        self._note(probe, answer)
        if answer.error in ANOTHER_TOPIC and probe.topic_id:
            return self._deleted(probe)
        at_end = answer.stable == probe.offset + 1  # in this case, the list is empty
        if answer.error != OK or not answer.lists_aborted or at_end:
            return self.look(pair, probe)
        if answer.stable <= probe.offset:
            return None if answer.stable in begins else Visibility.BLOCKED
        return Visibility.ABORTED if (pair.producer_id, probe.offset) in answer.aborted else Visibility.VISIBLE

    def _note(self, probe: Probe, answer: FetchResponse) -> None:
        if answer.error in (OK, Code.OFFSET_OUT_OF_RANGE):
            self._absences.is_there((probe.topic, probe.partition))
            self._absences.is_there((probe.topic_id, probe.partition))

    def _deleted(self, probe: Probe) -> Visibility | None:
        """Return the outcome where the leader has no log of the topic with this id; it may not have heard of it yet."""
        at = probe.topic_id, probe.partition
        return Visibility.DELETED if self._absences.is_gone(at, system.monotonic(), as_topic=True) else None

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """Return the first offset of a partition and its open transactions; None without an answer. Raises
        ConnectionFailed, TopicError and Unauthorized.

        A leader that reports no producer at all counts as no answer: it knows all producers of the last day, with and
        without an open transaction.
        """
        producers = describe_producers(self._client, topic, partition)
        if not producers:
            return None
        self._absences.is_there((topic, partition))
        begin = begin_offsets(self._client, {topic: [partition]})[topic][partition]
        return PartitionState(begin, open_begins(producers), open_lasts(producers))

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return the ids of the topics that a broker knows at once. Raises ConnectionFailed and Unauthorized."""
        described = describe_topics(self._client, topics, missing_ok=True, unknown_s=0)
        return {name: topic.id for name, topic in described.items()}

    def _look_behind(self, pair: Pair, probe: Probe) -> Visibility | None:
        """Return the outcome of a transaction whose first record is no longer in the log. As long as its marker is
        there, a Fetch from the log's start lists the transaction if it was aborted, with its first offset."""
        begin = begin_offsets(self._client, {probe.topic: [probe.partition]})[probe.topic][probe.partition]
        if begin <= probe.offset:
            return Visibility.EXPIRED
        fetched = self._fetch(probe, begin)
        if fetched is None or fetched[0].error != OK or not fetched[0].lists_aborted:
            return None
        answer, _ = fetched
        if (pair.producer_id, probe.offset) in answer.aborted:
            return Visibility.ABORTED
        return None if answer.stable <= begin < answer.high_watermark else Visibility.EXPIRED

    def _fetch(self, probe: Probe, offset: int) -> tuple[FetchResponse, bytes] | None:
        """Return the response for an offset of the probe's partition, and a record batch; None without a response. It
        lists nothing where a leader has not read the offset in tiered storage in time. Only there, the request waits:
        where nothing can be read yet, it would wait for as long as it may."""
        ask = partial(fetch_once, self._client, probe.topic, probe.partition, offset, max_bytes=1)
        fetched = ask()
        if fetched is None or fetched[0].error != OK or fetched[0].lists_aborted:
            return fetched
        return ask(max_wait_ms=self._client.fetch_wait_ms)

    def _is_within(self, probe: Probe) -> bool:
        """Return whether the partition has this offset, which was acknowledged. A leader that answers ListOffsets has
        all acknowledged records, unless the log was truncated or the topic was created anew."""
        place = {probe.topic: [probe.partition]}
        begin = begin_offsets(self._client, place)[probe.topic][probe.partition]
        end = end_offsets(self._client, place, "read_uncommitted")[probe.topic][probe.partition]
        return begin <= probe.offset < end

    def _gone(self, silent: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return which of these, for which there was no answer, the cluster has not had for `MISSING_S` seconds."""
        topics = describe_topics(self._client, {topic for topic, _ in silent}, missing_ok=True)
        now = system.monotonic()
        gone = set()
        for topic, partition in silent:
            if topic in topics and partition < topics[topic].partitions:
                self._absences.is_there((topic, partition))
            elif self._absences.is_gone((topic, partition), now, as_topic=topic not in topics):
                gone.add((topic, partition))
        return gone
