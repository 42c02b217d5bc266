"""Fixtures of all tests: `cluster`, `topic`, `view` (a real broker, started when first asked for) and `spark`."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_eos.tools.devcluster import DevCluster
    from tests.support.judges.kafka_view import KafkaView

pytest_plugins = ["spark_eos.tools.devcluster.pytest_plugin"]
# Else a failed assertion in there would not show its values.
pytest.register_assert_rewrite("tests.support")

# How long an example takes says how busy the machine is: beside brokers and JVMs, any limit is missed sometimes.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)
settings.load_profile("busy machine")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell has it for what it starts with "&": programs that tests interrupt would inherit it, and go on.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cover", type=int, metavar="SEED", help="of each test, cases with all values of its parameters")


class FirstWords:
    """Says what failed when it has failed: what runs for half an hour may be cut off before its summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            said = report.longreprtext[-_FIRST_WORDS:] if crash is None else crash.message[:_FIRST_WORDS]
            where = "" if crash is None else f"{crash.path}:{crash.lineno}: "
            terminal.write_line(f"\n{report.nodeid} ({report.when}): {where}{said}")


_FIRST_WORDS = 1_500


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a process of pytest-xdist hands its reports to the first one
        config.pluginmanager.register(FirstWords(config))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Modules and tests stay to the end: nothing looks for garbage in them, meanwhile or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes long begins early; the rest stays in the order of the files."""
    from tests.support.runs.case_cover import covering
    from tests.support.runs.file_shares import share_of

    items.sort(key=lambda item: share_of(item.nodeid))
    if (seed := config.getoption("--cover")) is not None:
        kept = set(covered := covering(items, seed))
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = covered


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile``, files that share something besides go to one process together."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.support.runs.file_shares import scheduler

    return scheduler(config, log)


@pytest.fixture(scope="session", autouse=True)
def fast_start(request: pytest.FixtureRequest) -> None:
    """Each Spark that a test starts, in whatever process, works for seconds or minutes: it is to be up fast."""
    if any({"integration", "chaos"} & set(item.path.parts) for item in request.session.items):
        from tests.support.spark.fast_start import environment

        os.environ.update(environment(prepare=False))  # a few tests are too short to pay for that; make has prepared it


@pytest.fixture(scope="session", autouse=True)
def no_temporary_file_outlives_its_session(
    fast_start: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Many tests kill programs, which then do not remove what they have made."""
    from tests.support.runs import leftovers

    tmp_path_factory.getbasetemp()  # the tests' own folders stay, to be looked at
    with leftovers.removed():
        yield


@pytest.fixture(scope="module", autouse=True)
def no_client_outlives_its_module() -> Iterator[None]:
    """Else clients of clusters that are gone ask for them again and again, and say so in the log of other tests."""
    yield
    client = sys.modules.get("spark_eos.kafka.net.client")
    if client is not None:
        client.close_all()


_CLUSTER = pytest.StashKey["DevCluster"]()


@pytest.fixture(scope="session")
def cluster(cluster: DevCluster, request: pytest.FixtureRequest) -> DevCluster:
    """The shared cluster, which is known to `no_transaction_outlives_its_module` once it runs."""
    request.config.stash[_CLUSTER] = cluster
    return cluster


@pytest.fixture(scope="module", autouse=True)
def no_transaction_outlives_its_module(
    request: pytest.FixtureRequest, no_client_outlives_its_module: None
) -> Iterator[None]:
    """Else a test of all that is open on the shared cluster would see it, until it expires."""
    yield
    if (cluster := request.config.stash.get(_CLUSTER, None)) is not None:
        from tests.support.queries.transactions import end_what_is_open

        end_what_is_open(cluster.bootstrap_servers)


@pytest.fixture(scope="module")
def view(cluster: DevCluster) -> Iterator[KafkaView]:
    """The shared cluster as an independent client sees it."""
    from tests.support.judges.kafka_view import open_view

    with open_view(cluster.bootstrap_servers) as view:
        yield view


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with 4 task slots that knows ``format("eos-kafka")``, and can be ``armed`` with faults.

    As in jobs, its Python processes start from a server and a daemon that have imported what they need, and checkpoints
    are written without a program for each step: a short query takes less than half of the time. Other sessions have
    Spark's own; for checkpoints see `files_by_spark`.
    """
    from pyspark.sql import SparkSession

    import spark_eos
    from jobs.runner import fork_server
    from jobs.runner.local_checkpoint import write_faster
    from tests.support.spark.session_faults import can_be_armed, environment

    # The JVM and the workers inherit these. Workers must run the interpreter of the tests.
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    faults = tmp_path_factory.mktemp("faults") / "now"
    of_workers = {f"spark.executorEnv.{name}": text for name, text in environment(faults).items()}
    with fork_server.used({"spark.master": "local[4]", **of_workers}):
        session = (
            SparkSession.builder.master("local[4]")
            .appName("spark-eos tests")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.python.daemon.module", "spark_eos.worker_daemon")
            .config("spark.python.unix.domain.socket.enabled", "true")
            .config("spark.sql.shuffle.partitions", "4")
            .getOrCreate()
        )
    can_be_armed(session, faults)
    spark_eos.register(session)
    write_faster(session)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def files_by_spark(spark: SparkSession) -> Iterator[None]:
    """In this module, Spark writes the files of checkpoints as it does by default."""
    from jobs.runner.local_checkpoint import FASTER, write_faster

    for name in FASTER:
        spark.conf.unset(name)
    yield
    write_faster(spark)
