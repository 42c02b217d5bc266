"""What brokers say about the ledger, as errors."""

from __future__ import annotations

from spark_eos.errors import LedgerError
from spark_eos.kafka.errors import ACLS


def ledger_unauthorized(what: str) -> LedgerError:
    return LedgerError(
        "EOS_LEDGER_UNAUTHORIZED",
        f"This user may not {what}.",
        hint="Grant READ, WRITE and DESCRIBE on the ledger topic; with 'offsets.group.id', also READ on that group and "
        f"on the topics that the query reads; {ACLS}.",
    )
