"""Two-phase commit by the broker (KIP-939): checks, before any task runs, that transactions which never expire can be
begun."""

from __future__ import annotations

from spark_eos.base.caches import process_cache, ttl_cache
from spark_eos.errors import stop
from spark_eos.kafka.errors import two_phase_unavailable
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.describe_transactions import describe_transactions
from spark_eos.kafka.requests.init_producer_id import INIT_PRODUCER_ID_TWO_PHASE, UNSPOKEN, init_producer_id
from spark_eos.kafka.transactions import NEVER_MS
from spark_eos.protocol.names import TWO_PHASE_TRIAL
from spark_eos.sink.brokers import without

#: Seconds for which the brokers' settings are taken to stay as they are.
_FRESH_S = 30

SETTING = "transaction.two.phase.commit.enable"

_TRIAL_MS = 60_000


def check_two_phase(client: BrokerClient, prefix: str) -> None:
    """Raise an error where a task's transactions would not be held for ever. ``prefix``: of the transactional ids.

    KafkaError (EOS_TWO_PHASE_UNAVAILABLE), ProtocolStop (EOS_TWO_PHASE_EXPIRES), or that no broker answers. Each
    transaction is looked at once more before it is decided.
    """
    _check_brokers(client)
    _try_out(client, prefix)


@ttl_cache(_FRESH_S, maxsize=16)
def _check_brokers(client: BrokerClient) -> None:
    """Check all brokers, as each may become the coordinator of an id."""
    lacking = client.brokers_without(INIT_PRODUCER_ID_TWO_PHASE)
    if lacking:
        raise two_phase_unavailable(client.bootstrap_servers, lacking, UNSPOKEN)
    disabled = without(client, SETTING, "; a broker that has not refuses the tasks")
    if disabled:
        raise two_phase_unavailable(client.bootstrap_servers, disabled, f"do not have {SETTING}=true")


@process_cache(maxsize=16)
def _try_out(client: BrokerClient, prefix: str) -> None:
    """Try two-phase commit once in a process: there is no other way to find out whether this user may."""
    name = f"{prefix}-{TWO_PHASE_TRIAL}"
    init_producer_id(client, name, _TRIAL_MS, two_phase=True)
    for state in describe_transactions(client, [name]):
        if state.error_code == 0 and state.transaction_timeout_ms != NEVER_MS:
            raise stop("EOS_TWO_PHASE_EXPIRES", transactional_id=name, timeout_ms=state.transaction_timeout_ms)
