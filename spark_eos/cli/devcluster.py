"""``spark-eos devcluster``."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from spark_eos.cli.options import Format, Output, print_error
from spark_eos.errors import EosError, stop


@dataclass(frozen=True)
class NewTopic:
    """A topic to create."""

    name: str
    partitions: int


def _topic(text: str) -> NewTopic:
    """From ``NAME`` or ``NAME:N``. Names follow Kafka's rules."""
    found = re.fullmatch(r"([A-Za-z0-9._-]{1,249})(?::0*([1-9][0-9]{0,3}))?", text)
    if found is None or found[1] in (".", ".."):
        raise typer.BadParameter(f"'{text}' is not NAME or NAME:PARTITIONS")
    return NewTopic(found[1], int(found[2] or 1))


def devcluster(
    brokers: Annotated[int, typer.Option(min=1, metavar="N", help="number of brokers")] = 1,
    kafka_version: Annotated[
        str | None, typer.Option(metavar="V", help="version of Apache Kafka, such as 3.9.2", show_default=False)
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="keep the data in this folder (default: delete it)", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="P", help="broker i listens on port P + i (default: free ports)", show_default=False),
    ] = None,
    topic: Annotated[
        list[NewTopic] | None,
        typer.Option(
            parser=_topic,
            metavar="NAME[:N]",
            help="create a topic with N partitions (default: 1) unless it exists (repeat)",
            show_default=False,
        ),
    ] = None,
    output: Output = Format.TEXT,
) -> int:
    """Run a real Apache Kafka on this machine.

    It listens on loopback ports until interrupted. Its jars are downloaded once. Where a cluster runs at --port
    already, topics are created there, and that is all.
    """
    from spark_eos.tools.devcluster import DevCluster, probe
    from spark_eos.tools.devcluster.jars import KAFKA_VERSION

    running = probe.ask(port) if port is not None and topic else None
    if running is not None:
        try:
            return _add_topics(f"127.0.0.1:{port}", topic or [], len(running.brokers), output)
        except EosError as error:
            return print_error(output, error, 1)

    # Both stop the cluster cleanly.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with (
            contextlib.suppress(KeyboardInterrupt),
            DevCluster(brokers, version=kafka_version or KAFKA_VERSION, data_dir=data, port=port) as cluster,
        ):
            for wanted in topic or ():
                _create_topic(cluster.create_topic, wanted)
            _print(cluster.bootstrap_servers, output)
            raise cluster.join().trouble("has ended")
    except EosError as error:
        return print_error(output, error, 1)
    return 0


def _add_topics(servers: str, topics: list[NewTopic], brokers: int, output: Format) -> int:
    """Create topics on the cluster that runs already. Returns the exit code. Raises DevClusterError."""
    from spark_eos.tools.devcluster.topics import create_topic

    for wanted in topics:
        _create_topic(partial(create_topic, servers, replication=min(3, brokers)), wanted)
    print(_servers(servers, output))
    print(f"It runs already, and has {', '.join(wanted.name for wanted in topics)} now.", file=sys.stderr)
    return 0


def _print(servers: str, output: Format) -> None:
    print(_servers(servers, output), flush=True)
    print("Ctrl-C stops it.", file=sys.stderr, flush=True)


def _servers(servers: str, output: Format) -> str:
    """JSON on one line, so that whoever waits for it has it whole."""
    return json.dumps({"bootstrap.servers": servers}) if output is Format.JSON else f"bootstrap.servers={servers}"


def _create_topic(create: Callable[[str, int], None], topic: NewTopic) -> None:
    """Existing topics are not changed. Raises DevClusterError."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        create(topic.name, topic.partitions)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise stop("EOS_DEVCLUSTER_CONFIG.topic", topic=topic.name, why=error.args[0].str()) from None
