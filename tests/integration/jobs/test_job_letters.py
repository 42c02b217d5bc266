"""The job's query with dead letters on a real broker: malformed rows and refused ones, by the same decision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.consume_transform_produce import ConsumeTransformProduce, clusters_of, read, write
from jobs.runner.config import load
from jobs.runner.lines import Batch, counted
from jobs.runner.transform import Letters, transformed
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView
from tests.support.judges.kafka_view import write as produce
from tests.support.waiting import TIMEOUT, wait_for

LIMIT = 10_000
CONFIG = """\
kafka: {{bootstrap.servers: "{servers}"}}
source: {{subscribe: {source}}}
transform:
  format: json
  schema: n INT, size INT
  onMalformed: deadLetters
  sql: SELECT concat(n, repeat('x', size)) AS value FROM input WHERE n < 1000
sink: {{topic: {target}, deadLetters.topic: {letters}}}
checkpoint: {checkpoint}
trigger: availableNow
"""


def test_rows_that_do_not_parse_and_rows_that_are_refused(
    cluster: DevCluster, spark: SparkSession, topic: Callable[..., str], view: KafkaView, tmp_path: Path
):
    """Each row is in one of the topics, once, and says why it is a dead letter; a second start writes nothing again."""
    source, target, letters = topic(2), topic(max_message_bytes=LIMIT), topic(max_message_bytes=1_000_000)
    good = [f'{{"n": {n}, "size": 1}}' for n in range(20)]
    large = [f'{{"n": {n}, "size": {2 * LIMIT}}}' for n in (20, 21)]
    bad = ["no", '{"n": "x"}', ""]
    values = [*good[:10], *bad, *large, *good[10:], '{"n": 1000, "size": 1}']
    produce(view.bootstrap_servers, source, [(n % 2, value) for n, value in enumerate(values)], commit=True)
    file = tmp_path / "job.yaml"
    names = {"source": source, "target": target, "letters": letters}
    file.write_text(CONFIG.format(servers=cluster.bootstrap_servers, checkpoint=tmp_path / "checkpoint", **names))
    config = load(file, ConsumeTransformProduce)
    (place,) = clusters_of(config, "eos-kafka", "eos-kafka")
    assert {target, letters} <= set(place.required)
    lines: list[str] = []
    for _ in range(2):
        read_rows = read(spark, config, "eos-kafka")
        rows = transformed(
            read_rows,
            config.transform,
            letters=None if config.letters is None else Letters(config.letters, "c-1"),
            topic=config.topic,
        )
        query = write(counted(rows, config.letters), config, "eos-kafka")
        assert query.awaitTermination(TIMEOUT)
        wait_for(lambda: view.held(target, letters) == {}, "the markers")
        assert sorted(view.values(target), key=lambda value: int(value[:-1])) == [f"{n}x" for n in range(20)]
        found = {row.value: {key: value.decode() for key, value in row.headers} for row in view.rows(letters)}
        assert len(view.rows(letters)) == len(found)
        said = {value: headers["__streams.errors.exception"] for value, headers in found.items()}
        refused = "org.apache.kafka.common.errors.RecordTooLargeException"
        assert said == {
            **{value.encode(): "EOS_JOB_MALFORMED_ROW" for value in bad},
            **{f"{n}{'x' * 2 * LIMIT}".encode(): refused for n in (20, 21)},
        }
        headers = found[b"no"]
        where = {name: headers[f"__streams.errors.{name}"] for name in ("topic", "partition", "offset")}
        assert where == {"topic": source, "partition": "0", "offset": "5"}
        lines += [str(batch) for batch in map(Batch.of, query.recentProgress) if batch.rows_out]
    (line,) = lines
    assert "22 out, 3 dead letters" in line
