"""The port ``Coordinator`` for one query, and what tasks ask about their own transaction."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple

from spark_eos import failpoints
from spark_eos.errors import ConnectionFailed, KafkaError
from spark_eos.kafka.codes import COORDINATOR_MOVED, OK, UNAUTHORIZED, Code, name_of
from spark_eos.kafka.errors import Cause, init_error
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.schema import Record
from spark_eos.kafka.requests.describe_producers import describe_producers
from spark_eos.kafka.requests.describe_transactions import LOOK_UP_S, describe_transactions
from spark_eos.kafka.requests.end_txn import end_txns
from spark_eos.kafka.requests.list_transactions import open_transactional_ids
from spark_eos.protocol.head import Pair, Probe
from spark_eos.protocol.names import is_task_name
from spark_eos.protocol.ports import Description, EndTxnAnswer, State
from spark_eos.retry import retrying

RETRY_S = 30.0

#: What an answer to EndTxn tells the protocol.
_ANSWERS: dict[int, EndTxnAnswer] = {
    OK: EndTxnAnswer.DONE,
    Code.CONCURRENT_TRANSACTIONS: EndTxnAnswer.PENDING,  # a transition is pending, and may yet fail: no outcome
    Code.INVALID_TXN_STATE: EndTxnAnswer.SAYS_NOTHING,  # aborted; or the coordinator was replaced before it began
    Code.PRODUCER_FENCED: EndTxnAnswer.SAYS_NOTHING,
    Code.INVALID_PRODUCER_EPOCH: EndTxnAnswer.SAYS_NOTHING,
    Code.INVALID_PRODUCER_ID_MAPPING: EndTxnAnswer.SAYS_NOTHING,  # another producer id
}


class TransactionCoordinator:
    def __init__(self, client: BrokerClient, prefix: str, query: str) -> None:
        self._client = client
        self._prefix, self._query = prefix, query

    def describe(self, ids: Collection[str]) -> Mapping[str, Description]:
        found: dict[str, Description] = {}
        missing = set(ids)
        for _ in retrying(RETRY_S):
            _, errors = self._client.coordinators(missing, LOOK_UP_S)  # which are known, as a rule
            for name, code in errors.items():
                if code in UNAUTHORIZED:
                    raise init_error(name, 0, Cause.of(code))
            for state in describe_transactions(self._client, missing):
                if state.error_code == OK:
                    found[state.transactional_id] = _description(state)
                if state.error_code in (OK, Code.TRANSACTIONAL_ID_NOT_FOUND):
                    missing.discard(state.transactional_id)
                elif state.error_code in COORDINATOR_MOVED:
                    self._client.forget([state.transactional_id])
                elif state.error_code != Code.CONCURRENT_TRANSACTIONS:
                    raise _refused("describe", state.transactional_id, state.error_code)
            if not missing:
                return found
        raise _silent("describe", missing)

    def ongoing(
        self, *, before: int | None = None, of: tuple[int, int] | None = None, empty: bool = False
    ) -> Collection[Description]:
        pattern = f"{re.escape(self._prefix)}-{self._query}-.*"
        states = [State.ONGOING, State.EMPTY] if empty else [State.ONGOING]
        for _ in retrying(RETRY_S):
            ids = open_transactional_ids(self._client, pattern, [state.value for state in states])
            if ids is not None:
                own = [name for name in ids if is_task_name(self._prefix, self._query, name, before=before, of=of)]
                found = self.describe(own).values()
                return [d for d in found if d.state is State.ONGOING or (d.state in states and not d.expires)]
        raise _silent("list", [pattern])

    def begin_ongoing(self, *, empty: bool = False) -> Callable[[], Collection[Description]]:
        pool = ThreadPoolExecutor(1, "eos ongoing")
        answer = pool.submit(self.ongoing, empty=empty)
        pool.shutdown(wait=False)
        return answer.result

    def end(self, pairs: Collection[Pair], *, commit: bool) -> Mapping[Pair, EndTxnAnswer]:
        ordered = sorted(pairs, key=lambda pair: pair.id)
        if commit and failpoints.armed("commit.between"):
            first = self._end(ordered[:1], commit)
            failpoints.reach("commit.between")
            return first | self._end(ordered[1:], commit)
        return self._end(ordered, commit)

    def _end(self, pairs: list[Pair], commit: bool) -> dict[Pair, EndTxnAnswer]:
        codes = end_txns(self._client, map(astuple, pairs), commit)
        not_here = {None, Code.INVALID_TXN_STATE, *COORDINATOR_MOVED}
        self._client.forget(name for name, code in codes.items() if code in not_here)
        return {pair: self._judge(pair, codes[pair.id]) for pair in pairs}

    def _judge(self, pair: Pair, code: int | None) -> EndTxnAnswer:
        if code is None or code in COORDINATOR_MOVED:
            return EndTxnAnswer.PENDING
        if code not in _ANSWERS:
            raise _refused("end", pair.id, code)
        return _ANSWERS[code]

    def first_record(self, pair: Pair, places: Iterable[tuple[str, int]]) -> Probe | None:
        """Where the open transaction of ``pair`` begins in one of these partitions; None when no leader says so."""
        for topic, partition in places:
            for producer in describe_producers(self._client, topic, partition):
                own = (producer.producer_id, producer.producer_epoch) == (pair.producer_id, pair.epoch)
                if own and producer.current_txn_start_offset >= 0:
                    return Probe(topic, partition, producer.current_txn_start_offset)
        return None


def _description(state: Record) -> Description:
    return Description(
        Pair(state.transactional_id, state.producer_id, state.producer_epoch),
        State(state.transaction_state),
        state.transaction_start_time_ms,
        state.transaction_timeout_ms,
        tuple((t.topic, partition) for t in state.topics for partition in t.partitions),
    )


def _silent(call: str, names: Iterable[str]) -> ConnectionFailed:
    return ConnectionFailed(
        "EOS_COORDINATOR_UNREACHABLE",
        f"No answer from transaction coordinators in {RETRY_S:.0f} s ({call}: {', '.join(sorted(names))}).",
        hint="Start the query again when the cluster is well.",
    )


def _refused(call: str, name: str, code: int) -> KafkaError:
    return KafkaError(
        "EOS_TRANSACTION_REFUSED",
        f"The coordinator refused to {call} transaction {name} ({name_of(code)}).",
        hint="Check the ACLs: the query needs WRITE and DESCRIBE on the transactional ids with its prefix "
        "('transactionalIdPrefix').",
        code=code,
    )
