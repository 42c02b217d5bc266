"""The least rights that a query needs in its cluster, and the commands that grant them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from spark_eos.options.table import DEFAULT_LEDGER_TOPIC, DEFAULT_PREFIX
from spark_eos.protocol.names import TWO_PHASE_TRIAL

ResourceType = Literal["TOPIC", "GROUP", "TRANSACTIONAL_ID"]
Operation = Literal["READ", "WRITE", "CREATE", "DESCRIBE_CONFIGS", "TWO_PHASE_COMMIT"]

_FLAGS: dict[ResourceType, str] = {"TOPIC": "--topic", "GROUP": "--group", "TRANSACTIONAL_ID": "--transactional-id"}
_OPERATIONS: dict[Operation, str] = {
    "READ": "Read",
    "WRITE": "Write",
    "CREATE": "Create",
    "DESCRIBE_CONFIGS": "DescribeConfigs",
    "TWO_PHASE_COMMIT": "TwoPhaseCommit",
}


@dataclass(frozen=True)
class Query:
    """The topics, group and ids that a query uses. ``id``: only the transactional ids of this query, instead of all
    with the prefix; ``ledger``: None where it writes to tables alone, and has no transactions; ``creates_ledger``:
    whether it is to create its ledger topic; ``dead_letters``: its dead-letter topic; ``notes``: the topic in which an
    ingest notes the files that it has read."""

    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    group: str | None = None
    ledger: str | None = DEFAULT_LEDGER_TOPIC
    prefix: str = DEFAULT_PREFIX
    two_phase: bool = False
    id: str | None = None
    creates_ledger: bool = False
    dead_letters: str | None = None
    notes: str | None = None


@dataclass(frozen=True)
class Acl:
    """An operation on a resource, or if ``prefixed`` on all whose names begin with ``name``. READ and WRITE imply
    DESCRIBE."""

    resource: ResourceType
    name: str
    operation: Operation
    prefixed: bool = False


def needed(query: Query) -> list[Acl]:
    """The rights that a query needs; without one of them, it stops with an error that names it."""
    result = [Acl("TOPIC", topic, "READ") for topic in query.inputs]
    operations: list[Operation] = ["WRITE", "READ", "DESCRIBE_CONFIGS"]
    outputs = query.outputs if query.dead_letters is None else [*query.outputs, query.dead_letters]
    result += [Acl("TOPIC", topic, operation) for topic in outputs for operation in operations]
    if query.ledger is not None:
        result += _of_transactions(query, query.ledger)
    if query.group is not None:
        result.append(Acl("GROUP", query.group, "READ"))
    return list(dict.fromkeys(result))


def _of_transactions(query: Query, ledger: str) -> list[Acl]:
    operations: list[Operation] = ["READ", "WRITE", "DESCRIBE_CONFIGS"]
    if query.creates_ledger:
        operations.append("CREATE")
    own = [ledger] if query.notes is None else [ledger, query.notes]
    result = [Acl("TOPIC", topic, operation) for topic in own for operation in operations]
    ids = f"{query.prefix}-" if query.id is None else f"{query.prefix}-{query.id}-"
    result.append(Acl("TRANSACTIONAL_ID", ids, "WRITE", prefixed=True))
    if query.two_phase:
        result.append(Acl("TRANSACTIONAL_ID", ids, "TWO_PHASE_COMMIT", prefixed=True))
        if query.id is not None:
            trial = f"{query.prefix}-{TWO_PHASE_TRIAL}"
            result += [Acl("TRANSACTIONAL_ID", trial, operation) for operation in ("WRITE", "TWO_PHASE_COMMIT")]
    return result


def as_commands(acls: Iterable[Acl], principal: str, servers: str) -> list[str]:
    """A kafka-acls.sh command for each resource. ``principal``: such as ``User:ann``."""
    by_resource: dict[tuple[ResourceType, str, bool], list[Operation]] = {}
    for acl in acls:
        by_resource.setdefault((acl.resource, acl.name, acl.prefixed), []).append(acl.operation)
    commands = []
    for (resource, name, prefixed), operations in by_resource.items():
        words = ["kafka-acls.sh", "--bootstrap-server", servers, "--add", "--allow-principal", principal]
        words += [word for operation in operations for word in ("--operation", _OPERATIONS[operation])]
        words += [_FLAGS[resource], name, *(["--resource-pattern-type", "prefixed"] if prefixed else [])]
        commands.append(shlex.join(words))
    return commands
