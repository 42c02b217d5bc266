"""The parts of the dev cluster that need neither Java nor a broker."""

import os
import socket
import threading
from functools import partial
from unittest import mock
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark_eos import cli
from spark_eos.cli.devcluster import NewTopic, _create_topics
from spark_eos.errors import DevClusterError
from spark_eos.tools.devcluster import ConsoleRecord, DevCluster, probe
from spark_eos.tools.devcluster import cluster as kafka_cluster
from spark_eos.tools.devcluster.jars import kafka_jars, tools_version
from spark_eos.tools.devcluster.ports import free_ports
from spark_eos.tools.devcluster.registry import DevRegistry
from spark_eos.tools.devcluster.runtime import Runtime, with_class_archive
from spark_eos.tools.devcluster.settings import Listener, broker_settings, properties
from spark_eos.tools.devcluster.storage import write_whole
from spark_eos.tools.devcluster.tools import console_consumer_arguments, parse_records


def test_free_ports_are_distinct_and_below_those_of_outgoing_connections():
    """Picked ports collide neither with one another nor with a client's port."""
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert max(ports) < 32_768


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
    """No listener is open to other machines. One behind a proxy sends those who come through it back to it."""
    settings = broker_settings(1, [10, 11], [20, 21], tmp_path, {"PROXIED": Listener("SASL_SSL", 31, 41)})
    listeners = "PLAINTEXT://127.0.0.1:11,CONTROLLER://127.0.0.1:21,PROXIED://127.0.0.1:31"
    assert settings["listeners"] == listeners
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:11,PROXIED://127.0.0.1:41"
    assert settings["controller.quorum.voters"] == "0@127.0.0.1:20,1@127.0.0.1:21"


def test_refuses_settings_that_are_the_clusters_own():
    """A listener or a folder of the user's cannot break the cluster's own."""
    with pytest.raises(DevClusterError, match=r"EOS_DEVCLUSTER_CONFIG.*listeners is set by the cluster itself"):
        DevCluster(config={"listeners": "PLAINTEXT://0.0.0.0:9092"})


def test_refuses_a_cluster_without_brokers(capsys):
    """Zero brokers are refused by the class and by the command."""
    with pytest.raises(ValueError, match="needs a broker"):
        DevCluster(0)
    assert cli.main(["devcluster", "--brokers", "0"]) == 2
    assert "'--brokers'" in capsys.readouterr().err


@pytest.fixture
def cluster(monkeypatch):
    """``cluster(brokers, …)``: one that looks for no jars."""
    monkeypatch.setattr(kafka_cluster, "kafka_runtime", lambda version: Runtime("java", version, ""))
    return partial(DevCluster, jvm_flags=["-XX:ArchiveClassesAtExit=its own"])


@pytest.mark.parametrize(
    ("port", "brokers", "refused"), [(70_000, 1, 70_000), (-1, 1, -1), (0, 1, 0), (65_535, 2, 65_536)]
)
def test_refuses_a_port_that_there_is_not(port, brokers, refused, cluster):
    """Of any broker. Port 0 would be another one than its clients are told."""
    with pytest.raises(DevClusterError, match=rf"EOS_DEVCLUSTER_CONFIG.*{refused}\b"):
        cluster(brokers, port=port).open()


def test_a_named_port_that_is_taken_is_named(cluster):
    """A port that was asked for is not replaced by another one."""
    with socket.create_server(("127.0.0.1", 0)) as thief:
        port = thief.getsockname()[1]
        with pytest.raises(DevClusterError, match=f"EOS_DEVCLUSTER_CONFIG.*Port {port} cannot be used: it is in use"):
            cluster(port=port).open()


@pytest.mark.parametrize("wrong", ["", "a b", "..", "t:0", "t:x", "t:1:2"])
def test_a_topic_that_kafka_would_refuse_is_refused_before_anything_starts(wrong, capsys):
    """The command checks topics as arguments."""
    assert cli.main(["devcluster", "--topic", wrong]) == 2
    assert "'--topic'" in capsys.readouterr().err


def test_refuses_a_folder_that_it_cannot_use(tmp_path, cluster):
    """A file, and one that cannot be made."""
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", "/proc/nobody"):
        with pytest.raises(DevClusterError, match=rf"EOS_DEVCLUSTER_CONFIG.*{folder}"):
            cluster(data_dir=folder).open()


def test_refuses_a_cache_that_it_cannot_use(cluster, environ, monkeypatch):
    """One that cannot be written, and one in the home of a user without a home."""
    environ(SPARK_EOS_CACHE="/proc/cache")
    for made in (cluster(), DevRegistry()):
        with pytest.raises(DevClusterError, match=r"EOS_DEVCLUSTER_CONFIG.*/proc/cache"):
            made.open()
    environ(SPARK_EOS_CACHE=None, XDG_CACHE_HOME=None)
    monkeypatch.setattr("pathlib.Path.home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
    with pytest.raises(DevClusterError, match=r"EOS_DEVCLUSTER_CONFIG.*no home.*SPARK_EOS_CACHE"):
        cluster().open()


def test_an_archive_of_classes_is_not_needed(tmp_path, environ, java):
    """Where there is no room for it, brokers start without. One of the same jars is found, of which
    a copy may not keep the fractions of seconds."""
    made = Mock(side_effect=lambda file: file.touch())
    java("17")
    (tmp_path / "a.jar").write_bytes(b"jar")
    runtime = Runtime("java", "4.3.1", str(tmp_path / "a.jar"))
    environ(SPARK_EOS_CACHE="/proc/cache")
    assert with_class_archive(runtime, made) == runtime
    environ(SPARK_EOS_CACHE=tmp_path / "cache")
    first = with_class_archive(runtime, made)
    seconds = int((tmp_path / "a.jar").stat().st_mtime)
    os.utime(tmp_path / "a.jar", (seconds, seconds))
    assert with_class_archive(runtime, made) == first
    assert first.class_archive.exists() and made.call_count == 1


@pytest.mark.parametrize("more", [["--brokers", "2"], ["--data", "d"], ["--kafka-version", "3.9.2"]])
def test_a_cluster_that_runs_takes_no_settings(more, monkeypatch):
    """They are for a new one, which finds the port in use."""
    monkeypatch.setattr(probe, "ask", ask := Mock())
    monkeypatch.setattr(DevCluster, "open", opened := Mock(side_effect=KeyboardInterrupt))
    cli.main(["devcluster", "--port", "9092", "--topic", "t", *more])
    assert opened.called and not ask.called


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"brokers": 1, "features": {}, "cluster_id": "x"}',
        '{"brokers": 1, "features": {}, "cluster_id": "x", "ports": 9092}',
        '{"brokers": 1, "features": {}, "cluster_id": "x", "ports": ["9092"]}',
        '{"brokers": 1, "features": {}, "cluster_id": "x", "ports": [70000]}',
        '{"brokers": 1, "features": {}, "cluster_id": "x", "ports": [9092, 9093]}',
        b"\xff",
    ],
)
def test_a_damaged_memory_of_a_cluster_is_named(text, tmp_path, cluster):
    """At each start, with what to write into it."""
    (tmp_path / "cluster.json").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(DevClusterError, match=r"EOS_DEVCLUSTER_CONFIG.*cluster\.json.*meta\.properties"):
        cluster(data_dir=tmp_path).open()


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    """Where its draft cannot be written, as on a full disk, what the cluster was made as stays."""
    file = tmp_path / "cluster.json"
    write_whole(file, "old")
    (tmp_path / ".cluster.json.partial").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(file, "new")
    assert file.read_bytes() == b"old"


@pytest.mark.parametrize("code", [KafkaError.TOPIC_EXCEPTION, KafkaError.INVALID_PARTITIONS])
def test_a_topic_that_the_broker_refuses_is_named(code):
    """As a name that differs from another one's by a dot. One that is there is left as it is."""
    create = Mock(side_effect=KafkaException(KafkaError(code, "it collides")))
    with pytest.raises(DevClusterError, match=r"EOS_DEVCLUSTER_CONFIG.*a_b.*it collides"):
        _create_topics(create, [NewTopic("a_b", 1)])
    create.side_effect = KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))
    _create_topics(create, [NewTopic("a_b", 1)])
    assert create.call_args_list == [mock.call("a_b", 1)] * 2


def test_each_version_of_kafka_has_its_logging_and_its_tools():
    """Kafka 3 logs by log4j 1, Kafka 4 by log4j 2; tools that cannot be had are those of another version."""
    for version in ("3.7.2", "3.9.2", "4.0.2", "4.1.2", "4.3.1", "4.4.0"):
        jars = kafka_jars(version)
        assert jars.transitive == (f"org.apache.kafka:kafka_2.13:{version}",)
        assert any("reload4j" in jar for jar in jars.plain) == version.startswith("3.")
        assert any("kafka-tools" in jar for jar in jars.plain) == (tools_version(version) == version)


@pytest.mark.parametrize(("version", "name"), [("3.9.2", "--property"), ("4.3.1", "--formatter-property")])
def test_the_console_consumer_is_asked_in_the_words_of_its_version(version, name):
    """Kafka 4.2 has renamed the option that says what is printed."""
    which = {"partition": None, "count": 1}
    arguments = console_consumer_arguments("localhost:1", "t", version=version, **which)
    assert [word for word in arguments if word.endswith("property")] == [name] * 8
