"""The errors of spark-eos.

::

    EosError
    ├── OptionError            an invalid option, before anything runs
    ├── UnsupportedError       the format does not support this use
    ├── SchemaError            a column is missing, unknown or of the wrong type
    ├── RowError               a row cannot be written to Kafka
    ├── KafkaError             the cluster does not provide what the connector needs
    │   ├── ConnectionFailed   no broker responds
    │   ├── TopicError         a topic does not exist or is unsuitable
    │   └── DataLossError      offsets that the query needs are gone
    ├── CheckpointError        the checkpoint is damaged or does not belong to this sink
    ├── LedgerError            the ledger topic is unsuitable, or its head is missing
    ├── ProtocolStop           the query stops so that no row is lost or doubled
    │   ├── Superseded         another run of the query has taken over
    │   ├── Diverged           a replay differs from what was decided
    │   ├── TransactionLost    a decided transaction was lost and has to be repaired
    │   └── Unclear            the outcome of a transaction is unknown
    ├── TableError             a Delta table is not what a job can read or write
    ├── ReplayError            a checkpoint cannot be replayed or taken over, or not in this way
    ├── CommandError           a command cannot do what it was asked, or not now
    ├── FileError              a file of an ingest cannot be taken
    ├── WorkerError            a Python process of Spark has ended in the middle of its work
    ├── ConfigError            the config file of a job is invalid
    └── DevClusterError        the development cluster cannot run

Every error has a condition name (``EOS_…``) for machines, parameters, and a hint with the next step for the user.
"""

from __future__ import annotations

from typing import Any

from spark_eos.printable import printable, printable_lines

#: Separates message and hint in the text of an error.
HINT = " Hint: "

#: Conditions after which the same query continues when it is started again with nothing changed, for some of them as
#: soon as the cluster is healthy.
#:
#: Conditions that require a change are not included: of an option, a permission, a topic, rows or a checkpoint, or one
#: start of two.
RESTART_HELPS: frozenset[str] = frozenset(
    {
        # The cluster did not respond or failed. Clients have retried for seconds by then: wait, and start again.
        "EOS_BROKER_UNREACHABLE",
        "EOS_CHECKPOINT_UNREACHABLE",
        "EOS_COORDINATOR_UNREACHABLE",
        "EOS_DELIVERY_FAILED",
        "EOS_DELTA_CONFLICT",
        "EOS_KAFKA_UNREACHABLE",
        "EOS_LEDGER_BUSY",
        "EOS_LEDGER_HELD",
        "EOS_LEDGER_NOT_READABLE",
        "EOS_LEDGER_NOT_WRITABLE",
        "EOS_MIRROR_MAP_HELD",
        "EOS_SOURCE_DAMAGED",
        "EOS_SOURCE_STALLED",
        "EOS_WORKER_DIED",
        "EOS_WORKER_LATE",
        # Nothing was decided, and all rows written are aborted: the next start replays the micro-batch.
        "EOS_ATTEMPT_LATE",
        "EOS_FENCED",
        "EOS_FILE_CHANGED_WHILE_READ",
        "EOS_PRODUCER_WITHOUT_IDENTITY",
        "EOS_REFUSAL_UNCLEAR",
        "EOS_RUN_CLOSED",
        "EOS_SOURCE_RECREATED",
        "EOS_TASK_SILENT",
        "EOS_TRANSACTION_BROKEN",
        "EOS_TRANSACTION_EXPIRED",
        "EOS_TRANSACTION_NOT_FOUND",
        "EOS_TRANSACTION_NOT_HELD",
        "EOS_TRANSACTION_TOO_OLD",
        # The micro-batch is, or may be, decided: the next start finds out, and repairs what was lost.
        "EOS_DECISION_UNCLEAR",
        "EOS_OUTCOME_UNCLEAR",
        "EOS_REPAIR_BY_OTHER_TASKS",
        "EOS_TRANSACTION_LOST",
    }
)


class EosError(Exception):
    """Base of all errors.

    ``condition``: the stable name. ``message``: what is wrong and where. ``hint``: what to do. ``parameters``: the
    values in the message, for programs. None of them may contain a secret. ``restart_helps``: whether the same query
    continues when it is started again with nothing changed. Message and hint are each on one line, whatever a broker or
    a file has put into them; where ``with_log``, the message ends with lines of a program's log.
    """

    with_log = False

    def __init__(self, condition: str, message: str, *, hint: str, **parameters: object) -> None:
        message, hint = (printable_lines if self.with_log else printable)(message), printable(hint)
        super().__init__(f"[{condition}] {message}{HINT}{hint}")
        self.condition = condition
        self.message = message
        self.hint = hint
        self.parameters: dict[str, Any] = parameters

    @property
    def restart_helps(self) -> bool:
        return self.condition in RESTART_HELPS

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.condition, self.message, self.hint, self.parameters)


def _rebuild(cls: type[EosError], condition: str, message: str, hint: str, parameters: dict[str, Any]) -> EosError:
    return cls(condition, message, hint=hint, **parameters)


class OptionError(EosError):
    """An invalid option, before anything runs."""


class UnsupportedError(EosError):
    """The format does not support this use."""


class SchemaError(EosError):
    """A column is missing, unknown or of the wrong type."""


class RowError(EosError):
    """A row cannot be written to Kafka."""


class KafkaError(EosError):
    """The cluster does not provide what the connector needs."""


class ConnectionFailed(KafkaError):
    """No broker responds."""


class TopicError(KafkaError):
    """A topic does not exist or is unsuitable."""


class DataLossError(KafkaError):
    """Offsets that the query needs are gone."""


class CheckpointError(EosError):
    """The checkpoint is damaged or does not belong to this sink."""


class LedgerError(EosError):
    """The ledger topic is unsuitable, or its head is missing."""


class ProtocolStop(EosError):
    """The query stops so that no row is lost or doubled."""


class Superseded(ProtocolStop):
    """Another run of the query has taken over."""


class Diverged(ProtocolStop):
    """A replay differs from what was decided."""


class TransactionLost(ProtocolStop):
    """A decided transaction was lost and has to be repaired."""


class Unclear(ProtocolStop):
    """The outcome of a transaction is unknown."""


class TableError(EosError):
    """A Delta table is not what a job can read or write without losing or doubling rows."""


class ReplayError(EosError):
    """A checkpoint cannot be replayed or taken over, or not in this way."""


class CommandError(EosError):
    """A command cannot do what it was asked, or not now."""


class FileError(EosError):
    """A file of an ingest cannot be taken."""


class WorkerError(EosError):
    """A Spark Python worker exited unexpectedly, or cannot import what it needs."""


class ConfigError(EosError):
    """The config file of a job is invalid."""


class DevClusterError(EosError):
    """The development cluster cannot run."""

    with_log = True
