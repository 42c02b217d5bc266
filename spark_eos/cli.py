"""The `spark-eos` command. One function per subcommand, which returns the exit code; imports what it needs itself."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Sequence

from spark_eos._version import __version__
from spark_eos.errors import EosError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line `arguments` (those of the process unless given); returns the exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        return parsed.run(parsed)
    except EosError as error:
        print(f"spark-eos: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spark-eos", description="Exactly-once Kafka source and sink for PySpark.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="command")
    _add_devcluster(commands)
    return parser


def _add_devcluster(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser(
        "devcluster",
        help="run a real Apache Kafka on this machine",
        description="Runs a real Apache Kafka on loopback ports until interrupted. Its jars are downloaded once.",
    )
    command.add_argument("--brokers", type=_count, default=1, metavar="N", help="how many brokers (default: 1)")
    command.add_argument("--data", metavar="DIR", help="keep the data in this folder (default: gone at the end)")
    command.add_argument("--port", type=int, metavar="P", help="broker i listens on port P + i (default: free ports)")
    command.set_defaults(run=devcluster)


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def devcluster(arguments: argparse.Namespace) -> int:
    """Runs a cluster until Ctrl-C or SIGTERM: 0; or until a broker ends by itself: 1."""
    from spark_eos.devcluster import DevCluster

    # Both ask for the same: an end in good order.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        DevCluster(arguments.brokers, data_dir=arguments.data, port=arguments.port) as cluster,
    ):
        print(f"bootstrap.servers={cluster.bootstrap_servers}", flush=True)
        print("Ctrl-C stops it.", file=sys.stderr, flush=True)
        raise cluster.join().trouble("has ended")
    return 0


if __name__ == "__main__":
    sys.exit(main())
