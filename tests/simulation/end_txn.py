"""What EndTxn version 5 answers, by the state of the transaction."""

from __future__ import annotations

from spark_eos.protocol.ports import State

from .codes import CONCURRENT, INVALID_STATE, OK

PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


def answer_v5(state: State, commit: bool, retry: bool) -> int | None:
    """The table in Kafka's TransactionCoordinator: what EndTxn v5 answers, None where it ends the transaction."""
    if state is State.ONGOING:
        return None
    if state is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT):
        return CONCURRENT
    if commit:
        return OK if state is State.COMPLETE_COMMIT and retry else INVALID_STATE
    if retry:
        return OK if state is State.COMPLETE_ABORT else INVALID_STATE
    return INVALID_STATE if state in PREPARED else None  # aborting nothing: the epoch rises
