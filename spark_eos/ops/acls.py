"""The least rights that a query needs in its cluster, and the commands that grant them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from spark_eos.base.printable import in_lines
from spark_eos.ops.answer import Answer
from spark_eos.options.table import DEFAULT_LEDGER_TOPIC, DEFAULT_PREFIX
from spark_eos.protocol.names import TWO_PHASE_TRIAL

ResourceType = Literal["TOPIC", "GROUP", "TRANSACTIONAL_ID"]
Operation = Literal["READ", "WRITE", "CREATE", "DESCRIBE_CONFIGS", "TWO_PHASE_COMMIT"]


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


def rights(query: Query, principal: str, servers: str) -> Answer:
    """Return the rights that a query needs, and the commands that grant them."""
    acls = needed(query)
    return Answer(
        [{"principal": principal, **asdict(acl)} for acl in acls], in_lines(as_commands(acls, principal, servers))
    )


def needed(query: Query) -> list[Acl]:
    """Return the rights that a query needs; without one of them, it stops with an error that names it."""
    of_output: tuple[Operation, ...] = ("WRITE", "READ", "DESCRIBE_CONFIGS")
    of_ledger: list[Operation] = ["READ", "WRITE", "DESCRIBE_CONFIGS"]
    if query.creates_ledger:
        of_ledger.append("CREATE")
    outputs = query.outputs if query.dead_letters is None else [*query.outputs, query.dead_letters]
    acls = [Acl("TOPIC", topic, "READ") for topic in query.inputs]
    acls += [Acl("TOPIC", topic, operation) for topic in outputs for operation in of_output]
    if query.ledger is not None:
        own = [query.ledger] if query.notes is None else [query.ledger, query.notes]
        acls += [Acl("TOPIC", topic, operation) for topic in own for operation in of_ledger]
        acls += _of_ids(query)
    if query.group is not None:
        acls.append(Acl("GROUP", query.group, "READ"))
    return list(dict.fromkeys(acls))


def _of_ids(query: Query) -> list[Acl]:
    operations: tuple[Operation, ...] = ("WRITE", "TWO_PHASE_COMMIT") if query.two_phase else ("WRITE",)
    ids = f"{query.prefix}-" if query.id is None else f"{query.prefix}-{query.id}-"
    acls = [Acl("TRANSACTIONAL_ID", ids, operation, prefixed=True) for operation in operations]
    if query.two_phase and query.id is not None:
        trial = f"{query.prefix}-{TWO_PHASE_TRIAL}"
        acls += [Acl("TRANSACTIONAL_ID", trial, operation) for operation in operations]
    return acls


def as_commands(acls: Iterable[Acl], principal: str, servers: str) -> list[str]:
    """Return a kafka-acls.sh command for each resource. ``principal``: such as ``User:ann``."""
    by_resource: dict[tuple[ResourceType, str, bool], list[Operation]] = {}
    for acl in acls:
        by_resource.setdefault((acl.resource, acl.name, acl.prefixed), []).append(acl.operation)
    commands = []
    for (resource, name, prefixed), operations in by_resource.items():
        words = ["kafka-acls.sh", "--bootstrap-server", servers, "--add", "--allow-principal", principal]
        for operation in operations:
            words += ["--operation", operation.title().replace("_", "")]
        words += [f"--{resource.lower().replace('_', '-')}", name]
        commands.append(shlex.join([*words, *(["--resource-pattern-type", "prefixed"] if prefixed else [])]))
    return commands
