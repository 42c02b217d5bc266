"""A broker that advertises an address which leads nowhere: whoever connects is told so."""

from __future__ import annotations

import socket
import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from spark_eos.cli.app import run
from spark_eos.errors import ConnectionFailed
from spark_eos.kafka.admin.topics import end_offsets
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net import client
from spark_eos.kafka.requests import init_producer_id
from spark_eos.tools.devcluster import DevCluster
from tests.support.waiting import PROGRAM_S, TIMEOUT


def test_a_broker_that_advertises_a_dead_port(capsys, monkeypatch):
    """By an admin question and a sink's first request, each long before its time is up; and by a command."""
    monkeypatch.setattr(client, "_PROBE_S", TIMEOUT)  # else a server that is busy would count as silent, too
    monkeypatch.setattr(init_producer_id, "INIT_S", PROGRAM_S)
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        port = dead.getsockname()[1]
        with DevCluster(proxies=[port]) as cluster:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            admin.create_topics([NewTopic("t", 1)])["t"].result(TIMEOUT)
            servers = f"127.0.0.1:{cluster.broker(0).proxied_port}"
            kafka = KafkaProperties({"bootstrap.servers": servers})
            for ask in (
                lambda: end_offsets(client.broker_client(kafka), {"t": [0]}, timeout_s=PROGRAM_S),
                lambda: init_producer_id.init_producer_id(client.BrokerClient(kafka), "name", 60_000),
            ):
                began = time.monotonic()
                with pytest.raises(ConnectionFailed, match="EOS_BROKER_UNREACHABLE") as caught:
                    ask()
                assert time.monotonic() - began < TIMEOUT
                assert f"broker 0 at 127.0.0.1:{port} (" in caught.value.message
                assert f"{servers} answers" in caught.value.message
            assert run(["--bootstrap-servers", servers, "status"]) == 2
            assert f"EOS_BROKER_UNREACHABLE] {servers} answers" in capsys.readouterr().err
