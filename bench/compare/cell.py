"""One cell of the comparison: a contender, a fault and a seed, on a cluster; and what came of it."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from bench.compare.contenders import PARTITIONS, Contender
from bench.compare.faults import Fault
from bench.compare.feeder import Feeder
from bench.compare.judge import Verdict, judge
from bench.compare.scene import LONGEST_S, Scene, Tail
from spark_eos.tools.devcluster import DevCluster

BROKERS = 3
#: An expired transaction is aborted at once, and not within 10 s.
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
_ROWS_PER_SECOND = 400
_START_S = 180.0
#: Rows that come late, of an instance that was believed dead, too.
_AFTER_S = 5.0


@dataclass(frozen=True)
class Cell:
    """``errors``: those by which the contender has ended by itself, each time; ``stopped``: it had to be given up.
    ``recoveries``: seconds from each strike to the next row. ``verdict``: of the rows that were visible in the end."""

    contender: str
    fault: str
    seed: int
    verdict: Verdict
    recoveries: list[float]
    errors: list[str]
    stopped: bool

    @property
    def key(self) -> tuple[str, str, int]:
        return self.contender, self.fault, self.seed

    def as_json(self) -> dict[str, Any]:
        """As in the file of results."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Cell:
        """What `as_json` has made."""
        return cls(**{**raw, "verdict": Verdict(**raw["verdict"])})


def run(cluster: DevCluster, contender: Contender, fault: Fault, seed: int) -> Cell:
    """Feed, strike, let it catch up, and count. Raises TimeoutError where the contender does not even start."""
    source = f"in-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(source, PARTITIONS, min_insync_replicas=2)
    output = contender.output_of(source)
    if not contender.renames:
        cluster.create_topic(output, PARTITIONS, min_insync_replicas=2)
    folder = Path(tempfile.mkdtemp(prefix="spark-eos-compare-"))
    feeder = Feeder(cluster.bootstrap_servers, source, PARTITIONS, _ROWS_PER_SECOND, keyed=True)
    tail = Tail(cluster.bootstrap_servers, output)
    chance = Random(f"{fault.name}-{seed}")
    scene = Scene(cluster, contender, chance, source, folder, feeder, tail, fault.timeout_ms)
    try:
        feeder.start()
        tail.start()
        scene.start()
        if not scene.wait(lambda: tail.rows, _START_S):
            raise TimeoutError(f"{contender.label} wrote nothing within {_START_S:.0f} s: {scene.errors}")
        fault.strike(scene)
        feeder.stop()
        _catch_up(scene)
        scene.run_for(_AFTER_S)
    finally:
        scene.kill()
        tail.stop()
        shutil.rmtree(folder, ignore_errors=True)
    found = judge(cluster.bootstrap_servers, output, [feeder.rows] * PARTITIONS)
    recoveries = [round(seconds, 1) for seconds in scene.recoveries]
    return Cell(contender.name, fault.name, seed, found, recoveries, scene.errors, scene.has_given_up)


def _catch_up(scene: Scene) -> None:
    """Until all is visible, or nothing more comes."""
    wanted = scene.feeder.rows * PARTITIONS
    while (seen := scene.tail.rows) < wanted:
        if not scene.wait(partial(_has_more, scene.tail, seen), LONGEST_S):
            return


def _has_more(tail: Tail, rows: int) -> bool:
    return tail.rows > rows
