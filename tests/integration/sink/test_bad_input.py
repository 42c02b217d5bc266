"""Bad input to the sink: an error with a name and a remedy, in time, before tasks where possible, nothing written."""

from __future__ import annotations

import re
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import PySparkException

from tests.support.servers.unused_hosts import a_silent_host, nobody
from tests.support.waiting import TIMEOUT

ROWS = "value string, topic string, partition int"


# The cluster


def test_unreachable_brokers(files, sink, refused, spark):
    """That nobody listens, and that nobody answers, is told within about 15 seconds, with the address. Both at once, as
    all that they do is wait."""
    source = files().add(["a"])

    def text_of(servers: str) -> str:
        spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)  # of this thread
        query = sink(servers.replace(":", "-"), topic="t", kafka__bootstrap__servers=servers)
        return refused(query, source.stream(), "EOS_KAFKA_UNREACHABLE", says=servers)

    with nobody() as closed, a_silent_host() as silent, ThreadPoolExecutor(2) as pool:
        began = time.monotonic()
        for text in pool.map(text_of, (closed, silent)):
            assert float(re.search(r"within ([\d.]+) s", text)[1]) < 60
            assert "kafka.bootstrap.servers" in text.partition("Check ")[2]
        assert time.monotonic() - began < TIMEOUT  # that is 15 and a slow machine's start of queries


def test_a_missing_topic_by_column(files, sink, topic, refused, view):
    """Only the rows know it. What was written before that row is aborted."""
    out, name = topic(), f"missing-{uuid.uuid4()}"
    source = files(ROWS).add([("a", out, None)] * 20_000 + [("b", name, None)])
    refused(sink(), source.stream(), "EOS_TOPIC_MISSING", out, tasks=True, says=name)
    assert name not in view.admin.list_topics(timeout=TIMEOUT).topics


# Options and columns


def test_a_group_without_a_checkpoint_option(spark, cluster, files, topic, tmp_path, view):
    """A location that is set for the session is not handed to a sink."""
    out = topic()
    writer = files().add(["a"]).stream().writeStream.format("eos-kafka").option("topic", out)
    writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap_servers).option("offsets.group.id", "g")
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints"))
    try:
        with pytest.raises(PySparkException, match=r"EOS_OPTION_MISSING.*checkpointLocation"):
            writer.trigger(availableNow=True).start().awaitTermination(TIMEOUT)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert view.ends(out) == {(out, 0): 0}


# Rows


def test_a_row_that_cannot_be_written(files, sink, topic, refused):
    """The batch's other rows are aborted; without the row the replay is clean."""
    out = topic(2)
    good = [("a", out, 0)] * 5
    source = files(ROWS).add(good, [*good, ("b", out, 7)])
    query = sink()
    refused(query, source.stream(), "EOS_ROW_INVALID", out, tasks=True, says="which has 2")
    query.run(source.stream().where("value = 'a'"))
    assert refused.view.values(out) == ["a"] * 10


def test_a_record_over_the_topics_limit(files, sink, topic, refused):
    """The producer cannot know it: the broker refuses the record, and the error says which setting it is.

    Rows that come after it are refused by the producer, for another reason; that is not what is told.
    """
    out = topic(1, max_message_bytes=2000)
    source = files().add(["a"], ["b" * 5000], ["b" * 5000, *["c" * 100] * 100_000])
    text = refused(sink(topic=out), source.stream(), "EOS_ROW_TOO_LARGE", out, tasks=True, says="max.message.bytes")
    assert "bbbb" not in text


# Secrets


def test_secrets_are_in_no_message_no_log_and_no_ledger(cluster, files, sink, topic, view, capfd):
    """Neither when the query runs, nor when it is refused, nor when it reaches nobody."""
    secret = "hunter2-" + uuid.uuid4().hex
    out, ledger = topic(), topic(1, cleanup_policy="compact")
    source = files().add(["a"])
    query = sink(topic=out, ledger__topic=ledger, kafka__sasl__password=secret)
    query.run(source.stream())
    assert view.values(out) == ["a"]
    ledger_rows = view.rows(ledger)
    assert ledger_rows
    assert not [row for row in ledger_rows if secret.encode() in (row.value or b"")]
    protected = {"kafka__security__protocol": "SASL_PLAINTEXT", "kafka__sasl__mechanism": "PLAIN"}
    protected |= {"kafka__sasl__username": "u", "kafka__sasl__password": secret}
    texts = [
        sink("2", topic=out, **protected).stopped_by(source.stream(), "EOS_UNAUTHENTICATED"),
        sink("3", topic=out, kafka__sasl__password=secret, kafka__acks="1").stopped_by(source.stream(), "RESERVED"),
        sink("4", topic=out, kafka__ssl__key__password=secret, kafka__batch__size="x").stopped_by(
            source.stream(), "EOS_OPTION_INVALID"
        ),
    ]
    assert not [text for text in texts if secret in text]
    written = capfd.readouterr()
    assert secret not in written.out + written.err
