"""A Spark cluster on this machine: a master, and workers that have host names of their own, as real ones do.

Spark never tries a task a second time, by speculation, on the host where the first attempt runs; and `local-cluster`
has one host.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark

from demo.processes import Process, descendants
from spark_eos.tools.devcluster import watchdog
from spark_eos.tools.devcluster.ports import free_ports
from tests.support.kills.killed_program import kill_all
from tests.support.kills.query import FAST_JVM
from tests.support.waiting import wait_for

HOSTS = ("127.0.0.1", "127.0.0.2")
#: Settings by which a task is soon tried a second time while it runs.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "1s",
}


class Standalone:
    """One executor with ``cores`` task slots on each host."""

    def __init__(self, folder: Path, cores: int) -> None:
        self._folder, self._cores = folder, cores
        (port,) = free_ports(1)
        self.master = f"spark://{HOSTS[0]}:{port}"
        self._processes: list[subprocess.Popen] = []

    def start(self) -> None:
        _, port = self.master.rsplit(":", 1)
        self._run("master", "master.Master", "--host", HOSTS[0], "--port", port)
        wait_for(lambda: "I have been elected leader" in self.log("master"), "the master")
        for host in HOSTS:
            own = ("--host", host, "--cores", str(self._cores), "--memory", "1g")
            self._run(host, "worker.Worker", *own, "--work-dir", str(self._folder / host), self.master)
        for host in HOSTS:
            wait_for(lambda host=host: "Successfully registered" in self.log(host), f"worker {host}")

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def executors(self) -> dict[str, Process]:
        """The executors' JVMs, by their host."""
        found = {}
        for process in self._family():
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode().split("\0")
                if any(part.endswith("CoarseGrainedExecutorBackend") for part in command):
                    found[command[command.index("--hostname") + 1]] = process
        return found

    def host_of(self, pid: int) -> str:
        """Where this process, an executor's Python worker, runs."""
        (host,) = [
            host
            for host, executor in self.executors().items()
            if pid in [process.pid for process in descendants(executor.pid)]
        ]
        return host

    def kill(self, host: str) -> None:
        """SIGKILL to the executor on this host and its Python workers. The worker starts another one."""
        executor = self.executors()[host]
        kill_all([executor, *descendants(executor.pid)])

    def close(self) -> None:
        family = self._family()
        for process in self._processes:
            process.kill()
            process.wait()
        kill_all(family)

    def _family(self) -> list[Process]:
        return [process for root in self._processes for process in descendants(root.pid)]

    def _run(self, name: str, main_class: str, *arguments: str) -> None:
        java = Path(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
        jars = Path(pyspark.__file__).parent / "jars" / "*"
        command = [str(java), *FAST_JVM.split(), "-Xmx256m", "-cp", str(jars), f"org.apache.spark.deploy.{main_class}"]
        environment = {
            **{name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"},
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_SCALA_VERSION": "2.13",  # the launcher of executors would look for it in folders of a build
            "PYSPARK_PYTHON": sys.executable,
        }
        watched = [sys.executable, "-I", "-S", watchdog.__file__, str(os.getpid()), "", "--", *command]
        with (self._folder / f"{name}.log").open("wb") as log:
            started = subprocess.Popen(
                [*watched, "--webui-port", "0", *arguments],
                env=environment,
                stdin=subprocess.PIPE,  # its end tells that this process is gone
                stdout=log,
                stderr=log,
            )
        self._processes.append(started)


@contextlib.contextmanager
def standalone(folder: Path, cores: int = 1) -> Iterator[Standalone]:
    """The cluster, gone at the end with all that it has started."""
    folder.mkdir()
    cluster = Standalone(folder, cores)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
