"""What happens to the ledger topic and to leaders of partitions: the faults, and who does them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .codes import LOADING, MOVED, UNAUTHORIZED, UNKNOWN_MEMBER
from .coordinator import WEEK_MS, Cluster
from .ledger import LEDGER_TOPIC, PREFIX
from .partition_log import Place
from .plan import OUTPUTS, SOURCE
from .world import Actor, Fault, Handler, Strike, World

#: For as long as a transaction may live by default: longer than anybody waits for the ledger.
HELD_MS = 900_000

#: Fewer records than this are lost to an unclean election, and what is not whole without them.
CUTS = 7

#: For so long a leader is away at most, and is behind after that.
AWAY_MS, LAGS_MS = 45_000, 5_000

#: For so long at most, a broker that has just started has not heard of a topic.
UNHEARD_MS = 10_000

_REFUSALS = (LOADING, MOVED, UNAUTHORIZED, UNKNOWN_MEMBER)


class Topics:
    """``passed`` says whether every start is past micro-batch 0 of its query."""

    def __init__(self, world: World, cluster: Cluster, passed: Callable[[], bool]) -> None:
        self._world, self._cluster, self._passed = world, cluster, passed

    @property
    def handlers(self) -> dict[Strike, Handler]:
        return {
            Strike.LEADER_MOVES: self._move,
            Strike.LEADER_STALE: self._stale,
            Strike.LEDGER_COMPACTED: self._compact,
            Strike.LEDGER_GROWS: self._grow,
            Strike.LEDGER_LOST: self._lose,
            Strike.LEDGER_CUT: self._cut,
            Strike.LEDGER_TRIMMED: self._trim,
            Strike.OUTPUT_CUT: self._cut_output,
            Strike.TOPIC_DELETED: self._delete,
            Strike.TOPICS_UNKNOWN: self._restart_broker,
            Strike.SOURCE_MISSING: self._remove_source,
            Strike.OFFSETS_REFUSED: self._refuse_offsets,
            Strike.OTHER_QUERY: self._other_query,
        }

    def _ledger(self, fault: Fault) -> Place:
        """A partition of the ledger, the one that holds our heads before all."""
        logs = self._cluster.logs
        places = [place for place in logs if place[0] == LEDGER_TOPIC] or [(LEDGER_TOPIC, 0)]
        return max(places, key=lambda place: len(logs[place].records) if place in logs else 0)

    def _move(self, actor: Actor, fault: Fault) -> bool:
        """Often the ledger's leader, which may be away for nearly as long as it is waited for. The new one is behind by
        one record to many."""
        outputs = [place for place in self._cluster.logs if place[0] in OUTPUTS]
        place = outputs[fault.size % len(outputs)] if outputs and fault.size % 3 == 0 else self._ledger(fault)
        away_ms = 0 if fault.size % 2 else min(fault.size, AWAY_MS)
        lags_ms = fault.size if away_ms < AWAY_MS else LAGS_MS
        self._cluster.leaders.move(place, self._cluster.log(place), away_ms, lags_ms, 1 + fault.size % 5)
        return True

    def _stale(self, actor: Actor, fault: Fault) -> bool:
        place = self._ledger(fault)
        self._cluster.leaders.isolate(place, self._cluster.log(place), min(fault.size, 15_000), 1 + fault.size % 5)
        return True

    def _compact(self, actor: Actor, fault: Fault) -> bool:
        for place, log in self._cluster.logs.items():
            if place[0] == LEDGER_TOPIC:
                log.compact()
        return True

    def _grow(self, actor: Actor, fault: Fault) -> bool:
        self._cluster.ledger_partitions += 2
        return True

    def _lose(self, actor: Actor, fault: Fault) -> bool:
        """Not within a ledger transaction, whose offsets would be committed all the same; nor where the coordinators
        may have forgotten what micro-batch 0 left."""
        if any(log.open for place, log in self._cluster.logs.items() if place[0] == LEDGER_TOPIC):
            return False
        if self._world.now > WEEK_MS and not self._passed():
            return False
        for place in [place for place in self._cluster.logs if place[0] == LEDGER_TOPIC]:
            del self._cluster.logs[place]
            self._cluster.leaders.forget(place)
        self._cluster.ledgers_lost += 1
        self._cluster.ledger_told_ms = self._world.now + (fault.size if fault.size % 2 else 0)
        return self._lost()

    def _cut(self, actor: Actor, fault: Fault) -> bool:
        """Not within a ledger transaction, whose end would be acknowledged all the same."""
        place = self._ledger(fault)
        if (
            place not in self._cluster.logs
            or self._cluster.log(place).open
            or not self._cluster.log(place).cut(1 + fault.size % CUTS)
        ):
            return False
        self._cluster.leaders.forget(place)
        for watch in self._cluster.watches:
            watch.cut_off(forgotten=self._world.struck[Strike.WEEK_PASSES] > 0)
        return True

    def _cut_output(self, actor: Actor, fault: Fault) -> bool:
        """The longest one, or any. It ends in the middle of a transaction, or after one that was ended."""
        logs = self._cluster.logs
        places = sorted((place for place in logs if place[0] in OUTPUTS), key=lambda place: -logs[place].end)
        if not places:
            return False
        place = places[fault.size // 2 % len(places)]
        log, count = logs[place], 1 + fault.size % CUTS
        log.strict = self._cluster.transaction_version > 1
        lost = log.cut_rows(count if fault.size % 2 else log.without_parts(count))
        self._cluster.leaders.forget(place)
        for watch in self._cluster.watches:
            watch.cut(place, log, lost)
        return bool(lost)

    def _trim(self, actor: Actor, fault: Fault) -> bool:
        """Up to what is open. As with a topic that is lost, a start can tell by the checkpoint or the coordinators."""
        log = self._cluster.logs.get(self._ledger(fault))
        if log is None or log.begin == log.stable or (self._world.now > WEEK_MS and not self._passed()):
            return False
        log.begin = log.stable
        return self._lost()

    def _lost(self) -> bool:
        for watch in self._cluster.watches:
            watch.lose_ledger()
        return True

    def _delete(self, actor: Actor, fault: Fault) -> bool:
        """Rows, open transactions and what producers have written: none of it is in the topic that is created anew."""
        topics = [topic for topic in OUTPUTS if any(place[0] == topic for place in self._cluster.logs)]
        if not topics:
            return False
        topic = topics[fault.size % len(topics)]
        self._remove(topic)
        if fault.size % 2:
            self._cluster.leaders.deleted.add(topic)
        return True

    def create(self, topic: str) -> None:
        """Of a topic that is missing, somebody may have asked since."""
        if topic in self._cluster.leaders.deleted:
            self._remove(topic)
            self._cluster.leaders.deleted.discard(topic)

    def _remove(self, topic: str) -> None:
        self._cluster.times_deleted[topic] += 1
        for place in [place for place in self._cluster.logs if place[0] == topic]:
            log = self._cluster.logs.pop(place)
            for watch in self._cluster.watches:
                watch.deleted(place, log)
            self._cluster.leaders.forget(place)

    def _restart_broker(self, actor: Actor, fault: Fault) -> bool:
        for topic in OUTPUTS:
            self._cluster.leaders.unheard(topic, min(fault.size, UNHEARD_MS))
        return True

    def _remove_source(self, actor: Actor, fault: Fault) -> bool:
        self._cluster.leaders.unheard(SOURCE[0], fault.size)
        return True

    def _refuse_offsets(self, actor: Actor, fault: Fault) -> bool:
        self._cluster.refuses_offsets = _REFUSALS[fault.size % len(_REFUSALS)]
        return True

    def _other_query(self, actor: Actor, fault: Fault) -> bool:
        """Another query's ledger transaction: its record is in, its end follows."""
        cluster, name, place = self._cluster, f"{PREFIX}-other-ledger", self._ledger(fault)
        timeout_ms = HELD_MS if fault.size > 60_000 else 10_000
        reply = cluster.init(name, timeout_ms, "another query")
        if reply.code != 0:
            return False
        producer_id, epoch = reply.value
        cluster.add(name, producer_id, epoch, place)
        cluster.produce(name, producer_id, epoch, place, 0, ("other", b""))
        commit = bool(fault.size % 2)
        end = partial(cluster.end, name, producer_id, epoch, commit=commit, version=4, who="another query")
        self._world.at(fault.size, lambda: end() and None)
        return True
