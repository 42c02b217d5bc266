"""Misconfigured clusters, as everybody meets them first: an advertised address that leads nowhere, and topics that want
more replicas than there are. Whoever waits is told why, by an error or by the log."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from spark_eos.cli.app import run
from spark_eos.devcluster import DevCluster
from spark_eos.errors import ConnectionFailed
from spark_eos.kafka.admin.topics import end_offsets
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.init_producer_id import init_producer_id
from tests.support.transactions import arrow_producers
from tests.support.waiting import wait_for

from .test_raw_producer import numbers


def test_a_broker_that_advertises_a_dead_port(capsys):
    """By an admin question and a sink's first request, each within 15 seconds; and by a command."""
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        port = dead.getsockname()[1]
        with DevCluster(proxies=[port]) as cluster:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            admin.create_topics([NewTopic("t", 1)])["t"].result(20)
            servers = f"127.0.0.1:{cluster.broker(0).proxied_port}"
            kafka = KafkaProperties({"bootstrap.servers": servers})
            for ask in (
                lambda: end_offsets(kafka, {"t": [0]}),
                lambda: init_producer_id(BrokerClient(kafka), "name", 60_000),
            ):
                began = time.monotonic()
                with pytest.raises(ConnectionFailed, match="EOS_BROKER_UNREACHABLE") as caught:
                    ask()
                assert time.monotonic() - began < 15
                assert f"broker 0 at 127.0.0.1:{port} (" in caught.value.message
                assert f"{servers} answers" in caught.value.message
            assert run(["transactions", "list", "--bootstrap-servers", servers]) == 2
            assert f"EOS_BROKER_UNREACHABLE] {servers} answers" in capsys.readouterr().err


def test_rows_that_wait_for_replicas_are_told(kafka, topic, caplog):
    """Once after ten seconds, with topic, partition and reason; and once when there are enough of them."""
    name = topic(min_insync_replicas=2)
    with arrow_producers(kafka) as begin, caplog.at_level("WARNING", "spark_eos"):
        producer = begin("waits")
        producer.write(name, 1, value=numbers(0, 10))
        flushed = threading.Thread(target=producer.flush)
        flushed.start()
        wait_for(lambda: caplog.records, "a warning", 20)
        assert f"{name}-0 (NOT_ENOUGH_REPLICAS: " in caplog.records[0].getMessage()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        entry = ConfigEntry("min.insync.replicas", "1", incremental_operation=AlterConfigOpType.SET)
        for done in admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])]
        ).values():
            done.result(20)
        flushed.join(20)
        assert not flushed.is_alive()
    assert [record.getMessage().partition(" after ")[0] for record in caplog.records[1:]] == [
        "writing as waits goes on"
    ]
