"""The dev cluster on real brokers: `cluster` is shared and only asked; whoever kills brokers starts a cluster of its
own. Several brokers, pauses and levels of features are what tests/chaos works with.
"""

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from spark_eos.cli import main
from spark_eos.errors import DevClusterError
from spark_eos.tools.devcluster import DevCluster
from spark_eos.tools.devcluster import cluster as cluster_module
from spark_eos.tools.devcluster.jars import JarSet, resolve
from tests.support.waiting import PROGRAM_S, TIMEOUT, is_gone, wait_for


def produce(cluster, topic, *values):
    """Produces the values to partition 0."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "acks": "all"})
    delivered = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: delivered.append(error))
    producer.flush(TIMEOUT)
    assert delivered == [None] * len(values)
    return producer


def values(cluster, topic, count):
    return [record.value for record in cluster.console_consume(topic, partition=0, max_messages=count)]


def test_java_reads_what_was_produced(cluster, topic):
    """Kafka's own consumer prints every part of a record, and the cluster's method reads all of them back."""
    name = topic(2, retention_ms=-1)
    producer = produce(cluster, name, "first\nvalue", "")
    producer.produce(name, None, key="key", partition=1, headers={"a": "b"}, timestamp=1234)
    producer.flush(TIMEOUT)
    records = sorted(cluster.console_consume(name, max_messages=3))
    assert [record[:2] + record[3:] for record in records] == [
        (0, 0, "", None, "first\nvalue"),
        (0, 1, "", None, ""),
        (1, 0, "a:b", "key", None),
    ]
    assert records[2].timestamp == 1234


def test_a_tool_that_fails_says_why(cluster):
    """The error of a failed tool holds what the tool has printed."""
    with pytest.raises(DevClusterError, match=r"nothing'? is not a recognized option") as raised:
        cluster.java_tool("org.apache.kafka.tools.TopicCommand", "--nothing")
    assert raised.value.condition == "EOS_DEVCLUSTER_FAILED"


@pytest.mark.chaos
def test_a_killed_broker_and_a_stopped_cluster_keep_their_data(tmp_path):
    """Data, id and ports outlive a kill and a stop; a second cluster, or one of another size, is refused."""
    with DevCluster(data_dir=tmp_path) as cluster:
        first_id, first_servers = cluster.cluster_id, cluster.bootstrap_servers
        cluster.create_topic("kept")
        produce(cluster, "kept", "before the kill")
        pid = cluster.broker(0).pid
        cluster.kill(0)
        assert is_gone(pid)
        assert cluster.broker(0).ask() is None

        cluster.start(0)
        assert cluster.broker(0).pid != pid
        produce(cluster, "kept", "after the kill")
        with (
            pytest.raises(DevClusterError, match=r"EOS_DEVCLUSTER_CONFIG.*another cluster uses"),
            DevCluster(data_dir=tmp_path),
        ):
            pass

    with DevCluster(data_dir=tmp_path) as cluster:
        assert (cluster.cluster_id, cluster.bootstrap_servers) == (first_id, first_servers)
        assert values(cluster, "kept", 2) == ["before the kill", "after the kill"]

    other = pytest.raises(DevClusterError, match=r"EOS_DEVCLUSTER_CONFIG.*was created with brokers=1, not 2")
    with other, DevCluster(2, data_dir=tmp_path):
        pass


def test_brokers_and_data_are_gone_when_the_parent_is_killed(tmp_path):
    """A SIGKILL to the program leaves neither a broker nor a folder."""
    program = (
        "import time\n"
        "from spark_eos.tools.devcluster import DevCluster\n"
        "with DevCluster() as cluster:\n"
        "    print(cluster.broker(0).pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        pid = int(parent.stdout.readline())
        assert not is_gone(pid)
        assert len(list(tmp_path.glob("spark-eos-devcluster-*"))) == 1
        parent.kill()
    wait_for(lambda: is_gone(pid), "the end of the broker")
    wait_for(lambda: not list(tmp_path.glob("spark-eos-devcluster-*")), "the end of the data")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"config": {"num.io.threads": "none"}}, r"Invalid value none for configuration num\.io\.threads"),
        ({"features": {"transaction.version": 99}}, r"transaction\.version.*99"),
    ],
    ids=["setting", "feature"],
)
def test_what_kafka_refuses_is_named(asked, said):
    """A setting or a feature level that Kafka does not take is told in Kafka's words."""
    with pytest.raises(DevClusterError, match=said) as raised, DevCluster(**asked):
        pass
    assert raised.value.condition == "EOS_DEVCLUSTER_FAILED"


def test_a_port_that_is_taken_in_between_and_a_body_that_fails(tmp_path, monkeypatch):
    """A picked port that somebody else has taken costs another try, not the start. An exception in the with block
    leaves neither a broker nor a folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pick, picks = cluster_module.free_ports, []
    with socket.create_server(("127.0.0.1", 0)) as thief:

        def pick_a_taken_one_first(count):
            picks.append(thief.getsockname()[1])
            return [picks[0], *pick(count - 1)] if len(picks) == 1 else pick(count)

        monkeypatch.setattr(cluster_module, "free_ports", pick_a_taken_one_first)
        with pytest.raises(RuntimeError, match="of the body"), DevCluster() as cluster:
            pid = cluster.broker(0).pid
            assert len(picks) == 2
            assert cluster.broker(0).port != picks[0]
            raise RuntimeError("of the body")
    assert is_gone(pid)
    assert not list(tmp_path.iterdir())


def test_the_command_runs_until_interrupted(with_cli):
    """As the wheel installs it, with the command line; it makes the topics that it is asked for. The quickstart ends it
    by Ctrl-C."""
    command, environ = ["spark-eos", "devcluster", "--topic", "made:3"], with_cli.environ()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ, cwd=with_cli.folder
    ) as process:
        servers = process.stdout.readline().strip().removeprefix("bootstrap.servers=")
        found = AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=TIMEOUT)
        assert list(found.brokers) == [0] and len(found.topics["made"].partitions) == 3
        assert process.stderr.readline() == "Ctrl-C stops it.\n"
        process.terminate()
        _, said = process.communicate(timeout=PROGRAM_S)
    assert (process.returncode, said) == (0, "")
    host, port = servers.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


def test_the_command_adds_topics_to_a_cluster_that_runs(cluster, capsys):
    """By the port of a broker; one that is there stays as it is."""
    port = cluster.broker(0).port
    for asked in ("added:3", "added:5"):
        assert main(["devcluster", "--port", str(port), "--topic", asked, "--topic", "added-plain"]) == 0
        assert capsys.readouterr().out == f"bootstrap.servers=127.0.0.1:{port}\n"
    assert len(cluster.broker(0).ask("added").leaders) == 3
    assert len(cluster.broker(0).ask("added-plain").leaders) == 1


def test_what_maven_does_not_have_is_named(tmp_path, monkeypatch):
    """Jars that do not exist are an error of one line, and leave nothing in the cache."""
    monkeypatch.setenv("SPARK_EOS_CACHE", str(tmp_path))
    missing = JarSet("missing", plain=("org.apache.commons:commons-pool2:0.0.0",))
    with pytest.raises(
        DevClusterError, match=r"not be downloaded: \S+commons-pool2;0\.0\.0: not found\. Hint: "
    ) as raised:
        resolve(missing)
    assert raised.value.condition == "EOS_DEVCLUSTER_DOWNLOAD"
    assert not list(Path(tmp_path).glob("missing*"))
