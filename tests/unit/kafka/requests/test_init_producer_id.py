"""A transactional id that cannot be had for a while: why is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.errors import ConnectionFailed, KafkaError, stop
from spark_eos.kafka.requests import init_producer_id as module
from tests.support.models.coordinator import Coordinator


def answer(code: int, producer_id: int = -1, epoch: int = -1) -> SimpleNamespace:
    return SimpleNamespace(error_code=code, producer_id=producer_id, producer_epoch=epoch)


@pytest.mark.parametrize(
    ("said", "says", "moved"),
    [
        (None, "No answer from the coordinator", True),
        (answer(51), "could not end the open transaction", False),
        (answer(15), "COORDINATOR_NOT_AVAILABLE", True),
    ],
)
def test_an_id_that_cannot_be_taken_in_time(said, says, moved, clock):
    """No answer, a transaction that does not end, a coordinator that does not come: each has its sentence."""
    client: Any = Coordinator(said)
    with pytest.raises(ConnectionFailed, match=says) as caught:
        module.init_producer_id(client, "mine", 1000)
    assert caught.value.condition == "EOS_KAFKA_UNREACHABLE"
    assert bool(client.forgotten) == moved


def test_an_id_is_had_as_soon_as_it_can_be():
    """After the transaction that was open under it has been ended."""
    client: Any = Coordinator(None, answer(51), answer(16), answer(0, 7, 3))
    pair = module.init_producer_id(client, "mine", 1000)
    assert (pair.id, pair.producer_id, pair.epoch) == ("mine", 7, 3)
    assert client.forgotten == ["mine", "mine"]


def test_two_phase_commit_is_asked_for_by_its_version_alone():
    """No version of a plain request is ever taken instead: its transactions would expire."""
    request = module.INIT_PRODUCER_ID_TWO_PHASE
    assert request.version(0, 5) is None
    assert request.version(0, 6) == request.version(0, 7) == 6
    assert module.INIT_PRODUCER_ID.version(0, 6) == 5


def test_a_refusal_of_two_phase_commit_names_the_setting_beside_the_right():
    """Kafka's answer is the same for both; without two-phase commit it is about the right alone."""
    client: Any = Coordinator(answer(53))
    with pytest.raises(KafkaError, match="EOS_TWO_PHASE_UNAVAILABLE") as caught:
        module.init_producer_id(client, "mine", 1000, two_phase=True)
    assert "transaction.two.phase.commit.enable" in str(caught.value)
    assert "TWO_PHASE_COMMIT" in str(caught.value)
    with pytest.raises(KafkaError, match="EOS_UNAUTHORIZED"):
        module.init_producer_id(client, "mine", 1000)


def test_a_coordinator_that_does_not_speak_two_phase_commit():
    """As after a restart without the setting for unstable versions: the error says what two-phase commit needs, and not
    which Kafka plain transactions do."""

    class Old(Coordinator):
        def ask(self, node: int, *_: Any) -> None:
            raise stop("EOS_BROKER_UNSUITABLE.request", node=node, request="I", first=0, last=5, oldest=6, newest=6)

    client: Any = Old()
    with pytest.raises(KafkaError, match=r"EOS_TWO_PHASE_UNAVAILABLE.* version 6 of InitProducerId: 1") as caught:
        module.init_producer_id(client, "mine", 1000, two_phase=True)
    assert "unstable.api.versions.enable" in str(caught.value)
    with pytest.raises(KafkaError, match="EOS_BROKER_UNSUITABLE"):
        module.init_producer_id(client, "mine", 1000)
