"""Errors about the ledger topic."""

from __future__ import annotations

from spark_eos.errors import EosError, stop


def ledger_unauthorized(what: str) -> EosError:
    return stop("EOS_UNAUTHORIZED.ledger", what=what)
