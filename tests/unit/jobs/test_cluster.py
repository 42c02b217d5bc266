"""What a job says while its cluster does not answer."""

from __future__ import annotations

import socket
import time

import pytest

from jobs import cluster
from jobs.cluster import Cluster, Silence
from spark_eos.errors import ConnectionFailed
from spark_eos.kafka.config.properties import KafkaProperties


def test_silence_is_said_after_5_seconds_and_more_and_more_rarely(capsys):
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
def nobody() -> Cluster:
    """A cluster at a port on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return Cluster(KafkaProperties({"bootstrap.servers": f"127.0.0.1:{free.getsockname()[1]}"}), ["t"])


def test_a_cluster_that_does_not_answer_ends_the_wait_with_the_reason(nobody, monkeypatch, capsys):
    """The whole wait is shorter than the time after which silence is said: here 2 s, of which it is said after 1."""
    monkeypatch.setattr(cluster, "TIMEOUT_S", 2.0)
    monkeypatch.setattr(cluster, "_FIRST_S", 1)
    with pytest.raises(ConnectionFailed) as caught:
        nobody.expect()
    servers = nobody.kafka.bootstrap_servers
    assert caught.value.condition == "EOS_KAFKA_UNREACHABLE"
    assert caught.value.message.startswith(f"No answer from {servers} within ")
    assert "Connection refused" in caught.value.message
    assert f"no answer from {servers} for 1 s" in capsys.readouterr().err


def test_a_query_that_is_heard_of_is_not_asked_about(nobody, monkeypatch, capsys):
    """And one that has fallen silent is."""
    monkeypatch.setattr(cluster, "_FIRST_S", 0)
    monkeypatch.setattr(cluster, "_ASK_S", 0.05)
    asked: list[float] = []
    monkeypatch.setattr(Cluster, "answers", lambda self: bool(asked.append(time.monotonic())))
    with nobody.watched(heard=time.monotonic):
        time.sleep(0.3)
    assert not asked
    with nobody.watched(heard=lambda: float("-inf")):
        deadline = time.monotonic() + 10
        while not asked and time.monotonic() < deadline:
            time.sleep(0.01)
    assert asked
