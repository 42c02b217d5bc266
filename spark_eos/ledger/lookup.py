"""The port ``Data``: what became of a transaction, and what is open in a partition, by the log itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_eos import system
from spark_eos.kafka.admin.topics import begin_offsets, describe_topics, end_offsets
from spark_eos.kafka.codes import OK, UNAUTHORIZED, Code
from spark_eos.kafka.errors import unreadable
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.records.batches import Damage, UnsupportedFormat, walk_batches
from spark_eos.kafka.requests.describe_producers import describe_producers, open_begins, open_lasts
from spark_eos.kafka.requests.fetch import FetchResponse, fetch_many, fetch_once
from spark_eos.protocol.head import Pair, Probe
from spark_eos.protocol.ports import Found, PartitionState, Place
from spark_eos.topic_partition import TopicPartition

#: For how long a topic must be missing until its records count as gone.
MISSING_S = 20.0

#: Seconds for the answers of all leaders to one look.
_ANSWERS_S = 5.0


class RecordLookup:
    """The port ``Data``. Of records, only the headers of their batches are read."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        self._missing_since: dict[tuple[str, int], float] = {}

    def look(self, pair: Pair, probe: Probe) -> Found | None:
        fetched = fetch_once(self._client, probe.topic, probe.partition, probe.offset, max_bytes=1)
        if fetched is None:
            return self._gone_or_silent(probe)
        answer, data = fetched
        if answer.error == Code.OFFSET_OUT_OF_RANGE:  # then the answer holds no offsets
            return None if self._is_within(probe) else self._look_behind(pair, probe)
        if answer.error in UNAUTHORIZED:
            raise unreadable(probe.topic, self._client.bootstrap_servers)
        if answer.error == OK and answer.high_watermark <= probe.offset and not self._is_within(probe):
            return Found.GONE
        if answer.error != OK or answer.stable <= probe.offset:
            return None
        try:
            batch = next((b for b in walk_batches(data, answer.size, answer.aborted) if b.last >= probe.offset), None)
        except (Damage, UnsupportedFormat):
            return None  # no outcome; another fetch, of another leader perhaps, may be sound
        if batch is None or batch.base > probe.offset:
            return Found.GONE
        if batch.control or (batch.producer_id, batch.epoch) != (pair.producer_id, pair.epoch):
            return Found.GONE  # also where the place is its marker's, in a topic that was created anew
        return Found.MISSING if batch.aborted else Found.THERE

    def look_each(self, places: Collection[Place]) -> Mapping[Place, Found | None]:
        """Without reading rows: Fetch names the aborted transactions whose markers are behind the offset that it is
        asked for, also where it is to return no bytes. Asked for the offset behind a transaction's first record, it
        names that transaction if its marker is one of an abort: the marker cannot be further ahead than that.

        The lowest places are asked for first: readers who are kept from one are kept from all that are behind it."""
        found: dict[Place, Found | None] = {}
        left: dict[TopicPartition, list[Place]] = {}
        for place in sorted(places, key=lambda place: -place[1].offset):
            left.setdefault((place[1].topic, place[1].partition), []).append(place)
        begins = {at: {probe.offset for _, probe in own} for at, own in left.items()}
        while left:
            wanted = {at: (own[-1][1].offset + 1, 0) for at, own in left.items()}
            answers = fetch_many(self._client, wanted, isolation="read_committed", max_bytes=0, timeout_s=_ANSWERS_S)
            for at, own in [*left.items()]:
                pair, probe = own.pop()
                state = self._state(pair, probe, answers[at][0] if at in answers else None, begins[at])
                found[pair, probe] = state
                if state is None or state is Found.HELD:
                    found |= dict.fromkeys(own, state)
                    own.clear()
                if not own:
                    del left[at]
        return found

    def _state(self, pair: Pair, probe: Probe, answer: FetchResponse | None, begins: Collection[int]) -> Found | None:
        """By an answer for the offset behind the transaction's first record. ``begins``: where those begin that are
        looked at in this partition."""
        if answer is None:
            return self._gone_or_silent(probe)
        if answer.error == OK and not answer.lists_aborted:
            return None
        if answer.error != OK or answer.stable == probe.offset + 1:  # then it names none
            return self.look(pair, probe)
        if answer.stable <= probe.offset:
            return None if answer.stable in begins else Found.HELD
        return Found.MISSING if (pair.producer_id, probe.offset) in answer.aborted else Found.THERE

    def _gone_or_silent(self, probe: Probe) -> Found | None:
        return Found.GONE if self._is_missing(probe.topic, probe.partition) else None

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """None without an answer. Raises as `begin_offsets` does.

        A leader that names no producer at all has not answered: it knows those of the last day, open or not.
        """
        producers = describe_producers(self._client, topic, partition)
        if not producers:
            return None
        begin = begin_offsets(self._client, {topic: [partition]})[topic][partition]
        return PartitionState(begin, open_begins(producers), open_lasts(producers))

    def _look_behind(self, pair: Pair, probe: Probe) -> Found | None:
        """Where the log begins later than the transaction. As long as its marker is there, an abort is told by Fetch:
        of all transactions that are aborted in what it returns, it names the first offset, also one before that."""
        begin = begin_offsets(self._client, {probe.topic: [probe.partition]})[probe.topic][probe.partition]
        if begin <= probe.offset:
            return Found.GONE
        fetched = fetch_once(self._client, probe.topic, probe.partition, begin, max_bytes=1)
        if fetched is None or fetched[0].error != OK:
            return None
        answer, _ = fetched
        if (pair.producer_id, probe.offset) in answer.aborted:
            return Found.MISSING
        return None if answer.stable <= begin < answer.high_watermark else Found.GONE

    def _is_within(self, probe: Probe) -> bool:
        """Whether the partition has the offset. It was acknowledged, so a leader that vouches for its end has it (see
        `list_offsets`), unless the log was truncated, or the topic created anew."""
        place = {probe.topic: [probe.partition]}
        begin = begin_offsets(self._client, place)[probe.topic][probe.partition]
        end = end_offsets(self._client, place, "read_uncommitted")[probe.topic][probe.partition]
        return begin <= probe.offset < end

    def _is_missing(self, topic: str, partition: int) -> bool:
        """Whether the cluster has not had the partition for a while: brokers that have just started may not know it."""
        found = describe_topics(self._client, [topic], missing_ok=True)
        if topic in found and partition < found[topic].partitions:
            self._missing_since.pop((topic, partition), None)
            return False
        since = self._missing_since.setdefault((topic, partition), system.monotonic())
        return system.monotonic() - since > MISSING_S
