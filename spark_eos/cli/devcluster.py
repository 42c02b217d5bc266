"""``spark-eos devcluster``."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from spark_eos.cli.options import Format, Output, print_error
from spark_eos.errors import EosError, stop

if TYPE_CHECKING:
    from spark_eos.tools.devcluster import DevCluster


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

    It listens on loopback ports until interrupted. Its jars are downloaded once.
    """
    from spark_eos.tools.devcluster import DevCluster
    from spark_eos.tools.devcluster.jars import KAFKA_VERSION

    # Both stop the cluster cleanly.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with (
            contextlib.suppress(KeyboardInterrupt),
            DevCluster(brokers, version=kafka_version or KAFKA_VERSION, data_dir=data, port=port) as cluster,
        ):
            for wanted in topic or ():
                _create_topic(cluster, wanted)
            _print(cluster.bootstrap_servers, output)
            raise cluster.join().trouble("has ended")
    except EosError as error:
        return print_error(output, error, 1)
    return 0


def _print(servers: str, output: Format) -> None:
    """JSON on one line, so that whoever waits for it has it whole."""
    json_ = json.dumps({"bootstrap.servers": servers})
    print(json_ if output is Format.JSON else f"bootstrap.servers={servers}", flush=True)
    print("Ctrl-C stops it.", file=sys.stderr, flush=True)


def _create_topic(cluster: DevCluster, topic: NewTopic) -> None:
    """Existing topics, as in a folder of `--data`, are not changed. Raises DevClusterError."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        cluster.create_topic(topic.name, topic.partitions)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise stop("EOS_DEVCLUSTER_CONFIG.topic", topic=topic.name, why=error.args[0].str()) from None
