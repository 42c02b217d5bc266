"""A Spark Connect server in a JVM of its own, and sessions of clients that have no JVM."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql.connect.session import SparkSession

from demo.processes import alive, descendants
from spark_eos.tools.devcluster import watchdog
from spark_eos.tools.devcluster.ports import free_ports
from tests.support.kills.killed_program import ROOT, kill_all
from tests.support.waiting import wait_for

_ARMED = "armed"
_CONF = {
    "spark.ui.enabled": "false",
    "spark.log.level": "WARN",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.python.unix.domain.socket.enabled": "true",
}


class ConnectServer:
    """Runs until ``kill``: SIGKILL to the JVM and its Python workers."""

    def __init__(self, folder: Path, faults: str = "") -> None:
        folder.mkdir()
        (self._port,) = free_ports(1)
        self._faults, self._log = folder / "faults", folder / "server.log"
        self._faults.mkdir()
        self.arm(faults)
        home = Path(os.environ["SPARK_HOME"])
        conf = _CONF | {"spark.connect.grpc.binding.port": str(self._port), "spark.sql.warehouse.dir": str(folder)}
        command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
        command += [text for name, value in conf.items() for text in ("--conf", f"{name}={value}")]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        environment = {
            **os.environ,
            "SPARK_EOS_FAULTS": f"@{self._faults / _ARMED}",
            "SPARK_EOS_FAULTS_DIR": str(self._faults),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", watchdog.__file__, str(os.getpid()), "", "--", *command],
                env=environment,
                cwd=folder,
                stdin=subprocess.PIPE,  # its end tells that this process is gone
                stdout=log,
                stderr=log,
            )

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self._process.poll() is None, self.log()[-6000:]
            with contextlib.closing(socket.socket()) as probe:
                return probe.connect_ex(("127.0.0.1", self._port)) == 0

        wait_for(ready, "the Connect server")

    def arm(self, faults: str) -> None:
        """From now on, tasks and commits meet these faults."""
        (self._faults / _ARMED).write_text(faults)

    def wait_at(self, point: str) -> None:
        """Until something is held at the failpoint."""
        wait_for((self._faults / point).exists, f"the server at {point}")

    @property
    def remote(self) -> str:
        """Its address, as clients take it."""
        return f"sc://127.0.0.1:{self._port}"

    def session(self) -> SparkSession:
        """A new session of its own."""
        return SparkSession.builder.remote(self.remote).create()

    def kill(self) -> None:
        family = descendants(self._process.pid)
        kill_all(family)
        self._process.kill()
        self._process.wait()
        wait_for(lambda: not alive(family), "the end of the server")


@contextlib.contextmanager
def connect_server(folder: Path, faults: str = "") -> Iterator[ConnectServer]:
    """The server, ready; gone at the end with all that it has started."""
    server = ConnectServer(folder, faults)
    try:
        server.wait_ready()
        yield server
    finally:
        server.kill()
