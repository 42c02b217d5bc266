"""What became of transactions: EndTxn's answers, the coordinator's description, and, at last, the data itself."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from spark_eos.errors import Unclear
from spark_eos.protocol.head import Pair, Verdict, Written
from spark_eos.protocol.ports import Description, EndTxnAnswer, Found, Ports, State
from spark_eos.protocol.whole import COMPARE, FRESH_MS, Broken, check_visible, decided_broken, fate_by_log, look_at

_COMMITTED = {State.PREPARE_COMMIT: Verdict.COMMITTED, State.COMPLETE_COMMIT: Verdict.COMMITTED}
_ENDED = {**_COMMITTED, State.COMPLETE_ABORT: Verdict.LOST}


#: What counts as whole for less than this is looked at: its end would be answered when it does not any more.
_SLACK_MS = 10_000


def settle(ports: Ports, written: Iterable[Written], *, fresh_until_ms: float = -math.inf) -> dict[Pair, Verdict]:
    """Commit every transaction that has no verdict yet; a verdict for each.

    ``fresh_until_ms``: until when, by ``elapsed_ms()``, they count as whole. After that they must be whole before,
    and visible after (``spark_eos.protocol.whole``); visible also where the answer to their end comes after that.

    Raises Unclear when one stays without after all retries: then the next run settles. Raises ProtocolStop where rows
    of one are gone.
    """
    open_ones = {w.pair: w for w in written if w.verdict is None}
    if not open_ones:
        return {}
    began_ms = ports.elapsed_ms()
    if began_ms + _SLACK_MS < fresh_until_ms:
        verdicts = _settle(ports, open_ones)
        if ports.elapsed_ms() >= fresh_until_ms:
            check_visible(ports, open_ones.values(), verdicts, held=open_ones, late=True)
        return verdicts
    held, broken = look_at(ports, open_ones.values())
    if broken:
        raise decided_broken(broken[0])
    verdicts = _settle(ports, open_ones)
    late = ports.elapsed_ms() >= began_ms + FRESH_MS
    seen = [replace(w, begins=held.get(pair, w.begins)) for pair, w in open_ones.items()]
    check_visible(ports, seen, verdicts, held=held, late=late)
    return verdicts


def abort_broken(ports: Ports, written: Iterable[Written]) -> None:
    """Abort every transaction without a verdict that has lost rows in one partition, as a whole: then it counts as
    lost, and its replay writes all of it. Nobody can commit it without hiding that rows are missing.

    Where the end of its version does not fence, its id is taken instead: a late request could open it once more, and
    somebody who still commits it would be answered success.

    Raises Unclear where one may have been committed before, and ProtocolStop where one stays open after all retries.
    """
    open_ones = {w.pair: w for w in written if w.verdict is None}
    broken: Sequence[Broken] = ()
    for _ in ports.retrying():
        _, broken = look_at(ports, open_ones.values())
        to_end = [open_ones[one.pair] for one in broken if not one.untold]
        if not to_end:
            break
        ports.coordinator.end({w.pair: w.endtxn_version for w in to_end if w.end_fences}, commit=False)
        ports.coordinator.fence([w.pair.id for w in to_end if not w.end_fences])
    if broken:
        raise decided_broken(broken[0])


def _settle(ports: Ports, open_ones: dict[Pair, Written]) -> dict[Pair, Verdict]:
    verdicts: dict[Pair, Verdict] = {}
    if not open_ones:
        return verdicts
    for _ in ports.retrying():
        versions = {pair: w.endtxn_version for pair, w in open_ones.items()}
        answers = ports.coordinator.end(versions, commit=True)
        verdicts |= {pair: Verdict.COMMITTED for pair, answer in answers.items() if answer is EndTxnAnswer.DONE}
        open_ones = {pair: w for pair, w in open_ones.items() if pair not in verdicts}
        verdicts |= _ask_coordinator(ports, open_ones)
        open_ones = {pair: w for pair, w in open_ones.items() if pair not in verdicts}
        verdicts |= _ask_data(ports, [w for pair, w in open_ones.items() if answers[pair] is EndTxnAnswer.SAYS_NOTHING])
        open_ones = {pair: w for pair, w in open_ones.items() if pair not in verdicts}
        if not open_ones:
            return verdicts
    raise Unclear(
        "EOS_OUTCOME_UNCLEAR",
        f"The brokers have not said what became of {len(open_ones)} decided transaction(s): "
        f"{', '.join(sorted(pair.id for pair in open_ones))}.",
        hint="Nothing is lost: start the query again, from this checkpoint, once the cluster is healthy; it settles "
        "them before it goes on; so does 'spark-eos recover', without Spark. A new checkpoint would leave their rows "
        "out. If it stays so, something else may hold the output's partitions open: kafka-transactions.sh find-hanging "
        "names it.",
    )


def _ask_data(ports: Ports, silent: Iterable[Written]) -> dict[Pair, Verdict]:
    verdicts = {}
    for w in silent:
        found = fate_by_log(ports, w)
        if found is Found.THERE:
            verdicts[w.pair] = Verdict.COMMITTED
        elif found is Found.MISSING:
            verdicts[w.pair] = Verdict.LOST
        elif found is Found.GONE:
            raise Unclear(
                "EOS_OUTCOME_GONE",
                f"What became of the decided transaction {w.pair.id} cannot be told any more: the coordinator does "
                f"not tell, and offset {w.probe.offset} of {w.probe.topic}-{w.probe.partition} is no longer in the "
                "log: retention or compaction has removed it, or the topic was truncated, deleted or created anew.",
                hint=COMPARE,
            )
    return verdicts


def _ask_coordinator(ports: Ports, open_ones: Mapping[Pair, Written]) -> dict[Pair, Verdict]:
    """What is described one epoch on has been ended, for good: nothing but an end leads there.

    Where the end does not fence, a commit is described at the epoch of the transaction itself. That of an abort is no
    evidence there, at this epoch or the next: a request that came late may have opened a transaction without rows under
    the same pair after the commit, and that one was aborted.

    A commit that waits for its markers answers "pending" for as long as they take. And a coordinator that was replaced
    without noticing may answer that there is no such transaction, but it cannot know of the end of one.
    """
    if not open_ones:
        return {}
    described = ports.coordinator.describe([pair.id for pair in open_ones])
    verdicts = {pair: _verdict(w, described[pair.id]) for pair, w in open_ones.items() if pair.id in described}
    return {pair: verdict for pair, verdict in verdicts.items() if verdict is not None}


def _verdict(w: Written, description: Description) -> Verdict | None:
    if not w.end_fences:
        return _COMMITTED.get(description.state) if description.pair == w.pair else None
    if description.pair != replace(w.pair, epoch=w.pair.epoch + 1):
        return None
    return _ENDED.get(description.state)


def abort_all(ports: Ports, pairs: Collection[Pair]) -> Collection[Pair]:
    """Abort transactions that nobody will ever commit; those that stay open are returned.

    Only pairs of which that is certain may be handed in. What stays open holds readers until its timeout: no row is
    at stake, so this does not raise.

    By the version for transactions that begin now, whichever these began with: the coordinators take either.
    """
    left = set(pairs)
    if not left:
        return left
    version = ports.coordinator.endtxn_version()
    for _ in ports.retrying():
        answers = ports.coordinator.end(dict.fromkeys(left, version), commit=False)
        left = {pair for pair in left if answers[pair] is EndTxnAnswer.PENDING}
        if not left:
            break
    return left
