"""Topics → Iceberg table by the job, as a program: each record once, by three readers. Kills: tests/chaos."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.kills.job_program import drained, log_of, started
from tests.support.tables.table_kinds import Iceberg
from tests.support.waiting import PROGRAM_S

NAME = "kafka_to_iceberg"
CONFIG = """\
kafka: {{bootstrap.servers: "{servers}"}}
source: {{subscribe: "{topic}", maxOffsetsPerTrigger: 400, offsets.group.id: "{topic}-group"}}
{transform}
target: {{{target}}}
checkpoint: "{checkpoint}"
trigger: availableNow
restart: {{attempts: 0}}
spark: {{spark.master: "local[2]", spark.ui.enabled: false, spark.driver.host: 127.0.0.1,
         spark.driver.bindAddress: 127.0.0.1}}
"""
SQL = """\
transform:
  sql: SELECT "partition", "offset", timestamp, decode(value)::INT AS n FROM input
  onMalformed: drop
"""


class Job:
    """A topic of two partitions, a table and the job between them."""

    def __init__(self, servers: str, topic: str, folder: Path) -> None:
        self.folder, self.topic, self.kind, self._servers = folder, topic, Iceberg(folder / "lake"), servers

    def config(self, transform: str = "", **target: str) -> Path:
        file = self.folder / "job.yaml"
        sink = {name: value for name, value in self.kind.sink().items() if name != "format"} | target
        section = ", ".join(f"{name}: {value if value[0] == '[' else repr(value)}" for name, value in sink.items())
        places = {"servers": self._servers, "topic": self.topic, "checkpoint": self.folder / "checkpoint"}
        file.write_text(CONFIG.format(transform=transform, target=section, **places))
        return file

    @property
    def log(self) -> str:
        return log_of(NAME, self.folder).read_text()


@pytest.fixture
def job(cluster, topic, tmp_path) -> Job:
    return Job(cluster.bootstrap_servers, topic(2), tmp_path)


def test_a_job_writes_each_record_once(job: Job, write, view) -> None:
    """And tells the group. Records that SQL rejects are left out, and partitions are as the file has them."""
    for p in range(2):
        write(job.topic, *(b"%d" % n for n in range(600)), b"no number", partition=p)
    config = job.config(SQL, partitionBy="[day(timestamp)]")
    drained(NAME, config, job.folder)
    assert job.kind.places() == Counter({(p, n): 1 for p in range(2) for n in range(600)})
    assert {row["offset"] for row in job.kind.rows()} == {row["n"] for row in job.kind.rows()}
    assert [field.name for field in job.kind.load().spec().fields] == ["timestamp_day"]
    assert view.group(f"{job.topic}-group", job.topic) == view.ends(job.topic)
    assert f"{job.topic} → appended to tests.records in the catalog default; group {job.topic}-group" in job.log
    assert " dropped, in " in job.log


@pytest.mark.chaos
def test_a_catalog_that_cannot_be_opened_ends_the_job(job: Job, write) -> None:
    """By name, with nothing written and no secret shown; where it may answer later, by the code after which a
    supervisor starts the job again."""
    write(job.topic, b"1", partition=0)
    secret = {"catalog.type": "rest", "catalog.uri": "http://user:swordfish@127.0.0.1:1", "catalog.token": "rosebud"}
    with started(NAME, job.config(**secret), job.folder) as running:
        assert running.wait(PROGRAM_S) == 75, job.log
    assert "failed: [EOS_ICEBERG_UNREACHABLE] The catalog of the table tests.records does not answer" in job.log
    assert "swordfish" not in job.log and "rosebud" not in job.log
    job.kind.folder.joinpath("catalog.db").write_bytes(b"no database " * 1000)
    with started(NAME, job.config(), job.folder) as running:
        assert running.wait(PROGRAM_S) == 1, job.log
    assert "failed: [EOS_ICEBERG_FAILED]" in job.log
    assert not list(job.kind.folder.rglob("*.parquet"))
