"""A real schema registry on this machine: Apicurio's, which answers Confluent's API, downloaded once.

::

    with DevRegistry() as registry:
        ...  # registry.url
"""

from __future__ import annotations

import json
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Self
from urllib.request import ProxyHandler, build_opener

from spark_eos.errors import stop
from spark_eos.tools.devcluster.broker import Broker
from spark_eos.tools.devcluster.cache import digest, stored
from spark_eos.tools.devcluster.jars import JarSet, download
from spark_eos.tools.devcluster.java import find_java
from spark_eos.tools.devcluster.ports import free_ports
from spark_eos.tools.devcluster.storage import unusable

#: The newest that runs on Java 17.
_VERSION = "2.6.13.Final"
_ARCHIVE = JarSet(
    f"apicurio-registry-{_VERSION}", archives=(f"io.apicurio:apicurio-registry-app:{_VERSION}:all:tar.gz",)
)
_START_S, _LOOK_S = 300.0, 0.05
_FLAGS = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class DevRegistry:
    """A registry on a loopback port, up on entry and gone on exit; gone as well when this process dies.

    It keeps schemas in memory, so that it is empty after each start. ``url``: of Confluent's API. Starting it raises
    DevClusterError (EOS_JAVA_NOT_FOUND, EOS_DEVCLUSTER_DOWNLOAD, EOS_DEVCLUSTER_CONFIG, EOS_DEVCLUSTER_FAILED).
    """

    def __init__(self) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        self._home = tempfile.TemporaryDirectory(prefix="spark-eos-registry-", ignore_cleanup_errors=True)
        # In a folder of its own, as watchdog.py removes the one around it, too, if that is empty.
        home = Path(self._home.name, "registry")
        home.mkdir()
        self.process = Broker(0, port, home, [], keep_home=False)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> Self:
        """Start it, for where a `with` cannot be, as in a notebook, and again after it was killed; `close` ends it."""
        try:
            self.process.command[:] = _command(self.process.port)
            self.process.launch()
            deadline = time.monotonic() + _START_S
            while not self._answers():
                if not self.process.running or time.monotonic() > deadline:
                    raise self._trouble()
                time.sleep(_LOOK_S)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise unusable(error) from error
            raise
        return self

    def close(self) -> None:
        """End it. Safe to call again."""
        self.process.kill()
        self._home.cleanup()

    def _answers(self) -> bool:
        """Return whether the API answers, which it does later than the port opens."""
        try:
            # Loopback is asked past the proxy of the environment.
            with build_opener(ProxyHandler({})).open(f"{self.url}/subjects", timeout=30) as answer:
                return isinstance(json.load(answer), list)
        except (OSError, ValueError):
            return False

    def _trouble(self) -> Exception:
        what = "does not answer" if self.process.running else "has ended"
        return stop(
            "EOS_DEVCLUSTER_FAILED",
            program="The schema registry",
            what=what,
            output="Its log",
            log=f"\n{self.process.log_tail(60)}",
            usual="that another process has taken its port",
        )


def _command(port: int) -> list[str]:
    """Return the command that starts it, on loopback alone, with its database in memory."""
    files = stored(f"{_ARCHIVE.name}-{digest(_ARCHIVE.archives)}", _unpacked)
    jar = next(file for file in files if file.name.endswith("-runner.jar"))
    settings = ("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}", "-Dquarkus.log.level=WARN")
    return [find_java().path, *_FLAGS, *settings, "-jar", str(jar)]


def _unpacked(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="spark-eos-registry-") as work:
        download(_ARCHIVE, Path(work))
        (archive,) = Path(work).iterdir()
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
