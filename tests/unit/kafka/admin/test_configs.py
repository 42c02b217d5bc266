"""The settings of every broker, where some of them are silent or refuse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.errors import ConnectionFailed, KafkaError
from spark_eos.kafka.admin.configs import broker_config, each_broker_setting

SETTING = "a.setting"


class Brokers:
    """``rounds``: what each broker answers, look by look: a value, an error code, or None for silence; the last round
    also to those that follow."""

    bootstrap_servers = "k:9092"

    def __init__(self, *rounds: Mapping[int, str | int | None]) -> None:
        self.rounds = list(rounds)

    def brokers(self) -> list[int]:
        return list(self.rounds[0])

    def ask_each(self, asked: Iterable[int], *_: Any) -> dict[int, Any]:
        found = self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]
        return {node: self._answer(found[node]) for node in asked}

    def ask(self, node: int, *_: Any) -> Any:
        return self.ask_each([node])[node]

    def _answer(self, said: str | int | None) -> Any:
        if said is None:
            return None
        row = SimpleNamespace(name=SETTING, value=said)
        code = said if isinstance(said, int) else 0
        return SimpleNamespace(results=[SimpleNamespace(error_code=code, configs=[] if code else [row])])


@pytest.fixture(autouse=True)
def no_pauses(clock):
    """Between rounds."""


def settings(*rounds: Mapping[int, str | int | None]) -> dict[int, str] | None:
    client: Any = Brokers(*rounds)
    return each_broker_setting(client, SETTING)


def test_a_broker_that_is_silent_is_asked_again():
    """It may be the one whose setting is wrong."""
    assert settings({0: "true", 1: None}, {0: "true", 1: "false"}) == {0: "true", 1: "false"}


def test_a_broker_that_stays_silent_is_left_out_and_named(caplog):
    """A query starts while one of its brokers is down."""
    assert settings({0: "true", 1: None}) == {0: "true"}
    assert "brokers 1 do not answer" in caplog.text


@pytest.mark.parametrize("codes", [{0: "true", 1: -1}, {0: 0, 1: 87}])
def test_a_refusal_is_named(codes):
    """Not that another broker has answered."""
    with pytest.raises(KafkaError) as caught:
        settings(codes)
    assert caught.value.condition == "EOS_KAFKA_REFUSED"
    assert "NONE" not in caught.value.message


def test_what_this_user_may_not_read_is_not_known():
    """Whatever the others answer."""
    assert settings({0: "true", 1: 31}) is None


def test_a_cluster_that_names_no_broker_is_asked_again():
    """Its only broker may just have been fenced."""
    client: Any = Brokers({})
    with pytest.raises(ConnectionFailed, match="REQUEST_TIMED_OUT"):
        broker_config(client)
