"""What a mirror looks at again and again: origins of its source, and its targets with their settings; on clusters that
are in memory."""

from __future__ import annotations

import json

import pytest

from spark_eos.errors import ConnectionFailed, TopicError, Unauthorized
from spark_eos.ledger.record_forms import OwnTopic, own_topic_of
from spark_eos.options.parse import sink_options, stream_options
from spark_eos.pipelines.mirror.offset_map import METADATA, Origin, OriginsLog, make_map, origins, write_origin
from spark_eos.pipelines.mirror.plan import MirrorClients, MirrorPlan, Targets
from spark_eos.pipelines.mirror.topics import TargetTopics, check_settings, target_settings
from tests.support.models.memory_clusters import MemoryCluster, id_of

MAP = "__spark_eos_mirror"


def chains(client: MemoryCluster) -> dict[str, tuple[str, ...]]:
    """Origins as whoever reads all of them sees them now."""
    return {origin.target: origin.chain for origin in origins(client, MAP)}


def mirror(source: str, target: str, **targets: object) -> TargetTopics:
    reads = stream_options({"kafka.bootstrap.servers": f"{source}:9092", "subscribe": "X"})
    writes = sink_options({"kafka.bootstrap.servers": f"{target}:9092"})
    plan = MirrorPlan(reads, writes, None, source, Targets(**targets), target)
    return TargetTopics(plan, MirrorClients.for_plan(plan))


def run(of: TargetTopics) -> None:
    """What is done for a micro-batch with rows."""
    of.check_planned(["X"], {"X"})
    of.prepare(["X"], {"X"})


def mirrored(client: MemoryCluster, topic: str = "X", chain: tuple[str, ...] = ("c",)) -> Origin:
    """Another mirror has begun to write to this topic."""
    make_map(client, MAP, 1)
    origin = Origin(topic, id_of(topic), "X", "id", chain)
    write_origin(client, MAP, origin)
    return origin


@pytest.fixture
def a(clusters) -> MemoryCluster:
    """The source, with the topic X."""
    clusters["a"].make("X")
    return clusters["a"]


@pytest.fixture
def ab(a) -> TargetTopics:
    """A mirror of a to b that runs."""
    running = mirror("a", "b")
    run(running)
    return running


def test_a_circle_of_three_mirrors_that_all_run(clusters, ab):
    """Each of them was right when it began. The longer chain is noted, by which the next mirror of the circle stops."""
    clusters["c"].make("X")
    ca, bc = mirror("c", "a"), mirror("b", "c")
    for each in (ca, bc):
        run(each)
    assert chains(clusters["b"]) == {"X": ("a",)}
    clusters.now_s += 10
    run(ab)
    assert chains(clusters["b"]) == {"X": ("a", "c")}
    for each in (bc, ca):
        with pytest.raises(TopicError, match="EOS_MIRROR_CIRCLE"):
            run(each)


def test_a_circle_is_seen_where_a_micro_batch_is_planned_and_where_it_runs(clusters, a, ab):
    """What is planned may have waited for long."""
    mirrored(a, chain=("c", "b"))
    run(ab)  # within ten seconds
    clusters.now_s += 10
    for step in (ab.check_planned, ab.prepare):
        with pytest.raises(TopicError, match="EOS_MIRROR_CIRCLE"):
            step(["X"], {"X"})


def test_origins_are_not_read_again_for_each_micro_batch(clusters, a):
    """Nothing within ten seconds, and then what is new."""
    for number in range(3):
        mirrored(a, f"t{number}")
    ab = mirror("a", "b")
    run(ab)
    mirrored(a, "t3")
    fetched = a.topics[MAP].fetched
    fetched.clear()
    for _ in range(5):
        run(ab)
    assert fetched == []
    clusters.now_s += 10
    run(ab)
    assert fetched == [(METADATA, 3)]


def test_a_change_elsewhere_prepares_nothing_again(clusters, a, ab):
    """Where another mirror of many topics begins, the source's origins change all the time."""
    mirrored(a, "other", ("b",))
    clusters.now_s += 10
    fetched = clusters["b"].topics[MAP].fetched
    fetched.clear()
    run(ab)
    assert fetched == []


def test_origins_of_a_map_that_was_created_anew(clusters):
    """They are read from its beginning; one that is gone leaves what was known."""
    client = clusters["a"]
    log = OriginsLog(client, MAP)
    assert log.read() == []
    first = mirrored(client, "one")
    assert log.read() == [first]
    client.topics.pop(MAP)
    assert log.read() == [first]
    client.make(MAP, 9, **{"cleanup.policy": "compact"}).id = id_of("new map")
    second = mirrored(client, "two")
    assert log.read() == [second]
    client.topics[MAP].id = id_of("of a broker that lags behind")
    assert log.read() == [second]


def test_origins_that_nobody_tells_for_a_while(clusters, a, ab, caplog):
    """A mirror bears it that a broker restarts; not when it begins, or where a topic is new."""
    a.make(MAP).leader = -1
    clusters.now_s += 10
    run(ab)
    assert "closed a circle" in caplog.text
    with pytest.raises(ConnectionFailed):
        ab.check(["X"])


@pytest.mark.parametrize("anew", [True, False])
def test_a_target_that_goes_while_the_mirror_runs(clusters, ab, anew):
    """What was mirrored before is missing: the next micro-batch writes nothing, and the mirror makes no new target."""
    run(ab)
    if anew:
        clusters["b"].make("X")
    else:
        del clusters["b"].topics["X"]
    with pytest.raises(TopicError, match="EOS_MIRROR_TARGET_RECREATED") as caught:
        ab.prepare(["X"], {"X"})
    assert ("recreated" in caught.value.message) == anew
    assert ("X" in clusters["b"].topics) == anew


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
    clusters["a"].make(name)
    with pytest.raises(TopicError, match="EOS_MIRROR_TOPIC_REFUSED"):
        mirror("a", "b", **targets).check([name])


@pytest.mark.parametrize(("cluster", "condition"), [("a", "EOS_MIRROR_TOPIC_REFUSED"), ("b", "EOS_TOPIC_RESERVED")])
def test_a_source_or_a_target_that_is_another_ones_ledger_by_its_records(clusters, cluster, condition):
    """Whatever it is called."""
    head = json.dumps(dict.fromkeys(["format", "run", "generation", "earlier", "endtxn", "decision"]))
    for each in ("a", "b"):
        topic = clusters[each].make("X", **{"cleanup.policy": "compact"})
        topic.id = id_of(f"ledger of {cluster}")
        if each == cluster:
            topic.put(0, (b"00000000-0000-0000-0000-000000000000", head.encode()))
    with pytest.raises(TopicError, match=condition) as caught:
        mirror("a", "b").prepare(["X"], {"X"})
    assert "a ledger of spark-eos" in caught.value.message


def test_an_origin_is_known_for_what_it_is(a):
    """So that no query reads or writes rows in an offset map with another name."""
    mirrored(a)
    ((_, key, value),) = a.topics[MAP].rows[METADATA]
    assert own_topic_of(key, value) is OwnTopic.OFFSET_MAP


def test_a_map_that_this_user_may_not_describe_stops_the_mirror(a):
    """As the topic might name a circle; brokers say no more of one that is not there. The error names the right."""
    a.refused = {MAP}
    ab = mirror("a", "b")
    for step in (lambda: ab.check(["X"]), lambda: run(ab)):
        with pytest.raises(Unauthorized, match=f"READ the topic {MAP}") as caught:
            step()
        assert "READ on it in the source" in caught.value.hint


@pytest.mark.usefixtures("a")
def test_settings_that_are_no_numbers():
    """Before the query starts, by the setting's name, for whoever has no config file."""
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
def test_a_target_that_would_refuse_or_change_rows(clusters, unfit):
    """By the setting's name. Equal settings are taken, also of compacted topics."""
    for equal in (SOURCE, SOURCE | {"cleanup.policy": "compact"}):
        check_settings("t", equal, equal)
    clusters["a"].make("X", **SOURCE)
    clusters["b"].make("X", **(SOURCE | unfit))
    with pytest.raises(TopicError, match="EOS_MIRROR_TARGET_SETTINGS") as caught:
        run(mirror("a", "b"))
    assert caught.value.parameters["setting"] in unfit
