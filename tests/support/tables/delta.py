"""Delta tables for the tests: a Spark that knows Delta, in a process of its own, and an independent reader.

Spark's session of the other tests stays without Delta. What runs in the process is a function at the top of a module,
as its arguments and what it returns go through pickle.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from deltalake import DeltaTable

from spark_eos.tools.devcluster.jars import DELTA, resolve
from tests.support.judges.kafka_view import KafkaView
from tests.support.queries.drained_query import forget
from tests.support.tables.change_feed import written
from tests.support.waiting import TIMEOUT

T = TypeVar("T")

_TO_DELTA = """\
kafka: {{bootstrap.servers: "{servers}"}}
source: {{subscribe: "{topic}"{source}}}
{transform}
target: {{path: "{table}"{target}}}
checkpoint: "{checkpoint}"
trigger: availableNow
restart: {{attempts: 0}}
{more}
"""

_session: Any = None


def settings() -> dict[str, str]:
    """Of a session that is up fast, works on small tables, and has Delta's jars."""
    return {
        "spark.jars": ",".join(map(str, resolve(DELTA))),
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
    }


@dataclass(frozen=True)
class Failed:
    """How a job has ended: the error's condition and its text, as its last line says them."""

    condition: str
    text: str


class DeltaSpark:
    """A Spark that knows Delta, in a process of its own."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def __call__(self, function: Callable[..., T], *arguments: object) -> T:
        return self._pool.submit(function, *arguments).result(timeout=TIMEOUT)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return self(_sql, text)

    def job(self, name: str, config: Path) -> Failed | None:
        """Run the job until it ends, by what its ``main`` runs, without starting another Spark."""
        return self(_job, name, config)


@contextmanager
def delta_spark() -> Iterator[DeltaSpark]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_start, initargs=(settings(),)) as pool:
        yield DeltaSpark(pool)
        pool.submit(_stop).result()


def _start(conf: dict[str, str]) -> None:
    global _session
    from jobs.delta.table import with_delta
    from jobs.runner import session
    from spark_eos.kafka.config.properties import KafkaProperties

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    _session = session.start("delta tests", with_delta(KafkaProperties(conf)))


def _stop() -> None:
    _session.stop()


def session() -> Any:
    """In the process: the session."""
    return _session


def _sql(text: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in _session.sql(text).collect()]


def _job(name: str, config: Path) -> Failed | None:
    from pyspark.errors import PySparkException

    from jobs.runner.config import load
    from jobs.runner.job import JobContext
    from jobs.runner.lines import BatchLines
    from jobs.runner.query import Stop, failure_text
    from spark_eos import reason
    from spark_eos.errors import EosError

    module = importlib.import_module(f"jobs.{name}")
    lines = BatchLines()
    _session.streams.addListener(lines)
    try:
        plan = module.plan(load(config, module.main.__self__.config), argparse.Namespace())
        for cluster in plan.clusters:
            cluster.expect()
        plan.work(JobContext(_session, Stop(), lines))
    except (EosError, PySparkException) as error:
        found = reason(error)
        return Failed(found.condition if found else "", failure_text(error))
    finally:
        _session.streams.removeListener(lines)
    return None


def rows_of(path: Path | str, *columns: str) -> list[tuple[Any, ...]]:
    """The table's rows, sorted, as delta-rs reads them."""
    table = DeltaTable(str(path)).to_pyarrow_table(columns=list(columns) or None)
    rows = [tuple(_plain(row[name]) for name in table.column_names) for row in table.to_pylist()]
    return sorted(rows, key=repr)


def _plain(value: Any) -> Any:
    return (
        tuple(map(_plain, value))
        if isinstance(value, list)
        else tuple(value.items())
        if isinstance(value, dict)
        else value
    )


def history(view: KafkaView, topic: str) -> dict[bytes, list[tuple[int, str, str]]]:
    """Of each key: version, kind and value of its changes, in the order of the log."""
    found: dict[bytes, list[tuple[int, str, str]]] = {}
    for version, kind, key, value in written(view.rows(topic)):
        found.setdefault(key.encode(), []).append((version, kind, value))
    return found


def forget_the_last_commit(checkpoint: Path) -> None:
    """Put the checkpoint back to before Spark has noted that its last micro-batch is done."""
    forget(checkpoint, max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdigit()))


def noted(path: Path | str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Note and metrics of each of a job's commits, the newest first, by delta-rs."""
    history = DeltaTable(str(path)).history()
    found = [(json.loads(each.get("userMetadata") or "{}"), each.get("operationMetrics", {})) for each in history]
    return [(note["spark-eos"], metrics) for note, metrics in found if "spark-eos" in note]


_TO_KAFKA = """\
kafka: {{bootstrap.servers: "{servers}"}}
source: {{path: "{table}"{source}}}
{transform}
sink: {{topic: {topic}{sink}}}
checkpoint: "{checkpoint}"
trigger: availableNow
restart: {{attempts: 0}}
{more}
"""


def _transform(sql: str | None, engine: str) -> str:
    by = f", engine: {engine}" if engine else ""
    return f'transform: {{sql: "{sql}"{by}}}' if sql else ""


class DeltaJob:
    """A topic, a table, and a job that leads from one to the other. ``name``: the job's; ``template``: its file."""

    name: str
    template: str

    def __init__(self, delta: DeltaSpark | None, servers: str, topic: str, folder: Path) -> None:
        self._delta, self._servers, self._folder = delta, servers, folder
        self.topic, self.table, self.checkpoint = topic, folder / "table", folder / f"checkpoint of {self.name}"

    def config(self, sql: str | None = None, engine: str = "", **parts: str) -> Path:
        """The job's file. ``parts``: texts for `source`, `target` or `sink`, and ``more``."""
        file = self._folder / f"{self.name}.yaml"
        texts = {"source": "", "target": "", "sink": "", "more": "", **parts, "transform": _transform(sql, engine)}
        places = {"servers": self._servers, "topic": self.topic, "table": self.table, "checkpoint": self.checkpoint}
        file.write_text(self.template.format(**texts, **places))
        return file

    def run(self, sql: str | None = None, **parts: str) -> Failed | None:
        assert self._delta is not None
        return self._delta.job(self.name, self.config(sql, **parts))

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """``{t}`` stands for the table."""
        assert self._delta is not None
        return self._delta.sql(text.format(t=f"delta.`{self.table}`"))


class ToDelta(DeltaJob):
    """From the topic to the table."""

    name, template = "kafka_to_delta", _TO_DELTA

    def rows(self, *columns: str) -> list[tuple]:
        return rows_of(self.table, *columns)

    def forget_the_last_commit(self) -> None:
        forget_the_last_commit(self.checkpoint)


class ToKafka(DeltaJob):
    """From the table to the topic."""

    name, template = "delta_to_kafka", _TO_KAFKA
