"""docs/moving.md with sinks that need no jars: a checkpoint that another sink has made is taken over, and given back.

tests/chaos/test_builtin_moving.py does the same with Spark's own source and sink.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame

from tests.support.judges.kafka_view import KafkaView, write
from tests.support.queries.sink_queries import Sink
from tests.support.waiting import TIMEOUT


class Move:
    """A query from a topic, with one checkpoint, that ends in files or in our sink."""

    def __init__(self, spark, cluster, topic, sink, view: KafkaView, folder: Path) -> None:
        self._spark, self._servers, self._sink, self._view = spark, cluster.bootstrap_servers, sink, view
        self._files = folder / "files"
        self.source, self.out = topic(), topic()
        self.expected: list[str] = []

    def feed(self, name: str) -> None:
        values = [f"{name}.{i}" for i in range(10)]
        write(self._servers, self.source, [(0, value) for value in values], commit=True)
        self.expected += values

    def frame(self) -> DataFrame:
        stream = self._spark.readStream.format("eos-kafka").option("kafka.bootstrap.servers", self._servers)
        stream = stream.option("subscribe", self.source).option("startingOffsets", "earliest").load()
        return stream.selectExpr("cast(value AS string) AS value")

    def ours(self, **options: object) -> Sink:
        return self._sink("query", topic=self.out, **options)

    @property
    def checkpoint(self) -> Path:
        return self.ours().checkpoint

    def to_files(self) -> None:
        """The other sink, until the input is drained."""
        writer = self.frame().writeStream.format("parquet").option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start(str(self._files))
        assert query.awaitTermination(TIMEOUT)

    def in_files(self) -> list[str]:
        """Read as they are: the file sink's own log cannot be read where another sink has had micro-batches."""
        tables = [pyarrow.parquet.ParquetFile(file).read() for file in self._files.glob("*.parquet")]
        return [value for table in tables for value in table["value"].to_pylist()]

    def newest(self, log: str) -> int:
        return max(int(file.name) for file in (self.checkpoint / log).iterdir() if file.name.isdigit())

    def visible(self) -> list[str]:
        """In both sinks together."""
        return sorted(self.in_files() + self._view.values(self.out))


@pytest.fixture
def move(spark, cluster, topic, sink, view, tmp_path) -> Move:
    return Move(spark, cluster, topic, sink, view, tmp_path)


def test_a_checkpoint_of_another_sink_is_taken_over_and_given_back(move, view):
    """Untold, the sink refuses, and names the micro-batch; told that, it goes on. Back, and over again, without."""
    move.feed("files")
    move.to_files()
    assert sorted(move.in_files()) == sorted(move.expected)
    move.feed("taken over")
    text = move.ours().stopped_by(move.frame(), "EOS_LEDGER_HEAD_MISSING")
    assert "each in 'offsets' is in 'commits', too" in text
    assert view.values(move.out) == []
    batch = move.newest("offsets")
    assert f"'ledger.begin' to {batch} " in text
    move.ours(ledger__begin=str(batch)).run(move.frame())
    assert view.values(move.out) == [value for value in move.expected if not value.startswith("files")]
    move.feed("back")
    move.to_files()
    assert move.visible() == sorted(move.expected)
    move.feed("again ours")
    move.ours().run(move.frame())
    assert move.visible() == sorted(move.expected)
