"""What a task says to the driver through Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from spark_eos.clocks import Moment
from spark_eos.errors import stop
from spark_eos.protocol.task import MicroBatch, TaskReport
from spark_eos.sink.preflight import Facts


@dataclass(frozen=True)
class Message(WriterCommitMessage):
    """A task's report, whose it is, and what the driver knew when it planned the batch.

    Times are seconds: how long the task took, and when, by its clock, it was done. ``bytes``: of keys and values that
    it was handed, if somebody counts them; of a copy, see `TaskReport`. ``planned``: when the driver had
    planned the micro-batch, by its clocks; None of executors with a version that does not pass it on.
    """

    query: str
    run: str
    facts: Facts
    report: TaskReport
    took_s: float
    done: float
    bytes: int = 0
    planned: Moment | None = None


def all_received(messages: Sequence[WriterCommitMessage | None], batch: int) -> list[Message]:
    """Every task's message. Raises ProtocolStop when one is missing: its rows would be left out of the decision."""
    received = [message for message in messages if isinstance(message, Message)]
    if len(received) < len(messages):
        silent = [str(n) for n, message in enumerate(messages) if not isinstance(message, Message)]
        raise stop("EOS_TASK_SILENT", batch=batch, count=len(silent), tasks=len(messages), silent=", ".join(silent))
    return received


def dead_letters_of(count: int) -> str:
    """How many of a micro-batch's rows are in the dead-letter topic, for the log."""
    return f" dead_letters={count}" if count else ""


def written_by(batch: MicroBatch) -> str:
    """What the tasks of a copy have written, and from how many ranges, for the log."""
    if batch.copied_from is None:
        return ""
    return f" bytes={batch.bytes} ranges={len(batch.copied_from.ranges)}"
