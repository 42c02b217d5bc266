"""Options before the command, by which the cluster is reached; options that commands share; and the printing of
answers and errors."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from spark_eos.base.printable import json_text, printable_lines
from spark_eos.errors import EosError, invalid_option, option_twice, stop

if TYPE_CHECKING:
    from spark_eos.checkpoint.files import Checkpoint
    from spark_eos.checkpoint.settings import HadoopSettings
    from spark_eos.kafka.config.properties import KafkaProperties
    from spark_eos.kafka.net.client import BrokerClient
    from spark_eos.ledger.owners import Cluster
    from spark_eos.ops.answer import Answer


#: Thirty years.
_LONGEST_S = 1e9


class _Checked:
    """Refuses an empty value of an option, such as from an unset variable of a script: a command would take the option
    for not given, and do something unintended. Also refuses a number of seconds that is too long to wait; all fractions
    here are seconds."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # of a class that typer hides
        command: Any = self
        rest: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]  # of the class that this is mixed into
        for parameter in () if ctx.ignore_unknown_options else command.params:
            value = ctx.params.get(parameter.name)
            for each in value if isinstance(value, list | tuple) else [value]:
                if isinstance(each, str) and not each.strip():
                    raise typer.BadParameter("it is empty", ctx=ctx, param=parameter)
                if isinstance(each, float) and not abs(each) <= _LONGEST_S:
                    raise typer.BadParameter(f"{each} is no time in seconds", ctx=ctx, param=parameter)
        return rest


class _Command(_Checked, TyperCommand):
    """A command that checks its values, unless they are for the job that it runs."""


class _Group(_Checked, TyperGroup):
    """A group of commands that checks the values of its own options."""


class _App(typer.Typer):
    """Makes a `_Command` of each function."""

    def command(self, name: str | None = None, **settings: object) -> Callable[[Any], Any]:
        return super().command(name, **{**settings, "cls": _Command})  # type: ignore[arg-type]


def new_app(help_: str, *, completion: bool = False) -> typer.Typer:
    """Return a group of commands. Its help has frames and colours in a terminal; elsewhere it is plain, which is
    faster."""
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


def _version(wanted: bool) -> None:
    if wanted:
        from spark_eos._version import __version__

        print(__version__)
        raise typer.Exit


@dataclass(frozen=True)
class KeyValue:
    """``KEY=VALUE``. The value may be a password, so it is not in the repr."""

    key: str
    value: str = field(repr=False)


def setting(text: str) -> KeyValue:
    """Parse ``KEY=VALUE``. Raises BadParameter, without the value."""
    made = _parsed(text)
    if made is None:
        raise typer.BadParameter("it takes KEY=VALUE")
    return made


def _parsed(text: str) -> KeyValue | None:
    """Parse ``KEY=VALUE``; None for another text."""
    key, equals, value = text.partition("=")
    return KeyValue(key.strip(), value) if equals and key.strip() else None


def option(flag: str, metavar: str, help_: str, **more: Any) -> Any:  # noqa: ANN401  # as typer.Option takes and returns
    """Return an option with a value, of which the help shows no default."""
    return typer.Option(flag, metavar=metavar, help=help_, **{"show_default": False, **more})


def argument(metavar: str, help_: str) -> Any:  # noqa: ANN401  # as typer.Argument returns
    """Return an argument, of which the help shows no default."""
    return typer.Argument(metavar=metavar, help=help_, show_default=False)


def switch(flag: str, help_: str) -> Any:  # noqa: ANN401  # as typer.Option returns
    """Return an option without a value."""
    return typer.Option(flag, help=help_)


_CHECKPOINT = argument("CHECKPOINT", "checkpointLocation, as Spark has it")
Output = Annotated[Format, typer.Option("--format", metavar="text|json", help="how to print it")]
Location = Annotated[str, _CHECKPOINT]
MaybeLocation = Annotated[str | None, _CHECKPOINT]
Yes = Annotated[bool, switch("--yes", "do it; without it, only print what would be done")]


@dataclass(frozen=True)
class ConnectionOptions:
    """The options by which a cluster, the ledger and the checkpoint's file system are reached. Each command makes one,
    with one client. `file_flag`: the option that names `kafka_file`.

    Values of `kafka` and `storage` may be secrets, so they are not in the repr.
    """

    servers: str | None = None
    kafka: Sequence[KeyValue] = ()
    kafka_file: str | None = None
    ledger_topic: str | None = None
    prefix: str | None = None
    storage: Sequence[KeyValue] = ()
    file_flag: str = "--kafka-file"

    @cached_property
    def properties(self) -> KafkaProperties:
        """The client's properties, in lower case; options count more than lines of the file. Raises BadParameter
        without brokers, and OptionError, without the value of a secret."""
        from spark_eos.kafka.config.librdkafka import check
        from spark_eos.kafka.config.properties import KafkaProperties

        if not self.servers:
            raise typer.BadParameter(
                f"name the brokers: spark-eos --bootstrap-servers HOST:PORT COMMAND, or set {SERVERS_VARIABLE}"
            )
        of_file, of_options = (
            _once((each.key.lower().removeprefix("kafka."), each) for each in given)
            for given in (_settings_in(self.kafka_file, self.file_flag) if self.kafka_file else (), self.kafka)
        )
        properties = KafkaProperties({**of_file, **of_options, "bootstrap.servers": self.servers})
        check(properties, "consumer")
        return properties

    @cached_property
    def client(self) -> BrokerClient:
        """The client of the cluster. Raises as `properties`."""
        from spark_eos.kafka.net.client import broker_client

        return broker_client(self.properties)

    @property
    def ledger(self) -> str:
        """The ledger topic."""
        from spark_eos.options.table import DEFAULT_LEDGER_TOPIC

        return self.ledger_topic or DEFAULT_LEDGER_TOPIC

    def cluster(self) -> Cluster:
        """Return the cluster with the query's ledger. Raises as `client`, and, before any other request,
        ConnectionFailed where no broker answers."""
        from spark_eos.ledger.owners import Cluster

        self.client.reach()
        return Cluster(self.client, self.ledger, self.prefix or None)

    def hadoop(self) -> HadoopSettings:
        """Return the settings of the checkpoint's file system, by their canonical names, and of a catalog. Raises
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
        """Return the checkpoint, with the whole path. Raises CheckpointError, OptionError."""
        from spark_eos.checkpoint.files import Checkpoint

        return Checkpoint(location, self.hadoop())


SERVERS_VARIABLE = "SPARK_EOS_BOOTSTRAP_SERVERS"
_FILE_VARIABLE, _LEDGER_VARIABLE = "SPARK_EOS_KAFKA_FILE", "SPARK_EOS_LEDGER_TOPIC"
_SERVERS = "brokers of the cluster; of a mirror, of its target"
_FILE = "client properties, one KEY=VALUE a line: for secrets, as other users can see a command line"
_LEDGER = "ledger.topic of the query, if it is not the default"
_PREFIX = (
    "transactionalIdPrefix of a query that has not run yet; of others, the ledger has it, and another one is refused"
)
_STORAGE = "setting of the checkpoint's or a table's store, as in Hadoop; or catalog.…=VALUE of Iceberg (repeat)"


def connect(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    servers: Annotated[
        str | None, option("--bootstrap-servers", "HOST:PORT[,…]", _SERVERS, envvar=SERVERS_VARIABLE)
    ] = None,
    kafka: Annotated[
        list[KeyValue] | None, option("--kafka", "KEY=VALUE", "client property (repeat)", parser=setting)
    ] = None,
    kafka_file: Annotated[str | None, option("--kafka-file", "FILE", _FILE, envvar=_FILE_VARIABLE)] = None,
    ledger_topic: Annotated[str | None, option("--ledger-topic", "TOPIC", _LEDGER, envvar=_LEDGER_VARIABLE)] = None,
    prefix: Annotated[str | None, option("--prefix", "PREFIX", _PREFIX)] = None,
    storage: Annotated[list[KeyValue] | None, option("--storage", "fs.…=VALUE", _STORAGE, parser=setting)] = None,
) -> None:
    """The options of the root: every command takes the connection from here."""
    context.obj = ConnectionOptions(servers, kafka or (), kafka_file, ledger_topic, prefix, storage or ())


def connection(context: typer.Context) -> ConnectionOptions:
    """Return the connection that `connect` has made of the options."""
    made = context.obj
    return made if isinstance(made, ConnectionOptions) else ConnectionOptions()


def _once(given: Iterable[tuple[str, KeyValue]]) -> dict[str, str]:
    """Return the values by these names. Raises OptionError for a name that is there twice, with different values."""
    values: dict[str, str] = {}
    for name, each in given:
        if values.setdefault(name, each.value) != each.value:
            raise option_twice(name)
    return values


def _settings_in(file: str, flag: str) -> Iterator[KeyValue]:
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = f"{file}, which cannot be read ({type(error).__name__})"
        raise invalid_option(
            flag, why, "a text file in UTF-8 with KEY=VALUE, a client property, on each line"
        ) from None
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            made = _parsed(line)
            if made is None:
                why = f"{file}, whose line {number} is not KEY=VALUE"
                raise invalid_option(flag, why, "KEY=VALUE, a client property, on each line")
            yield KeyValue(made.key, made.value.strip())


def print_answer(
    output: Format, answering: Callable[[], Answer], *, failed: int = 2, paint: Callable[[str], str] = str
) -> int:
    """Print an answer, and return its exit code. An EosError goes to stderr, with JSON also to stdout as an object
    ``error``, and any other error with its trace; then the exit code is ``failed``, as 1 would be an answer. ``paint``
    adds colours to the text in a terminal."""
    try:
        answer = answering()
        text = json_text(answer.data) if output is Format.JSON else printable_lines(answer.text)
        print(paint(text) if output is Format.TEXT and sys.stdout.isatty() else text)
    except EosError as error:
        return print_error(output, error, failed)
    except TyperException:
        raise
    except BrokenPipeError:
        sys.stderr.close()  # nobody reads on, as in `spark_eos.cli.app`
        return failed
    except Exception:
        traceback.print_exc()
        return failed
    return answer.code


def print_error(output: Format, error: EosError, code: int) -> int:
    """Print the error instead of an answer. Returns ``code``."""
    print(f"spark-eos: {error}", file=sys.stderr)
    if output is Format.JSON:
        fields = {"condition": error.condition, "message": error.message, "hint": error.hint}
        print(json_text({"error": fields}))
    return code
