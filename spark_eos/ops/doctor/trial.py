"""The trial: whether this user may use transactional ids with the prefix, and how much the brokers' clocks differ from
this machine's. Brokers do not report either.

Each broker gets a transactional id, ``<prefix>-doctor-<n>``, of which it is the coordinator. A transaction is begun
with the ledger topic in it, described, and aborted. No row is written; the ledger gets the marker of an abort. Every
run uses the same ids, so that their number does not grow. The coordinator notes by its own clock when the transaction
began, which was between two readings of the clock here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from spark_eos.base import system
from spark_eos.base.retry import retrying
from spark_eos.errors import stop
from spark_eos.kafka.codes import OK, UNAUTHORIZED
from spark_eos.kafka.errors import Cause, init_error, no_coordinator
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.producer.additions import Additions
from spark_eos.kafka.requests.describe_transactions import describe_transactions
from spark_eos.kafka.requests.end_txn import end_own_txn, endtxn_version
from spark_eos.kafka.requests.init_producer_id import INIT_S, init_producer_id
from spark_eos.protocol.names import doctor_name

_IDS = 64
_TIMEOUT_MS = 10_000
_ANSWER_S = 8.0


@dataclass(frozen=True)
class Clock:
    """A broker's clock is ahead of this machine's by ``low_ms`` to ``high_ms``; negative where it is behind."""

    node: int
    low_ms: float
    high_ms: float

    @property
    def surely_off_ms(self) -> float:
        """The smallest possible difference of the two clocks."""
        return max(self.low_ms, -self.high_ms, 0.0)


@dataclass(frozen=True)
class Trial:
    """``ids``: the transactional ids that were tried; ``clocks``: of their coordinators; ``left``: the ids of
    transactions that could not be aborted, and expire."""

    ids: Sequence[str]
    clocks: Sequence[Clock]
    left: Sequence[str] = ()


def try_out(client: BrokerClient, prefix: str, ledger: str | None) -> Trial:
    """Initialize a producer for each broker; with a ``ledger``, also begin and abort a transaction. Raises EosError."""
    names = [doctor_name(prefix, n) for n in range(_IDS)]
    chosen = {node: of[0] for node, of in sorted(_coordinators(client, names).items())}
    clocks, left = [], []
    for node, name in chosen.items():
        clock, ended = _try(client, node, name, ledger)
        clocks += [] if clock is None else [clock]
        left += [] if ended else [name]
    return Trial(list(chosen.values()), clocks, left)


def _coordinators(client: BrokerClient, names: Sequence[str]) -> dict[int, list[str]]:
    """The names by coordinator. Brokers that have had no transaction yet first create __transaction_state."""
    coordinators: dict[int, list[str]] = {}
    for _ in retrying(INIT_S):
        coordinators, errors = client.coordinators(names, _ANSWER_S)
        refused = next((code for code in errors.values() if code in UNAUTHORIZED), None)
        if refused is not None:
            raise init_error(names[0], _TIMEOUT_MS, Cause.of(refused))
        if coordinators and not errors:
            break
    if not coordinators:
        raise no_coordinator(names[0], INIT_S)
    return coordinators


def _try(client: BrokerClient, node: int, name: str, ledger: str | None) -> tuple[Clock | None, bool]:
    """The clock of a coordinator, None if no transaction was begun, or the coordinator does not report its begin; and
    whether nothing stays open."""
    version = endtxn_version(client)
    own = init_producer_id(client, name, _TIMEOUT_MS)
    if ledger is None:
        return None, True
    additions = Additions(client, own, _TIMEOUT_MS / 1000, _ANSWER_S)
    before_ms = 1000 * system.time_of_day()
    clock, ended = None, True
    try:
        cause = additions.add([(ledger, 0)])
        after_ms = 1000 * system.time_of_day()
        if cause is not None:
            raise stop("EOS_DOCTOR_TRIAL", reason=cause.name, ledger=ledger, name=name, cause=cause)
        for state in describe_transactions(client, [name]):
            if state.error_code == 0 and state.producer_id == own.producer_id and state.transaction_start_time_ms > 0:
                began_ms = state.transaction_start_time_ms
                # Milliseconds are truncated: the true time may be almost one later.
                clock = Clock(node, began_ms - after_ms, began_ms + 1 - before_ms)
    finally:
        if additions.asked:
            ended = end_own_txn(client, astuple(own), False, _ANSWER_S, version) == OK
    return clock, ended
