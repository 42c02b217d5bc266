"""Which topics a mirror follows: those that appear while it runs, and those that it is no longer to follow."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import NewPartitions, NewTopic

from spark_eos.errors import EosError
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView
from tests.support.judges.kafka_view import write as put
from tests.support.queries.copies import copied
from tests.support.queries.mirrors import Mirror, check_same, seen
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


def make(view: KafkaView, name: str) -> None:
    """A topic that is there for as long as the cluster is."""
    view.admin.create_topics([NewTopic(name, 1, 1, config={"retention.ms": "-1"})])[name].result()


def test_a_micro_batch_with_rows_of_a_circle_is_finished_as_it_was_logged(mirror, topic, write, other, there, tmp_path):
    """A topic became a copy of the target's after its rows were planned. They may be decided, so they are written; but
    nothing of the topic is read after them, once the pattern leaves it out, and nobody has to allow losses."""
    name = topic(1, retention_ms=-1)
    own = f"own-{name}"
    copy = f"{name}-back.{own}"
    copies = mirror("", prefix="c.")
    copies.reads = {"subscribePattern": f"^{name}"}
    make(copies.here, copy)
    write(name, b"1", b"2")
    write(copy, b"its own")
    with armed(copies.spark, "prepare.flushed=fail", tmp_path / "faults"):
        copies.stopped_by("FaultInjected")
    other.create_topic(own)
    with_row = back(copies, tmp_path / "back", own, f"{name}-back.")
    put(other.bootstrap_servers, own, [(0, "goes round")])
    with_row.run()
    write(name, b"3")
    with pytest.raises(EosError, match="EOS_MIRROR_CIRCLE"):
        copies.start()
    without(copies, f"{name}-back", name)
    copies.run()
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
