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
from bench.compare.faults import Fault, fence, open_transactions
from bench.compare.feeder import Feeder
from bench.compare.judge import NoResult, Verdict, judge
from bench.compare.scene import LONGEST_S, Scene, Tail
from bench.machine import Others
from spark_eos.tools.devcluster import DevCluster

BROKERS = 3
#: An expired transaction is aborted at once, and not within 10 s.
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
_ROWS_PER_SECOND = 400
_START_S = 180.0
#: The share of the processor that others may use where times are taken.
_QUIET = 0.15
#: Rows behind those that a fault may have lost, which tell them from rows that are late.
_LATER_S = 2.0
#: Rows that come late, of an instance that was believed dead, too.
_AFTER_S = 5.0


@dataclass(frozen=True)
class Cell:
    """``errors``: those by which the contender has ended by itself, each time; ``stopped``: it had to be given up.
    ``recoveries``: seconds from each strike to the next row, None where none came. ``verdict``: of the rows that were
    visible in the end. ``busy``: the share of the processor that something else used, 0 to 1. ``stuck``: in the end it
    ran on without writing the last rows, until it was started again."""

    contender: str
    fault: str
    seed: int
    verdict: Verdict
    recoveries: list[float | None]
    errors: list[str]
    stopped: bool
    busy: float = 1.0
    stuck: bool = False

    @property
    def has_halted(self) -> bool:
        """It went on no more, or not by itself: rows that are missing may be written yet."""
        return self.stopped or self.stuck

    @property
    def is_timed(self) -> bool:
        """Whether its times say something: nothing else ran."""
        return self.busy < _QUIET

    @property
    def is_fair(self) -> bool:
        """Whether it tells of the contender: what stands still beside other work may only have been given no time."""
        return self.is_timed or not self.stuck

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
    """Feed, strike, let it catch up, and count. Raises TimeoutError where the contender does not even start, or
    the fault does not come about, and NoResult."""
    source = f"in-{uuid.uuid4().hex[:8]}"
    output = contender.output_of(source)
    for topic in (source,) if contender.renames else (source, output):
        cluster.create_topic(topic, PARTITIONS, replication=fault.replicas, min_insync_replicas=fault.replicas - 1)
    folder = Path(tempfile.mkdtemp(prefix="spark-eos-compare-"))
    feeder = Feeder(cluster.bootstrap_servers, source, PARTITIONS, _ROWS_PER_SECOND, keyed=True)
    tail = Tail(cluster.bootstrap_servers, output)
    chance = Random(f"{fault.name}-{seed}")
    scene = Scene(cluster, contender, chance, source, folder, feeder, tail, fault.timeout_ms)
    others = Others()
    try:
        others.start()
        feeder.start()
        tail.start()
        scene.start()
        if not scene.wait(lambda: tail.rows, _START_S):
            raise TimeoutError(f"{contender.label} wrote nothing within {_START_S:.0f} s: {scene.errors}")
        fault.strike(scene)
        scene.run_for(_LATER_S)
        feeder.stop()
        stuck = False
        if not _catches_up(scene):
            stuck = tail.is_behind(feeder.rows)
            scene.kill()
            scene.start()
            _catches_up(scene)
        scene.run_for(_AFTER_S)
    finally:
        busy = others.stop()
        scene.kill()
        tail.stop()
        shutil.rmtree(folder, ignore_errors=True)
    # What a reader would not see before these expire.
    fence(cluster.bootstrap_servers, open_transactions(cluster.bootstrap_servers))
    found = judge(cluster.bootstrap_servers, source, output, [feeder.rows] * PARTITIONS)
    recoveries = [None if seconds is None else round(seconds, 1) for seconds in scene.recoveries]
    share = round(busy, 2)
    cell = Cell(contender.name, fault.name, seed, found, recoveries, scene.errors, scene.has_given_up, share, stuck)
    if not cell.is_fair:
        raise NoResult("it stood still while something else ran: run it again alone")
    return cell


def _catches_up(scene: Scene) -> bool:
    """Until all is visible, or nothing more comes: then False, unless it has ended for good."""
    wanted = scene.feeder.rows * PARTITIONS
    while (seen := scene.tail.rows) < wanted:
        if not scene.wait(partial(_has_more, scene.tail, seen), LONGEST_S):
            return scene.has_given_up
    return True


def _has_more(tail: Tail, rows: int) -> bool:
    return tail.rows > rows
