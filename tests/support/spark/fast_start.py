"""Spark for programs that start it often and briefly, as the demo and the tests do: a start takes half the time.

Two things are made once, in the user's cache:

- a home for Spark without ``python/lib/pyspark.zip``: workers import pyspark as it is installed. From a zip, Python
  compiles it anew in every process, which takes a second of processor time;
- an archive of the classes that the JVM loads for a job: it need not read, check and link them again.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from pyspark import __version__ as spark_version

from jobs.runner.spark_home import installed, linked
from spark_eos.tools.devcluster import DevCluster
from spark_eos.tools.devcluster.cache import cache_dir, digest, stored
from spark_eos.tools.devcluster.java import find_java

#: The main job, and where Python finds it.
JOB = "jobs.consume_transform_produce"
ROOT = Path(__file__).parents[3]
#: Up fast rather than fast in the long run.
_JVM_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_TRAINING_S = 600
_POLL_S = 0.1
#: The JVM's own warnings would go to stdout.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
_JOB = """
kafka: {{bootstrap.servers: "{servers}"}}
source: {{subscribe: in, maxOffsetsPerTrigger: 100}}
transform:
  format: json
  schema: n INT
  sql: SELECT key, to_json(struct(n)) AS value FROM input WHERE n > 1
sink: {{topic: out}}
checkpoint: {folder}/checkpoint
trigger: availableNow
spark: {{spark.master: "local[2]", spark.ui.enabled: false, spark.driver.host: 127.0.0.1,
         spark.driver.bindAddress: 127.0.0.1}}
"""


def environment(*, prepare: bool) -> dict[str, str]:
    """Variables for processes that start Spark by pyspark. Raises DevClusterError where there is no Java or no broker.

    ``prepare``: make the archive where there is none, which takes a minute or more, and pays after some starts.
    Where there is none all the same, or this JVM cannot make one, it goes without.
    """
    java, home = find_java(), linked(installed(), cache_dir())
    name = f"spark-classes-{digest(java.build, java.path, spark_version, str(home), _JVM_FLAGS)}"
    files: list[Path] = []
    if prepare or (cache_dir() / name).is_dir():
        files = stored(name, lambda folder: _train(home, folder / "classes.jsa"))
    archive = f" -Xshare:auto {_option('SharedArchiveFile', files[0])}" if files else ""
    return _variables(home, f"{_JVM_FLAGS} {_QUIET}{archive}")


def _option(name: str, file: Path) -> str:
    """An option of the JVM, as Spark parses it."""
    return shlex.quote(f"-XX:{name}={file}")


def _variables(home: Path, options: str) -> dict[str, str]:
    return {
        "SPARK_HOME": str(home),
        "SPARK_SUBMIT_OPTS": options,
        "SPARK_LAUNCHER_OPTS": _JVM_FLAGS,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _train(home: Path, archive: Path) -> None:
    """Run the main job once, on a broker of its own, in a JVM that writes the archive at its end."""
    print("spark-eos: preparing Spark for faster starts, once …", file=sys.stderr, flush=True)
    with DevCluster() as cluster, tempfile.TemporaryDirectory() as folder:
        for topic in ("in", "out"):
            cluster.create_topic(topic, 2)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        for n in range(200):
            producer.produce("in", f'{{"n": {n}}}', str(n))
        producer.flush()
        job = Path(folder, "job.yaml")
        job.write_text(_JOB.format(servers=cluster.bootstrap_servers, folder=folder))
        options = f"{_JVM_FLAGS} {_QUIET} {_option('ArchiveClassesAtExit', archive)}"
        process = subprocess.Popen(
            [sys.executable, "-m", JOB, "--conf", str(job)],
            cwd=ROOT,
            env={**os.environ, **_variables(home, options), "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if not _all_end(process):
            archive.unlink(missing_ok=True)  # half an archive is none


def _all_end(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process ends in time, and its JVM, which writes the archive after that; else all are killed."""
    deadline = time.monotonic() + _TRAINING_S
    try:
        while time.monotonic() < deadline:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(_POLL_S)
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return True
    return False


if __name__ == "__main__":
    for name, value in environment(prepare=True).items():
        print(f"{name}={value}")
