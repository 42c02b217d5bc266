"""The systems that are compared: how each is started, with the settings that its own documentation asks for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from bench import mirrormaker
from bench.child import interpreter_with
from bench.compare.spark_copy import QuerySpec
from bench.copier import FLINK, STREAMS
from bench.jvm import command, compiled
from bench.queries import BUILTIN_KAFKA, COPY, EOS_KAFKA, MIRROR
from jobs.runner.session import ROOT
from spark_eos.tools.devcluster.jars import JarSet
from spark_eos.tools.devcluster.ports import free_ports

PARTITIONS = 4
#: Before the input's name, in that of what mirrors write to; MirrorMaker's name of its source.
_SOURCE = "source"
#: What the brokers allow by default, in ms.
_LONGEST_MS = 900_000
_HEAP = "-Xmx768m"


@dataclass(frozen=True)
class Place:
    """Where one instance of a contender runs. ``folder``: its files, which are there again when it is started again;
    ``own``: those of this instance alone. ``timeout_ms``: of its transactions, where it is not the contender's own."""

    servers: str
    input: str
    output: str
    folder: Path
    own: Path
    timeout_ms: int | None


@dataclass(frozen=True)
class Contender:
    """``command``: starts it, or starts it again. ``advice``: the page that says what to set. ``renames``: it gives its
    output a name by itself, and creates it. ``transactional``: its rows are written in transactions. ``admits``: what
    its own documentation says of rows that are lost or doubled, with a link."""

    name: str
    label: str
    advice: str
    command: Callable[[Place], list[str]]
    renames: bool = False
    transactional: bool = True
    admits: str = "nothing that we found"

    def output_of(self, source: str) -> str:
        """The topic that it writes to."""
        return f"{_SOURCE}.{source}" if self.renames else f"copy-of-{source}"


def _spark(way: str, place: Place) -> list[str]:
    timeout = {} if place.timeout_ms is None else {"transaction.timeout.ms": str(place.timeout_ms)}
    checkpoint = str(place.folder / "checkpoint")
    options = {} if way == BUILTIN_KAFKA else timeout
    spec = QuerySpec(way, place.servers, place.input, place.output, checkpoint, options)
    return [sys.executable, "-m", "bench.compare.spark_copy", spec.to_json()]


def _flink(place: Place) -> list[str]:
    folder = place.folder / "checkpoints"
    folder.mkdir(exist_ok=True)
    arguments = [place.servers, place.input, place.output, str(PARTITIONS), str(folder)]
    source = Path(__file__).with_name("FlinkRestarting.java")
    return [*_java(source, FLINK.jars, place, FLINK.jvm), *arguments, str(place.timeout_ms or _LONGEST_MS)]


def _streams(place: Place) -> list[str]:
    source = Path(__file__).with_name("StreamsRestarting.java")
    timeout = [] if place.timeout_ms is None else [str(place.timeout_ms)]
    return [*_java(source, STREAMS.jars, place), place.servers, place.input, place.output, str(PARTITIONS), *timeout]


def _java(source: Path, jars: JarSet, place: Place, jvm: tuple[str, ...] = ()) -> list[str]:
    return command(_compiled(source, jars), source.stem, heap=_HEAP, folder=place.own, options=jvm)


@cache
def _compiled(source: Path, jars: JarSet) -> str:
    folder = ROOT / "build" / "compare" / source.stem
    folder.mkdir(parents=True, exist_ok=True)
    return compiled(source, jars, folder)


def _mirrormaker(place: Place) -> list[str]:
    (port,) = free_ports(1)
    file = place.own / "mirror.properties"
    timeout = "" if place.timeout_ms is None else f"target.producer.transaction.timeout.ms = {place.timeout_ms}\n"
    settings = {"source": _SOURCE, "servers": place.servers, "topic": place.input, "port": port, "tasks": PARTITIONS}
    file.write_text(mirrormaker.EXACTLY_ONCE.format(**settings) + timeout)
    return mirrormaker.mirrormaker(file, _HEAP)


def _quix(place: Place) -> list[str]:
    timeout = str(place.timeout_ms or 60_000)
    interpreter = interpreter_with("quixstreams==3.28.1")
    return [interpreter, "-m", "bench.compare.quix_copy", place.servers, place.input, place.output, timeout]


_SPARK = "https://spark.apache.org/docs/latest/streaming/structured-streaming-kafka-integration.html"
_FLINK = "https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/datastream/kafka/"
_LIMITS = "[what it does not guarantee](limits.md)"

CONTENDERS = (
    Contender(
        "spark",
        "Spark's own sink",
        _SPARK,
        partial(_spark, BUILTIN_KAFKA),
        transactional=False,
        admits=f"that it writes [at least once]({_SPARK}#writing-data-to-kafka), so that a retry may double rows",
    ),
    Contender("rows", "spark-eos, rows", "sink.md", partial(_spark, EOS_KAFKA), admits=_LIMITS),
    Contender("copy", "spark-eos, copy", "copy.md", partial(_spark, COPY), admits=_LIMITS),
    Contender("mirror", "spark-eos, mirror", "mirror.md", partial(_spark, MIRROR), renames=True, admits=_LIMITS),
    Contender(
        "flink",
        "Flink",
        _FLINK,
        _flink,
        admits=f"that rows are [lost]({_FLINK}#fault-tolerance) where it is away for longer than its transactions live",
    ),
    Contender(
        "streams",
        "Kafka Streams",
        "https://kafka.apache.org/documentation/streams/developer-guide/config-streams",
        _streams,
    ),
    Contender(
        "mirrormaker",
        "MirrorMaker 2",
        "https://kafka.apache.org/documentation/#georeplication-exactly_once",
        _mirrormaker,
        renames=True,
    ),
    Contender(
        "quix", "Quix Streams", "https://quix.io/docs/quix-streams/configuration.html#processing-guarantees", _quix
    ),
)
