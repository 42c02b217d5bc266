"""Ends decided transactions: checks that they are still whole, commits them, and checks that their rows are visible.

EndTxn's answer 0 says that the coordinator has ended a transaction, not that its rows are there: somebody may have
aborted it in one partition (``kafka-transactions.sh abort``), of which the coordinator knows nothing, and retention
does not wait for a commit. Once a transaction is a minute old, the leaders of its partitions are asked before its end.

After every end, it is looked at once more (`spark_eos.protocol.verify`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from spark_eos.errors import EosError, stop
from spark_eos.protocol.checks import rows_missing
from spark_eos.protocol.head import Missing, Pair, Probe, TransactionStart, Verdict, Written
from spark_eos.protocol.names import owner_in
from spark_eos.protocol.ports import Description, EndTxnAnswer, PartitionState, Ports, State, Visibility

#: For so long after its begin, or after a check with its partitions' leaders, a transaction counts as whole.
VALID_MS = 60_000

#: A transaction that counts as whole for less than this is checked first: the answer to its end would come too late.
_SLACK_MS = 10_000

#: Where an end fences, by the state that a coordinator describes one epoch on: nothing but an end leads there. (Kafka
#: 4.0.0 raises the epoch twice when it fences, KAFKA-19367: then the log decides.)
_AT_THE_NEXT_EPOCH: Mapping[State, Verdict] = {
    State.PREPARE_COMMIT: Verdict.COMMITTED,
    State.COMPLETE_COMMIT: Verdict.COMMITTED,
    State.COMPLETE_ABORT: Verdict.LOST,
}

#: Where it does not fence, by the state at the transaction's own epoch. That of an abort is no evidence: a request that
#: came late may have opened a transaction without rows under the same pair after the commit, and that one was aborted.
_AT_THE_SAME_EPOCH: Mapping[State, Verdict] = {
    State.PREPARE_COMMIT: Verdict.COMMITTED,
    State.COMPLETE_COMMIT: Verdict.COMMITTED,
}

#: By the log's state at a transaction's first record.
_BY_THE_LOG: Mapping[Visibility, Verdict] = {Visibility.VISIBLE: Verdict.COMMITTED, Visibility.ABORTED: Verdict.LOST}


def settle(ports: Ports, written: Iterable[Written], *, valid_until_ms: float = -math.inf) -> dict[Pair, Verdict]:
    """Commit every decided transaction that has no verdict yet; returns a verdict for each.

    1. Unless they count as whole for some seconds more, until ``valid_until_ms`` by ``elapsed_ms()``, the leaders of
       their partitions are asked whether they are. EOS_DECISION_BROKEN where one is not.
    2. EndTxn is sent for all of them. The first row that fits a transaction is its outcome:

       | evidence from      | evidence                                                      | outcome             |
       | ------------------ | ------------------------------------------------------------- | ------------------- |
       | EndTxn             | 0                                                             | committed           |
       | coordinator        | PrepareCommit or CompleteCommit, at the next epoch (version 4 | committed           |
       |                    | of EndTxn: at the same)                                       |                     |
       | coordinator        | CompleteAbort, at the next epoch (not with version 4)         | lost                |
       | log, if EndTxn     | the first record is committed                                 | committed           |
       | is inconclusive    | the first record is aborted, and the transaction is open in   | lost                |
       | (48, 90, 47, 49)   | no partition                                                  |                     |
       |                    | the first record is gone                                      | EOS_OUTCOME_GONE    |
       | nobody             |                                                               | ask again, and at   |
       |                    |                                                               | last                |
       |                    |                                                               | EOS_OUTCOME_UNCLEAR |

       A commit that waits for its markers answers 51 for as long as they take. A coordinator that was replaced without
       noticing may answer 48, but it cannot know of the end of a transaction. So that answer alone is no outcome.
    3. If the answers came when they did not count as whole any more, their rows must be visible.

    Raises Unclear where one stays without a verdict: then the next run settles. Raises ProtocolStop where rows of one
    are gone.
    """
    open_ones = {w.pair: w for w in written if w.verdict is None}
    if not open_ones:
        return {}
    began_ms = ports.elapsed_ms()
    if began_ms + _SLACK_MS < valid_until_ms:
        verdicts = _end_each(ports, open_ones)
        if ports.elapsed_ms() >= valid_until_ms:
            check_visible(ports, open_ones.values(), verdicts, held=open_ones, late=True)
        return verdicts
    held, broken = find_held(ports, open_ones.values())
    if broken:
        raise decided_broken(broken[0])
    verdicts = _end_each(ports, open_ones)
    late = ports.elapsed_ms() >= began_ms + VALID_MS
    seen = [replace(w, begins=held.get(pair, w.begins)) for pair, w in open_ones.items()]
    check_visible(ports, seen, verdicts, held=held, late=late)
    return verdicts


def _end_each(ports: Ports, written: Mapping[Pair, Written]) -> dict[Pair, Verdict]:
    """Send EndTxn until each transaction has a verdict. Raises Unclear."""
    verdicts: dict[Pair, Verdict] = {}
    left = written
    for _ in ports.retrying():
        answers = ports.coordinator.end({pair: w.endtxn_version for pair, w in left.items()}, commit=True)
        unanswered = [pair.id for pair in left if answers[pair] is not EndTxnAnswer.DONE]
        described = ports.coordinator.describe(unanswered) if unanswered else {}
        for pair, w in left.items():
            verdict = _verdict(ports, w, answers[pair], described.get(pair.id))
            if verdict is not None:
                verdicts[pair] = verdict
        left = {pair: w for pair, w in left.items() if pair not in verdicts}
        if not left:
            return verdicts
    raise stop(
        "EOS_OUTCOME_UNCLEAR.transactions",
        count=len(left),
        transactional_ids=", ".join(sorted(pair.id for pair in left)),
    )


def _verdict(ports: Ports, w: Written, answer: EndTxnAnswer, described: Description | None) -> Verdict | None:
    """Return the outcome of one transaction, by the table of `settle`; None while there is no evidence."""
    if answer is EndTxnAnswer.DONE:
        return Verdict.COMMITTED
    ended = None if described is None else _described_end(w, described)
    if ended is not None or answer is EndTxnAnswer.PENDING:
        return ended
    state = fate_by_log(ports, w, everywhere=True)
    if state is Visibility.EXPIRED:
        raise stop(
            "EOS_OUTCOME_GONE.log",
            transactional_id=w.pair.id,
            offset=w.probe.offset,
            topic=w.probe.topic,
            partition=w.probe.partition,
            why=(
                f"the coordinator does not have it, and offset {w.probe.offset} of {w.probe.topic}-{w.probe.partition} "
                "is no longer in the log: retention or compaction removed it, or the topic was truncated, deleted or "
                "recreated"
            ),
        )
    return None if state is None else _BY_THE_LOG.get(state)


def _described_end(w: Written, described: Description) -> Verdict | None:
    """Return the end of which a coordinator's description is evidence; None if there is none."""
    if not w.end_fences:
        return _AT_THE_SAME_EPOCH.get(described.state) if described.pair == w.pair else None
    ended = replace(w.pair, epoch=w.pair.epoch + 1)
    return _AT_THE_NEXT_EPOCH.get(described.state) if described.pair == ended else None


def abort_broken(ports: Ports, written: Iterable[Written]) -> None:
    """Abort every transaction without a verdict that has lost rows in one partition, as a whole: then it counts as
    lost, and its replay writes all of its rows. To commit it would hide that rows are missing.

    Where the end of its version does not fence, its id is fenced instead: a late request could open the transaction
    once more, and a commit of that would be answered by success.

    Raises Unclear where a transaction may have been committed before, and ProtocolStop where it stays open after all
    retries, or has all its rows behind an earlier one that would get the same end.
    """
    open_ones = {w.pair: w for w in written if w.verdict is None}
    broken: Sequence[Broken] = ()
    for _ in ports.retrying():
        _, broken = find_held(ports, open_ones.values())
        to_end = [open_ones[one.pair] for one in broken if not one.outcome_gone and one.behind is None]
        if not to_end:
            break
        ports.coordinator.end({w.pair: w.endtxn_version for w in to_end if w.end_fences}, commit=False)
        ports.coordinator.fence([w.pair.id for w in to_end if not w.end_fences])
    if broken:
        raise decided_broken(broken[0])


# Whether decided transactions are whole before their end, and visible after it


#: States of a partition that are concluded from the log of one transaction, and say nothing of others.
_NOTHING_OPEN, _LOG_GONE = PartitionState(0, {}), PartitionState(-1, {})


#: Where each transaction begins in each of its partitions, while it is open.
Begins = dict[Pair, tuple[Probe, ...]]


@dataclass(frozen=True)
class Broken:
    """A transaction that must not be committed, as it has lost rows in one partition."""

    pair: Pair
    topic: str
    partition: int
    what: str
    #: It may have been committed before, and retention has taken the evidence.
    outcome_gone: bool = False
    #: The offset of an earlier transaction of its producer id, whose marker the partition has lost: an end of one is
    #: the end of both. It has all its own rows, as far as that is known.
    behind: int | None = None

    def __str__(self) -> str:
        lacks = "no longer has all its rows" if self.behind is None else "would not end alone"
        return f"Transaction {self.pair.id} {lacks} in {self.topic}-{self.partition}: {self.what}"


def find_held(ports: Ports, written: Iterable[Written]) -> tuple[Begins, list[Broken]]:
    """Ask the leaders where the transactions that are open begin, and which of them are broken.

    Raises Unclear where a leader does not answer.
    """
    by_pair = {w.pair: w for w in written}
    states: dict[tuple[str, int], PartitionState] = {}
    begins: Begins = {}
    broken: dict[Pair, Broken] = {}
    opened = set()
    for pair, description in _ongoing(ports, by_pair).items():
        starts, w = [], by_pair[pair]
        noted_at = _noted(w)
        for topic, partition in (place for place in description.places if place not in w.empty):
            noted = noted_at.get((topic, partition))
            state = states.get((topic, partition)) or _state_of(ports, topic, partition, pair, noted)
            if state is not _NOTHING_OPEN and state is not _LOG_GONE:
                states[topic, partition] = state
            begin = state.open.get((pair.producer_id, pair.epoch))
            if begin is not None:
                opened.add(pair)
            what = _problem(state, pair, begin, noted)
            if what is not None:
                broken.setdefault(pair, Broken(pair, topic, partition, what))
            elif begin is not None and noted is not None and begin < noted.offset:
                broken[pair] = Broken(pair, topic, partition, _behind_another(begin), behind=begin)
            elif begin is not None:
                starts.append(Probe(topic, partition, begin))
        begins[pair] = tuple(starts)
    # A transaction that was ended meanwhile, as a whole, is not open in its partitions either; nor is one that was
    # begun once more since.
    still = _ongoing(ports, broken) if broken else {}
    before = _ended_before(ports, [by_pair[pair] for pair in still if pair not in opened])
    again = {pair for pair, state in before.items() if state is Visibility.VISIBLE}
    # The open ones: not ended while leaders were asked, nor opened once more by a late request.
    held = begins.keys() - (broken.keys() - still.keys()) - again
    begins = {pair: begins[pair] for pair in held}
    left = [broken[pair] for pair in broken if pair in still and pair not in again]
    return begins, [replace(one, outcome_gone=before.get(one.pair) is Visibility.EXPIRED) for one in left]


def _ended_before(ports: Ports, written: Iterable[Written]) -> dict[Pair, Visibility | None]:
    """Return the outcome of transactions that are described as open, and are open in no partition. They may have been
    committed long ago: where an end does not fence, a late request opens a transaction of the same pair once more,
    without a row. Such a transaction has not lost any rows.

    Raises Unclear where neither the log nor its leader shows the outcome.
    """
    return {w.pair: _has_ended(ports, w) for w in written if not w.end_fences}


def _has_ended(ports: Ports, w: Written) -> Visibility | None:
    """Return the outcome, by the log at the first record; None while the transaction is open from there on."""
    partition = w.probe.topic, w.probe.partition
    for _ in ports.retrying():
        state = fate_by_log(ports, w)
        if state is not None:
            return state
        there = _state_of(ports, *partition, w.pair, w.probe)
        if there.open.get((w.pair.producer_id, w.pair.epoch)) == w.probe.offset:
            return None
    raise _silent(*partition)


def fate_by_log(ports: Ports, w: Written, *, everywhere: bool = False) -> Visibility | None:
    """Return the state of a transaction, by the log at its first record. Where that was aborted by hand, or retention
    has taken it, a commit shows in any other partition. ``everywhere``: None also where the transaction is
    aborted there, and another partition does not show yet how it ended: it may still be committed there."""
    state = ports.data.look(w.pair, w.probe)
    if state not in (Visibility.EXPIRED, Visibility.ABORTED):
        return state
    others = [ports.data.look(w.pair, other) for other in w.begins if other != w.probe]
    if Visibility.VISIBLE in others:
        return Visibility.VISIBLE
    return None if everywhere and state is Visibility.ABORTED and None in others else state


def _noted(w: Written) -> dict[tuple[str, int], Probe]:
    """Return where the transaction began in each partition, as its task has noted it."""
    return {(at.topic, at.partition): at for at in (w.probe, *w.begins)}


def _problem(state: PartitionState, pair: Pair, begin: int | None, noted: Probe | None) -> str | None:
    """Say how the transaction has lost rows in a partition, where it begins at offset ``begin`` by now; None if it has
    not. An unclean election takes the newest rows, which may be all."""
    if state is _LOG_GONE:
        return "the topic was deleted, or the partition truncated"
    if begin is None:
        return "it was aborted there, or the partition has lost its newest records"
    if state.begin > begin:
        return f"they began at offset {begin}, and retention has moved the log's start to {state.begin}"
    if noted is not None and begin > noted.offset:
        return f"it was aborted there, or lost, and has begun again at offset {begin} instead of {noted.offset}"
    last = state.lasts.get((pair.producer_id, pair.epoch))
    if noted is not None and None not in (last, noted.last) and last != noted.last:
        return (
            f"they end with sequence number {last} instead of {noted.last}: the partition has lost its newest records, "
            "as by an unclean leader election"
        )
    return None


def _behind_another(begin: int) -> str:
    return (
        f"an earlier one of the same producer id, from offset {begin} on, has lost its marker there, as by an unclean "
        "leader election, and gets the same end"
    )


def _ongoing(ports: Ports, pairs: Collection[Pair]) -> dict[Pair, Description]:
    described = ports.coordinator.describe([pair.id for pair in pairs])
    known = {pair: described[pair.id] for pair in pairs if pair.id in described}
    return {pair: d for pair, d in known.items() if d.pair == pair and d.state is State.ONGOING}


def _state_of(ports: Ports, topic: str, partition: int, pair: Pair, noted: Probe | None) -> PartitionState:
    """Return the state of a partition of this transaction. A leader that does not answer for any producer may have
    forgotten them, a day after the last one has written, or lead a topic that was created anew: then the log shows that
    the transaction is not open there."""
    for _ in ports.retrying():
        state = ports.data.partition(topic, partition)
        if state is not None:
            return state
        own = ports.data.look(pair, noted) if noted is not None else None
        if own in (Visibility.ABORTED, Visibility.EXPIRED):
            return _NOTHING_OPEN if own is Visibility.ABORTED else _LOG_GONE
    raise _silent(topic, partition)


def _silent(topic: str, partition: int) -> EosError:
    return stop("EOS_OUTCOME_UNCLEAR.partition", topic=topic, partition=partition)


def decided_broken(broken: Broken) -> EosError:
    if broken.outcome_gone:
        return stop(
            "EOS_OUTCOME_GONE.log",
            transactional_id=broken.pair.id,
            topic=broken.topic,
            partition=broken.partition,
            why=(
                "either it was committed, and a late request opened it once more, or it was aborted in "
                f"{broken.topic}-{broken.partition} only, and retention has removed the records that would show which"
            ),
        )
    owner = owner_in(broken.pair.id)
    abort_rest = (
        "spark-eos --bootstrap-servers … recover --query "
        f"{owner[1] if owner is not None else 'ID'} --settle-only --abort-broken --yes"
    )
    if broken.behind is not None:
        return stop(
            "EOS_DECISION_BROKEN.behind",
            transactional_id=broken.pair.id,
            broken=broken,
            topic=broken.topic,
            partition=broken.partition,
            offset=broken.behind,
            abort_rest=abort_rest,
        )
    return stop("EOS_DECISION_BROKEN.missing", transactional_id=broken.pair.id, broken=broken, abort_rest=abort_rest)


def check_visible(
    ports: Ports,
    written: Iterable[Written],
    verdicts: Mapping[Pair, Verdict],
    *,
    held: Collection[Pair],
    late: bool,
) -> None:
    """Check that the rows of each committed transaction are visible where it began.

    A transaction that was not ``held`` open just before was ended by others, and retention may have taken its rows
    after that: only its probe is checked. Open transactions of others may block a start for long: where a held
    transaction was ended ``late``, the log is read until it shows the outcome.
    """
    committed = [w for w in written if verdicts.get(w.pair) is Verdict.COMMITTED]
    silent = [(w.pair, probe) for w in committed for probe in ((w.begins if w.pair in held else ()) or (w.probe,))]
    doubtful = held if late else frozenset[Pair]()
    for _ in ports.retrying():
        silent = _unreadable(ports, silent, held)
        if not any(pair in doubtful for pair, _ in silent):
            return
    # However long the looks before have taken, markers that were on their way are there by now.
    silent = _unreadable(ports, [(pair, probe) for pair, probe in silent if pair in doubtful], held)
    if silent:
        raise _outcome_gone(*silent[0], "can be read up to")


def _unreadable(ports: Ports, starts: Sequence[TransactionStart], held: Collection[Pair]) -> list[TransactionStart]:
    """Return the starts that the log does not show yet. Raises ProtocolStop where rows were aborted."""
    silent = []
    for pair, probe in starts:
        state = ports.data.look(pair, probe)
        if state is Visibility.ABORTED:
            raise rows_missing(Missing(pair.id, probe.topic, probe.partition, probe.offset))
        if state is Visibility.EXPIRED and pair in held:
            raise _outcome_gone(pair, probe, "still has")
        if state is None:
            silent.append((pair, probe))
    return silent


def _outcome_gone(pair: Pair, probe: Probe, cannot: str) -> EosError:
    place = f"{probe.topic}-{probe.partition}"
    return stop("EOS_OUTCOME_GONE.partition", transactional_id=pair.id, place=place, cannot=cannot, offset=probe.offset)
