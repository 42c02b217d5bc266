"""The parts of the dev cluster that need neither Java nor a broker."""

import socket
import threading

import pytest

from spark_eos import cli
from spark_eos.devcluster import ConsoleRecord, DevCluster, probe
from spark_eos.devcluster.ports import free_ports, is_free
from spark_eos.devcluster.settings import broker_settings, properties
from spark_eos.devcluster.tools import parse_records
from spark_eos.errors import DevClusterError


def test_free_ports_are_distinct_and_below_those_of_outgoing_connections():
    """Picked ports collide neither with one another nor with a client's port."""
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert max(ports) < 32_768


def test_a_port_that_somebody_listens_on_is_not_free():
    """A taken port is told from a free one."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert not is_free(listener.getsockname()[1])


def test_nobody_on_the_port_is_no_answer():
    """A refused connection is no broker, and no exception."""
    assert probe.ask(free_ports(1)[0]) is None


@pytest.mark.parametrize("answer", [b"", b"\x00\x00", b"\x00\x00\x00\x04\x00\x00\x00\x01", b"HTTP/1.1 400 Bad Request"])
def test_somebody_else_on_the_port_is_no_answer(answer):
    """Whatever does not answer as Kafka does is no broker."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        assert probe.ask(server.getsockname()[1]) is None
        thread.join()


def test_reads_what_the_console_consumer_prints():
    """Line breaks, nulls and headers of a record survive the console consumer's output."""
    output = (
        "CreateTime:1795226873953\x1fPartition:1\x1fOffset:0\x1fa:b,c:d\x1fkey\x1fa\nvalue\x1e"
        "LogAppendTime:1795226873954\x1fPartition:0\x1fOffset:7\x1fNO_HEADERS\x1f\x1a\x1f\x1a\x1e"
    )
    assert parse_records(output) == [
        ConsoleRecord(1, 0, 1795226873953, "a:b,c:d", "key", "a\nvalue"),
        ConsoleRecord(0, 7, 1795226873954, "", None, None),
    ]
    assert parse_records("") == []


def test_settings_survive_the_java_properties_format():
    """Backslashes, line breaks and letters beyond ASCII are escaped as Java reads them."""
    assert properties({"a": "C:\\x", "b": "1\n2"}) == "a=C:\\\\x\nb=1\\n2\n"
    assert properties({"a": "Käse 🧀"}) == "a=K\\u00e4se \\ud83e\\uddc0\n"


@pytest.mark.parametrize(("brokers", "replication", "min_in_sync"), [(1, "1", "1"), (2, "2", "2"), (5, "3", "2")])
def test_replication_follows_the_number_of_brokers(tmp_path, brokers, replication, min_in_sync):
    """Internal topics have up to three replicas, and stay writable without one of them."""
    settings = broker_settings(0, list(range(brokers)), list(range(brokers)), tmp_path)
    assert settings["transaction.state.log.replication.factor"] == replication
    assert settings["transaction.state.log.min.isr"] == min_in_sync


def test_listens_on_loopback_only(tmp_path):
    """No listener is open to other machines."""
    settings = broker_settings(1, [10, 11], [20, 21], tmp_path)
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:11,CONTROLLER://127.0.0.1:21"
    assert settings["controller.quorum.voters"] == "0@127.0.0.1:20,1@127.0.0.1:21"


def test_a_broker_behind_a_proxy_sends_those_who_come_through_it_back_to_it(tmp_path):
    """The second listener advertises the proxy's port."""
    settings = broker_settings(1, [10, 11], [20, 21], tmp_path, (31, 41))
    assert settings["listeners"].endswith(",PROXIED://127.0.0.1:31")
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:11,PROXIED://127.0.0.1:41"


def test_refuses_a_wrong_number_of_proxies():
    """There is one proxy for each broker, or none."""
    with pytest.raises(ValueError, match="3 brokers need 3 proxies, not 1"):
        DevCluster(3, proxies=[9092])


def test_refuses_settings_that_are_the_clusters_own():
    """A listener or a folder of the user's cannot break the cluster's own."""
    with pytest.raises(DevClusterError, match="EOS_DEVCLUSTER_CONFIG.*listeners is set by the cluster itself"):
        DevCluster(config={"listeners": "PLAINTEXT://0.0.0.0:9092"})


def test_refuses_a_cluster_without_brokers(capsys):
    """Zero brokers are refused by the class and by the command."""
    with pytest.raises(ValueError, match="needs a broker"):
        DevCluster(0)
    with pytest.raises(SystemExit) as exited:
        cli.main(["devcluster", "--brokers", "0"])
    assert exited.value.code == 2
    assert "0 is less than 1" in capsys.readouterr().err


def test_the_command_says_what_is_wrong_in_a_sentence(tmp_path, monkeypatch, capsys):
    """A named error is printed without a stack, with exit code 1."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert cli.main(["devcluster"]) == 1
    assert capsys.readouterr().err.startswith(f"spark-eos: [EOS_JAVA_MISSING] JAVA_HOME is {tmp_path}, but")
