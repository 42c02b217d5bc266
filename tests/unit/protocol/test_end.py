"""What is evidence of the outcome of a decided transaction."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from spark_eos.kafka.transactions import FENCING_END, PLAIN_END
from spark_eos.protocol.abort import abort_all
from spark_eos.protocol.end import _described_end, _verdict
from spark_eos.protocol.head import Pair, Probe, Verdict, Written
from spark_eos.protocol.ports import Description, EndTxnAnswer, State, Visibility
from tests.support.judges.conditions import raises

PAIR = Pair("id", 17, 3)
NEXT = replace(PAIR, epoch=4)
PLAIN = Written(0, PAIR, 1, 1, Probe("t", 0, 0), endtxn_version=PLAIN_END)
FENCING = replace(PLAIN, endtxn_version=FENCING_END)
COMMITS, COMMITTED, LOST = (State.PREPARE_COMMIT, State.COMPLETE_COMMIT), Verdict.COMMITTED, Verdict.LOST


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize(
    "described", [PAIR, NEXT, replace(PAIR, epoch=5), replace(PAIR, producer_id=18), replace(NEXT, producer_id=18)]
)
def test_what_a_description_is_evidence_of(described: Pair, state: State):
    """Where an end fences, commit or abort one epoch on. Where it does not, a commit of the very pair, and no abort.
    Of a later transaction of the id, or of a new producer id, it is evidence of nothing."""
    description = Description(described, state, 0, 1000)
    assert _described_end(PLAIN, description) is (COMMITTED if described == PAIR and state in COMMITS else None)
    fenced = LOST if state is State.COMPLETE_ABORT else COMMITTED if state in COMMITS else None
    assert _described_end(FENCING, description) is (fenced if described == NEXT else None)


@pytest.mark.parametrize(
    ("answer", "described", "found", "outcome"),
    [
        (EndTxnAnswer.DONE, None, None, COMMITTED),
        (EndTxnAnswer.DONE, State.COMPLETE_ABORT, Visibility.ABORTED, COMMITTED),
        (EndTxnAnswer.PENDING, State.PREPARE_COMMIT, None, COMMITTED),
        (EndTxnAnswer.INCONCLUSIVE, State.COMPLETE_COMMIT, Visibility.EXPIRED, COMMITTED),
        (EndTxnAnswer.INCONCLUSIVE, State.COMPLETE_ABORT, Visibility.VISIBLE, LOST),
        (EndTxnAnswer.INCONCLUSIVE, State.EMPTY, Visibility.VISIBLE, COMMITTED),
        (EndTxnAnswer.INCONCLUSIVE, None, Visibility.ABORTED, LOST),
        (EndTxnAnswer.INCONCLUSIVE, None, None, None),
        (EndTxnAnswer.PENDING, State.EMPTY, Visibility.ABORTED, None),
        (EndTxnAnswer.PENDING, None, Visibility.VISIBLE, None),
    ],
)
def test_the_outcome_of_a_transaction(
    answer: EndTxnAnswer, described: State | None, found: Visibility | None, outcome: Verdict | None
):
    """Row by row of the table in the docstring of `settle`: EndTxn before the coordinator, that before the log."""
    ports = SimpleNamespace(data=SimpleNamespace(look=lambda pair, probe: found))
    description = None if described is None else Description(NEXT, described, 0, 1000)
    assert _verdict(ports, FENCING, answer, description) is outcome


@pytest.mark.parametrize(
    ("elsewhere", "outcome"),
    [
        ([None, Visibility.VISIBLE], None),
        ([Visibility.ABORTED], LOST),
        ([Visibility.EXPIRED], LOST),
        ([Visibility.VISIBLE], COMMITTED),
    ],
)
def test_a_transaction_that_was_aborted_by_hand_in_the_partition_of_its_first_record(
    elsewhere: list[Visibility | None], outcome: Verdict | None
):
    """While it is open in another one, it is not lost: it may still be committed there, also between two looks, and is
    judged by the one."""
    written = replace(FENCING, begins=(FENCING.probe, Probe("t", 1, 5)))
    looks = iter([Visibility.ABORTED, *elsewhere])
    ports = SimpleNamespace(data=SimpleNamespace(look=lambda pair, probe: next(looks)))
    assert _verdict(ports, written, EndTxnAnswer.INCONCLUSIVE, None) is outcome


def test_an_outcome_that_nobody_can_tell_any_more():
    """The log does not have the place, and nobody else tells."""
    ports = SimpleNamespace(data=SimpleNamespace(look=lambda pair, probe: Visibility.EXPIRED))
    with raises("EOS_OUTCOME_GONE"):
        _verdict(ports, FENCING, EndTxnAnswer.INCONCLUSIVE, None)


def test_an_abort_is_by_the_version_of_now():
    """Of pairs of either kind; no answer to it is evidence of anything."""
    asked = []

    class Coordinator:
        def endtxn_version(self) -> int:
            return PLAIN_END

        def end(self, pairs, *, commit):
            asked.append((pairs, commit))
            return dict.fromkeys(pairs, EndTxnAnswer.DONE)

    class Ports:
        coordinator = Coordinator()

        def retrying(self):
            yield

    assert not abort_all(Ports(), {PAIR, NEXT})
    assert asked == [({PAIR: PLAIN_END, NEXT: PLAIN_END}, False)]
