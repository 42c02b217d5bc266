"""Kafka's own command-line tools: readers and helpers that share no code with the library."""

from __future__ import annotations

import subprocess
from typing import NamedTuple

from spark_eos.errors import EosError, stop
from spark_eos.tools.devcluster.java import without_environment

#: Seconds, far more than even a slow and busy machine needs: only a tool that hangs is ended by it.
HANG_S = 240.0

#: Control characters that are made for it keep fields and records apart even when a value has lines of its own.
_FIELD, _RECORD, _NULL = "\x1f", "\x1e", "\x1a"


def console_consumer(version: str) -> str:
    """Return the class of the console consumer in this version of Kafka."""
    old = _numbers(version) < (3, 8)
    return "kafka.tools.ConsoleConsumer" if old else "org.apache.kafka.tools.consumer.ConsoleConsumer"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


class ConsoleRecord(NamedTuple):
    """A record as the Java console consumer prints it; `timestamp` in ms, None for a null key or value."""

    partition: int
    offset: int
    timestamp: int
    headers: str
    key: str | None
    value: str | None


def run(command: list[str], main_class: str, *, timeout_s: float) -> str:
    """Return the stdout of a tool; raises EOS_DEVCLUSTER_FAILED when it fails or takes longer than `timeout_s`
    seconds."""
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, errors="surrogateescape", timeout=timeout_s
        )
    except subprocess.TimeoutExpired as error:
        output = (error.stderr or b"").decode(errors="replace")
        raise _failed(main_class, f"did not end within {timeout_s:.0f} s", output) from error
    if done.returncode != 0:
        raise _failed(main_class, f"failed with exit code {done.returncode}", done.stdout + done.stderr)
    return done.stdout


def console_consumer_arguments(
    bootstrap_servers: str, topic: str, *, version: str, partition: int | None, count: int
) -> list[str]:
    """Return the arguments of the console consumer for output that `parse_records` reads, of the first ``count``
    records."""
    formatter = {f"print.{what}": "true" for what in ("partition", "offset", "timestamp", "headers", "key")}
    formatter |= {"key.separator": _FIELD, "line.separator": _RECORD, "null.literal": _NULL}
    name = "--property" if _numbers(version) < (4, 2) else "--formatter-property"
    first = ["--from-beginning"] if partition is None else ["--partition", str(partition), "--offset", "earliest"]
    limits = ["--max-messages", str(count), "--timeout-ms", str(int(1000 * HANG_S))]
    arguments = ["--bootstrap-server", bootstrap_servers, "--topic", topic, "--isolation-level", "read_committed"]
    arguments += [part for key, value in formatter.items() for part in (name, f"{key}={value}")]
    return [*arguments, *limits, *first]


def parse_records(output: str) -> list[ConsoleRecord]:
    """Return the records in the console consumer's output."""
    return [_record(text) for text in output.split(_RECORD) if text]


def _record(text: str) -> ConsoleRecord:
    """Return the record in a line such as `CreateTime:1700000000000␟Partition:0␟Offset:5␟NO_HEADERS␟key␟value`."""
    timestamp, partition, offset, headers, key, value = text.split(_FIELD, 5)
    return ConsoleRecord(
        partition=int(partition.removeprefix("Partition:")),
        offset=int(offset.removeprefix("Offset:")),
        timestamp=int(timestamp.partition(":")[2]),
        headers="" if headers == "NO_HEADERS" else headers,
        key=None if key == _NULL else key,
        value=None if value == _NULL else value,
    )


def _failed(main_class: str, what: str, output: str) -> EosError:
    return stop(
        "EOS_DEVCLUSTER_FAILED",
        program=main_class,
        what=what,
        output="Its output",
        log=f"\n{without_environment(output)[-3000:]}",
        usual="a wrong argument; without arguments the tool prints its usage",
    )
