"""What the answers of coordinators mean for the protocol."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spark_eos.errors import EosError, Unauthorized
from spark_eos.kafka.codes import UNAUTHORIZED, Code
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.ledger import coordinator
from spark_eos.ledger.coordinator import TransactionCoordinator
from spark_eos.protocol.head import Pair
from spark_eos.protocol.ports import EndTxnAnswer, Generations

PAIR = Pair("eos-q-1-0-0", 1000, 3)


@pytest.fixture
def answers(clock: object, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What brokers answer: ``end``, ``init``: to requests for these; ``listed``: each time that ids are asked for, and
    nothing after that."""
    answers = SimpleNamespace(end=None, init=None, listed=[])
    monkeypatch.setattr(coordinator, "end_txns", lambda *_, **__: {PAIR.id: answers.end})
    monkeypatch.setattr(coordinator, "ask_init", lambda *_: answers.init)
    monkeypatch.setattr(coordinator, "ids_by_state", lambda *_, **__: answers.listed.pop(0) if answers.listed else None)
    return answers


@pytest.fixture
def own(answers: SimpleNamespace) -> TransactionCoordinator:
    return TransactionCoordinator(BrokerClient(KafkaProperties({"bootstrap.servers": "h:1"})), "eos", "q")


@pytest.mark.parametrize(
    ("codes", "answer"),
    [
        ([0], EndTxnAnswer.DONE),
        ([48, 90, 47, 49, 120], EndTxnAnswer.INCONCLUSIVE),
        ([None, -1, 7, 35, 42, 51, 14, 15, 16, 999], EndTxnAnswer.PENDING),
    ],
    ids=lambda given: given.value if isinstance(given, EndTxnAnswer) else "",
)
def test_what_an_answer_says_of_an_end(own, answers, codes: list[int | None], answer: EndTxnAnswer):
    """Evidence is needed where the coordinator has no such transaction, or not any more. Whatever else is no outcome is
    asked again, also what no client expects: brokers answer -1 where they cannot write to their own log, say. After the
    decision, nobody may conclude anything from it."""
    said = {}
    for answers.end in codes:
        said[answers.end] = own.end({PAIR: 5}, commit=True)[PAIR]
    assert said == dict.fromkeys(codes, answer)


def test_rights_that_are_missing_are_named(own, answers):
    """And nothing else is called that."""
    assert Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED in UNAUTHORIZED
    for answers.end in UNAUTHORIZED:
        with pytest.raises(Unauthorized, match="WRITE and DESCRIBE on the transactional ids"):
            own.end({PAIR: 5}, commit=True)


@pytest.mark.parametrize("code", [None, -1, 7, 14, 15, 16, 35, 42, 47, 51, 90, 999])
def test_an_id_that_was_not_taken_is_asked_for_again(own, answers, code: int | None):
    """Whatever the reason is, but for a right that is missing."""
    answers.init = None if code is None else (code, -1, -1)
    assert own.fence([PAIR.id]) == [PAIR.id]
    answers.init = (0, 1, 0)
    assert own.fence([PAIR.id]) == []
    answers.init = (Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, -1)
    with pytest.raises(Unauthorized):
        own.fence([PAIR.id])


def test_a_list_of_ids_is_that_of_all_brokers(own, answers):
    """One that is away may have the id by which a later run shows, whose head the ledger has lost: nothing is concluded
    from what the others say."""
    answers.listed = [None, [("eos-q-2-0-0", "CompleteCommit")]]
    assert own.generations() == Generations(2, 2, 0)
    with pytest.raises(EosError, match="EOS_KAFKA_UNREACHABLE"):
        own.generations()
