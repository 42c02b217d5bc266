"""Which topics a mirror follows: those that appear while it runs, and those that it is no longer to follow."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka.admin import NewPartitions, NewTopic

from spark_eos.errors import EosError
from spark_eos.kafka.admin.topics import describe_topics
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.pipelines.mirror.offset_map import Origin, make_map, origins, write_origin
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView
from tests.support.judges.kafka_view import write as put
from tests.support.queries.copies import copied
from tests.support.queries.mirrors import Mirror, check_same, cluster_of, seen
from tests.support.queries.sink_queries import ended_by
from tests.support.spark.session_faults import armed
from tests.support.waiting import TIMEOUT, wait_for

RUNNING = {"processingTime": "100 milliseconds"}


def until_there(view: KafkaView, topic: str, rows: int) -> None:
    """Until consumers of the target see so many rows of a topic, which may not be there yet."""
    wait_for(lambda: topic in view.admin.list_topics(timeout=TIMEOUT).topics, f"topic {topic}")
    wait_for(lambda: len(view.rows(topic)) >= rows, f"{rows} rows of {topic}")


def back(mirror: Mirror, folder, topic: str, prefix: str) -> Mirror:
    """A mirror of this topic from the target to the source of another mirror, with the same place for origins."""
    return Mirror(mirror.spark, mirror.there, mirror.here, folder, topic, prefix=prefix, map=mirror.targets.map)


def without(mirror: Mirror, prefix: str, name: str) -> None:
    """Correct its pattern, as the error says."""
    mirror.reads = {"subscribePattern": f"^(?!{prefix}){name}"}


def test_a_running_mirror_follows_what_appears(mirror, topic, write, admin, other: DevCluster, there, tmp_path):
    """A new partition and a new topic within the run; a topic that would go round stops it by name, and without that
    it goes on, from the same checkpoint: each row once."""
    name = topic(1, retention_ms=-1)
    write(name, *(b"%d" % i for i in range(10)))
    copies = mirror("", prefix="live.", first=True)
    copies.reads, copies.trigger = {"subscribePattern": f"^{name}"}, RUNNING
    query = copies.start()
    until_there(there, f"live.{name}", 10)

    admin.create_partitions([NewPartitions(name, 2)])[name].result()
    wait_for(lambda: len(copies.here.partitions(name)) == 2, "the partition")
    for commit in (None, False, True):
        put(copies.here.bootstrap_servers, name, [(1, f"new partition, {commit}")], commit=commit)
    until_there(there, f"live.{name}", 12)

    new = f"{name}-new"
    make(copies.here, new)
    put(copies.here.bootstrap_servers, new, [(0, "of a new topic")])
    until_there(there, f"live.{new}", 1)
    assert query.isActive

    other.create_topic("its-own")
    put(other.bootstrap_servers, "its-own", [(0, "goes round")])
    back(copies, tmp_path / "back", "its-own", f"{name}-back.").run()
    text = ended_by(query, "EOS_MIRROR_CIRCLE")
    assert f"{name}-back.its-own" in text
    put(copies.here.bootstrap_servers, name, [(1, "later")])
    with pytest.raises(EosError, match="EOS_MIRROR_CIRCLE"):
        copies.start()

    without(copies, f"{name}-back", name)
    copies.trigger = {"availableNow": True}
    copies.run()
    check_same(copies, name, new)
    target = f"live.{name}-back.its-own"  # made where the topic was seen before its origin was
    assert target not in there.admin.list_topics(timeout=TIMEOUT).topics or there.rows(target) == []


@pytest.mark.chaos
def test_a_topic_that_becomes_a_copy_while_it_is_mirrored(mirror, topic, there):
    """What it comes from is passed on, for whoever mirrors the target; and it stops where that is the target itself."""
    name = topic(1, retention_ms=-1)
    copies = mirror(name, prefix="grows.", first=True)
    copies.trigger = RUNNING
    query = copies.start()
    here = broker_client(KafkaProperties({"bootstrap.servers": copies.here.bootstrap_servers}))
    map_ = copies.targets.map

    def fed() -> bool:
        put(copies.here.bootstrap_servers, name, [(0, "row")])
        return True

    def chain() -> tuple[str, ...]:
        return next((o.chain for o in origins(copies.client, map_) if o.source == name), ())

    wait_for(lambda: fed() and len(chain()) == 1, "its origin")
    make_map(here, map_, 1)
    of_c = Origin(name, describe_topics(here, [name])[name].id, "x", "x-id", ("c",))
    write_origin(here, map_, of_c)
    wait_for(lambda: fed() and chain() == (cluster_of(copies.here), "c"), "the longer chain")
    write_origin(here, map_, replace(of_c, chain=("c", cluster_of(there))))
    wait_for(lambda: fed() and not query.isActive, "its end")
    ended_by(query, "EOS_MIRROR_CIRCLE")


def test_a_target_that_is_created_anew_while_the_mirror_runs(mirror, topic, write, there):
    """The next micro-batch writes nothing to it, as it lacks what was mirrored before."""
    name = topic(1, retention_ms=-1)
    write(name, b"row")
    copies = mirror(name, prefix="anew.")
    copies.trigger = RUNNING
    query, target = copies.start(), f"anew.{name}"
    until_there(there, target, 1)
    there.admin.delete_topics([target])[target].result()
    wait_for(lambda: target not in there.admin.list_topics(timeout=TIMEOUT).topics, "the end of the topic")
    make(there, target)
    write(name, b"more")
    ended_by(query, "EOS_MIRROR_TARGET_RECREATED")
    assert there.rows(target) == []


def make(view: KafkaView, name: str) -> None:
    """A topic that is there for as long as the cluster is."""
    view.admin.create_topics([NewTopic(name, 1, 1, config={"retention.ms": "-1"})])[name].result()


@pytest.fixture
def circle(mirror, topic, write, other, tmp_path):
    """A mirror by a pattern that has mirrored two topics, of which the second became a copy of the target's after that;
    and that one's name. The pattern that leaves it out is `without`."""

    def make_circle(*, unfinished: bool) -> tuple[Mirror, str, str]:
        name = topic(1, retention_ms=-1)
        own = f"own-{name}"
        copy = f"{name}-back.{own}"
        copies = mirror("", prefix="c.")
        copies.reads = {"subscribePattern": f"^{name}"}
        make(copies.here, copy)
        write(name, b"1", b"2")
        write(copy, b"its own")
        if unfinished:
            with armed(copies.spark, "prepare.flushed=fail", tmp_path / "faults"):
                copies.stopped_by("FaultInjected")
        else:
            copies.run()
        other.create_topic(own)
        with_row = back(copies, tmp_path / "back", own, f"{name}-back.")
        put(other.bootstrap_servers, own, [(0, "goes round")])
        with_row.run()
        write(name, b"3")
        with pytest.raises(EosError, match="EOS_MIRROR_CIRCLE"):
            copies.start()
        without(copies, f"{name}-back", name)
        return copies, name, copy

    return make_circle


@pytest.mark.chaos
def test_a_circle_that_was_followed_before_it_was_one_is_taken_off(circle, there):
    """It is in the offset log: leaving it out is all that is needed, and nobody has to allow losses."""
    copies, name, copy = circle(unfinished=False)
    copies.run()
    copies.run()
    check_same(copies, name)
    assert [row.value for row in seen(there, f"c.{copy}")] == [b"its own"]


def test_a_micro_batch_with_rows_of_a_circle_is_finished_as_it_was_logged(circle, there):
    """It may be decided already, so it is not cut down: but nothing of the topic is read after it."""
    copies, name, copy = circle(unfinished=True)
    copies.run()
    check_same(copies, name)
    assert [row.value for row in seen(there, f"c.{copy}")] == [b"its own"]


@pytest.mark.chaos
def test_a_topic_that_is_taken_off_may_lose_its_target(mirror, topic, write, there):
    """One start that may lose data says that it is meant; the next ones do not look at the topic again."""
    kept, gone = topic(1, retention_ms=-1), topic(1, retention_ms=-1)
    copies = mirror(f"{kept},{gone}", prefix="off.")
    write(kept, b"1")
    write(gone, b"2")
    copies.run()
    there.admin.delete_topics([f"off.{gone}"])[f"off.{gone}"].result()
    write(kept, b"3")
    copies.stopped_by("EOS_MIRROR_TARGET_RECREATED")
    copies.reads = {"subscribe": kept}
    copies.stopped_by("EOS_SOURCE_DATA_LOSS")
    copies.reads["failOnDataLoss"] = "false"
    copies.run()
    del copies.reads["failOnDataLoss"]
    write(kept, b"4")
    copies.run()
    assert [row.value for row in seen(there, f"off.{kept}")] == [b"1", b"3", b"4"]
    check_same(copies, kept)


def test_a_topic_that_is_put_back_goes_on(mirror, topic, write, there):
    """Where the mirror was in it: what came meanwhile is mirrored, and nothing twice."""
    kept, away = topic(1, retention_ms=-1), topic(1, retention_ms=-1)
    copies = mirror(f"{kept},{away}", prefix="again.")
    write(away, b"1")
    copies.run()
    copies.reads = {"subscribe": kept, "failOnDataLoss": "false"}
    copies.run()
    write(away, b"2")
    copies.reads = {"subscribe": f"{kept},{away}"}
    copies.run()
    assert copied(seen(there, f"again.{away}")) == copied(seen(copies.here, away))
    check_same(copies, away)
