"""Whether transactions that are to be committed still have all their rows.

EndTxn's answer 0 says that the coordinator has ended a transaction, not that its rows are there: somebody may have
aborted it in one partition (``kafka-transactions.sh abort``), of which the coordinator knows nothing, and retention
does not wait for a commit. Once a transaction is a minute old, the leaders of its partitions are asked before its end;
a younger one is only looked at after it (`spark_eos.protocol.looking_back`), so that no commit waits for that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from spark_eos.errors import ProtocolStop, Unclear
from spark_eos.protocol.head import Pair, Probe, Verdict, Written
from spark_eos.protocol.marks import Missing
from spark_eos.protocol.names import query_in
from spark_eos.protocol.new_checkpoint import FROM_GROUP, IF_COMPLETE
from spark_eos.protocol.ports import Description, Found, PartitionState, Place, Ports, State
from spark_eos.protocol.stops import rows_missing

#: For so long after its begin, or after its partitions' leaders were asked, a transaction counts as whole.
FRESH_MS = 60_000

#: Rows whose timestamps are older than this are looked for however fresh their transaction is: retention goes by
#: timestamps, and may take them at once.
AGED_MS = 3_600_000

#: What to do where nobody can tell any more what became of a decided transaction.
COMPARE = f"Compare the output with the source for the last micro-batch (spark-eos verify). {IF_COMPLETE}"

#: By what the log tells of one transaction; of others, it tells nothing.
_NOTHING_OPEN, _PLACE_GONE = PartitionState(0, {}), PartitionState(-1, {})

#: Where each transaction begins in each of its partitions, while it is open.
Begins = dict[Pair, tuple[Probe, ...]]


@dataclass(frozen=True)
class Broken:
    """A transaction that has lost rows in one partition, and what has become of them there."""

    pair: Pair
    topic: str
    partition: int
    what: str
    #: Whether it may have been committed before, of which retention has taken the evidence.
    untold: bool = False

    def __str__(self) -> str:
        return f"Transaction {self.pair.id} no longer has all its rows in {self.topic}-{self.partition}: {self.what}"


def look_at(ports: Ports, written: Iterable[Written]) -> tuple[Begins, list[Broken]]:
    """Ask the leaders where the transactions that are open begin, and which of them are broken.

    Raises Unclear where a leader does not answer.
    """
    by_pair = {w.pair: w for w in written}
    states: dict[tuple[str, int], PartitionState] = {}
    begins: Begins = {}
    broken: dict[Pair, Broken] = {}
    opened = set()
    for pair, description in _ongoing(ports, by_pair).items():
        found, w = [], by_pair[pair]
        for topic, partition in (place for place in description.places if place not in w.empty):
            state = states.get((topic, partition)) or _state_of(ports, topic, partition, w)
            if state is not _NOTHING_OPEN and state is not _PLACE_GONE:
                states[topic, partition] = state
            begin = state.open.get((pair.producer_id, pair.epoch))
            if begin is not None:
                opened.add(pair)
            what = _problem(state, pair, begin, _noted(w, topic, partition))
            if what is not None:
                broken.setdefault(pair, Broken(pair, topic, partition, what))
            elif begin is not None:
                found.append(Probe(topic, partition, begin))
        begins[pair] = tuple(found)
    # What was ended meanwhile, as a whole, is not open in its partitions either; nor is what was begun once more since.
    still = _ongoing(ports, broken) if broken else {}
    before = _ended_before(ports, [by_pair[pair] for pair in still if pair not in opened])
    again = {pair for pair, found in before.items() if found is Found.THERE}
    held = begins.keys() - (broken.keys() - still.keys()) - again
    begins = {pair: begins[pair] for pair in held}
    left = [broken[pair] for pair in broken if pair in still and pair not in again]
    return begins, [replace(one, untold=before.get(one.pair) is Found.GONE) for one in left]


def _ended_before(ports: Ports, written: Iterable[Written]) -> dict[Pair, Found | None]:
    """What became of those that are described as open, are so in no partition, and may have been committed long ago:
    where an end does not fence, a request that comes late opens a transaction of the same pair once more, without a
    row. That is none that has lost its rows.

    Raises Unclear where neither the log nor its leader tells.
    """
    plain = {w.pair: w for w in written if not w.end_fences}
    return {pair: _has_ended(ports, plain[pair]) for pair in _ongoing(ports, plain)} if plain else {}


def _has_ended(ports: Ports, w: Written) -> Found | None:
    """What became of it, at its first record; None while it is open from there on."""
    place = w.probe.topic, w.probe.partition
    for _ in ports.retrying():
        found = fate_by_log(ports, w)
        if found is not None:
            return found
        if _state_of(ports, *place, w).open.get((w.pair.producer_id, w.pair.epoch)) == w.probe.offset:
            return None
    raise _silent(*place)


def fate_by_log(ports: Ports, w: Written) -> Found | None:
    """What became of it, at its first record. Where that was aborted by hand, or retention has taken it, a commit shows
    in any other partition."""
    found = ports.data.look(w.pair, w.probe)
    if found in (Found.GONE, Found.MISSING):
        others = (ports.data.look(w.pair, other) for other in w.begins if other != w.probe)
        return next((Found.THERE for other in others if other is Found.THERE), found)
    return found


def _noted(w: Written, topic: str, partition: int) -> Probe | None:
    """Where it began in a partition, as its task has noted it."""
    return next((at for at in (*w.begins, w.probe) if (at.topic, at.partition) == (topic, partition)), None)


def _problem(state: PartitionState, pair: Pair, begin: int | None, noted: Probe | None) -> str | None:
    """What has become of its rows in a partition in which it begins there now. An unclean election takes the newest
    ones; those may be all."""
    if state is _PLACE_GONE:
        return "the topic was deleted, or the partition truncated"
    if begin is None:
        return "it was aborted there, or the partition has lost its newest records"
    if state.begin > begin:
        return f"they began at offset {begin}, and retention has moved the log's start to {state.begin}"
    if noted is not None and begin != noted.offset:
        return f"it was aborted there, or lost, and has begun again at offset {begin} instead of {noted.offset}"
    last = state.lasts.get((pair.producer_id, pair.epoch))
    if noted is not None and None not in (last, noted.last) and last != noted.last:
        return (
            f"they end with sequence number {last} instead of {noted.last}: the partition has lost its newest records, "
            "as by an unclean leader election"
        )
    return None


def _ongoing(ports: Ports, pairs: Collection[Pair]) -> dict[Pair, Description]:
    described = ports.coordinator.describe([pair.id for pair in pairs])
    found = {pair: described[pair.id] for pair in pairs if pair.id in described}
    return {pair: d for pair, d in found.items() if d.pair == pair and d.state is State.ONGOING}


def _state_of(ports: Ports, topic: str, partition: int, w: Written) -> PartitionState:
    """What is open in a partition of this transaction. A leader that names no producer at all may have forgotten them,
    a day after the last one has written, or lead a topic that was created anew: then the log tells that nothing of this
    one is open."""
    begin = _noted(w, topic, partition)
    for _ in ports.retrying():
        state = ports.data.partition(topic, partition)
        if state is not None:
            return state
        found = ports.data.look(w.pair, begin) if begin is not None else None
        if found in (Found.MISSING, Found.GONE):
            return _NOTHING_OPEN if found is Found.MISSING else _PLACE_GONE
    raise _silent(topic, partition)


def _silent(topic: str, partition: int) -> Unclear:
    return Unclear(
        "EOS_OUTCOME_UNCLEAR",
        f"Nobody has said whether {topic}-{partition} still holds the transactions to be committed: its leader is "
        "away, or something else that is open there keeps readers from them.",
        hint="Nothing is lost: start the query again, from this checkpoint, once the cluster is healthy. If it stays "
        "so, kafka-transactions.sh find-hanging names what holds the partition open.",
    )


def undecided_broken(broken: Broken) -> ProtocolStop:
    return ProtocolStop(
        "EOS_TRANSACTION_BROKEN",
        f"{broken}.",
        hint="Nothing was decided; the batch is replayed at the next start. If retention took the rows, raise the "
        "topic's retention.ms: rows are as old as their timestamps, and must outlast the micro-batch.",
        transactional_id=broken.pair.id,
    )


def decided_broken(broken: Broken) -> ProtocolStop:
    if broken.untold:
        return Unclear(
            "EOS_OUTCOME_GONE",
            f"What became of the decided transaction {broken.pair.id} cannot be told any more: either it was "
            "committed, and a late request opened it once more; or it was aborted in "
            f"{broken.topic}-{broken.partition} only. The log would tell, but retention has removed its records.",
            hint=COMPARE,
        )
    return ProtocolStop(
        "EOS_DECISION_BROKEN",
        f"{broken}. It is decided, and was not committed, as those rows would be missing.",
        hint="Abort the rest of it: spark-eos transactions settle --bootstrap-servers … --query "
        f"{query_in(broken.pair.id) or 'ID'} --abort-broken --yes. Then start the query again, from this checkpoint: "
        "it writes that transaction's rows again. If retention took the rows, raise the topic's retention.ms first.",
        transactional_id=broken.pair.id,
    )


def check_visible(
    ports: Ports,
    written: Iterable[Written],
    verdicts: Mapping[Pair, Verdict],
    *,
    held: Collection[Pair],
    late: bool,
) -> None:
    """Look at where each committed transaction began: its rows must be there.

    What was not ``held`` just before was ended by others, and retention may have taken it after that; one place of it
    is looked at. Others may keep readers from a place for long: where what was held was ended ``late``, it is waited
    for that the log tells.
    """
    committed = [w for w in written if verdicts.get(w.pair) is Verdict.COMMITTED]
    silent = [(w.pair, probe) for w in committed for probe in ((w.begins if w.pair in held else ()) or (w.probe,))]
    doubtful = held if late else frozenset[Pair]()
    for _ in ports.retrying():
        silent = _silent_ones(ports, silent, held)
        if not any(pair in doubtful for pair, _ in silent):
            return
    # However long the looks before have taken, markers that were on their way are there by now.
    silent = _silent_ones(ports, [(pair, probe) for pair, probe in silent if pair in doubtful], held)
    if silent:
        raise _untold(*silent[0], "can be read up to")


def _silent_ones(ports: Ports, places: Sequence[Place], held: Collection[Pair]) -> list[Place]:
    """Those of which the log does not tell yet."""
    silent = []
    for pair, probe in places:
        found = ports.data.look(pair, probe)
        if found is Found.MISSING:
            raise rows_missing(Missing(pair.id, probe.topic, probe.partition, probe.offset))
        if found is Found.GONE and pair in held:
            raise _untold(pair, probe, "still has")
        if found is None:
            silent.append((pair, probe))
    return silent


def _untold(pair: Pair, probe: Probe, cannot: str) -> Unclear:
    place = f"{probe.topic}-{probe.partition}"
    return Unclear(
        "EOS_OUTCOME_GONE",
        f"Transaction {pair.id} was committed, but its rows may have been aborted or deleted in {place} before: no "
        f"leader's log {cannot} offset {probe.offset}, where they begin.",
        hint="If the partition is held open by something else, kafka-transactions.sh find-hanging names it. Compare "
        "the output with the source for the last micro-batch (spark-eos verify) before anything starts again on this "
        f"checkpoint. If all its rows are there, begin with a new one: {FROM_GROUP}. If some are missing, write them "
        "first: the group's offsets are past them.",
        transactional_id=pair.id,
    )
