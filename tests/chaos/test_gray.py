"""A network that fails, or neither works nor fails: one way is lost, little gets through, bytes change, one broker is
slow.

Only the query goes through proxies; readers look directly, and their histories are judged. Whatever the network does,
the query goes on, or stops by name and goes on with the next start; it does so within a time, and does not spin.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView
from tests.support.judges.processor import Load
from tests.support.kills.scene import Course, Scene, in_batch_2, topics_of
from tests.support.queries.data_paths import also_by
from tests.support.servers.healed_brokers import heal
from tests.support.servers.proxy import HEADER, Proxy

pytestmark = pytest.mark.chaos

POINTS = ("prepare.wrote", "commit.verified", "commit.decided")
FOR_A_WHILE_S = 10.0
#: From the fault to the end of the query, by the end of its input or by an error.
ENDS_WITHIN_S = 300.0
#: From the end of the fault, or the restart, to the next committed micro-batch.
GOES_ON_WITHIN_S = 240.0
#: What a query may use while it can do nothing but wait: a process that spins uses one.
CORES = 0.5
#: The beginning of a value that no micro-batch before the third has; a mirror has more rows.
ROWS_TO_COME, MIRRORED_ROWS_TO_COME = b"1.02", b"1.14"


#: Of each fault, what it does to a proxy. The bit of `another_answer` is in the correlation id; the 4 MiB of
#: `a_size_that_is_too_large` never come; rows are damaged in answers to Fetch.
FAULTS: dict[str, Callable[[Proxy], None]] = {
    "cut": Proxy.cut,  # connections drop, and new ones are refused
    "delay": lambda proxy: proxy.delay(0.3),  # every answer takes 0.6 s
    "reset": lambda proxy: proxy.reset_after(10),  # answers break off, within fewer bytes than any has
    "requests_are_lost": lambda proxy: proxy.lose(answers=False),
    "answers_are_lost": lambda proxy: proxy.lose(answers=True),
    "a_trickle": lambda proxy: proxy.trickle(1000),
    "stalls": lambda proxy: proxy.stall(0.05, 3.0),
    "half_open": Proxy.forget,
    "another_answer": lambda proxy: proxy.flip(at=HEADER - 1, chance=0.3),
    "a_size_that_is_too_large": lambda proxy: proxy.flip(at=1, chance=0.3),
    "an_impossible_size": lambda proxy: proxy.flip(at=0, chance=0.3),
    "damaged_rows": lambda proxy: proxy.flip(within=ROWS_TO_COME),
    "damaged_rows_of_a_mirror": lambda proxy: proxy.flip(within=MIRRORED_ROWS_TO_COME),
}
ONLY_WAITING = ("requests_are_lost", "answers_are_lost", "half_open")


@pytest.fixture
def network(proxies: list[Proxy]) -> Iterator[list[Proxy]]:
    """The proxies, which pass everything on again when the test is over."""
    yield proxies
    for proxy in proxies:
        proxy.restore()


@pytest.fixture
def scene(brokers: DevCluster, view_of_three: KafkaView, network: list[Proxy], way: str, tmp_path: Path) -> Scene:
    """A query that goes through the proxies."""
    through = ",".join(proxy.address for proxy in network)
    return Scene(view_of_three, topics_of(brokers), tmp_path, way=way, bootstrap_servers=through)


def strike(scene: Scene, spark, point: str, fault: str, network: list[Proxy], lasts: float | None) -> Course:
    """``lasts``: seconds, or None: until the query has ended. Holds how soon it goes on, and that it does not spin."""
    load: list[Load] = []
    cores: list[float] = []

    def happens(started):
        for proxy in network:
            FAULTS[fault](proxy)
        load.append(Load())

    def passes():
        cores.append(load[0].cores())
        if lasts is not None:
            restore()

    def restore():
        for proxy in network:
            proxy.restore()

    seconds = FOR_A_WHILE_S if lasts is None else lasts
    course = scene.strike(
        spark,
        in_batch_2(point),
        happens,
        lasts=seconds,
        passes=passes,
        before_restart=restore,
        within=ENDS_WITHIN_S,
    )
    print(f"{cores[0]:.2f} cores meanwhile")
    assert course.seconds <= GOES_ON_WITHIN_S
    assert cores[0] < CORES or fault not in ONLY_WAITING
    return course


@also_by("copy", "transform", "mirror")
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("fault", ["cut", "delay", "reset", "requests_are_lost", "answers_are_lost"])
def test_the_network_fails_or_one_way_of_it_for_a_while(fault, point, scene, network, spark):
    """Where one way is lost, connections stay, and what was sent meanwhile arrives late: among it requests that were
    given up."""
    resets = sum(proxy.resets for proxy in network)
    strike(scene, spark, point, fault, network, FOR_A_WHILE_S)
    assert (sum(proxy.resets for proxy in network) > resets) == (fault == "reset")


@also_by("transform", "mirror")
@pytest.mark.parametrize(
    ("fault", "point"),
    [
        ("requests_are_lost", "prepare.wrote"),
        ("requests_are_lost", "commit.verified"),
        ("answers_are_lost", "commit.verified"),
        ("answers_are_lost", "commit.decided"),
    ],
)
def test_one_way_of_the_network_is_lost_for_good(fault, point, scene, network, spark):
    """The query stops by name, and its next start, when the network works, goes on."""
    assert strike(scene, spark, point, fault, network, None).sees != "waits"


@also_by("copy", "transform", "mirror")
@pytest.mark.parametrize("fault", ["a_trickle", "stalls"])
def test_a_network_that_lets_little_through(fault, scene, network, spark):
    """A kilobyte a second, or now and then nothing for three seconds: to the end, however long that takes."""
    strike(scene, spark, "prepare.wrote", fault, network, None)


@also_by("transform", "mirror")
@pytest.mark.parametrize("point", POINTS)
def test_connections_that_are_half_open(point, scene, network, spark):
    """A firewall has forgotten those that were there; whoever connects anew gets through."""
    strike(scene, spark, point, "half_open", network, FOR_A_WHILE_S)


@also_by("copy", "transform", "mirror")
@pytest.mark.parametrize(
    ("fault", "point"),
    [
        *(
            (fault, point)
            for fault in ("another_answer", "a_size_that_is_too_large", "an_impossible_size")
            for point in POINTS
        ),
        ("damaged_rows", "commit.verified"),
    ],
)
def test_answers_with_flipped_bytes(fault, point, scene, network, spark):
    """In what says which request is answered and how long the answer is, or in rows, which have a checksum. The rest of
    an answer has none in Kafka: there only TLS helps."""
    flips = sum(proxy.flips for proxy in network)
    if scene.spec.mirrors and fault == "damaged_rows":
        fault = "damaged_rows_of_a_mirror"
    strike(scene, spark, point, fault, network, FOR_A_WHILE_S)
    assert sum(proxy.flips for proxy in network) > flips


@also_by("copy", "mirror")
def test_one_slow_follower(brokers, view_of_three, way, spark, tmp_path):
    """It stays in sync, and what every replica has to have waits for it each time."""
    scene = Scene(view_of_three, topics_of(brokers), tmp_path, way=way)
    with slow(brokers, make_follower(brokers)):
        course = scene.strike(spark, in_batch_2("prepare.wrote"), lambda started: None, within=ENDS_WITHIN_S)
        assert course.seconds <= GOES_ON_WITHIN_S


def make_follower(brokers: DevCluster) -> int:
    """A broker that leads nothing: it was away for a moment. Only minutes later the others give something back."""
    follower = brokers.size - 1
    brokers.kill(follower)
    brokers.wait_ready()
    heal(brokers)
    return follower


@contextmanager
def slow(brokers: DevCluster, number: int) -> Iterator[None]:
    """The broker sleeps most of the time, never for long."""
    over, broker = threading.Event(), brokers.broker(number)

    def nap() -> None:
        while not over.wait(0.1):
            broker.send(signal.SIGSTOP)
            over.wait(0.4)
            broker.send(signal.SIGCONT)

    napping = threading.Thread(target=nap, daemon=True)
    napping.start()
    try:
        yield
    finally:
        over.set()
        napping.join()
