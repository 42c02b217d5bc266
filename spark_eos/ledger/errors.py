"""Errors about the ledger topic."""

from __future__ import annotations

from spark_eos.errors import EosError
from spark_eos.kafka.errors import unauthorized


def ledger_unauthorized(what: str) -> EosError:
    return unauthorized(
        what,
        "READ, WRITE and DESCRIBE on the ledger topic; with 'offsets.group.id', also READ on that group and on the "
        "topics that the query reads",
    )
