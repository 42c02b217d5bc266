"""``spark-eos devcluster``."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from spark_eos.cli.options import Format, Output, option, print_error
from spark_eos.errors import EosError, stop


@dataclass(frozen=True)
class NewTopic:
    """A topic to create."""

    name: str
    partitions: int


def _topic(text: str) -> NewTopic:
    """Parse ``NAME`` or ``NAME:N``. Names follow Kafka's rules."""
    match = re.fullmatch(r"([A-Za-z0-9._-]{1,249})(?::0*([1-9][0-9]{0,3}))?", text)
    if match is None or match[1] in (".", ".."):
        raise typer.BadParameter(f"'{text}' is not NAME or NAME:PARTITIONS")
    return NewTopic(match[1], int(match[2] or 1))


_TOPICS = "create a topic with N partitions (default: 1) unless it exists (repeat)"


def devcluster(
    brokers: Annotated[int, typer.Option(min=1, metavar="N", help="number of brokers")] = 1,
    kafka_version: Annotated[
        str | None, option("--kafka-version", "V", "version of Apache Kafka, such as 3.9.2")
    ] = None,
    data: Annotated[str | None, option("--data", "DIR", "keep the data in this folder (default: delete it)")] = None,
    port: Annotated[int | None, option("--port", "P", "broker i listens on port P + i (default: free ports)")] = None,
    topic: Annotated[list[NewTopic] | None, option("--topic", "NAME[:N]", _TOPICS, parser=_topic)] = None,
    output: Output = Format.TEXT,
) -> int:
    """Run a real Apache Kafka on this machine.

    It listens on loopback ports until interrupted. Its jars are downloaded once. Where a cluster runs at --port
    already, topics are created there, and that is all.
    """
    from spark_eos.tools.devcluster import DevCluster, probe
    from spark_eos.tools.devcluster.jars import KAFKA_VERSION
    from spark_eos.tools.devcluster.topics import create_topic

    is_plain = data is None and kafka_version is None and brokers == 1
    running = probe.ask(port) if port is not None and topic and is_plain else None
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it stops the cluster cleanly, as Ctrl-C does
    try:
        if running is not None:
            servers = f"127.0.0.1:{port}"
            create = partial(create_topic, servers, replication=min(3, len(running.brokers)))
            _create_topics(create, topic or ())
            names = ", ".join(wanted.name for wanted in topic or ())
            _print(servers, output, f"It runs already, and has {names} now.")
            return 0
        with (
            contextlib.suppress(KeyboardInterrupt),
            DevCluster(brokers, version=kafka_version or KAFKA_VERSION, data_dir=data, port=port) as cluster,
        ):
            _create_topics(cluster.create_topic, topic or ())
            _print(cluster.bootstrap_servers, output, "Ctrl-C stops it.")
            raise cluster.join().trouble("has ended")
    except EosError as error:
        return print_error(output, error, 1)
    return 0


def _print(servers: str, output: Format, note: str) -> None:
    """Print the servers, as JSON on one line, so that a program which waits for it reads it whole."""
    as_json = json.dumps({"bootstrap.servers": servers})
    print(as_json if output is Format.JSON else f"bootstrap.servers={servers}", flush=True)
    print(note, file=sys.stderr, flush=True)


def _create_topics(create: Callable[[str, int], None], topics: Iterable[NewTopic]) -> None:
    """Create topics; existing ones are not changed. Raises DevClusterError."""
    from confluent_kafka import KafkaError, KafkaException

    for topic in topics:
        try:
            create(topic.name, topic.partitions)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise stop("EOS_DEVCLUSTER_CONFIG.topic", topic=topic.name, why=error.args[0].str()) from None
