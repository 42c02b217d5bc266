"""Clocks that differ between driver and brokers, and clocks that are set while transactions age.

What the tests set is the time of day, for whole programs; durations are measured by another clock, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import open_view
from tests.support.judges.processor import Load
from tests.support.kills.killed_program import running
from tests.support.kills.scene import Course, Scene, in_batch_2, tell, topics_of
from tests.support.queries.data_paths import also_by
from tests.support.servers.clock import Clock
from tests.support.waiting import TIMEOUT, wait_for

pytestmark = pytest.mark.chaos

MINUTE = 60
LONGER_THAN_TRANSACTIONS_LIVE = 20 * MINUTE  # they live for 15 minutes
CONFIG = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
#: Where the broker's clock is set, by how much, and how the query takes it.
JUMPS = [
    ("prepare.wrote", -LONGER_THAN_TRANSACTIONS_LIVE, "waits"),
    ("commit.entered", -LONGER_THAN_TRANSACTIONS_LIVE, "waits"),
    ("commit.decided", -LONGER_THAN_TRANSACTIONS_LIVE, "waits"),
    ("commit.entered", LONGER_THAN_TRANSACTIONS_LIVE, "EOS_TRANSACTION_EXPIRED"),
    ("commit.decided", LONGER_THAN_TRANSACTIONS_LIVE, "EOS_TRANSACTION_LOST"),
    ("commit.entered", 5 * MINUTE, "waits"),
]


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    return Clock(tmp_path_factory.mktemp("clocks") / "clock")


@pytest.fixture
def shifted(clock: Clock) -> Iterator[DevCluster]:
    """A broker whose clock is that of ``clock``, right at first. Each test has its own: one whose clock was set back by
    twenty minutes may make no topics for a while."""
    clock.set(0)
    with clock.for_programs():
        cluster = DevCluster(config=CONFIG).open()
    with closing(cluster):
        yield cluster
    clock.set(0)


@also_by("transform")
@pytest.mark.parametrize("off", [-LONGER_THAN_TRANSACTIONS_LIVE, LONGER_THAN_TRANSACTIONS_LIVE])
def test_a_broker_whose_clock_is_minutes_off(off, shifted, clock, way, spark, tmp_path):
    """Behind or ahead of the driver's: it makes no difference, since no age that is taken between two clocks counts for
    more than what has passed by the driver's own."""
    clock.set(off)
    with open_view(shifted.bootstrap_servers) as view:
        scene = Scene(view, topics_of(shifted), tmp_path, way=way)
        course = scene.strike(spark, in_batch_2("commit.verified"), lambda started: None, within=TIMEOUT)
    assert (course.sees, course.rewritten) == ("waits", 0)


def strike_at_a_jump(scene: Scene, spark, clock: Clock, point: str, jump: int, sees: str) -> None:
    """Set the broker's clock when the query has come to the point; ``sees``: how the query takes that."""

    def happens(started):
        clock.set(jump)
        if sees != "waits":
            scene.wait_for_the_time_out(started.id)

    assert scene.strike(spark, in_batch_2(point), happens, within=TIMEOUT).sees == sees


@also_by("copy")
@pytest.mark.parametrize(("point", "jump", "sees"), JUMPS)
def test_a_brokers_clock_that_is_set_while_transactions_are_open(
    point, jump, sees, shifted, clock, way, spark, tmp_path
):
    """Ahead by more than they live, they time out at once, and the micro-batch is written again; else all goes on."""
    with open_view(shifted.bootstrap_servers) as view:
        strike_at_a_jump(Scene(view, topics_of(shifted), tmp_path, way=way), spark, clock, point, jump, sees)


@also_by("transform")
@pytest.mark.parametrize(
    ("point", "jump", "sees"),
    [
        ("prepare.wrote", -LONGER_THAN_TRANSACTIONS_LIVE, ""),
        ("commit.entered", -LONGER_THAN_TRANSACTIONS_LIVE, ""),
        ("commit.decided", -LONGER_THAN_TRANSACTIONS_LIVE, ""),
        ("prepare.wrote", LONGER_THAN_TRANSACTIONS_LIVE, "EOS_TRANSACTION_TOO_OLD"),
        ("commit.entered", LONGER_THAN_TRANSACTIONS_LIVE, "EOS_TRANSACTION_TOO_OLD"),
        ("commit.decided", LONGER_THAN_TRANSACTIONS_LIVE, ""),
    ],
)
def test_a_drivers_clock_that_is_set_while_transactions_are_open(
    point, jump, sees, view, topic, clock, way, spark, tmp_path
):
    """With that of its JVM and of its tasks. Ahead, it looks as if the machine had slept, until there is a decision."""
    scene = Scene(view, topic, tmp_path, way=way)
    clock.set(0)
    with scene.recorded():
        with clock.for_programs(), running(scene.spec, in_batch_2(point), tmp_path) as program:
            program.wait_at(point)
            clock.set(jump)
            load = Load()
            program.release(point)
            wait_for(lambda: load.look() and program.ended, "the end of the query")
            used_s, text = load.check(), program.wait_for_end(None if sees else 0)
        assert sees in text
        scene.check(scene.drain(spark) if sees else program.query_id)
    tell(Course(sees or "waits", 0.0, scene.rewritten(), used_s))


@also_by("copy", "transform")
def test_a_driver_that_is_hours_ahead(view, topic, clock, way, spark, tmp_path):
    """The brokers take nothing that is of the future: it stops before it has written a row, and names the clock."""
    scene = Scene(view, topic, tmp_path, way=way)
    clock.set(120 * MINUTE)
    with scene.recorded():
        with clock.for_programs(), running(scene.spec, "", tmp_path) as program:
            text = program.wait_for_end()
        assert "EOS_LEDGER_NOT_WRITABLE" in text
        assert "INVALID_TIMESTAMP" in text
        assert view.values(scene.output, committed=False) == []
        scene.check(scene.drain(spark))
