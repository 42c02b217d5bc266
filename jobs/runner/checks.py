"""Checks of a job's settings before Spark starts. Each raises `Rejected`."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

#: Spark's syntax of intervals: `1 second`, `1 minute 30 seconds`. A trigger does not allow months and years.
_INTERVAL = re.compile(
    r"\s*(interval\s+)?([+]?\s*(\d+\s+(week|day|hour|minute|millisecond|microsecond)s?|(\d+\.?\d*|\.\d+)\s+seconds?)(\s+|$))+",
    re.IGNORECASE,
)
_PART = re.compile(r"(\d+\.?\d*|\.\d+)\s+(week|day|hour|minute|second|millisecond|microsecond)s?", re.IGNORECASE)
_SECONDS = {
    "week": 604800,
    "day": 86400,
    "hour": 3600,
    "minute": 60,
    "second": 1,
    "millisecond": 1e-3,
    "microsecond": 1e-6,
}
#: Spark's masters. A URL (`spark://…`, `k8s://…`) may be any.
_MASTER = re.compile(r"yarn|local|local\[([1-9]\d*|\*)(\s*,\s*\d+)?\]|local-cluster\[.+\]|[A-Za-z][\w+.-]*://.+")

#: What is left of a setting of Spark without its first word.
_SHORTENED = re.compile(r"(master|(app|driver|executor|jars|sql|submit|ui)\b.*)")

#: A module with one of these may define any name.
_UNSURE = frozenset({"*", "__getattr__", "exec", "globals", "setattr", "vars"})


_INTERVALS = "Use numbers with units: 500 milliseconds, 1 second, 2 minutes 30 seconds, 1 hour, 1 day."


class Rejected(ValueError):
    """A value has the right type, but is invalid.

    ``condition`` is the end of the error's condition name, after ``EOS_CONFIG_``; ``message`` follows the path of the
    key in the error's text. ``key``: the path of keys from the value that is checked to the invalid one.
    """

    def __init__(self, condition: str, message: str, hint: str, key: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.condition = condition
        self.message = message
        self.hint = hint
        self.key = tuple(key)


def check_interval(text: str, hint: str = _INTERVALS) -> None:
    """An interval as `Trigger.ProcessingTime` takes it."""
    if not _INTERVAL.fullmatch(text):
        raise Rejected("INVALID_VALUE", "is not an interval.", hint)


def seconds_of(interval: str) -> float:
    """The length of an interval that `check_interval` has let pass."""
    return sum(float(number) * _SECONDS[unit.lower()] for number, unit in _PART.findall(interval))


def check_master(spark: Mapping[str, str]) -> None:
    """``spark.master``, if it is set; and no setting lacks its first word, with which it would have no effect."""
    for name in filter(_SHORTENED.fullmatch, spark):
        message = "is not a setting of Spark: in this section, too, its settings begin with 'spark.'."
        raise Rejected("UNKNOWN_KEY", message, f"Write 'spark.{name}' in full.", ("spark", name))
    master = spark.get("spark.master")
    if master is not None and not _MASTER.fullmatch(master.strip()):
        raise Rejected(
            "INVALID_VALUE",
            "is not a Spark master.",
            "Use local[4], local[*], yarn, spark://host:port or k8s://https://host:port.",
            ("spark", "spark.master"),
        )


def check_function(name: str) -> None:
    """``module:function``: the module exists, is Python, and defines that name.

    It is read, not imported: importing it may need a session (`F.col("x")` at its top does).
    """
    module, _, function = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        raise _function("is not module:function.", "Use the form 'my_module:my_function'.")
    tree = _tree(module)
    if tree is None:
        return
    names = set(_names(tree.body))
    if function not in names and not names & _UNSURE:
        raise _function(f"names the function {function}, which module '{module}' does not have.", "Correct the name.")


def _tree(module: str) -> ast.Module | None:
    """The module's source; None if it has none, for example if it is written in C."""
    try:
        spec = importlib.util.find_spec(module)
        get_source = getattr(spec.loader, "get_source", None) if spec else None
        source = get_source(module) if get_source else None
    except (ImportError, ValueError) as error:
        raise _absent(module, str(error)) from None
    except Exception:  # of the package around it, which is imported: it may need a session
        return None
    if spec is None:
        raise _absent(module, "no such module")
    try:
        return ast.parse(source, filename=str(spec.origin)) if source is not None else None
    except SyntaxError as error:
        where = f"{error.filename}, line {error.lineno}"
        raise _function(
            f"names a module that is not valid Python: {where}: {error.msg}.", "Correct the line."
        ) from None


def _names(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Names that the statements of a module may bind, including one of `_UNSURE` if that is unknown."""
    for statement in body:
        yield from ("*" for n in ast.walk(statement) if isinstance(n, ast.Global))
        yield from (n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id in _UNSURE)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
        else:
            yield from (n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                for part in getattr(statement, field, []):
                    yield from _names(part.body if isinstance(part, ast.ExceptHandler | ast.match_case) else [part])


def _absent(module: str, why: str) -> Rejected:
    first = sys.path[0] or Path.cwd()
    path = os.environ.get("PYTHONPATH") or "which is not set"
    return _function(
        f"names a module that cannot be imported, '{module}': {why}.",
        f"It is searched in {first}, in PYTHONPATH ({path}) and among the installed packages.",
    )


def _function(message: str, hint: str) -> Rejected:
    return Rejected("FUNCTION", message, hint)
