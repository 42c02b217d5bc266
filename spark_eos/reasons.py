"""Why a query failed: the error of spark-eos inside the exception that Spark raises.

Errors cross processes as text only, from Python workers to the JVM and from there to the user's Python. `EosError`
writes its text so that it can be read back: ``[CONDITION] message Hint: hint``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spark_eos.errors import HINT, RESTART_HELPS, EosError

#: An error of ours inside a text of Spark's: up to the end of its line, or to what Spark adds to it.
_OURS = re.compile(r"\[(?P<condition>EOS_[A-Z0-9_]+)\] (?P<said>.+?)(?=\s*SQLSTATE: |\s*\n|\s*$)")
#: What follows it in the text of Spark's error is the query's plan, which may hold such texts as literals.
_PLAN = "=== Streaming Query ==="


@dataclass(frozen=True)
class Reason:
    """Why a query failed. ``condition`` is the stable name (docs/errors.md), ``hint`` the next step.

    ``restart_helps``: whether starting the same query again, with nothing changed, is the way out.
    """

    condition: str
    message: str
    hint: str
    restart_helps: bool

    def __str__(self) -> str:
        return f"[{self.condition}] {self.message}" + (f"{HINT}{self.hint}" if self.hint else "")


def reason(error: BaseException) -> Reason | None:
    """The error of spark-eos that ``error`` is or holds; None where there is none in it.

    ``error``: an EosError, or what Spark raised: a StreamingQueryException, an AnalysisException, ….
    """
    if isinstance(error, EosError):
        return Reason(error.condition, error.message, error.hint, error.restart_helps)
    found = _OURS.search(str(error).partition(_PLAN)[0])
    if found is None:
        return None
    message, _, hint = found["said"].partition(HINT)
    return Reason(found["condition"], message, hint, found["condition"] in RESTART_HELPS)
