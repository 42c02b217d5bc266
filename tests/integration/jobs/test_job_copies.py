"""The job whose rows do not pass through Spark: ``transform.copy`` and ``transform.arrow``."""

from __future__ import annotations

import importlib
import re
import time
from pathlib import Path

import pytest
from pyspark.cloudpickle import register_pickle_by_value

from jobs.consume_transform_produce import ConsumeTransformProduce, main, start_copy
from jobs.runner.config import load
from tests.support.judges.kafka_view import KafkaView
from tests.support.kills.job_program import log_of, started
from tests.support.queries.copies import copied
from tests.support.waiting import PROGRAM_S, TIMEOUT

NAME = "consume_transform_produce"
CONF = Path(__file__).parents[3] / "conf"
CONFIG = """\
kafka: {{bootstrap.servers: "{servers}"}}
source: {{subscribe: {source}{reads}}}
transform: {transform}
sink: {{topic: {target}, offsets.group.id: {target}-group}}
checkpoint: {folder}/checkpoint
trigger: availableNow
spark: {{spark.master: "local[2]", spark.ui.enabled: false, spark.driver.host: 127.0.0.1,
         spark.driver.bindAddress: 127.0.0.1}}
"""


@pytest.fixture
def config(view: KafkaView, topic, tmp_path: Path):
    """``config("{copy: same}")``: a job between two new topics, and these; ``reads``: further keys of the source."""

    def make(transform: str, reads: str = "") -> tuple[ConsumeTransformProduce, str, str]:
        source, target = topic(2), topic(2)
        places = {"servers": view.bootstrap_servers, "source": source, "target": target, "folder": tmp_path}
        places |= {"reads": reads}
        file = tmp_path / "job.yaml"
        file.write_text(CONFIG.format(transform=transform, **places))
        return load(file, ConsumeTransformProduce), source, target

    return make


@pytest.mark.parametrize("example", ["copy", "copy_sql", "copy_transform"])
def test_the_examples_run_as_they_are(example, spark, view, topic, write, tmp_path, monkeypatch):
    """With their variables set, between two topics. A function's module is on the path of every process; this session
    has begun without it, so that here the function travels with the query."""
    monkeypatch.syspath_prepend(CONF)
    register_pickle_by_value(importlib.import_module("late_flights"))
    source, target = topic(2), topic(2)
    places = {"SOURCE_TOPIC": source, "TARGET_TOPIC": target, "KAFKA_BOOTSTRAP_SERVERS": view.bootstrap_servers}
    job = load(
        CONF / f"{example}.yaml",
        ConsumeTransformProduce,
        {**places, "GROUP": target, "CHECKPOINT": str(tmp_path / "it")},
    )
    before = int(time.time() * 1000) - 60_000
    late, early = b'{"id":1,"arr_delay":16}', b'{"id":2,"arr_delay": 15}'
    write(source, late, early, b'{"id":3,"arr_delay":null}', b"", None, key=b"k", partition=1, timestamp=before)
    assert start_copy(spark, job).awaitTermination(TIMEOUT)
    rows = view.rows(target)
    if example == "copy":
        assert copied(rows) == copied(view.rows(source))
    else:
        assert [(row.key, row.value, row.timestamp) for row in rows] == [(b"k", late, before)]
    assert view.group(target, source) == view.ends(source)


@pytest.mark.chaos
def test_several_tasks_read_a_partition_where_its_order_is_not_asked_for(config, view, write):
    """Every row once, by more tasks than the source has partitions; the sink's line of a micro-batch says how much
    was written, and from how many ranges, of which those of one partition that follow one another are one."""
    job, source, target = config("{copy: same, ordered: false}", ", minPartitions: 6")
    for p in range(2):
        write(source, *(b"%d.%d" % (p, i) for i in range(600)), partition=p)
    folder = Path(job.checkpoint).parent
    with started(NAME, folder / "job.yaml", folder, "--verbose") as program:
        code = program.wait(PROGRAM_S)
    said = log_of(NAME, folder).read_text()
    assert code == 0, said
    found = re.search(r"batch=1 rows=1200 bytes=(\d+) ranges=2 in [\d.]+ s$", said, re.MULTILINE)
    assert found, said
    assert int(found[1]) > 0
    assert re.search(r"batch=1 tasks=6 transactions=\d+ prepare=\d+ms ", said)
    assert "batch 1: 1,200 in, 1,200 out, " in said
    assert sorted(view.values(target)) == sorted(f"{p}.{i}" for p in range(2) for i in range(600))


def test_the_order_of_a_partition_is_given_up_only_by_the_jobs_own_key(config, capfd):
    """Which the refusal names, before Spark starts."""
    job, _, _ = config("{copy: same}", ", minPartitions: 6")
    assert main(["--conf", str(Path(job.checkpoint).with_name("job.yaml"))]) == 1
    said = capfd.readouterr().err
    assert "EOS_OPTION_CONFLICT" in said and "set 'transform.ordered: false'" in said
    assert "starting Spark" not in said
