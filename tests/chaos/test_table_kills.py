"""A query past the JVM to a table of each kind, killed between files, the table's commit and Spark's, while others
append to the table and compact it or expire its snapshots: started again, each record is in the table once. So it is
where attempts of a task fail, die with their executor, or are overtaken.

``make test`` runs one of the points with one kind of table, by a seed (SPARK_EOS_SEED); ``make chaos`` runs all.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.tools import verify
from tests.support.kills.job_program import drained, killed_at, log_of, started
from tests.support.kills.registry_records import KNOWN, SCHEMA, record
from tests.support.runs.case_cover import in_turn, one_for_every_day
from tests.support.servers.fake_registry import fake_registry
from tests.support.spark.standalone import SPECULATION, standalone
from tests.support.tables.other_writer import OtherWriter
from tests.support.tables.table_kinds import KINDS, Delta, TableKind
from tests.support.waiting import PROGRAM_S, TIMEOUT, wait_for

PARTITIONS, ROWS, LIMIT = 2, 600, 400
CONFIG = """\
kafka: {{bootstrap.servers: "{servers}"}}
source: {{subscribe: "{topic}", maxOffsetsPerTrigger: {limit}}}
{transform}target: {{{target}}}
checkpoint: "{checkpoint}"
trigger: availableNow
restart: {{attempts: 0}}
spark: {spark}
"""
SPARK = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
#: A task's only copy is started when the task has taken so long, however few others there are to compare it with.
OVERTAKEN = SPECULATION | {"spark.speculation.task.duration.threshold": "2s", "spark.executor.memory": "512m"}
POINTS = ("table.written", "table.entered", "table.asked", "table.committed")
#: What brings the job to each of these in its third micro-batch, the second one with rows.
IN_BATCH_2 = "hold@3"
FOREIGN = 9
SQL = """SELECT topic, "partition", "offset", decode(value)::INT AS n FROM input"""
#: The same, with a column that the table of `SQL` lacks.
MORE = SQL.replace(" FROM", ", decode(value) AS more FROM")
#: Records as they are, by SQL, which leaves out those that are no numbers, and decoded with the schemas of a registry.
TRANSFORMS = {
    "records": "",
    "sql": f"transform:\n  engine: duckdb\n  sql: {SQL}\n  onMalformed: drop\n",
    "decode": "transform:\n  parse: {format: json-schema, registry: '{registry}'}\n  engine: duckdb\n"
    f"  sql: {SQL.replace('decode(value)', 'value.row')}\n",
}


class Job:
    """A topic, a table, and the job kafka_to_delta or kafka_to_iceberg between them. ``registry``: the address of the
    one whose schema records have that are decoded; ``spark``: further settings of the job's Spark."""

    def __init__(
        self, servers: str, topic: str, folder: Path, kind: str, way: str, registry: str, spark: dict[str, str]
    ) -> None:
        self.topic, self.table, self.checkpoint = topic, KINDS[kind](folder), folder / "checkpoint"
        self.name, self.folder, self.config = f"kafka_to_{kind}", folder, folder / "config"
        self._servers = servers
        self._spark = json.dumps(SPARK | spark)
        self.configure(TRANSFORMS[way].replace("{registry}", registry))
        producer = Producer({"bootstrap.servers": servers})
        for n in range(PARTITIONS * ROWS):
            value = record(KNOWN, f"{n}") if way == "decode" else f"{n}"
            producer.produce(topic, value, partition=n % PARTITIONS)
        assert producer.flush(TIMEOUT) == 0

    def configure(self, transform: str, **more: str) -> None:
        """The job's file. ``more``: options of the table besides."""
        sink = {name: value for name, value in self.table.sink().items() if name != "format"} | more
        target = ", ".join(f'{name}: "{value}"' for name, value in sink.items())
        named = {"target": target, "checkpoint": self.checkpoint, "topic": self.topic, "servers": self._servers}
        self.config.write_text(CONFIG.format(**named, limit=LIMIT, transform=transform, spark=self._spark))

    def killed(self, fault: str) -> None:
        killed_at(fault, self.name, self.config, self.folder)

    def drained(self) -> None:
        drained(self.name, self.config, self.folder)

    def verified(self) -> Mapping[str, int]:
        """What `spark-eos verify` counts that is not 0, by the offsets that the table has of the query."""
        kafka = KafkaProperties({"bootstrap.servers": self._servers})
        sides: dict[str, Any] = {"inputs": (self.topic,), "outputs": (), "output_table": self.table.checked()}
        place = verify.IdPlace.parse("place")
        asked = verify.Comparison(kafka, **sides, id=place, output_id=place, query=self.query, order="none")
        return {name: count for name, count in verify.verify(asked).counts.items() if count}

    @property
    def query(self) -> str:
        """Its id."""
        return str(json.loads((self.checkpoint / "metadata").read_text())["id"])

    def noted(self) -> int:
        """The last micro-batch in Spark's commit log."""
        return max(int(file.name) for file in (self.checkpoint / "commits").iterdir() if file.name.isdigit())


class Others(OtherWriter):
    """``appended``: how many rows so far, each in a version of its own."""

    def __init__(self, table: TableKind) -> None:
        super().__init__(table, 0.05)
        self.appended = 0

    def write(self) -> None:
        """A row with the table's columns, which has a place that no record has."""
        self.table.append({"topic": "foreign", "partition": FOREIGN, "offset": self.appended})
        self.appended += 1


def strike(job: Job, point: str) -> None:
    """Kill it at the point, drain it by a restart, and count."""
    with Others(job.table) as others:
        job.killed(f"{point}={IN_BATCH_2}")
        found = job.table.places()
        committed = point == "table.committed"
        # Two micro-batches with rows are in the table, or one: Spark has noted only the first of them.
        there = sum(count for (partition, _), count in found.items() if partition != FOREIGN)
        expected_there = {LIMIT * (2 if committed else 1)}
        if point == "table.asked" and not isinstance(job.table, Delta):
            expected_there.add(0)  # Iceberg refuses a commit that others came before: each try reaches the point
        assert there in expected_there
        if there:  # others append meanwhile
            counts = job.verified()
            assert counts.keys() <= {"input", "output", "pairs", "waiting", "unknown"}
            assert counts["pairs"] == there
        job.drained()
    expected = Counter({(p, offset): 1 for p in range(PARTITIONS) for offset in range(ROWS)})
    assert job.table.places() == expected + Counter({(FOREIGN, n): 1 for n in range(others.appended)})
    assert others.appended > 0
    rows = expected.total()
    sides = {"input": rows, "output": rows + others.appended}
    assert job.verified() == sides | {"pairs": rows, "unknown": others.appended}
    assert job.table.last(job.query) == job.noted()


@pytest.fixture
def job(cluster, topic, tmp_path) -> Iterator[Callable[..., Job]]:
    """``job("delta", "sql")``: to a table of this kind, with this one of the transforms; and settings of Spark."""
    name = topic(PARTITIONS)
    with fake_registry({KNOWN: SCHEMA}, {f"{name}-value": KNOWN}) as registry:
        yield lambda kind, way, **spark: Job(cluster.bootstrap_servers, name, tmp_path, kind, way, registry.url, spark)


CHANCE = random.Random(os.environ.get("SPARK_EOS_SEED", "tables"))


@in_turn("into a table")
@pytest.mark.parametrize("kind", one_for_every_day("a kill into a table", [*KINDS]))
def test_a_kill_loses_and_doubles_nothing(job, kind) -> None:
    """One of the points with one of the transforms, into one kind of table for every day."""
    strike(job(kind, CHANCE.choice(list(TRANSFORMS))), CHANCE.choice(POINTS))


@pytest.mark.chaos
@pytest.mark.parametrize("way", TRANSFORMS)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_every_point_loses_and_doubles_nothing(job, kind, point, way) -> None:
    """The whole set."""
    strike(job(kind, way), point)


@pytest.mark.chaos
@pytest.mark.parametrize("point", ["table.evolving", "table.evolved"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_while_the_table_is_given_a_column_loses_and_doubles_nothing(job, kind, point) -> None:
    """The run before it was killed, too, after a commit that Spark has not noted; its rows are null in the column."""
    moving = job(kind, "sql")
    moving.killed(f"table.committed={IN_BATCH_2}")
    before = moving.table.places()
    moving.configure(TRANSFORMS["sql"].replace(SQL, MORE), schema="evolve")
    moving.killed(f"{point}=hold@1")
    moving.drained()
    assert moving.table.places() == Counter({(p, offset): 1 for p in range(PARTITIONS) for offset in range(ROWS)})
    older = {(row["partition"], row["offset"]) for row in moving.table.rows() if row["more"] is None}
    assert older == set(before) and len(before) == 2 * LIMIT
    assert all(row["more"] in (None, str(row["n"])) for row in moving.table.rows())


@pytest.mark.chaos
@pytest.mark.parametrize("attempt", ["fails", "dies", "is overtaken"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_attempt_of_a_task_has_its_files_in_the_table(job, kind, attempt, tmp_path) -> None:
    """The other one has written the same records to files of its own before it fails, dies with its executor, or stands
    still until a copy of the task is done. They stay on the disk, and no reader sees them."""
    fault = f"table.written={'fail' if attempt == 'fails' else 'hold'}@3"
    mark = tmp_path / "marks" / "table.written"
    mark.parent.mkdir()
    marks = {"SPARK_EOS_FAULTS": fault, "SPARK_EOS_FAULTS_DIR": str(mark.parent)}
    executors = {f"spark.executorEnv.{name}": value for name, value in marks.items()}
    with standalone(tmp_path / "spark", cores=2) as cluster:
        overtaken = OVERTAKEN if attempt == "is overtaken" else {}
        job = job(kind, "records", **{"spark.master": cluster.master} | executors | overtaken)
        with started(job.name, job.config, tmp_path, **marks) as program:
            log = log_of(job.name, tmp_path)
            if attempt == "dies":
                wait_for(lambda: mark.exists() or program.poll() is not None, log.read_text, PROGRAM_S)
                cluster.kill(cluster.host_of(int(mark.read_text())))
            assert program.wait(PROGRAM_S) == 0, log.read_text()[-6000:]
        assert mark.exists()
    assert job.table.places() == Counter({(p, offset): 1 for p in range(PARTITIONS) for offset in range(ROWS)})
    there, written = job.table.files(), {file.name for file in tmp_path.rglob("eos-*.parquet")}
    assert there < written and len(written) == len(there) + 1
