"""A transactional id that cannot be had for a while: why is told."""

from __future__ import annotations

from typing import Any

import pytest

from spark_eos.errors import ConnectionFailed, KafkaError, stop
from spark_eos.kafka.net.schema import Request
from spark_eos.kafka.requests import init_producer_id as module


class Client:
    """Remembers which coordinators were to be looked for again."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []

    def forget(self, ids: list[str]) -> None:
        self.forgotten += ids


@pytest.mark.parametrize(
    ("answer", "says", "moved"),
    [
        (None, "No answer from the coordinator", False),
        ((51, -1, -1), "could not end the open transaction", False),
        ((15, -1, -1), "COORDINATOR_NOT_AVAILABLE", True),
    ],
)
def test_an_id_that_cannot_be_taken_in_time(answer, says, moved, monkeypatch):
    """No answer, a transaction that does not end, a coordinator that does not come: each has its sentence."""
    monkeypatch.setattr(module, "INIT_S", 0.05)
    monkeypatch.setattr(module, "ask_init", lambda client, name, timeout_ms, two_phase: answer)
    client: Any = Client()
    with pytest.raises(ConnectionFailed, match=says) as caught:
        module.init_producer_id(client, "mine", 1000)
    assert caught.value.condition == "EOS_KAFKA_UNREACHABLE"
    assert bool(client.forgotten) == moved


def test_an_id_is_had_as_soon_as_it_can_be(monkeypatch):
    """After the transaction that was open under it has been ended."""
    answers = [None, (51, -1, -1), (16, -1, -1), (0, 7, 3)]
    monkeypatch.setattr(module, "ask_init", lambda client, name, timeout_ms, two_phase: answers.pop(0))
    client: Any = Client()
    pair = module.init_producer_id(client, "mine", 1000)
    assert (pair.id, pair.producer_id, pair.epoch) == ("mine", 7, 3)
    assert client.forgotten == ["mine"]


def test_two_phase_commit_is_asked_for_by_its_version_alone():
    """No version of a plain request is ever taken instead: its transactions would expire."""
    request = module.INIT_PRODUCER_ID_TWO_PHASE
    assert request.version(0, 5) is None
    assert request.version(0, 6) == request.version(0, 7) == 6
    assert module.INIT_PRODUCER_ID.version(0, 6) == 5


def test_a_refusal_of_two_phase_commit_names_the_setting_beside_the_right(monkeypatch):
    """Kafka's answer is the same for both; without two-phase commit it is about the right alone."""
    monkeypatch.setattr(module, "ask_init", lambda client, name, timeout_ms, two_phase: (53, -1, -1))
    client: Any = Client()
    with pytest.raises(KafkaError, match="EOS_TWO_PHASE_UNAVAILABLE") as caught:
        module.init_producer_id(client, "mine", 1000, two_phase=True)
    assert "transaction.two.phase.commit.enable" in str(caught.value)
    assert "TWO_PHASE_COMMIT" in str(caught.value)
    with pytest.raises(KafkaError, match="EOS_UNAUTHORIZED"):
        module.init_producer_id(client, "mine", 1000)


def test_a_coordinator_that_does_not_speak_two_phase_commit():
    """As after a restart without the setting for unstable versions: the error says what two-phase commit needs, and not
    which Kafka plain transactions do."""

    class Old(Client):
        bootstrap_servers = "k:9092"

        def coordinator(self, key: str, timeout_s: float) -> Any:
            return 3, None

        def ask(self, node: int, request: Request, values: Any) -> None:
            raise stop("EOS_BROKER_UNSUITABLE.request", node=node, request="I", first=0, last=5, oldest=6, newest=6)

    client: Any = Old()
    with pytest.raises(KafkaError, match=r"EOS_TWO_PHASE_UNAVAILABLE.* version 6 of InitProducerId: 3") as caught:
        module.init_producer_id(client, "mine", 1000, two_phase=True)
    assert "unstable.api.versions.enable" in str(caught.value)
    with pytest.raises(KafkaError, match="EOS_BROKER_UNSUITABLE"):
        module.init_producer_id(client, "mine", 1000)
