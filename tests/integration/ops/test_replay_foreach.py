"""`spark-eos status` and `spark-eos replay` for a query that writes to two sinks within foreachBatch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

import spark_eos
from spark_eos import cli
from tests.support.judges.kafka_view import write
from tests.support.queries.sink_queries import kafka_frame
from tests.support.waiting import TIMEOUT


class Query:
    """From one topic to two, by one function."""

    def __init__(self, spark, cluster, view, source: str, outs: tuple[str, str]) -> None:
        self._spark, self._cluster, self._view = spark, cluster, view
        self.source, self.outs = source, outs
        self.fed = 0

    def feed(self) -> None:
        write(self._cluster.bootstrap_servers, self.source, [(0, f"{self.fed}")], commit=True)
        self.fed += 1

    def run(self, checkpoint: Path, *others: str) -> None:
        """To both sinks, or to these topics instead."""
        servers, outs = self._cluster.bootstrap_servers, others or self.outs

        def both(rows: DataFrame, batch: int) -> None:
            for out in outs:
                writer = spark_eos.batch_writer(rows, batch, sink=f"to {out}").option("topic", out)
                writer.option("kafka.bootstrap.servers", servers).save()

        frame = kafka_frame(self._spark, self._cluster, self.source)
        writer = frame.writeStream.foreachBatch(both).option("checkpointLocation", str(checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(TIMEOUT)

    def counts(self) -> list[Counter[str]]:
        return [Counter(self._view.values(out)) for out in self.outs]


def test_every_sink_of_foreach_batch_is_retired_and_replayed(spark, cluster, view, topic, tmp_path, capsys):
    """They are found by the query's id in their heads; the ledger names none of them twice."""
    query = Query(spark, cluster, view, topic(), (topic(), topic()))
    old, new = tmp_path / "old", tmp_path / "new"
    for _ in range(3):
        query.feed()
        query.run(old)
    servers = ["--bootstrap-servers", cluster.bootstrap_servers]
    assert cli.main([*servers, "status", str(old), "--watch", "0", "--format", "json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert sorted(head["sink"] for head in shown["sinks"]) == sorted(f"to {out}" for out in query.outs)
    assert "each sink within foreachBatch" in shown["next"]
    words = [*servers, "replay", str(old), "--new", str(new), "--to-batch", "2"]
    assert cli.main([*words, "--topic", "another"]) == 2
    assert "EOS_REPLAY_REFUSED" in capsys.readouterr().err
    assert cli.main([*words, "--again", "--yes"]) == 0
    query.feed()
    with pytest.raises(StreamingQueryException, match="EOS_QUERY_RETIRED"):
        query.run(old)
    third = topic()
    with pytest.raises(StreamingQueryException, match="EOS_QUERY_RETIRED"):
        query.run(old, third)  # a sink that has had no head until now
    assert view.values(third) == []
    query.run(new)
    assert query.counts() == [Counter({"0": 1, "1": 1, "2": 2, "3": 1})] * 2
    query.feed()
    query.run(new)
    assert query.counts() == [Counter({"0": 1, "1": 1, "2": 2, "3": 1, "4": 1})] * 2
