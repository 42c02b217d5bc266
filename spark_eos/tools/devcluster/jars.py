"""Jars from Maven Central, resolved once, by the Ivy that pyspark ships: nothing but Java is needed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from spark_eos.errors import EosError, stop
from spark_eos.tools.devcluster.cache import digest, stored
from spark_eos.tools.devcluster.java import find_java, without_environment

#: The default version.
KAFKA_VERSION = "4.3.1"

#: Where brokers log to: Kafka 3 by log4j 1, Kafka 4 by log4j 2, of which 4.0 brings too little itself.
_LOGGING_3 = ("org.slf4j:slf4j-reload4j:1.7.36", "ch.qos.reload4j:reload4j:1.2.25")
_LOGGING_4 = ("org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",)
_LOGGING_4_0 = (
    *_LOGGING_4,
    "org.apache.logging.log4j:log4j-api:2.25.4",
    "org.apache.logging.log4j:log4j-core:2.25.4",
)
#: The tools of 4.4.0 could not be resolved; older tools work with its brokers.
_TOOLS_VERSION = {"4.4.0": "4.3.1"}


@dataclass(frozen=True)
class JarSet:
    """Jars to resolve together, by Maven coordinates `group:artifact:version`.

    `transitive`: with everything that they need at run time. `plain`: these jars and nothing else. `archives`: files
    `group:artifact:version:classifier:extension`, such as `…:all:tar.gz`.
    """

    name: str
    transitive: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()


def tools_version(version: str) -> str:
    """Return the version of Kafka whose command-line tools go with brokers of this one."""
    return _TOOLS_VERSION.get(version, version)


def kafka_jars(version: str) -> JarSet:
    """Return the jars of a broker, and of the command-line tools where they are of the same version."""
    logging = _LOGGING_3 if version.startswith("3.") else _LOGGING_4_0 if version.startswith("4.0.") else _LOGGING_4
    # The command-line tools would bring all of Kafka Connect with them; the ones used here need only the broker's jars.
    tools = (f"org.apache.kafka:kafka-tools:{version}",) if tools_version(version) == version else ()
    return JarSet(f"kafka-{version}", (f"org.apache.kafka:kafka_2.13:{version}",), (*tools, *logging))


#: Spark's own Kafka connector, for comparison with it.
SPARK_KAFKA = JarSet(
    "spark-kafka-4.2.0",
    plain=(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        # Newer ones of this artifact could not be resolved.
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.12.1",
    ),
)

#: Delta Lake. Newer versions of delta-spark could not be resolved; the rest of its POM is for other
#: catalogs.
DELTA = JarSet("delta-4.4.0", plain=("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0"))


def resolve(jar_set: JarSet) -> list[Path]:
    """Return the jars of the set, sorted by name; downloaded when the cache does not hold all of them unharmed.

    Raises DevClusterError EOS_DEVCLUSTER_DOWNLOAD when they cannot be had.
    """
    # Another choice of coordinates must never find this set's jars.
    name = f"{jar_set.name}-{digest(jar_set.transitive, jar_set.plain, *jar_set.archives)}"
    return stored(name, lambda folder: download(jar_set, folder))


def download(jar_set: JarSet, folder: Path) -> None:
    """Fetch the set into an empty folder; Ivy compares the repository's checksums.

    Raises DevClusterError EOS_DEVCLUSTER_DOWNLOAD when it cannot be downloaded.
    """
    # Ivy's own cache is removed with the download, so that it never has incomplete files of an earlier one.
    with tempfile.TemporaryDirectory(prefix="spark-eos-ivy-", ignore_cleanup_errors=True) as work:
        _run_ivy(jar_set, Path(work), folder)
    for coordinate in jar_set.transitive + jar_set.plain:
        _, artifact, version = coordinate.split(":")
        if not (folder / f"{artifact}-{version}.jar").exists():
            raise _failed(jar_set, f"{coordinate} has no jar")
    for coordinate in jar_set.archives:
        _, artifact, version, classifier, extension = coordinate.split(":")
        if not (folder / f"{artifact}-{version}-{classifier}.{extension}").exists():
            raise _failed(jar_set, f"{coordinate} is not there")
    for jar in folder.glob("*.jar"):  # a proxy may have answered with a page, and without a checksum
        if not zipfile.is_zipfile(jar):
            raise _failed(jar_set, f"{jar.name} is no jar")


#: Lines of Ivy's output in which it says why it has failed.
_LAST_LINES = 40


def _run_ivy(jar_set: JarSet, work: Path, target: Path) -> None:
    ivy_file = work / "ivy.xml"
    ivy_file.write_text(_ivy_file(jar_set))
    command = [
        find_java().path, f"-Dspark.eos.ivy.cache={work / 'cache'}", "-cp", str(_ivy_jar()), "org.apache.ivy.Main",
        "-settings", str(Path(__file__).with_name("ivysettings.xml")), "-ivy", str(ivy_file), "-confs", "default",
        # An OSGi bundle is a jar, too.
        "-types", "jar", "bundle", *_extensions(jar_set), "-retrieve", "[artifact]-[revision](-[classifier]).[ext]",
    ]  # fmt: skip
    print(f"spark-eos: downloading {jar_set.name} from Maven Central, once …", file=sys.stderr, flush=True)
    # Brackets in the path of the folder would be part of the pattern to retrieve by.
    done = subprocess.run(
        command, cwd=target, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if done.returncode != 0:
        said = without_environment(done.stdout).splitlines()
        raise _failed(jar_set, reason_of([line.strip() for line in said[-_LAST_LINES:]]))


def reason_of(said: Sequence[str]) -> str:
    """Return why Ivy has failed, by its last lines: the first server's error, or else the modules that the servers do
    not have."""
    answers = [line for line in said if line.startswith("Server access error")]
    missing = [line.removeprefix(":: ") for line in said if line.startswith(":: ") and line.endswith(": not found")]
    return (answers or [", ".join(missing)])[0] or f"Ivy says: {' / '.join(said)}"


def _extensions(jar_set: JarSet) -> list[str]:
    return sorted({coordinate.split(":")[4] for coordinate in jar_set.archives})


def _ivy_file(jar_set: JarSet) -> str:
    wanted = [(coordinate, "true") for coordinate in jar_set.transitive]
    wanted += [(coordinate, "false") for coordinate in jar_set.plain]
    dependencies = []
    for coordinate, transitive in wanted:
        group, artifact, version = map(quoteattr, coordinate.split(":"))
        dependencies.append(
            f'<dependency org={group} name={artifact} rev={version} conf="default-&gt;default"'
            f' transitive="{transitive}"/>'
        )
    for coordinate in jar_set.archives:
        group, artifact, version, classifier, extension = map(quoteattr, coordinate.split(":"))
        dependencies.append(
            f'<dependency org={group} name={artifact} rev={version} conf="default-&gt;default" transitive="false">'
            f"<artifact name={artifact} type={extension} ext={extension} m:classifier={classifier}/></dependency>"
        )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="spark-eos" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(dependencies)}</dependencies></ivy-module>"
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    jars = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not jars:
        raise stop("EOS_DEVCLUSTER_DOWNLOAD.ivy")
    return jars[-1]


def _failed(jar_set: JarSet, reason: str) -> EosError:
    return stop("EOS_DEVCLUSTER_DOWNLOAD.jars", jar_set=jar_set.name, reason=reason)
