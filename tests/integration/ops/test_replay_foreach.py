"""`spark-eos status` and `spark-eos replay` for a query that writes to two sinks within foreachBatch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

import spark_eos
from spark_eos import cli
from tests.support.judges.kafka_view import write
from tests.support.queries.sink_queries import kafka_frame
from tests.support.waiting import TIMEOUT


def test_every_sink_of_foreach_batch_is_retired_and_replayed(spark, cluster, view, topic, tmp_path, capsys):
    """They are found by the query's id in their heads; the ledger names none of them twice."""
    source, outs, third = topic(), (topic(), topic()), topic()
    old, new, servers = tmp_path / "old", tmp_path / "new", cluster.bootstrap_servers

    def feed(number: int) -> None:
        write(servers, source, [(0, f"{number}")], commit=True)

    def run(checkpoint: Path, *topics: str) -> None:
        def all_of_them(rows: DataFrame, batch: int) -> None:
            for out in topics:
                writer = spark_eos.batch_writer(rows, batch, sink=f"to {out}").option("topic", out)
                writer.option("kafka.bootstrap.servers", servers).save()

        frame = kafka_frame(spark, cluster, source, limit=2)  # a row and its marker
        writer = frame.writeStream.foreachBatch(all_of_them).option("checkpointLocation", str(checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(TIMEOUT)

    def command(*words: str) -> int:
        return cli.main(["--bootstrap-servers", servers, *words])

    for number in range(3):
        feed(number)
    run(old, *outs)
    assert command("status", str(old), "--watch", "0", "--format", "json") == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert sorted(head["sink"] for head in shown["sinks"]) == sorted(f"to {out}" for out in outs)
    assert "each sink within foreachBatch" in shown["next"]
    assert command("recover", str(old), "--drop-planned") == 2
    assert "EOS_DROP_REFUSED" in capsys.readouterr().err
    words = ["replay", str(old), "--new", str(new), "--to-batch", "2"]
    assert command(*words, "--topic", "another") == 2
    assert "EOS_REPLAY_REFUSED" in capsys.readouterr().err
    assert command(*words, "--again", "--yes") == 0
    feed(3)
    for topics in (outs, [third]):  # the third one has had no head until now
        with pytest.raises(StreamingQueryException, match="EOS_QUERY_RETIRED"):
            run(old, *topics)
    assert view.values(third) == []
    run(new, *outs)
    assert [sorted(view.values(out)) for out in outs] == [["0", "1", "2", "2", "3"]] * 2
    feed(4)
    run(new, *outs)
    assert [sorted(view.values(out)) for out in outs] == [["0", "1", "2", "2", "3", "4"]] * 2
