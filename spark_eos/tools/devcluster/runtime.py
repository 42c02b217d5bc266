"""Java command lines over the broker's jars."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spark_eos.tools.devcluster.cache import digest, stored
from spark_eos.tools.devcluster.jars import KAFKA_VERSION, kafka_jars, resolve
from spark_eos.tools.devcluster.java import find_java

#: Up fast rather than fast in the long run: on 2 cores this halves the CPU time of a start.
JVM_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
#: The Java property of the level from which on brokers and tools log.
LOG_LEVEL = "spark.eos.log.level"
_TRAINED = "classes.jsa"


@dataclass(frozen=True)
class Runtime:
    """`classpath`: the jars of a broker of Kafka `version`. `class_archive`: a file of ready-made classes, or None."""

    java: str
    version: str
    classpath: str
    class_archive: Path | None = None

    def command(self, main_class: str, *arguments: str, flags: Sequence[str] = JVM_FLAGS) -> list[str]:
        """Return the command that runs a class of the jars."""
        archive = [] if self.class_archive is None else [f"-XX:SharedArchiveFile={self.class_archive}"]
        # The JVM's own warnings would go to stdout, among a tool's results.
        quiet = ["-Xlog:disable", "-Xlog:all=error:stderr"]
        return [
            self.java, *quiet, *archive, *self._logging(), *flags, "-cp", self.classpath, main_class, *arguments,
        ]  # fmt: skip

    def _logging(self) -> list[str]:
        """Return JVM options for logging to stderr, by the library that this version of Kafka has."""
        here = Path(__file__)
        if self.version.startswith("3."):
            return [f"-Dlog4j.configuration={here.with_name('log4j1.xml').as_uri()}", f"-D{LOG_LEVEL}=INFO"]
        return [f"-Dlog4j2.configurationFile={here.with_name('log4j2.xml')}"]


def kafka_runtime(version: str = KAFKA_VERSION) -> Runtime:
    """Return Kafka's jars, and the Java to run them. Raises the errors of `find_java` and `resolve`."""
    return Runtime(find_java().path, version, os.pathsep.join(map(str, resolve(kafka_jars(version)))))


def with_class_archive(runtime: Runtime, train: Callable[[Path], None]) -> Runtime:
    """Return the runtime with an archive of the broker's classes, which halves the time of a start; made once per Java
    and jars.

    `train(file)` runs a broker that writes the archive when it ends. A JVM that cannot do that is used without, and so
    is a cache that cannot be written.
    """
    # The JVM itself silently refuses an archive that was made by another JVM or from other jars, by size and time, of
    # which copies may lose the fractions of seconds.
    jars = [
        (jar, int(Path(jar).stat().st_mtime), Path(jar).stat().st_size) for jar in runtime.classpath.split(os.pathsep)
    ]
    name = f"kafka-classes-{digest(find_java().build, runtime.java, jars)}"
    try:
        files = stored(name, lambda folder: train(folder / _TRAINED))
    except OSError:
        files = []
    return replace(runtime, class_archive=files[0] if files else None)
