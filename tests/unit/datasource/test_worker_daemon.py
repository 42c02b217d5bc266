"""The daemon of Python workers: where it imports pyspark from, and what it says when Spark lets a worker go."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.serializers import UTF8Deserializer, read_int

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.datasource.provider import EosKafkaDataSource
from spark_eos.options.parse import stream_options
from spark_eos.pipelines.copy.source import RangeStreamReader
from spark_eos.pipelines.copy.table.plan import TablePlan
from spark_eos.sink.batch_writer import EosKafkaBatchWriter
from spark_eos.source.range_reader import RangesOfTask
from tests.support.waiting import TIMEOUT, is_gone, wait_for


def printed(code: str, **environ: str) -> str:
    """What a program of Python prints."""
    command, env = [sys.executable, "-c", code], {**os.environ, **environ}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def let_go(daemon: str, folder: Path, worker: str = "pyspark.worker", tasks: Iterable[str] = ("",)) -> str:
    """What the daemon prints when its workers' sockets are closed, as Spark does after a minute without work; each
    worker is sent one of the tasks."""
    settings = {
        "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)]),
        # As Spark sets them for a job.
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", daemon, worker],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **settings},
    )
    try:
        address = UTF8Deserializer().loads(process.stdout)
        for task in tasks:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(TIMEOUT)
                connection.connect(address)
                with connection.makefile("rb") as stream:
                    pid = read_int(stream)
                connection.sendall(task.encode())
            wait_for(lambda pid=pid: is_gone(pid), "the end of the worker")
        return process.communicate(timeout=TIMEOUT)[1].decode()  # the end of its input is the daemon's end
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: the path of a socket may have some 100 characters."""
    with tempfile.TemporaryDirectory(prefix="eos-") as name:
        yield Path(name)


def test_a_worker_that_spark_lets_go_says_nothing_with_our_daemon(folder):
    """With Spark's it prints a stack: else the test would hold nothing."""
    assert "BrokenPipeError" in let_go("pyspark.daemon", folder)
    assert let_go("spark_eos.worker_daemon", folder) == ""


FIRST_TASK = """\
import pickle
from spark_eos.datasource.provider import EosKafkaDataSource
from spark_eos.spark.tracebacks import hidden_traceback

def main(infile, outfile):
    exec(infile.readline())
    infile.read()  # until Spark has closed the socket
    outfile.write(b"the answer to the first task")
"""


def test_a_worker_of_sparks_own_daemon_says_nothing_once_it_has_met_the_data_source(folder):
    """As those that plan a stream: the very task in which they meet it may be the one that Spark does not wait for.
    They look for data sources, make one, are sent one, or the writer of a batch write; or they read ranges, or call
    anything else that Spark calls."""
    ranges = RangesOfTask((OffsetRange("t", 0, 0, 1),), 1)
    source = stream_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    reader = RangeStreamReader(TablePlan(source, "c", None))
    writer = EosKafkaBatchWriter.__new__(EosKafkaBatchWriter)
    writer.__setstate__({"_options": None})
    (folder / "pyspark_first.py").write_text(FIRST_TASK)
    tasks = (
        "import pyspark_spark_eos",
        "EosKafkaDataSource({})",
        f"pickle.loads({pickle.dumps(EosKafkaDataSource({}))!r})",
        "hidden_traceback().__enter__()",
        f"list(pickle.loads({pickle.dumps(reader)!r}).read(pickle.loads({pickle.dumps(ranges)!r})))",
        f"pickle.loads({pickle.dumps(writer)!r})",
    )
    assert let_go("pyspark.daemon", folder, "pyspark_first", [f"{task}\n" for task in tasks]) == ""
    assert "BrokenPipeError" in let_go("pyspark.daemon", folder, "pyspark_first", ["pass\n"])


def test_other_errors_of_a_worker_keep_their_stack(folder):
    """Only the loss of the socket is silent."""
    (folder / "pyspark_fails.py").write_text("def main(infile, outfile):\n    raise ValueError('of its own')\n")
    assert "ValueError: of its own" in let_go("spark_eos.worker_daemon", folder, "pyspark_fails")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, not all libraries may be forked")
def test_a_worker_has_what_tasks_import():
    """From the daemon; nothing of it is imported by a worker once more. No two draw the same numbers. A library that
    cannot be imported is told by the task that needs it, not by the daemon."""
    preload = "import spark_eos.datasource.worker_daemon as daemon; daemon.preload_tasks()"
    code = (
        f"import sys; {preload}; had = set(sys.modules);"
        "import spark_eos.source.reader, spark_eos.sink.task, spark_eos.pipelines.copy.task;"
        "print(set(sys.modules) - had, flush=True)\n"
    )
    draws = "import os, numpy.random; os.fork() or (print(numpy.random.random(), flush=True), os._exit(0)); os.wait()\n"
    imported, *numbers = printed(code + 2 * draws).split()
    assert imported == "set()" and len(set(numbers)) == 2
    assert printed(f"import sys; sys.modules['pyarrow'] = None; {preload}; print('started')") == "started"


def test_the_process_that_plans_loads_nothing_for_rows():
    """Neither librdkafka nor Arrow's functions: Spark starts one for each query, and waits for it."""
    code = (
        "import sys, spark_eos.source.reader, spark_eos.pipelines.copy.source;"
        "from spark_eos.kafka.net.client import broker_client;"
        "from spark_eos.kafka.config.properties import KafkaProperties;"
        "broker_client(KafkaProperties({'bootstrap.servers': '127.0.0.1:9092', 'client.id': 'me'}));"
        "print({'confluent_kafka', 'pyarrow.compute', 'spark_eos.source.task'} & set(sys.modules) or 'none')"
    )
    assert printed(code) == "none"


def test_a_program_that_is_not_sparks_daemon_keeps_its_stacks():
    """A driver or a test that imports the data source prints what it printed before."""
    code = "import traceback; from spark_eos.spark.worker_exit import quiet_here; quiet_here(); print(type(traceback))"
    assert printed(code) == "<class 'module'>"


def imported_from(archives: Path) -> Path:
    """Where the daemon has pyspark from, with Spark's archives first on the path."""
    paths = [*map(str, sorted(archives.glob("*.zip"))), *filter(None, sys.path)]
    code = "import spark_eos.worker_daemon, pyspark; print(pyspark.__file__)"
    return Path(printed(code, PYTHONPATH=os.pathsep.join(paths)))


def test_workers_import_the_pyspark_that_is_installed_and_not_its_archive():
    """What Python imports from a zip, it compiles anew in every process."""
    installed = Path(pyspark.__file__)
    assert imported_from(installed.parent / "python" / "lib") == installed


def test_an_archive_of_another_installation_stays_first(tmp_path):
    """With spark-submit of another Spark than the installed pyspark, versions must not be mixed."""
    for archive in (Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip"):
        shutil.copy(archive, tmp_path)
    assert imported_from(tmp_path).parent.parent == tmp_path / "pyspark.zip"
