"""What a job says while its cluster does not answer."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from jobs.runner import checks
from jobs.runner.checks import JobCluster, Silence
from spark_eos.base import system
from spark_eos.kafka.config.properties import KafkaProperties
from tests.support.judges.conditions import raises
from tests.support.servers.fake_broker import FakeBroker
from tests.support.servers.unused_hosts import nobody
from tests.support.waiting import wait_for


def test_silence_is_said_after_5_seconds_and_more_and_more_rarely(capsys):
    """Waits double up to a minute; an answer is said only if its silence was."""
    now = 0.0
    silence = Silence("host:9092", now=lambda: now)
    for second in range(200):
        now = float(second)
        silence.goes_on()
    silence.broken()
    silence.broken()
    now += 4.9
    silence.goes_on()
    assert capsys.readouterr().err.splitlines() == [
        *(f"no answer from host:9092 for {seconds} s" for seconds in (5, 10, 20, 40, 80, 140)),
        "host:9092 answers again, after 199 s",
    ]


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobCluster]:
    """A cluster at an address at which nobody listens, with times that are as short as a test. Its client's clock only
    goes on in pauses: else a busy machine has no time to be refused."""
    now = [time.monotonic()]

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        now[0] += seconds

    monkeypatch.setattr(system, "monotonic", lambda: now[0])
    monkeypatch.setattr(system, "sleep", sleep)
    for name, seconds in {"_ASK_S": 0.02, "_FIRST_S": 0, "TIMEOUT_S": 0.2}.items():
        monkeypatch.setattr(checks, name, seconds)
    with nobody() as servers:
        yield JobCluster(KafkaProperties({"bootstrap.servers": servers}), ["t"])


def test_a_cluster_that_does_not_answer_ends_the_wait_with_the_reason(absent, capsys):
    """And its silence is said before that."""
    servers = absent.kafka.bootstrap_servers
    with raises("EOS_KAFKA_UNREACHABLE", f"No answer from {servers} within ", "Connection refused"):
        absent.expect()
    assert f"no answer from {servers} for 0 s" in capsys.readouterr().err


def test_a_wrong_password_ends_the_wait_at_once(capsys):
    """Waiting does not help."""
    broker = FakeBroker(0, {})
    broker.mechanism, broker.believes = "PLAIN", False
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
    kafka = KafkaProperties({"bootstrap.servers": f"127.0.0.1:{broker.port}", "sasl.password": "x", **login})
    with raises("EOS_UNAUTHENTICATED", "user 'ann'"):
        JobCluster(kafka, ["t"]).expect()
    broker.close()
    assert capsys.readouterr().err == ""


def test_a_query_that_is_heard_of_is_not_asked_about(absent, capsys):
    """As long as there are signs of the query, the cluster's silence goes unsaid; without them it is said at once."""
    rounds = []

    def heard() -> float:
        rounds.append(None)
        return float("inf")

    with absent.watched(heard):
        wait_for(lambda: len(rounds) >= 5, "five rounds of the watch")
    assert capsys.readouterr().err == ""
    with absent.watched(heard=lambda: float("-inf")):
        wait_for(lambda: capsys.readouterr().err, "a word about the silence")
