"""The options before the command, by which the cluster is reached; those that commands share; and the printing of
answers and errors."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from spark_eos.base.printable import json_text, printable_lines
from spark_eos.errors import EosError, invalid_option, stop

if TYPE_CHECKING:
    from spark_eos.checkpoint.files import Checkpoint
    from spark_eos.checkpoint.settings import HadoopSettings
    from spark_eos.kafka.config.properties import KafkaProperties
    from spark_eos.ledger.owners import Cluster
    from spark_eos.ops.answer import Answer


#: Thirty years.
_LONGEST_S = 1e9


def _check_values(command: TyperCommand | TyperGroup, context: typer.Context) -> None:
    """Raise BadParameter for a value without a text, as a variable of a script that is not set leaves it: a command
    would take some of them for options that are not there, and do something else than was meant. And for a number of
    seconds, as all fractions here are, for which nobody can wait."""
    parameters: list[Any] = command.params
    for parameter in parameters:
        value = context.params.get(parameter.name)
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, str) and not each.strip():
                raise typer.BadParameter("it is empty", ctx=context, param=parameter)
            if isinstance(each, float) and not abs(each) <= _LONGEST_S:
                raise typer.BadParameter(f"{each} is no time in seconds", ctx=context, param=parameter)


class _Command(TyperCommand):
    """A command that checks its values, unless they are for what it starts."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # of a class that typer hides
        rest: list[str] = super().parse_args(ctx, args)
        if not ctx.ignore_unknown_options:
            _check_values(self, ctx)
        return rest


class _Group(TyperGroup):
    """A group of commands that checks the values of its own options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # of a class that typer hides
        rest: list[str] = super().parse_args(ctx, args)
        _check_values(self, ctx)
        return rest


class _App(typer.Typer):
    """Makes a `_Command` of each function."""

    def command(self, name: str | None = None, **settings: object) -> Callable[[Any], Any]:
        return super().command(name, **{**settings, "cls": _Command})  # type: ignore[arg-type]


def new_app(help_: str, *, completion: bool = False) -> typer.Typer:
    """A group of commands. Its help has frames and colours in a terminal; elsewhere it is plain, which is faster."""
    return _App(
        cls=_Group,
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
        return Format(text)
    except ValueError:
        raise typer.BadParameter(f"'{text}' is neither text nor json") from None


def _version(wanted: bool) -> None:
    if wanted:
        from spark_eos._version import __version__

        print(__version__)
        raise typer.Exit


@dataclass(frozen=True)
class Setting:
    """``KEY=VALUE``. The value may be a password, so it is not in the repr."""

    key: str
    value: str = field(repr=False)


def setting(text: str) -> Setting:
    """From ``KEY=VALUE``. Raises BadParameter, without the value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise typer.BadParameter("it takes KEY=VALUE")
    return Setting(key.strip(), value)


Kafka = typer.Option(
    "--kafka", metavar="KEY=VALUE", parser=setting, help="client property (repeat)", show_default=False
)
Output = Annotated[Format, typer.Option("--format", metavar="text|json", parser=_format, help="how to print it")]
Location = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="checkpointLocation, as Spark has it", show_default=False)
]
Yes = Annotated[bool, typer.Option("--yes", help="do it; without it, only print what would be done")]


def topic_option(flag: str, help_: str) -> object:
    """An option that takes a topic."""
    return typer.Option(flag, metavar="TOPIC", help=help_, show_default=False)


@dataclass(frozen=True)
class Connection:
    """The options before the command, by which the cluster, the ledger and the checkpoint's file system are reached.

    Values of `kafka` and `storage` may be secrets, so they are not in the repr.
    """

    servers: str | None = None
    kafka: Sequence[Setting] = ()
    kafka_file: str | None = None
    ledger_topic: str | None = None
    prefix: str | None = None
    storage: Sequence[Setting] = ()

    def client(self) -> KafkaProperties:
        """The client's properties. Raises BadParameter without brokers, and OptionError, without the value of any."""
        if not self.servers:
            raise typer.BadParameter(
                f"name the brokers: spark-eos --bootstrap-servers HOST:PORT COMMAND, or set {SERVERS_VARIABLE}"
            )
        return client(self.servers, self.kafka, self.kafka_file)

    @property
    def ledger(self) -> str:
        """The ledger topic."""
        from spark_eos.options.table import DEFAULT_LEDGER_TOPIC

        return self.ledger_topic or DEFAULT_LEDGER_TOPIC

    def cluster(self) -> Cluster:
        """The cluster with the query's ledger. Raises what `client` does, and, before any other request,
        ConnectionFailed where no broker answers."""
        from spark_eos.kafka.net.client import broker_client
        from spark_eos.ledger.owners import Cluster

        properties = self.client()
        broker_client(properties).reach()
        return Cluster(broker_client(properties), self.ledger, self.prefix or None)

    def hadoop(self) -> HadoopSettings:
        """The settings of the checkpoint's file system, by their canonical names, and those of a catalog. Raises
        OptionError for another one, and for one that is there twice with different values."""
        from spark_eos.checkpoint.settings import HadoopSettings, setting_name

        def name_of(key: str) -> str:
            name = key if key == "catalog" or key.startswith("catalog.") else setting_name(key)
            if name is None:
                raise stop(
                    "EOS_OPTION_UNKNOWN.option",
                    option=key,
                    names=(
                        "fs.defaultFS, the names of fs.s3a.…, fs.azure.… and Google's that docs/sink.md lists, and "
                        "catalog.… of an Iceberg table's catalog"
                    ),
                )
            return name

        return HadoopSettings(_once((name_of(each.key.removeprefix("spark.hadoop.")), each) for each in self.storage))

    def checkpoint(self, location: str) -> Checkpoint:
        """The checkpoint, with the whole path. Raises CheckpointError, OptionError."""
        from spark_eos.checkpoint.files import Checkpoint

        return Checkpoint(location, self.hadoop())


SERVERS_VARIABLE = "SPARK_EOS_BOOTSTRAP_SERVERS"


def connect(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers",
            metavar="HOST:PORT[,…]",
            envvar=SERVERS_VARIABLE,
            help="brokers of the cluster; of a mirror, of its target",
            show_default=False,
        ),
    ] = None,
    kafka: Annotated[list[Setting] | None, Kafka] = None,
    kafka_file: Annotated[
        str | None,
        typer.Option(
            "--kafka-file",
            metavar="FILE",
            envvar="SPARK_EOS_KAFKA_FILE",
            help="client properties, one KEY=VALUE a line: for secrets, as other users can see a command line",
            show_default=False,
        ),
    ] = None,
    ledger_topic: Annotated[
        str | None,
        typer.Option(
            "--ledger-topic",
            metavar="TOPIC",
            envvar="SPARK_EOS_LEDGER_TOPIC",
            help="ledger.topic of the query, if it is not the default",
            show_default=False,
        ),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(
            "--prefix",
            metavar="PREFIX",
            help="transactionalIdPrefix of a query that has not run yet; of others, the ledger has it, and another "
            "one is refused",
            show_default=False,
        ),
    ] = None,
    storage: Annotated[
        list[Setting] | None,
        typer.Option(
            "--storage",
            metavar="fs.…=VALUE",
            parser=setting,
            help="setting of the checkpoint's or a table's store, as in Hadoop; or catalog.…=VALUE of Iceberg (repeat)",
            show_default=False,
        ),
    ] = None,
) -> None:
    """The options of the root: every command takes the connection from here."""
    context.obj = Connection(servers, kafka or (), kafka_file, ledger_topic, prefix, storage or ())


def connection(context: typer.Context) -> Connection:
    """The connection that `connect` has made of the options."""
    found = context.obj
    return found if isinstance(found, Connection) else Connection()


def client(servers: str, kafka: Sequence[Setting] | None, kafka_file: str | None) -> KafkaProperties:
    """The properties of a client, in lower case, checked; options count more than lines of the file. Raises
    OptionError, without the value of a secret."""
    from spark_eos.kafka.config.librdkafka import check
    from spark_eos.kafka.config.properties import KafkaProperties

    of_file, of_options = (
        _once((each.key.lower().removeprefix("kafka."), each) for each in given)
        for given in (_settings_in(kafka_file) if kafka_file else (), kafka or ())
    )
    properties = KafkaProperties({**of_file, **of_options, "bootstrap.servers": servers})
    check(properties, "consumer")
    return properties


def _once(given: Iterable[tuple[str, Setting]]) -> dict[str, str]:
    """The values by these names. Raises OptionError for a name that is there twice, with different values."""
    found: dict[str, str] = {}
    for name, each in given:
        if found.setdefault(name, each.value) != each.value:
            raise stop(
                "EOS_OPTION_CONFLICT.both",
                given=f"Different values of option '{name}', in which capital letters make no difference,",
                option=name,
            )
    return found


def _settings_in(file: str) -> Iterator[Setting]:
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = f"{file}, which cannot be read ({type(error).__name__})"
        raise invalid_option(
            "--kafka-file", why, "a text file in UTF-8 with KEY=VALUE, a client property, on each line"
        ) from None
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                found = setting(line)
            except typer.BadParameter:
                why = f"{file}, whose line {number} is not KEY=VALUE"
                raise invalid_option("--kafka-file", why, "KEY=VALUE, a client property, on each line") from None
            yield Setting(found.key, found.value.strip())


def print_answer(
    output: Format, answering: Callable[[], Answer], *, failed: int = 2, paint: Callable[[str], str] = str
) -> int:
    """Print an answer, and return its exit code. An EosError goes to stderr, with JSON also to stdout as an object
    ``error``; then the exit code is ``failed``. ``paint`` adds colours to the text in a terminal."""
    try:
        answer = answering()
    except EosError as error:
        return print_error(output, error, failed)
    text = json_text(answer.data) if output is Format.JSON else printable_lines(answer.text)
    print(paint(text) if output is Format.TEXT and sys.stdout.isatty() else text)
    return answer.code


def print_error(output: Format, error: EosError, code: int) -> int:
    """Print the error instead of an answer. Returns ``code``."""
    print(f"spark-eos: {error}", file=sys.stderr)
    if output is Format.JSON:
        fields = {"condition": error.condition, "message": error.message, "hint": error.hint}
        print(json_text({"error": fields}))
    return code
