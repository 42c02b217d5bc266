"""The errors of spark-eos.

::

    EosError
    ├── OptionError            an invalid option, before anything runs
    ├── UnsupportedError       the format does not support this use
    ├── SchemaError            a column is missing, unknown or of the wrong type
    ├── RowError               a row cannot be written to Kafka
    ├── KafkaError             the cluster does not provide what the connector needs
    │   ├── ConnectionFailed   no broker responds, or lets this client in
    │   ├── Unauthorized       the user lacks a right
    │   ├── TopicError         a topic does not exist or is unsuitable
    │   └── DataLossError      offsets that the query needs are gone
    ├── CheckpointError        the checkpoint is damaged or does not belong to this sink
    ├── LedgerError            the ledger topic is unsuitable, or lacks the query's record
    ├── ProtocolStop           the query stops so that no row is lost or doubled
    │   ├── Superseded         another run of the query has taken over
    │   ├── Diverged           a replay differs from what was decided
    │   ├── TransactionLost    a decided transaction was lost and has to be repaired
    │   └── Unclear            the outcome of a transaction is unknown
    ├── TableError             a Delta table is not what a job can read or write
    ├── ReplayError            a checkpoint cannot be replayed or taken over, or not in this way
    ├── CommandError           a command cannot do what it was asked, or not now
    ├── FileError              a file of an ingest cannot be taken
    ├── RegistryError          the schema registry does not provide what is needed, or a schema does not fit
    ├── WorkerError            a Python process of Spark has ended in the middle of its work
    ├── ConfigError            the config file of a job is invalid
    └── DevClusterError        the development cluster cannot run

Every error has a condition name (``EOS_…``) for machines, a message with its parameters, and a hint with the next step
for the user. conditions.toml has them all: code raises ``stop("EOS_TOPIC_RESERVED", topic=…, what=…)``.
"""

from __future__ import annotations

import json
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from spark_eos.base.printable import printable, printable_lines

#: Separates message and hint in the text of an error.
HINT = " Hint: "

#: Values of parameters that are kept as they are; of others, their text.
_PLAIN = (str, int, float, list, tuple, dict, type(None))


@cache
def _table() -> dict[str, dict[str, Any]]:
    """Read conditions.toml at the first error, so that the import stays cheap; put the phrases in, and join lines."""
    table = tomllib.loads(files("spark_eos").joinpath("conditions.toml").read_text("utf-8"))
    text = json.dumps(table)
    for name, phrase in reversed(table["phrases"].items()):  # each may contain those before it
        text = text.replace(f"{{{name}}}", json.dumps(phrase)[1:-1])
    filled: dict[str, dict[str, Any]] = json.loads(text, object_hook=_joined)
    return filled


def _joined(row: dict[str, Any]) -> dict[str, Any]:
    return {key: " ".join(value.split()) if isinstance(value, str) else value for key, value in row.items()}


def conditions() -> dict[str, dict[str, Any]]:
    """Each condition with its ``class``, where it is ``raised``, whether a ``restart`` helps, and its texts: either one
    ``message`` and ``hint``, or a table of these two for each of its wordings, and ``about``, which is true for all."""
    return {name: row for name, row in _table().items() if name != "phrases"}


def phrase(name: str) -> str:
    """A phrase that several hints use, from the same table."""
    text: str = _table()["phrases"][name]
    return text


def restart_helps(condition: str) -> bool:
    """Tell whether the same query continues when it is started again with nothing changed, for some conditions once
    the cluster is healthy. False for what is not in the table."""
    return bool(_table().get(condition, {}).get("restart"))


def stop(entry: str, /, **parameters: object) -> EosError:
    """The error of an entry of conditions.toml, to be raised.

    ``entry``: the name of the condition, followed by a dot and the name of the wording where it has several. Message
    and hint are filled in by ``parameters``, which are kept for programs: as texts, if they are not plain values.
    Raises KeyError where the table has no such entry, or the texts need another parameter.
    """
    condition = entry.partition(".")[0]
    message, hint = (text.format_map(parameters) for text in texts_of(entry))
    plain = {name: value if isinstance(value, _PLAIN) else str(value) for name, value in parameters.items()}
    return _rebuild(_class_of(condition), condition, entry, message, hint, plain)


def invalid_option(option: str, given: str, allowed: str) -> EosError:
    """The error of an option that has a value which its parser refuses: "Option … is GIVEN. Hint: Use ALLOWED."."""
    return stop("EOS_OPTION_INVALID.value", option=option, given=given, allowed=allowed)


def missing_option(option: str, why: str, value: str) -> EosError:
    """The error of an option that has to be set: "Option … is missing: WHY. Hint: Set it to VALUE."."""
    return stop("EOS_OPTION_MISSING.value", option=option, why=why, value=value)


def option_twice(option: str) -> EosError:
    """Return the error of an option that is given twice, with different values: "Different values of option …"."""
    given = f"Different values of option '{option}', in which capital letters make no difference,"
    return stop("EOS_OPTION_CONFLICT.both", given=given, option=option)


def unsupported_option(option: str, given: str, supported: str) -> EosError:
    """The error of a value that Kafka's Java client takes and ours does not: "… Hint: Use SUPPORTED."."""
    return stop("EOS_OPTION_UNSUPPORTED.value", option=option, given=given, supported=supported)


def texts_of(entry: str) -> tuple[str, str]:
    """Message and hint of an entry of conditions.toml, as templates."""
    condition, _, wording = entry.partition(".")
    row = _table()[condition]
    texts = row[wording] if wording else row
    return texts["message"], texts["hint"]


def again(condition: str, message: str, hint: str) -> EosError:
    """An error of which only the texts have come through, as from Spark's JVM."""
    return _rebuild(_class_of(condition), condition, condition, message, hint, {})


class EosError(Exception):
    """Base of all errors; `stop` makes them.

    ``condition``: the stable name; ``entry``: the same with the wording's name, where there are several. ``message``:
    what is wrong and where; ``hint``: the next step, on one line each, but for a program's log (``with_log``).
    ``parameters``: values in the message, for programs. None contains a secret. ``restart_helps``: whether the same
    query continues when it is started again with nothing changed.
    """

    with_log = False

    def __init__(self, condition: str, message: str, *, hint: str, **parameters: object) -> None:
        message, hint = (printable_lines if self.with_log else printable)(message), printable(hint)
        super().__init__(f"[{condition}] {message}{HINT}{hint}")
        self.condition = self.entry = condition
        self.message = message
        self.hint = hint
        self.parameters: dict[str, Any] = parameters

    @property
    def restart_helps(self) -> bool:
        return restart_helps(self.condition)

    def reworded(self, message: str, hint: str, **parameters: object) -> EosError:
        """Return this condition with other texts and parameters, for code that knows more of where it happened."""
        return _rebuild(type(self), self.condition, self.entry, message, hint, parameters)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.condition, self.entry, self.message, self.hint, self.parameters)


def _rebuild(
    cls: type[EosError], condition: str, entry: str, message: str, hint: str, parameters: dict[str, Any]
) -> EosError:
    error = cls(condition, message, hint=hint)
    error.entry, error.parameters = entry, parameters
    return error


def _class_of(condition: str) -> type[EosError]:
    found: type[EosError] = globals()[_table()[condition]["class"]]
    return found


class OptionError(EosError):
    """An invalid option, before anything runs."""


class UnsupportedError(EosError):
    """The format does not support this use."""


class SchemaError(EosError):
    """A column is missing, unknown or of the wrong type, or a schema of its values is invalid."""


class RowError(EosError):
    """A row cannot be written to Kafka."""


class KafkaError(EosError):
    """The cluster does not provide what the connector needs."""


class ConnectionFailed(KafkaError):
    """No broker responds, or lets this client in."""


class Unauthorized(KafkaError):
    """The user lacks a right."""


class TopicError(KafkaError):
    """A topic does not exist or is unsuitable."""


class DataLossError(KafkaError):
    """Offsets that the query needs are gone."""


class CheckpointError(EosError):
    """The checkpoint is damaged or does not belong to this sink."""


class LedgerError(EosError):
    """The ledger topic is unsuitable, or lacks the query's record."""


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


class RegistryError(EosError):
    """The schema registry does not provide what is needed, or a schema does not fit."""


class WorkerError(EosError):
    """A Spark Python worker exited unexpectedly, or cannot import what it needs."""


class ConfigError(EosError):
    """The config file of a job is invalid."""


class DevClusterError(EosError):
    """The development cluster cannot run."""

    with_log = True
