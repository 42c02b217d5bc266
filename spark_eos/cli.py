"""The `spark-eos` command. Each subcommand is a function that imports what it needs and returns the exit code."""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from spark_eos._version import __version__
from spark_eos.errors import EosError, OptionError

if TYPE_CHECKING:
    from spark_eos.devcluster import DevCluster
    from spark_eos.kafka.config.properties import KafkaProperties


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments`, by default those of the process. Returns the exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
    except EosError as error:
        print(f"spark-eos: {error}", file=sys.stderr)
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spark-eos", description="Exactly-once Kafka source and sink for PySpark.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="command")
    _add_devcluster(commands)
    _add_verify(commands)
    _add_transactions(commands)
    return parser


def _add_devcluster(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "devcluster",
        help="run a real Apache Kafka on this machine",
        description="Runs a real Apache Kafka on loopback ports until interrupted. Its jars are downloaded once.",
    )
    command.add_argument("--brokers", type=_count, default=1, metavar="N", help="number of brokers (default: 1)")
    command.add_argument("--data", metavar="DIR", help="keep the data in this folder (default: delete it)")
    command.add_argument("--port", type=int, metavar="P", help="broker i listens on port P + i (default: free ports)")
    command.add_argument(
        "--topic",
        action="append",
        default=[],
        type=_topic,
        metavar="NAME[:N]",
        help="create a topic with N partitions (default: 1) unless it exists (repeat)",
    )
    command.set_defaults(run=devcluster)


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def _topic(text: str) -> tuple[str, int]:
    """A topic and its number of partitions, from ``NAME`` or ``NAME:N``. Names follow Kafka's rules."""
    found = re.fullmatch(r"([A-Za-z0-9._-]{1,249})(?::0*([1-9][0-9]{0,3}))?", text)
    if found is None or found[1] in (".", ".."):
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME or NAME:PARTITIONS")
    return found[1], int(found[2] or 1)


def devcluster(arguments: argparse.Namespace) -> int:
    """Run a cluster until Ctrl-C or SIGTERM (0), or until a broker exits by itself (1)."""
    from spark_eos.devcluster import DevCluster

    # Both stop the cluster cleanly.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        DevCluster(arguments.brokers, data_dir=arguments.data, port=arguments.port) as cluster,
    ):
        for topic, partitions in arguments.topic:
            _create_topic(cluster, topic, partitions)
        print(f"bootstrap.servers={cluster.bootstrap_servers}", flush=True)
        print("Ctrl-C stops it.", file=sys.stderr, flush=True)
        raise cluster.join().trouble("has ended")
    return 0


def _create_topic(cluster: DevCluster, topic: str, partitions: int) -> None:
    """Existing topics, as in a folder of `--data`, are not changed."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        cluster.create_topic(topic, partitions)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _add_verify(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "verify",
        help="check that rows were copied between topics exactly once",
        description="Reads topics as a plain consumer does and reports rows that were lost, doubled, reordered or "
        "should not be there. Exit code: 0 if nothing is wrong, 1 if something is, 2 if the check was not possible.",
    )
    _add_client(command)
    command.add_argument("--input", action="append", required=True, metavar="TOPIC", help="input topic (repeat)")
    command.add_argument("--output", action="append", required=True, metavar="TOPIC", help="output topic (repeat)")
    command.add_argument("--id", required=True, metavar="WHERE", help="key, value, header:NAME or json:FIELD")
    command.add_argument("--output-id", metavar="WHERE", help="the same for the output (default: like --id)")
    command.add_argument("--group", metavar="GROUP", help="only rows below its offsets are due (default: all)")
    command.add_argument("--order", choices=["input-partition", "key", "none"], default="input-partition")
    command.add_argument("--allow-missing", action="store_true", help="the job filters rows")
    command.add_argument("--same-value", action="store_true", help="a row with another value is torn")
    command.add_argument("--json", metavar="FILE", help="also write the report to this file")
    command.add_argument("--limit", type=_natural, default=5, metavar="N", help="examples of each fault (default: 5)")
    command.add_argument(
        "--timeout", type=float, default=12.0, metavar="S", help="seconds to wait for the cluster (default: 12)"
    )
    command.set_defaults(run=verify)


def _add_client(command: argparse.ArgumentParser) -> None:
    command.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT[,…]")
    command.add_argument(
        "--kafka", action="append", default=[], type=_property, metavar="KEY=VALUE", help="client property (repeat)"
    )
    command.add_argument(
        "--kafka-file",
        metavar="FILE",
        help="client properties, one KEY=VALUE a line: for secrets, which other users see on a command line",
    )


def _client(arguments: argparse.Namespace) -> KafkaProperties:
    """The client's properties. Raises OptionError, without the value of any."""
    from spark_eos.kafka.config.properties import KafkaProperties

    given = dict(_properties_in(arguments.kafka_file)) if arguments.kafka_file else {}
    return KafkaProperties({**given, **dict(arguments.kafka), "bootstrap.servers": arguments.bootstrap_servers})


def _properties_in(file: str) -> Iterator[tuple[str, str]]:
    from pathlib import Path

    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _bad_file(f"{file} cannot be read ({type(error).__name__})") from None
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                key, value = _property(line)
            except argparse.ArgumentTypeError:
                raise _bad_file(f"line {number} of {file} is not KEY=VALUE") from None
            yield key, value.strip()


def _bad_file(what: str) -> OptionError:
    return OptionError("EOS_KAFKA_FILE", f"{what}.", hint="See --kafka-file: a client property on each line.")


def _natural(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is less than 0")
    return number


def _property(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError("it takes KEY=VALUE")  # without the value, which may be a password
    return key.strip().removeprefix("kafka."), value


def verify(arguments: argparse.Namespace) -> int:
    """Compare the output's rows with the input's: 0 if nothing is wrong, 1 if something is, 2 if that is unknown."""
    import json
    from pathlib import Path

    from spark_eos.ops import verify as ops

    try:
        question = ops.Question(
            kafka=_client(arguments),
            inputs=tuple(dict.fromkeys(arguments.input)),
            outputs=tuple(dict.fromkeys(arguments.output)),
            id=ops.Where.parse(arguments.id),
            output_id=ops.Where.parse(arguments.output_id or arguments.id),
            group=arguments.group,
            order=arguments.order,
            allow_missing=arguments.allow_missing,
            same_value=arguments.same_value,
            limit=arguments.limit,
            timeout_s=arguments.timeout,
        )
        with _progress_line() as progress:
            report = ops.verify(question, progress)
    except EosError as error:
        print(f"spark-eos: {error}", file=sys.stderr)
        return 2
    print(ops.as_text(question, report))
    if arguments.json:
        text = json.dumps(ops.as_json(question, report), indent=2, ensure_ascii=False)
        try:
            Path(arguments.json).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            print(f"spark-eos: {arguments.json} cannot be written: {error.strerror}", file=sys.stderr)
            return 2
    return 0 if report.ok else 1


def _add_transactions(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "transactions",
        help="show whose the open transactions are, and end them without a query",
        description="Shows the open transactions of queries, and ends them when a query does not come back. Exit code: "
        "0 if nothing is open or left to be done, 1 if something is, 2 if that is unknown, or nothing may be ended.",
    )
    actions = command.add_subparsers(required=True, metavar="action", dest="action")
    listed = actions.add_parser("list", help="every open transaction: whose it is, and whether it is decided")
    listed.add_argument("--query", action="append", default=[], metavar="ID", help="only of this query (repeat)")
    listed.add_argument(
        "--open-for", type=float, default=0.0, metavar="S", help="only those open for so many seconds (default: 0)"
    )
    described = actions.add_parser("describe", help="the same, with producers and partitions")
    described.add_argument("--query", action="append", default=[], metavar="ID", help="only of this query (repeat)")
    described.add_argument(
        "--id", action="append", default=[], metavar="ID", help="only this transactional id (repeat)"
    )
    aborted = actions.add_parser("abort", help="close a query and abort what it has open and not decided")
    settled = actions.add_parser("settle", help="commit what a query has decided and left open")
    for ending in (aborted, settled):
        ending.add_argument("--query", action="append", required=True, metavar="ID", help="the query's id (repeat)")
        ending.add_argument("--yes", action="store_true", help="do it; without it, only say what would be done")
    for action in (listed, described, aborted, settled):
        _add_client(action)
        action.add_argument("--ledger-topic", default="__spark_eos_ledger", metavar="TOPIC", help="ledger.topic")
        action.add_argument("--prefix", default="spark-eos", metavar="PREFIX", help="transactionalIdPrefix")
        action.add_argument("--format", choices=["table", "json"], default="table")
        action.set_defaults(run=transactions)


def transactions(arguments: argparse.Namespace) -> int:
    """Show or end open transactions; see `spark_eos.ops.transactions.command` for the exit codes."""
    from spark_eos.ops.transactions.command import run

    try:
        return run(arguments, _client(arguments))
    except EosError as error:
        print(f"spark-eos: {error}", file=sys.stderr)
        return 2


@contextlib.contextmanager
def _progress_line() -> Iterator[Callable[[str], None]]:
    """Prints a progress line that overwrites itself, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    try:
        yield lambda text: print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
