"""The job whose rows do not pass through Spark: ``transform.copy`` and ``transform.arrow``."""

from __future__ import annotations

import importlib
import re
import time
from pathlib import Path

import pytest
from pyspark.cloudpickle import register_pickle_by_value

from jobs.consume_transform_produce import ConsumeTransformProduce, start_copy
from jobs.runner.config import load
from tests.support.kills.job_program import log_of, started
from tests.support.queries.copies import copied
from tests.support.waiting import PROGRAM_S, TIMEOUT

NAME = "consume_transform_produce"
CONF = Path(__file__).parents[3] / "conf"


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
def test_several_tasks_read_a_partition_where_its_order_is_not_asked_for(topics_job, write, tmp_path):
    """Every row once, by more tasks than the source has partitions; the sink's line of a micro-batch says how much
    was written, and from how many ranges, of which those of one partition that follow one another are one."""
    config = topics_job.config("copy: same\n  ordered: false", reads=", minPartitions: 6")
    for p in range(2):
        write(topics_job.source, *(b"%d.%d" % (p, i) for i in range(600)), partition=p)
    with started(NAME, config, tmp_path, "--verbose") as program:
        code = program.wait(PROGRAM_S)
    said = log_of(NAME, tmp_path).read_text()
    assert code == 0, said
    found = re.search(r"batch=1 rows=1200 bytes=(\d+) ranges=2 in [\d.]+ s$", said, re.MULTILINE)
    assert found, said
    assert int(found[1]) > 0
    assert re.search(r"batch=1 tasks=6 transactions=\d+ prepare=\d+ms ", said)
    assert "batch 1: 1,200 in, 1,200 out, " in said
    assert topics_job.output() == sorted(f"{p}.{i}" for p in range(2) for i in range(600))
