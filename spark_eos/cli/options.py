"""The options that commands share, and how a command says what it has found. They are the same everywhere."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from spark_eos.errors import EosError
from spark_eos.printable import json_text, printable_lines

if TYPE_CHECKING:
    from spark_eos.checkpoint import Checkpoint
    from spark_eos.kafka.config.properties import KafkaProperties
    from spark_eos.ledger.owners import Cluster
    from spark_eos.ops.answer import Answer
    from spark_eos.storage.settings import HadoopSettings


def new_app(help_: str, *, completion: bool = False) -> typer.Typer:
    """A group of commands. In a terminal its help has frames and colours; elsewhere it is plain, which is faster."""
    return typer.Typer(
        help=inspect.cleandoc(help_),
        no_args_is_help=True,
        add_completion=completion,
        # A stack trace with local variables could print a secret.
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown" if sys.stdout.isatty() else None,
    )


class Format(StrEnum):
    """How an answer is printed."""

    TEXT = "text"
    JSON = "json"


def _format(text: str) -> Format:
    try:
        return Format("text" if text == "table" else text)  # "table", as it was called once
    except ValueError:
        raise typer.BadParameter(f"'{text}' is neither text nor json") from None


@dataclass(frozen=True)
class Setting:
    """``KEY=VALUE``; the value, which may be a password, is not in its repr."""

    key: str
    value: str = field(repr=False)


def setting(text: str) -> Setting:
    """Raises BadParameter, which does not have the value in it."""
    from spark_eos.ops.client import client_property

    try:
        return Setting(*client_property(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


_SERVERS = typer.Option(
    "--bootstrap-servers", metavar="HOST:PORT[,…]", help="brokers of the cluster", show_default=False
)
Servers = Annotated[str, _SERVERS]
MaybeServers = Annotated[str | None, _SERVERS]
Kafka = Annotated[
    list[Setting] | None,
    typer.Option("--kafka", metavar="KEY=VALUE", parser=setting, help="client property (repeat)", show_default=False),
]
KafkaFile = Annotated[
    str | None,
    typer.Option(
        "--kafka-file",
        metavar="FILE",
        help="client properties, one KEY=VALUE a line: for secrets, which other users see on a command line",
        show_default=False,
    ),
]
LedgerTopic = Annotated[
    str | None, typer.Option("--ledger-topic", metavar="TOPIC", help="ledger.topic", show_default=False)
]
Prefix = Annotated[
    str | None, typer.Option("--prefix", metavar="PREFIX", help="transactionalIdPrefix", show_default=False)
]
#: Of commands about queries that a ledger knows.
KnownPrefix = Annotated[
    str | None,
    typer.Option(
        "--prefix",
        metavar="PREFIX",
        help="transactionalIdPrefix: the ledger knows it, another one is refused",
        show_default=False,
    ),
]
Group = Annotated[str | None, typer.Option("--group", metavar="GROUP", help="offsets.group.id", show_default=False)]
Output = Annotated[Format, typer.Option("--format", metavar="text|json", parser=_format, help="how to print it")]
Location = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="checkpointLocation, as Spark has it", show_default=False)
]
Storage = Annotated[
    list[Setting] | None,
    typer.Option("--storage", metavar="fs.…=VALUE", parser=setting, help="as in Hadoop (repeat)", show_default=False),
]
Yes = Annotated[bool, typer.Option("--yes", help="do it; without it, only say what would be done")]


def topic_option(flag: str, help_: str) -> object:
    """An option that takes a topic."""
    return typer.Option(flag, metavar="TOPIC", help=help_, show_default=False)


def client(servers: str, kafka: list[Setting] | None, kafka_file: str | None) -> KafkaProperties:
    """The client's properties. Raises OptionError, without the value of any."""
    from spark_eos.ops.client import client_of

    return client_of(servers, {given.key: given.value for given in kafka or ()}, kafka_file)


def cluster(
    servers: str, kafka: list[Setting] | None, kafka_file: str | None, ledger_topic: str | None, prefix: str | None
) -> Cluster:
    """The cluster with the query's ledger, or the default one. Raises what `client` does, and ConnectionFailed where no
    broker answers: told here, in plainer words than whatever would be asked first."""
    from spark_eos.kafka.net.client import broker_client
    from spark_eos.ledger.owners import Cluster
    from spark_eos.options.table import DEFAULT_LEDGER_TOPIC

    properties = client(servers, kafka, kafka_file)
    broker_client(properties).reach()
    return Cluster(properties, ledger_topic or DEFAULT_LEDGER_TOPIC, prefix or None)


def hadoop(storage: list[Setting] | None) -> HadoopSettings:
    """The settings of the checkpoint's file system."""
    from spark_eos.storage.settings import HadoopSettings

    return HadoopSettings({given.key.removeprefix("spark.hadoop."): given.value for given in storage or ()})


def checkpoint_at(location: str, storage: list[Setting] | None) -> Checkpoint:
    """The checkpoint. Raises CheckpointError, OptionError."""
    from spark_eos.checkpoint import Checkpoint

    return Checkpoint(location, hadoop(storage))


def tell(output: Format, answering: Callable[[], Answer], *, failed: int = 2) -> int:
    """Print an answer; its exit code, or ``failed`` where there is none. The error then stands on stderr, and with
    JSON also on stdout, as an object ``error``."""
    try:
        answer = answering()
    except EosError as error:
        return fail(output, error, failed)
    print(json_text(answer.data) if output is Format.JSON else printable_lines(answer.text))
    return answer.code


def fail(output: Format, error: EosError, code: int) -> int:
    """Say why there is no answer. Returns the code."""
    print(f"spark-eos: {error}", file=sys.stderr)
    if output is Format.JSON:
        fields = {"condition": error.condition, "message": error.message, "hint": error.hint}
        print(json_text({"error": fields}))
    return code
