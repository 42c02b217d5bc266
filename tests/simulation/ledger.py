"""The protocol's ports over the simulated cluster: the ledger as a topic partition, the coordinator, the data."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import NoReturn

from spark_eos.errors import ConnectionFailed, EosError, LedgerError, stop
from spark_eos.kafka.transactions import FENCING_END, PLAIN_END
from spark_eos.ledger.group_offsets import LeftOut
from spark_eos.ledger.ledger import ledger_partition
from spark_eos.ledger.lookup import Absences
from spark_eos.ledger.reader import LedgerReader
from spark_eos.protocol.extra import FeatureRecords
from spark_eos.protocol.head import Head, Offsets, Pair, Probe
from spark_eos.protocol.head import TransactionStart as Placed
from spark_eos.protocol.names import first_names, is_name_of, is_task_name, ledger_name, newest_generation, tasks_since
from spark_eos.protocol.ports import (
    Description,
    EndTxnAnswer,
    Generations,
    NotPublished,
    PartitionState,
    Ports,
    State,
    Visibility,
)

from .client import Producer, Refused
from .codes import (
    ABORTABLE,
    CONCURRENT,
    FENCED,
    ID_NOT_FOUND,
    ID_UNAUTHORIZED,
    INVALID_EPOCH,
    INVALID_STATE,
    LOADING,
    MOVED,
    NOT_AVAILABLE,
    OK,
    SERVER_ERROR,
    UNKNOWN_MAPPING,
    UNKNOWN_TOPIC,
)
from .coordinator import Cluster
from .ledger_log import LEDGER_TOPIC, SimulatedLog
from .partition_log import PartitionLog, Place
from .plan import QUERY, SOURCE
from .world import WAITS, Reply, World

PREFIX = "eos"
LEDGER: Place = (LEDGER_TOPIC, 0)
GROUP: Place = ("__consumer_offsets", 0)
LEDGER_TRANSACTION_MS = 10_000
#: For how long a topic must be missing until its records count as gone.
MISSING_MS = 20_000
#: For how long a partition must be unknown to the group's coordinator until its offsets are left out.
UNKNOWN_MS = 2_000
#: Callers look again more often than this, while they look.
LOOKS_MS = max(WAITS) + 5_000

#: The transaction.version from which on EndTxn fences.
_FENCES = 2

#: Codes that say that the transaction was ended, or its id taken.
_GONE = (ABORTABLE, FENCED, INVALID_EPOCH, INVALID_STATE, UNKNOWN_MAPPING)

ANSWERS = {
    **dict.fromkeys((None, SERVER_ERROR, LOADING, NOT_AVAILABLE, MOVED, CONCURRENT), EndTxnAnswer.PENDING),
    OK: EndTxnAnswer.DONE,
    INVALID_STATE: EndTxnAnswer.INCONCLUSIVE,
    FENCED: EndTxnAnswer.INCONCLUSIVE,
    INVALID_EPOCH: EndTxnAnswer.INCONCLUSIVE,
    UNKNOWN_MAPPING: EndTxnAnswer.INCONCLUSIVE,
}


class SimulatedLedger:
    """As one process sees it: the library's own reader over simulated leaders, and a simulated producer."""

    def __init__(
        self,
        world: World,
        cluster: Cluster,
        partitions: int = 1,
        group: str | None = None,
        version: Callable[[], int] | None = None,
        query: str = QUERY,
    ) -> None:
        self._world, self._cluster, self.group, self.query = world, cluster, group, query
        self._version = version or partial(endtxn_version, cluster)
        self.name = ledger_name(PREFIX, query)
        self.left_out = LeftOut()
        home = ledger_partition(query, partitions)
        self.reader = LedgerReader(SimulatedLog(world, cluster), home, query)

    def read(self) -> Head | None:
        return self.reader.read()

    def check_topic(self) -> None:
        self.reader.check_topic()

    def lacks_source(self) -> bool:
        """Whether the cluster does not have the topic that is read; asked a second time after a while."""
        if self._cluster.leaders.code(SOURCE) is not None:
            self._world.sleep(UNKNOWN_MS)
        return self._cluster.leaders.code(SOURCE) is not None

    def take(self) -> SimulatedTerm:
        producer = Producer(self._world, self._cluster, self.name, LEDGER_TRANSACTION_MS, self._version())
        producer.init()
        self.reader.check_taken(self.name)
        return SimulatedTerm(self, producer)


class SimulatedTerm:
    def __init__(self, ledger: SimulatedLedger, producer: Producer) -> None:
        self._ledger, self._producer = ledger, producer

    def read(self) -> Head | None:
        return self._ledger.read()

    def publish(self, head: Head, offsets: Offsets | None = None, records: FeatureRecords | None = None) -> None:
        partition = self._ledger.reader.partition
        head = replace(head, committed_as=self._producer.pair.committed_by(self._producer.version))
        try:
            for record in () if records is None else records.records:
                self._producer.produce((records.topic, records.partition), record)
            for number, value in self._ledger.reader.to_write(head, self._producer.pair.epoch):
                offset = self._producer.produce((LEDGER_TOPIC, number), (self._ledger.query, value))
                self._check_follows(number, offset)
            if offsets is not None:
                self._give(offsets, head.run)
        except Refused as refused:
            self._producer.abort()
            if refused.code in _GONE:
                raise NotPublished(str(refused)) from None
            raise LedgerError("EOS_LEDGER_NOT_WRITABLE", f"{refused}", hint="Nothing was decided.") from None
        try:
            self._producer.end(commit=True)
        except Refused as refused:
            raise NotPublished(str(refused)) from None
        self._ledger.reader.published(partition, offset, head)

    def _give(self, offsets: Offsets, run: str) -> None:
        """Where the cluster does not have the topic, it is left out, as `GroupOffsets` does. Raises Refused."""
        known = self._ledger.left_out.without_them(offsets, run)
        if known and self._ledger.lacks_source():
            self._ledger.left_out.add({(SOURCE[0], str(SOURCE[1]))})
            return
        if known:
            self._producer.send_offsets(GROUP, (self._ledger.group, known))

    def _check_follows(self, partition: int, offset: int) -> None:
        try:
            follows = self._ledger.reader.follows(partition, offset)
        except EosError:
            self._producer.abort()
            raise
        if not follows:
            self._producer.abort()
            raise NotPublished("what was read was not the newest head")


_LASTING = [state for state in State if state is not State.EMPTY]
_COMMITTED = [state for state in State if state.commits]


class SimulatedCoordinator:
    """Kafka's answers, as ``spark_eos.ledger.coordinator`` understands them."""

    def __init__(self, world: World, cluster: Cluster, version: Callable[[], int], query: str = QUERY) -> None:
        self._world, self._cluster, self._query = world, cluster, query
        self._version = version

    def describe(self, ids: Collection[str]) -> Mapping[str, Description]:
        found = {name: self._describe(name) for name in sorted(ids)}
        return {name: description for name, description in found.items() if description is not None}

    def _describe(self, name: str) -> Description | None:
        for _ in self._world.retrying():
            reply = self._world.call(f"describe {name}", lambda: self._cluster.describe(name))
            if reply is not None and reply.code == OK:
                entry = reply.value
                return Description(
                    Pair(name, entry.producer_id, entry.epoch),
                    entry.state,
                    entry.started_ms + self._cluster.ahead_ms,
                    entry.timeout_ms,
                    tuple(sorted(entry.places)),
                )
            if reply is not None and reply.code == ID_NOT_FOUND:
                return None
        raise _silent("describe")

    def ongoing(
        self, *, before: int | None = None, generation_and_slot: tuple[int, int] | None = None, empty: bool = False
    ) -> Collection[Description]:
        states = (State.ONGOING, State.EMPTY) if empty else (State.ONGOING,)
        (listed,) = self._listed(states)
        fits = partial(is_task_name, PREFIX, self._query, before=before, generation_and_slot=generation_and_slot)
        own = [name for name in listed if fits(name)]
        return [found for found in self.describe(own).values() if found.state in states]

    def of_ledger(self) -> Description | None:
        return self._describe(ledger_name(PREFIX, self._query))

    def known(self) -> Collection[Description]:
        (listed,) = self._listed(_LASTING)
        own = {name for name in listed if is_name_of(PREFIX, self._query, name)}
        return self.describe(sorted({*own, *first_names(PREFIX, self._query)})).values()

    def generations(self, decided: Collection[str] = (), *, since: int = 0, thorough: bool = False) -> Generations:
        newest = partial(newest_generation, PREFIX, self._query)
        said = newest(decided)
        if not (thorough or self._cluster.lists_by_pattern):
            return Generations(0, 0, said)
        later = re.compile(tasks_since(PREFIX, self._query, max(since, said + 1)))
        states = list(State) if thorough else _LASTING
        begun, committed = (newest(filter(later.fullmatch, ids)) for ids in self._listed(states, _COMMITTED))
        return Generations(begun, committed, said)

    def _listed(self, *states: Collection[State]) -> list[Collection[str]]:
        """Ids in some states, and in others, as of one moment, as a broker's answer is."""

        def ask() -> Reply:
            replies = [self._cluster.list_in(f"{PREFIX}-{self._query}-", some) for some in states]
            refused = next((reply for reply in replies if reply.code != OK), None)
            return refused or Reply(OK, [reply.value for reply in replies])

        for _ in self._world.retrying():
            reply = self._world.call("list", ask)
            if reply is not None and reply.code == OK:
                return reply.value
        raise _silent("list")

    def begin_ongoing(self, *, empty: bool = False) -> Callable[[], Collection[Description]]:
        """Asked at once, or as late as may be: in truth it is somewhere between."""
        if self._world.step % 2:
            return partial(self.ongoing, empty=empty)
        try:
            found = self.ongoing(empty=empty)
        except ConnectionFailed as error:
            return partial(_raise, error)
        return lambda: found

    def endtxn_version(self) -> int:
        return self._version()

    def end(self, pairs: Mapping[Pair, int], *, commit: bool) -> Mapping[Pair, EndTxnAnswer]:
        ordered = sorted(pairs, key=lambda pair: (pair.id, pair.epoch))
        return {pair: self._end(pair, pairs[pair], commit) for pair in ordered}

    def _end(self, pair: Pair, version: int, commit: bool) -> EndTxnAnswer:
        who = self._world.current.name
        reply = self._world.call(
            f"end {pair.id}",
            lambda: self._cluster.end(pair.id, pair.producer_id, pair.epoch, commit=commit, version=version, who=who),
        )
        if reply is not None and reply.code == ID_UNAUTHORIZED:
            request, answer = "commit" if commit else "abort", "the user may not"
            raise stop("EOS_UNAUTHORIZED", operation=f"{request} {pair.id}: {answer}", rights="WRITE", request=request)
        return ANSWERS[None if reply is None else reply.code]

    def fence(self, names: Collection[str]) -> Collection[str]:
        return [name for name in sorted(names) if not self._fence(name)]

    def _fence(self, name: str) -> bool:
        who = f"cleaner {self._world.current.name}"
        reply = self._world.call(f"init {name}", lambda: self._cluster.init(name, LEDGER_TRANSACTION_MS, who))
        return reply is not None and reply.code == OK

    def first_record(self, pair: Pair, places: Iterable[Place]) -> Probe | None:
        """DescribeProducers: where the open transaction of ``pair`` begins in one of these partitions."""
        for place in places:
            reply = self._world.call("producers", lambda place=place: self._began(place, pair))
            if reply is not None and reply.value is not None:
                return Probe(*place, *reply.value)
        return None

    def begins(self, pair: Pair, places: Iterable[Place]) -> list[Probe]:
        """The same for all of these partitions, sorted; those whose leader does not know it are left out."""
        found = (self.first_record(pair, [place]) for place in sorted(set(places)))
        return [probe for probe in found if probe is not None]

    def _began(self, place: Place, pair: Pair) -> Reply:
        if (code := self._cluster.leaders.code(place)) is not None:
            return Reply(code)
        log = self._cluster.log(place)
        if not log.is_open(pair.producer_id, pair.epoch):
            return Reply(OK)
        return Reply(OK, (log.open[pair.producer_id], log.producers[pair.producer_id].sequence))


class SimulatedData:
    def __init__(self, world: World, cluster: Cluster) -> None:
        self._world, self._cluster = world, cluster
        self._absences = Absences(MISSING_MS, gap=LOOKS_MS)

    def look(self, pair: Pair, probe: Probe) -> Visibility | None:
        place = probe.topic, probe.partition
        reply = self._world.call(
            "fetch data", lambda: self._led(place, lambda log: self._found(place, log, pair, probe))
        )
        if reply is not None and reply.code == UNKNOWN_TOPIC:
            return self._gone_or_silent(probe)
        if reply is None or reply.code != OK:
            return None
        self._absences.is_there(place)
        return reply.value

    def look_each(self, places: Collection[Placed]) -> Mapping[Placed, Visibility | None]:
        """All partitions have one leader here. As with `RecordLookup`, the lowest place of each is asked for first."""
        found: dict[Placed, Visibility | None] = {}
        left: dict[Place, list[Placed]] = {}
        for pair, probe in sorted(places, key=lambda one: (one[1].topic, one[1].partition, -one[1].offset)):
            left.setdefault((probe.topic, probe.partition), []).append((pair, probe))
        begins = {place: {probe.offset for _, probe in own} for place, own in left.items()}
        while left:
            asked = {place: own.pop() for place, own in left.items()}
            reply = self._world.call("look back", partial(self._states, asked, begins))
            for place, one in asked.items():
                found[one] = None if reply is None else reply.value[place]
                if found[one] in (None, Visibility.BLOCKED):
                    found |= dict.fromkeys(left[place], found[one])
                    left[place].clear()
                if not left[place]:
                    del left[place]
        return found

    def _states(self, asked: Mapping[Place, Placed], begins: Mapping[Place, set[int]]) -> Reply:
        return Reply(OK, {place: self._state_at(place, *one, begins[place]) for place, one in asked.items()})

    def _state_at(self, place: Place, pair: Pair, probe: Probe, begins: Collection[int]) -> Visibility | None:
        code, id_ = self._cluster.leaders.code(place), probe.topic_id
        if code is not None:
            gone = self._gone_or_silent(probe) if code == UNKNOWN_TOPIC else None
            return Visibility.DELETED if gone is not None and id_ else gone
        if id_ and id_ != self._cluster.topic_id(probe.topic):
            gone = self._absences.is_gone((id_, probe.partition), self._world.now, as_topic=True)
            return Visibility.DELETED if gone else None
        self._absences.is_there(place)
        self._absences.is_there((id_, probe.partition))
        log = self._cluster.log(place)
        found, stable = self._found(place, log, pair, probe), self._cluster.leaders.stable(place, log)
        held = found is None and log.begin <= stable <= probe.offset and stable not in begins
        return Visibility.BLOCKED if held else found

    def _gone_or_silent(self, probe: Probe) -> Visibility | None:
        gone = self._absences.is_gone((probe.topic, probe.partition), self._world.now, as_topic=True)
        return Visibility.EXPIRED if gone else None

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return {topic: self._cluster.topic_id(topic) for topic in topics}

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        place = topic, partition
        reply = self._world.call("producers", lambda: self._led(place, _state))
        if reply is None or reply.code != OK or reply.value is None:
            return None
        self._absences.is_there(place)
        return reply.value

    def _led(self, place: Place, ask: Callable[[PartitionLog], object]) -> Reply:
        code = self._cluster.leaders.code(place)
        return Reply(code) if code is not None else Reply(OK, ask(self._cluster.log(place)))

    def _found(self, place: Place, log: PartitionLog, pair: Pair, probe: Probe) -> Visibility | None:
        """As `RecordLookup` judges what Fetch, and where that does not do ListOffsets, say."""
        leaders = self._cluster.leaders
        if leaders.watermark(place, log) <= probe.offset and leaders.code_of_offsets(place) is not None:
            return None
        if probe.offset < log.begin:
            if leaders.stable(place, log) <= log.begin < log.end:
                return None
            return Visibility.ABORTED if log.tells_abort(pair.producer_id, probe.offset) else Visibility.EXPIRED
        if probe.offset >= log.end:
            return Visibility.EXPIRED
        if leaders.stable(place, log) <= probe.offset:
            return None
        record = log.records[probe.offset]
        if record.control or (record.producer_id, record.epoch) != (pair.producer_id, pair.epoch):
            return Visibility.EXPIRED
        return Visibility.VISIBLE if record.visible else Visibility.ABORTED


def _state(log: PartitionLog) -> PartitionState | None:
    """A leader that names no producer at all has not answered: it knows those of the last day."""
    if not log.producers:
        return None
    open_ones = {(id, log.producers[id].epoch): begin for id, begin in log.open.items()}
    lasts = {(id, epoch): log.producers[id].sequence for id, epoch in open_ones if log.producers[id].sequence >= 0}
    return PartitionState(log.begin, open_ones, lasts)


def _raise(error: Exception) -> NoReturn:
    raise error


def _silent(call: str) -> ConnectionFailed:
    return ConnectionFailed("EOS_KAFKA_UNREACHABLE", f"No answer to {call}.", hint="Start the query again.")


def endtxn_version(cluster: Cluster) -> int:
    """By the feature that is finalized now."""
    return FENCING_END if cluster.transaction_version >= _FENCES else PLAIN_END


def ports(
    world: World,
    cluster: Cluster,
    ledger: SimulatedLedger | None = None,
    ahead_ms: int = 0,
    version: Callable[[], int] | None = None,
    query: str = QUERY,
    data: SimulatedData | None = None,
) -> Ports:
    """What the steps of the protocol need, in one process, whose clock is ahead by so much; by default in a new one.
    ``version``: of EndTxn, as far as the process knows."""

    def reach(point: str) -> None:
        world.point(point)

    return Ports(
        ledger=ledger or SimulatedLedger(world, cluster, query=query),
        coordinator=SimulatedCoordinator(world, cluster, version or partial(endtxn_version, cluster), query),
        data=data or SimulatedData(world, cluster),
        retrying=world.retrying,
        now_ms=lambda: world.now + ahead_ms,
        elapsed_ms=lambda: world.now,
        reach=reach,
    )
