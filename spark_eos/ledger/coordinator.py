"""The port ``Coordinator`` for one query, and requests of tasks about their own transaction."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from functools import partial

from spark_eos.base import failpoints
from spark_eos.base.retry import Waiting, retrying
from spark_eos.errors import EosError, stop
from spark_eos.kafka.codes import COORDINATOR_MOVED, OK, UNAUTHORIZED, Code, meaning_of, name_of
from spark_eos.kafka.errors import ID_RIGHTS, Cause, init_error, unauthorized
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.records.batches import Damage, walk_batches
from spark_eos.kafka.requests.describe_producers import (
    ActiveProducer,
    describe_each,
    describe_producers,
    open_begins,
    open_lasts,
)
from spark_eos.kafka.requests.describe_transactions import LOOK_UP_S, TransactionState, describe_at
from spark_eos.kafka.requests.end_txn import end_txns, endtxn_version
from spark_eos.kafka.requests.fetch import fetch_once
from spark_eos.kafka.requests.init_producer_id import ask_init
from spark_eos.kafka.requests.list_transactions import ids_by_state
from spark_eos.protocol.head import Pair, Probe
from spark_eos.protocol.names import first_names, is_name_of, is_task_name, ledger_name, newest_generation, tasks_since
from spark_eos.protocol.ports import Description, EndTxnAnswer, Generations, State

RETRY_S = 30.0

#: States of a transactional id from its first transaction until the next InitProducerId.
_LASTING = (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)

_COMMITTED = frozenset(state.value for state in State if state.commits)

#: The transaction timeout in an InitProducerId that only fences; below every broker's maximum.
FENCE_TIMEOUT_MS = 10_000

#: The meaning of EndTxn's error codes for the protocol.
_ANSWERS: dict[int, EndTxnAnswer] = {
    OK: EndTxnAnswer.DONE,
    Code.CONCURRENT_TRANSACTIONS: EndTxnAnswer.PENDING,  # a transition is pending, and may yet fail: no outcome
    Code.INVALID_TXN_STATE: EndTxnAnswer.INCONCLUSIVE,  # aborted; or the coordinator was replaced before it began
    Code.PRODUCER_FENCED: EndTxnAnswer.INCONCLUSIVE,
    Code.INVALID_PRODUCER_EPOCH: EndTxnAnswer.INCONCLUSIVE,
    Code.INVALID_PRODUCER_ID_MAPPING: EndTxnAnswer.INCONCLUSIVE,  # another producer id
    Code.TRANSACTION_ABORTABLE: EndTxnAnswer.INCONCLUSIVE,
}


def describe(client: BrokerClient, ids: Collection[str]) -> Mapping[str, Description]:
    """Describe these transactional ids; ids that the coordinators do not know are left out. Raises EosError."""
    descriptions: dict[str, Description] = {}
    missing = set(ids)
    last: dict[str, str] = {}
    delay = Waiting("describing transactions")
    for _ in retrying(RETRY_S):
        coordinators, errors = client.coordinators(missing, LOOK_UP_S)
        for name, code in errors.items():
            if code in UNAUTHORIZED:
                raise init_error(name, 0, Cause.from_code(code))
        for state in describe_at(client, coordinators):
            if state.error_code == OK:
                descriptions[state.transactional_id] = _description(state)
            if state.error_code in (OK, Code.TRANSACTIONAL_ID_NOT_FOUND):
                missing.discard(state.transactional_id)
            elif state.error_code in COORDINATOR_MOVED:
                client.forget([state.transactional_id])
            elif state.error_code in UNAUTHORIZED:
                raise _refused("describe", state.transactional_id, state.error_code)
            last[state.transactional_id] = meaning_of(state.error_code)
        delay.over(*descriptions)
        if not missing:
            return descriptions
        delay.note({name: last.get(name, "no answer from its coordinator") for name in sorted(missing)})
    raise _silent("describe", missing)


def list_ids(
    client: BrokerClient, pattern: str, states: Iterable[State], *, only_matching: bool = False
) -> list[tuple[str, str]]:
    """Return transactional ids in these states that match the pattern, as (id, state). Raises ConnectionFailed if a
    broker does not answer. ``only_matching``: leave out brokers that do not support patterns."""
    names = [state.value for state in states]
    for _ in retrying(RETRY_S):
        listed = ids_by_state(client, pattern, names, only_matching=only_matching)
        if listed is not None:
            return listed
    raise _silent("list", [pattern])


class TransactionCoordinator:
    def __init__(self, client: BrokerClient, prefix: str, query: str) -> None:
        self._client = client
        self._prefix, self._query = prefix, query
        self._ending = Waiting("ending transactions")

    def describe(self, ids: Collection[str]) -> Mapping[str, Description]:
        return describe(self._client, ids)

    def ongoing(
        self, *, before: int | None = None, generation_and_slot: tuple[int, int] | None = None, empty: bool = False
    ) -> Collection[Description]:
        states = [State.ONGOING, State.EMPTY] if empty else [State.ONGOING]
        listed = list_ids(self._client, self._pattern, states)
        fits = partial(is_task_name, self._prefix, self._query, before=before, generation_and_slot=generation_and_slot)
        own = [name for name, _ in listed if fits(name)]
        return [described for described in self.describe(own).values() if described.state in states]

    def of_ledger(self) -> Description | None:
        name = ledger_name(self._prefix, self._query)
        return self.describe([name]).get(name)

    def known(self) -> Collection[Description]:
        # Brokers that do not support patterns list all transactional ids: done only for a query without a head.
        listed = list_ids(self._client, self._pattern, _LASTING)
        own = {name for name, _ in listed if is_name_of(self._prefix, self._query, name)}
        return self.describe(sorted({*own, *first_names(self._prefix, self._query)})).values()

    def generations(self, decided: Collection[str] = (), *, since: int = 0, thorough: bool = False) -> Generations:
        newest = partial(newest_generation, self._prefix, self._query)
        last_decided = newest(decided)
        pattern = tasks_since(self._prefix, self._query, max(since, last_decided + 1))
        states = (*_LASTING, State.EMPTY) if thorough else _LASTING
        listed = list_ids(self._client, pattern, states, only_matching=not thorough)
        committed = [name for name, state in listed if state in _COMMITTED]
        return Generations(newest(name for name, _ in listed), newest(committed), last_decided)

    @property
    def _pattern(self) -> str:
        return f"{re.escape(self._prefix)}-{self._query}-.*"

    def begin_ongoing(self, *, empty: bool = False) -> Callable[[], Collection[Description]]:
        pool = ThreadPoolExecutor(1, "eos ongoing")
        answer = pool.submit(self.ongoing, empty=empty)
        pool.shutdown(wait=False)
        return answer.result

    def endtxn_version(self) -> int:
        return endtxn_version(self._client)

    def fence(self, names: Collection[str]) -> Collection[str]:
        return [name for name in names if not self._fence(name)]

    def _fence(self, name: str) -> bool:
        """Send one InitProducerId request. Returns whether the transactional id has a new epoch. As for an end, an
        unexpected response is no outcome, and the request is repeated."""
        answer = ask_init(self._client, name, FENCE_TIMEOUT_MS)
        code = None if answer is None else answer[0]
        if code in COORDINATOR_MOVED:
            self._client.forget([name])
        if code in UNAUTHORIZED:
            raise init_error(name, FENCE_TIMEOUT_MS, Cause.from_code(code))
        return code == OK

    def end(self, pairs: Mapping[Pair, int], *, commit: bool) -> Mapping[Pair, EndTxnAnswer]:
        ordered = sorted(pairs, key=lambda pair: pair.id)
        if commit and failpoints.armed("commit.between"):
            first = self._end(ordered[:1], pairs, commit)
            failpoints.reach("commit.between")
            return first | self._end(ordered[1:], pairs, commit)
        return self._end(ordered, pairs, commit)

    def _end(self, pairs: list[Pair], versions: Mapping[Pair, int], commit: bool) -> dict[Pair, EndTxnAnswer]:
        codes: dict[str, int | None] = {}
        for version in sorted({versions[pair] for pair in pairs}):
            asked = [astuple(pair) for pair in pairs if versions[pair] == version]
            codes |= end_txns(self._client, asked, commit, version)
        not_here = {None, Code.INVALID_TXN_STATE, *COORDINATOR_MOVED}
        self._client.forget(name for name, code in codes.items() if code in not_here)
        return {pair: self._judge(pair, codes[pair.id]) for pair in pairs}

    def _judge(self, pair: Pair, code: int | None) -> EndTxnAnswer:
        """Classify an error code of EndTxn. One that no client expects, such as UNKNOWN_SERVER_ERROR, is no outcome,
        and the request is repeated."""
        if code in UNAUTHORIZED:
            raise _refused("end", pair.id, code)
        answer = EndTxnAnswer.PENDING if code is None else _ANSWERS.get(code, EndTxnAnswer.PENDING)
        if answer is EndTxnAnswer.PENDING:
            self._ending.note({pair.id: "no answer from its coordinator" if code is None else meaning_of(code)})
        else:
            self._ending.over(pair.id)
        return answer

    def first_record(self, pair: Pair, partitions: Iterable[tuple[str, int]]) -> Probe | None:
        """Return the first offset and last sequence number of the producer's open transaction, in the first of these
        partitions whose leader knows it; None if none does."""
        for partition in partitions:
            probe = _opened(pair, partition, describe_producers(self._client, *partition))
            if probe is not None:
                return probe
        return None

    def begins(self, pair: Pair, partitions: Iterable[tuple[str, int]]) -> list[Probe] | None:
        """Return the first offset and last sequence number of the producer's open transaction in each of these
        partitions, (topic, number), sorted; partitions in which it is not open are left out. None if a leader does not
        answer. One request to each leader."""
        wanted = set(partitions)
        producers = describe_each(self._client, wanted)
        if not all(producers.get(partition) for partition in wanted):
            return None  # a leader of a partition with records has at least one producer
        opened = (_opened(pair, partition, producers[partition]) for partition in sorted(producers))
        return [probe for probe in opened if probe is not None]

    def is_first(self, pair: Pair, topic: str, partition: int, offset: int) -> bool | None:
        """Return whether the batch at this offset is the first one of the producer in the partition; None without a
        response."""
        fetched = fetch_once(self._client, topic, partition, offset, 1, isolation="read_uncommitted")
        if fetched is None or fetched[0].error != OK:
            return None
        try:
            batch = next((b for b in walk_batches(fetched[1], fetched[0].size, ()) if b.last >= offset), None)
        except Damage:
            return None
        if batch is None:
            return None
        own = pair.producer_id, pair.epoch
        return (batch.base, batch.sequence) == (offset, 0) and (batch.producer_id, batch.epoch) == own


def _opened(pair: Pair, partition: tuple[str, int], producers: Sequence[ActiveProducer]) -> Probe | None:
    own = pair.producer_id, pair.epoch
    begin = open_begins(producers).get(own)
    return None if begin is None else Probe(*partition, begin, open_lasts(producers).get(own))


def _description(state: TransactionState) -> Description:
    return Description(
        Pair(state.transactional_id, state.producer_id, state.producer_epoch),
        State(state.transaction_state),
        state.transaction_start_time_ms,
        state.transaction_timeout_ms,
        tuple((t.topic, partition) for t in state.topics for partition in t.partitions),
    )


def _silent(call: str, names: Iterable[str]) -> EosError:
    return stop(
        "EOS_KAFKA_UNREACHABLE.coordinator",
        request=call,
        who="transaction coordinators",
        waited_s=RETRY_S,
        why=f" ({call}: {', '.join(sorted(names))})",
    )


def _refused(call: str, name: str, code: int) -> EosError:
    return unauthorized(f"{call} transaction {name} ({name_of(code)})", ID_RIGHTS, request=call)
