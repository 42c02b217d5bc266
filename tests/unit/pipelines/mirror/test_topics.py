"""What a mirror looks at again and again: origins of its source, and its targets with their settings; on clusters that
are in memory."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from spark_eos.base import system
from spark_eos.errors import ConnectionFailed, TopicError, Unauthorized
from spark_eos.kafka.admin.topics import Topic
from spark_eos.kafka.codes import Code
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.errors import refusal
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.ledger import own_topics
from spark_eos.ledger.record_forms import OwnTopic, own_topic_of
from spark_eos.options.parse import sink_options, stream_options
from spark_eos.pipelines.mirror import offset_map, topics
from spark_eos.pipelines.mirror.offset_map import Origin, OriginsLog, write_origin
from spark_eos.pipelines.mirror.plan import MirrorClients, MirrorPlan, Targets
from spark_eos.pipelines.mirror.topics import TargetTopics, check_settings, target_settings

MAP = "__spark_eos_mirror"


def client_of(cluster: str) -> BrokerClient:
    return broker_client(KafkaProperties({"bootstrap.servers": f"{cluster}:9092"}))


class Clusters:
    """Topics and the records of origins, by cluster. ``read``: offsets from which these were read."""

    def __init__(self) -> None:
        self.there: dict[str, dict[str, Topic]] = {}
        self.records: dict[str, list[tuple[int, bytes, bytes]]] = {}
        self.read: list[tuple[str, int]] = []
        self.now_s = 100.0
        self.reachable = True
        self._made = 0

    def make(self, cluster: str, *names: str) -> None:
        """Also anew."""
        for name in names:
            self._made += 1
            self.there.setdefault(cluster, {})[name] = Topic(f"{name}-{self._made}", 1, internal=False)

    def describe(self, client: BrokerClient, names: list[str], **_: object) -> dict[str, Topic]:
        there = self.there.get(_cluster(client.bootstrap_servers), {})
        return {name: there[name] for name in names if name in there}

    def create(self, client: BrokerClient, name: str, *_: object) -> str:
        self.make(_cluster(client.bootstrap_servers), name)
        return ""

    def producer(self, config: dict[str, str]) -> SimpleNamespace:
        cluster = _cluster(config["bootstrap.servers"])
        records = self.records.setdefault(cluster, [])

        def produce(topic: str, value: bytes, key: bytes, **_: object) -> None:
            if topic not in self.there.get(cluster, {}):
                self.make(cluster, topic)
            records.append((len(records), key, value))

        return SimpleNamespace(produce=produce, flush=lambda _: 0)

    def partition(self, client: BrokerClient, *_: object) -> SimpleNamespace:
        if not self.reachable:
            raise ConnectionFailed("EOS_KAFKA_UNREACHABLE", "No answer.", hint="Wait.", reason="Timed out")
        cluster = _cluster(client.bootstrap_servers)
        records = self.records.get(cluster, [])

        def since(offset: int) -> list[tuple[int, bytes, bytes]]:
            self.read.append((cluster, offset))
            return records[offset:]

        return SimpleNamespace(end=len(records), since=since)

    def chains(self, cluster: str) -> dict[str, tuple[str, ...]]:
        """As whoever reads all of them sees them now."""
        return {origin.target: origin.chain for origin in offset_map.origins(client_of(cluster), MAP)}


def _cluster(servers: str) -> str:
    return servers.partition(":")[0]


@pytest.fixture
def clusters(monkeypatch) -> Clusters:
    made = Clusters()
    for module in (offset_map, topics):
        monkeypatch.setattr(module, "describe_topics", made.describe)
    monkeypatch.setattr(offset_map, "Producer", made.producer)
    monkeypatch.setattr(offset_map, "MapPartition", made.partition)
    monkeypatch.setattr(topics, "create_topic", made.create)
    monkeypatch.setattr(topics, "topic_config", lambda *_: {})
    monkeypatch.setattr(topics, "make_map", lambda *_: None)
    monkeypatch.setattr(own_topics, "own_topics", lambda *_: {})
    monkeypatch.setattr(system, "monotonic", lambda: made.now_s)
    return made


def mirror(source: str, target: str, **targets: object) -> TargetTopics:
    reads = stream_options({"kafka.bootstrap.servers": f"{source}:9092", "subscribe": "X"})
    writes = sink_options({"kafka.bootstrap.servers": f"{target}:9092"})
    plan = MirrorPlan(reads, writes, None, source, Targets(**targets), target)
    return TargetTopics(plan, MirrorClients(client_of(source), client_of(target)))


def run(of: TargetTopics) -> None:
    """What is done for a micro-batch with rows."""
    of.check_planned(["X"], {"X"})
    of.prepare(["X"], {"X"})


def test_a_circle_of_three_mirrors_that_all_run(clusters):
    """Each of them was right when it began. The longer chain is noted, by which the next mirror of the circle stops."""
    clusters.make("a", "X")
    clusters.make("c", "X")
    ab, ca, bc = mirror("a", "b"), mirror("c", "a"), mirror("b", "c")
    for each in (ab, ca, bc):
        run(each)
    assert clusters.chains("b") == {"X": ("a",)}
    clusters.now_s += 10
    run(ab)
    assert clusters.chains("b") == {"X": ("a", "c")}
    for each in (bc, ca):
        with pytest.raises(TopicError, match="EOS_MIRROR_CIRCLE"):
            run(each)


def test_a_circle_is_seen_where_a_micro_batch_is_planned_and_where_it_runs(clusters):
    """What is planned may have waited for long."""
    clusters.make("a", "X")
    ab = mirror("a", "b")
    run(ab)
    write_origin(client_of("a"), MAP, Origin("X", clusters.there["a"]["X"].id, "X", "id", ("c", "b")))
    run(ab)  # within ten seconds
    clusters.now_s += 10
    for step in (ab.check_planned, ab.prepare):
        with pytest.raises(TopicError, match="EOS_MIRROR_CIRCLE"):
            step(["X"], {"X"})


def test_origins_are_not_read_again_for_each_micro_batch(clusters):
    """Nothing within ten seconds, and then what is new."""
    clusters.make("a", "X")
    for number in range(3):
        write_origin(client_of("a"), MAP, Origin(f"t{number}", f"t{number}", "X", "id", ("c",)))
    ab = mirror("a", "b")
    run(ab)
    clusters.read.clear()
    for _ in range(5):
        run(ab)
    assert clusters.read == []
    clusters.now_s += 10
    run(ab)
    assert clusters.read == [("a", 3)]


def test_a_change_elsewhere_prepares_nothing_again(clusters, monkeypatch):
    """Where another mirror of many topics begins, the source's origins change all the time."""
    clusters.make("a", "X")
    ab = mirror("a", "b")
    run(ab)
    write_origin(client_of("a"), MAP, Origin("other", "other", "X", "id", ("b",)))
    clusters.now_s += 10
    monkeypatch.setattr(topics, "origins", lambda *_: pytest.fail("prepared again"))
    run(ab)


def test_origins_of_a_map_that_was_created_anew(clusters):
    """They are read from its beginning; one that is gone leaves what was known."""
    log = OriginsLog(client_of("a"), MAP)
    assert log.read() == []
    first, second = (Origin(name, name, "X", "id", ("c",)) for name in ("one", "two"))
    write_origin(client_of("a"), MAP, first)
    assert log.read() == [first]
    there = clusters.there["a"].pop(MAP)
    assert log.read() == [first]
    clusters.records["a"].clear()
    write_origin(client_of("a"), MAP, second)
    assert log.read() == [second]
    clusters.there["a"][MAP] = replace(there, id="a lagging broker's")
    assert log.read() == [second]


def test_origins_that_nobody_tells_for_a_while(clusters, caplog):
    """A mirror bears it that a broker restarts; not when it begins, or where a topic is new."""
    clusters.make("a", "X")
    ab = mirror("a", "b")
    run(ab)
    clusters.make("a", MAP)
    clusters.reachable = False
    clusters.now_s += 10
    run(ab)
    assert "closed a circle" in caplog.text
    with pytest.raises(ConnectionFailed):
        ab.check(["X"])


@pytest.mark.parametrize("anew", [True, False])
def test_a_target_that_goes_while_the_mirror_runs(clusters, anew):
    """What was mirrored before is missing: the next micro-batch writes nothing, and the mirror makes no new target."""
    clusters.make("a", "X")
    ab = mirror("a", "b")
    run(ab)
    run(ab)
    del clusters.there["b"]["X"]
    if anew:
        clusters.make("b", "X")
    with pytest.raises(TopicError, match="EOS_MIRROR_TARGET_RECREATED") as caught:
        ab.prepare(["X"], {"X"})
    assert ("recreated" in caught.value.message) == anew
    assert ("X" in clusters.there["b"]) == anew


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("mirror", {"prefix": "__spark_eos_"}),
        ("X", {"prefix": "m.", "map": "m.X"}),
        ("X", {"prefix": "__spark_eos_of."}),
        ("eos_ledger", {"prefix": "__spark_"}),
    ],
)
def test_targets_that_are_ledgers_or_maps(clusters, name, targets):
    """Rows in there would be taken for decisions, or for entries."""
    clusters.make("a", name)
    with pytest.raises(TopicError, match="EOS_MIRROR_TOPIC_REFUSED"):
        mirror("a", "b", **targets).check([name])


def test_a_source_or_a_target_that_is_another_ones_ledger_by_its_records(clusters, monkeypatch):
    """Whatever it is called."""
    clusters.make("a", "X")
    clusters.make("b", "X")
    for cluster, condition in (("a", "EOS_MIRROR_TOPIC_REFUSED"), ("b", "EOS_TOPIC_RESERVED")):

        def of(client, asked, cluster=cluster):
            return {"X": OwnTopic.LEDGER} if "X" in asked and client is client_of(cluster) else {}

        monkeypatch.setattr(own_topics, "own_topics", of)
        with pytest.raises(TopicError, match=condition) as caught:
            mirror("a", "b").prepare(["X"], {"X"})
        assert "a ledger of spark-eos" in caught.value.message


def test_an_origin_is_known_for_what_it_is(clusters):
    """So that no query reads or writes rows in an offset map with another name."""
    write_origin(client_of("a"), MAP, Origin("X", "id", "X", "source", ("c",)))
    ((_, key, value),) = clusters.records["a"]
    assert own_topic_of(key, value) is OwnTopic.OFFSET_MAP


def test_a_map_that_this_user_may_not_describe_stops_the_mirror(clusters, monkeypatch):
    """As the topic might name a circle; brokers say no more of one that is not there. The error names the right."""
    clusters.make("a", "X")
    ab = mirror("a", "b")
    refused = refusal("a:9092", MAP, Code.TOPIC_AUTHORIZATION_FAILED, 0.0)
    monkeypatch.setattr(offset_map, "describe_topics", lambda *_, **__: (_ for _ in ()).throw(refused))
    for step in (lambda: ab.check(["X"]), lambda: run(ab)):
        with pytest.raises(Unauthorized, match=f"READ the topic {MAP}") as caught:
            step()
        assert "READ on it in the source" in caught.value.hint


def test_settings_that_are_no_numbers(clusters):
    """Before the query starts, by the setting's name, for whoever has no config file."""
    clusters.make("a", "X")
    with pytest.raises(TopicError, match="EOS_MIRROR_TARGET_SETTINGS") as caught:
        mirror("a", "b", settings={"max.message.bytes": "10MB"}).check(["X"])
    assert caught.value.parameters["setting"] == "max.message.bytes"


SOURCE = {"cleanup.policy": "delete", "retention.ms": "5", "max.message.bytes": "9", "compression.type": "lz4"}


def test_what_a_target_is_made_with():
    """The source's own, with batches and timestamps as they are; the user's settings come last."""
    wanted = target_settings({**SOURCE, "min.insync.replicas": "2"}, {"retention.ms": "-1"})
    assert wanted["retention.ms"] == "-1"
    assert wanted["cleanup.policy"] == "delete"
    assert (wanted["compression.type"], wanted["message.timestamp.type"]) == ("producer", "CreateTime")
    assert "min.insync.replicas" not in wanted


@pytest.mark.parametrize(
    "unfit",
    [
        {"message.timestamp.type": "LogAppendTime"},
        {"cleanup.policy": "compact"},
        {"max.message.bytes": "8"},
        {"max.message.bytes": "10MB"},
    ],
)
def test_a_target_that_would_refuse_or_change_rows(clusters, monkeypatch, unfit):
    """By the setting's name. Equal settings are taken, also of compacted topics."""
    for equal in (SOURCE, SOURCE | {"cleanup.policy": "compact"}):
        check_settings("t", equal, equal)
    clusters.make("a", "X")
    of = {"a": SOURCE, "b": SOURCE | unfit}
    monkeypatch.setattr(topics, "topic_config", lambda client, _: of[_cluster(client.bootstrap_servers)])
    with pytest.raises(TopicError, match="EOS_MIRROR_TARGET_SETTINGS") as caught:
        run(mirror("a", "b"))
    assert caught.value.parameters["setting"] in unfit
