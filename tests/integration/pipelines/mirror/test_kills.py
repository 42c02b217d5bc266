"""The mirror as a program, killed at a point of the protocol: started again, each row is there once, where it belongs.

``make test`` runs one of the cases, by a seed (SPARK_EOS_SEED); ``make chaos`` runs all of them.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from demo import processes
from spark_eos.base.failpoints import IN_QUERIES
from tests.support.judges.kafka_view import write
from tests.support.kills.job_program import held_at
from tests.support.queries.mirrors import Mirror, check_same
from tests.support.runs.case_cover import in_turn
from tests.support.waiting import wait_for

ROWS, PER_BATCH = 1500, 1200  # of two partitions: two tasks in each of three micro-batches
CONFIG = """\
source: {{kafka.bootstrap.servers: "{here}", subscribe: {topic}, maxOffsetsPerTrigger: {limit}}}
sink: {{kafka.bootstrap.servers: "{there}"}}
topics: {{prefix: {prefix}, map: {map}}}
checkpoint: {checkpoint}
trigger: availableNow
restart: {{attempts: 0}}
spark: {{spark.master: "local[2]", spark.ui.enabled: false, spark.driver.host: 127.0.0.1,
         spark.driver.bindAddress: 127.0.0.1}}
"""
POINTS = [*IN_QUERIES, "prepare.mapped"]
_TIMES = {"open": 1, "prepare": 3, "ahead": 2, "commit": 3, "abort": 1}
_SPECIAL = {"prepare.wrote": 5, "commit.between": 2}


def faults(point: str) -> str:
    """What brings the mirror to the point, in micro-batch 2 where it comes to it more than once."""
    phase = point.partition(".")[0]
    also = ", prepare.wrote=fail@5" if phase == "abort" else ""
    return f"{point}=hold@{_SPECIAL.get(point, _TIMES[phase])}{also}"


def strike(mirror: Mirror, topic: str, point: str, folder: Path) -> None:
    """Kill it at the point, drain it by a restart, and compare."""
    config = folder / "job.yaml"
    places = {"here": mirror.here.bootstrap_servers, "there": mirror.there.bootstrap_servers, "topic": topic}
    places |= {"prefix": mirror.targets.prefix, "map": mirror.targets.map, "checkpoint": str(mirror.checkpoint)}
    config.write_text(CONFIG.format(**places, limit=PER_BATCH))
    with held_at(faults(point), "mirror", config, folder) as job:
        processes.kill(job.pid)
    query = mirror.run()
    check_same(mirror, topic)
    wait_for(lambda: not mirror.there.open_transactions(query), "the end of all transactions")


def fed(mirror, topic, view) -> tuple[Mirror, str]:
    name = topic(2, retention_ms=-1)
    for commit in (None, False, True):
        rows = [(p, f"{commit}.{i}") for p in (0, 1) for i in range(ROWS // 2)]
        write(view.bootstrap_servers, name, rows, commit=commit)
    copies = mirror(name, prefix="k.", first=True)
    copies.reads |= {"maxOffsetsPerTrigger": str(PER_BATCH)}
    return copies, name


@in_turn("a mirror")
def test_a_kill_loses_and_doubles_nothing(mirror, topic, view, tmp_path):
    """One of the points, for every day."""
    point = random.Random(os.environ.get("SPARK_EOS_SEED", "mirror")).choice(POINTS)
    strike(*fed(mirror, topic, view), point, tmp_path)


@pytest.mark.chaos
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_every_point_loses_and_doubles_nothing(point, mirror, topic, view, tmp_path):
    """The whole set."""
    strike(*fed(mirror, topic, view), point, tmp_path)
