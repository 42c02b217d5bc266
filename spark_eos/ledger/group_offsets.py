"""Publishes a query's offsets to a consumer group with each decision, for tools that show the lag."""

from __future__ import annotations

from dataclasses import astuple

from spark_eos.base import system
from spark_eos.base.log import logger
from spark_eos.base.retry import retrying
from spark_eos.errors import stop
from spark_eos.kafka.admin.topics import describe_topics
from spark_eos.kafka.codes import COORDINATOR_RETRIES, FENCED, OK, TRANSACTION_GONE, UNAUTHORIZED, Code, name_of
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.txn_offset_commit import txn_offset_commit
from spark_eos.ledger.errors import ledger_unauthorized
from spark_eos.protocol.head import Offsets, Pair
from spark_eos.protocol.ports import NotPublished

#: Attempts that may go without a response before the time for `send` is over.
_TRIES = 3
#: Seconds after which a partition that the coordinator does not know is looked up in the cluster's metadata: a
#: coordinator that has just started may not know it yet.
_UNKNOWN_S = 2.0
_LATER = COORDINATOR_RETRIES | {Code.UNKNOWN_TOPIC_OR_PARTITION}


class LeftOut:
    """Partitions, (topic, number as text), whose offsets one run of a query does not give to its group. The next run
    may live in the same process, and finds out for itself."""

    def __init__(self) -> None:
        self._run = ""
        self._places: set[tuple[str, str]] = set()

    def without_them(self, offsets: Offsets, run: str) -> Offsets:
        """Return the offsets that this run gives to the group."""
        if run != self._run:
            self._run, self._places = run, set()
        kept = {t: {p: at for p, at in of.items() if (t, p) not in self._places} for t, of in offsets.items()}
        return {topic: of for topic, of in kept.items() if of}

    def add(self, partitions: set[tuple[str, str]]) -> None:
        """Leave these partitions out from now on, until another run asks."""
        self._places |= partitions


class GroupOffsets:
    """Offsets for one consumer group, added to ledger transactions.

    Partitions that the sink's cluster does not have are left out, with a warning: their topic was deleted, or created
    anew with fewer partitions, or the query reads it on another cluster. The checkpoint has their offsets.
    """

    def __init__(self, client: BrokerClient, group: str) -> None:
        self._client, self._group = client, group
        self._left_out = LeftOut()

    def send(self, producer: Pair, version: int, offsets: Offsets, run: str, timeout_s: float) -> None:
        """Add the offsets of this run to the producer's transaction, which this version of EndTxn will end. Raises
        NotPublished and LedgerError."""
        began = system.monotonic()
        error: int | None = None
        for _ in retrying(timeout_s):
            known = self._left_out.without_them(offsets, run)
            if not known:
                return
            error = self._ask(producer, version, known, timeout_s / _TRIES)
            if error == OK:
                return
            if error is not None and error not in _LATER:
                break
            if error == Code.UNKNOWN_TOPIC_OR_PARTITION and system.monotonic() - began > _UNKNOWN_S:
                self._leave_out(known)
        raise self._refusal(error)

    def _ask(self, producer: Pair, version: int, offsets: Offsets, timeout_s: float) -> int | None:
        numbered = {topic: {int(p): offset for p, offset in of.items()} for topic, of in offsets.items()}
        return txn_offset_commit(self._client, astuple(producer), self._group, numbered, timeout_s, version)

    def _leave_out(self, offsets: Offsets) -> None:
        there = describe_topics(self._client, offsets, missing_ok=True)
        counts = {topic: there[topic].partitions if topic in there else 0 for topic in offsets}
        missing = {(topic, p) for topic, of in offsets.items() for p in of if int(p) >= counts[topic]}
        if missing:
            logger.warning(
                "the group %s does not get the offsets of %s: the sink's cluster has no such topic or partition. The "
                "checkpoint has them; until the query is started again, they are left out.",
                self._group,
                ", ".join(sorted({f"{t}-{p}" if counts[t] else t for t, p in missing})),
            )
            self._left_out.add(missing)

    def _refusal(self, error: int | None) -> Exception:
        cause = "no answer" if error is None else name_of(error)
        if error in FENCED or error in TRANSACTION_GONE:
            return NotPublished(cause)
        if error in UNAUTHORIZED:
            return ledger_unauthorized(f"commit the consumer offsets of group {self._group}: {cause}")
        return stop("EOS_LEDGER_NOT_WRITABLE.group", reason=cause, group=self._group)
