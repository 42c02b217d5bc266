"""`spark-eos doctor` on real brokers: what it finds, what it tries, and what it leaves behind."""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from spark_eos import cli
from spark_eos.base import system
from spark_eos.kafka.admin.configs import create_topic
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.protocol.names import doctor_name
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView, open_view
from tests.support.servers.acl_cluster import Guarded
from tests.support.waiting import TIMEOUT


@dataclass
class Patient:
    """A query's topics, under a ledger and a prefix of its own."""

    servers: str
    view: KafkaView
    source: str
    out: str
    capsys: pytest.CaptureFixture[str]
    replicas: int = 1

    def __post_init__(self) -> None:
        self.prefix = f"doctor-{uuid.uuid4().hex[:8]}"
        self.ledger = f"ledger-{self.prefix}"
        client = broker_client(KafkaProperties({"bootstrap.servers": self.servers}))
        assert create_topic(client, self.ledger, 1, self.replicas, {"cleanup.policy": "compact"}) == ""

    def ask(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Exit code and answer."""
        self.capsys.readouterr()
        code = self.run(*words, "--format", "json")
        return code, json.loads(self.capsys.readouterr().out)

    def run(self, *words: str) -> int:
        topics = ["--input", self.source, "--output", self.out, "--ledger-topic", self.ledger, "--prefix", self.prefix]
        return cli.main(["doctor", "--bootstrap-servers", self.servers, *topics, *words])


def worst(answer: dict[str, Any]) -> dict[str, list[str]]:
    """What is not well and no warning, by the subject."""
    found: dict[str, list[str]] = {}
    for finding in answer["findings"]:
        if finding["severity"] in ("error", "unknown"):
            found.setdefault(finding["subject"], []).append(finding["check"])
    return found


@pytest.fixture
def patient(cluster, view, topic: Callable[..., str], capsys) -> Patient:
    return Patient(cluster.bootstrap_servers, view, topic(1), topic(1), capsys)


def test_a_cluster_that_is_well(patient):
    """Exit code 0, in both formats. No row and no marker is written anywhere, and nothing stays open of the id that it
    takes."""
    places = [(patient.source, 0), (patient.out, 0), (patient.ledger, 0)]
    before = {place: patient.view.ends(place[0])[place] for place in places}
    code, answer = patient.ask("--group", "g", "--longest-stop", "1d")
    assert (code, worst(answer)) == (0, {})
    assert patient.run("--longest-stop", "1d") == 0
    told = patient.capsys.readouterr().out
    assert "The exactly-once requirements are met here" in told
    assert "warning  " in told  # there is one broker only
    assert {place: patient.view.ends(place[0])[place] for place in places} == before
    assert patient.view.open_transactions(doctor_name(patient.prefix)) == set()


def test_what_is_missing_comes_with_the_command_that_makes_it(patient):
    """An output that is not there, and a transaction that brokers would not allow."""
    code, answer = patient.ask("--output", "nowhere-at-all", "--timeout", "86400000")
    assert code == 1
    found = {f["condition"]: f for f in answer["findings"] if f["severity"] == "error"}
    assert set(found) == {"EOS_TOPIC_MISSING", "EOS_TRANSACTION_TIMEOUT_TOO_LONG"}
    (fix,) = found["EOS_TOPIC_MISSING"]["fix"]
    assert "kafka-topics.sh" in fix
    assert "nowhere-at-all" in fix
    assert patient.run("--timeout", "86400000") == 1
    assert "The exactly-once requirements are not met here" in patient.capsys.readouterr().out


def test_a_ledger_that_is_not_there_is_not_made(patient):
    """The first start of a query does that."""
    code, answer = patient.ask("--ledger-topic", "no-ledger")
    assert (code, worst(answer)) == (0, {})
    assert "no-ledger" not in patient.view.admin.list_topics(timeout=TIMEOUT).topics


def test_nobody_answers(capsys, monkeypatch):
    """Exit code 2, within seconds, with the error in JSON, too. By a clock that only waiting moves."""
    began, waited = system.monotonic(), []
    monkeypatch.setattr(system, "monotonic", lambda: began + sum(waited))
    monkeypatch.setattr(system, "sleep", waited.append)
    words = ["--bootstrap-servers", "127.0.0.1:1", "--kafka", "sasl.password=hunter2", "doctor", "--format", "json"]
    assert cli.main(words) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["error"]["condition"] == "EOS_KAFKA_UNREACHABLE"
    assert 0 < sum(waited) < 60
    assert "hunter2" not in said.out + said.err


def test_rights_that_are_lacking(guarded: Guarded, capsys):
    """Each is named, with the command that prints what to grant; what may not be looked at is unknown."""
    topics = [f"{what}-{uuid.uuid4().hex[:8]}" for what in ("in", "out")]
    for name in topics:
        guarded.cluster.create_topic(name)
    patient = Patient(guarded.cluster.bootstrap_servers, guarded.view, *topics, capsys)
    ids = f"transactional ids {patient.prefix}-…"
    with guarded.forbidden(ResourceType.TRANSACTIONAL_ID, patient.prefix, AclOperation.WRITE):
        code, answer = patient.ask("--principal", "User:ann")
    assert (code, worst(answer)) == (1, {ids: ["rights"]})
    (finding,) = (f for f in answer["findings"] if f["subject"] == ids)
    assert finding["condition"] == "EOS_UNAUTHORIZED"
    assert finding["fix"][0].count("doctor --acls --principal User:ann") == 1
    writes, reads = AclOperation.WRITE, AclOperation.READ
    for resource, name, operation, found in (
        (ResourceType.TOPIC, patient.out, writes, (1, {f"output {patient.out}": ["rights"]})),
        (ResourceType.TOPIC, patient.source, reads, (1, {f"input {patient.source}": ["rights"]})),
        (ResourceType.TOPIC, patient.ledger, writes, (1, {f"ledger {patient.ledger}": ["ledger"]})),
        (ResourceType.GROUP, "refused", reads, (1, {"group refused-group": ["group"]})),
        (ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS, (2, {"brokers": ["settings"]})),
    ):
        with guarded.forbidden(resource, name, operation):
            code, answer = patient.ask(*(["--group", "refused-group"] if name == "refused" else []))
        assert (code, worst(answer)) == found


#: The classes behind Kafka's own commands.
TOOLS = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-features.sh": "org.apache.kafka.tools.FeatureCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}


def mend(cluster: DevCluster, fix: str) -> None:
    """Run a command as it was printed."""
    tool, *words = shlex.split(fix)
    cluster.java_tool(TOOLS[tool], *words)


@pytest.mark.chaos
def test_the_printed_commands_mend_what_was_found(capsys):
    """On three brokers, with transaction.version 1: Kafka's own tools run them, and the doctor then finds nothing."""
    durable = {"min.insync.replicas": "2"}  # for the topics of the brokers
    features = {"transaction.version": 1}
    with (
        DevCluster(3, config=durable, features=features) as cluster,
        open_view(cluster.bootstrap_servers) as view,
    ):
        weak = {"min.insync.replicas": 1, "unclean.leader.election.enable": True, "retention.ms": 60_000}
        cluster.create_topic("in", 2, replication=3, **weak)
        cluster.create_topic("out", 2, replication=3, **weak)
        patient = Patient(cluster.bootstrap_servers, view, "in", "out", capsys, replicas=3)
        code, answer = patient.ask("--output", "not-there")
        assert code == 1
        for _ in range(3):  # after one, another finding may come
            for finding in answer["findings"]:
                for fix in finding["fix"]:
                    if finding["severity"] in ("error", "warning") and not fix.startswith("#"):
                        mend(cluster, fix)
            code, answer = patient.ask("--output", "not-there")
        told = {(f["subject"], f["check"]): f["what"] for f in answer["findings"] if f["severity"] != "ok"}
        assert told == {}
        assert code == 0
