"""errors.md: each condition with every wording of its message, its hints, and when it is raised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from _pages.places import places
from _pages.raised import Raised, all_raised
from spark_eos.errors import RESTART_HELPS

INTRODUCTION = """# Errors

Every error has a condition name, a message and a hint:

    [EOS_TOPIC_MISSING] localhost:9092 has no topic or partition flights. Hint: Create it, or correct the name. …

In Spark it is at the end of a `StreamingQueryException`, or of an `AnalysisException` of `load` and `start`;
`spark_eos.reason(error)` extracts it:

```python
spark.sparkContext.setLogLevel("OFF")  # or by log4j2.properties, as spark_eos/log4j2.properties does for the jobs
try:
    query = rows.writeStream.format("eos-kafka").options(**options).start()
    query.awaitTermination()
except PySparkException as error:  # from pyspark.errors
    sys.exit(str(spark_eos.reason(error) or error))
```

An error of spark-eos is a single line without a stack trace. The lines around it come from Spark, which logs the stack
trace of its JVM and adds the query's plan to the exception.

This page is generated from the code by `make docs`. It lists every wording of every message; `{names}` in braces are
filled in at run time. [stopped.md](stopped.md) explains step by step what to do about each error that ends a query.

- **raised**: *start* is the driver before any task, at the start of a query or when a micro-batch is planned, so also
  in a query that has been running for long. *task* is a task that reads or writes. *commit* is the driver after the
  last task. *tool* is a command or a job, not a query.
- **restart**: *yes* if the same query continues when it is started again with nothing changed, at once or as soon as
  the cluster is healthy. Otherwise something has to be changed first. In code: `reason(error).restart_helps`."""


@dataclass(frozen=True, order=True)
class Condition:
    """One condition. ``messages``: each wording, with the hints that go with it."""

    kind: str
    name: str
    messages: tuple[tuple[str, tuple[str, ...]], ...]
    raised: tuple[str, ...]


@cache
def conditions() -> tuple[Condition, ...]:
    """Every error that the library and the jobs can raise, by class and name."""
    by_name: dict[str, list[Raised]] = {}
    for raised in all_raised():
        by_name.setdefault(raised.name, []).append(raised)
    return tuple(sorted(_condition(name, found) for name, found in by_name.items()))


def _condition(name: str, found: list[Raised]) -> Condition:
    messages: dict[str, dict[str, None]] = {}
    for raised in found:
        messages.setdefault(raised.message, {}).update(dict.fromkeys(raised.hints))
    told = tuple((message, tuple(hints)) for message, hints in messages.items())
    return Condition(found[0].kind, name, told, tuple(places(name, [raised.path for raised in found])))


def page() -> str:
    """errors.md."""
    return "\n".join([INTRODUCTION, *_index(), *_sections()]) + "\n"


def _index() -> Iterator[str]:
    yield from ("", "## All conditions", "", "| condition | raised | restart |", "| --- | --- | --- |")
    for condition in sorted(conditions(), key=lambda condition: condition.name):
        restart = "yes" if condition.name in RESTART_HELPS else ""
        link = f"[`{condition.name}`](#{condition.name.lower()})"
        yield f"| {link} | {', '.join(condition.raised)} | {restart} |"


def _sections() -> Iterator[str]:
    kind = ""
    for condition in conditions():
        if condition.kind != kind:
            kind = condition.kind
            yield from ("", f"## {kind}")
        yield from ("", f"### {condition.name}", "", *_messages(condition))


def _messages(condition: Condition) -> Iterator[str]:
    """A bullet for each message, with its hint below; a hint that all of them share comes once, after them."""
    shared = {hints for _, hints in condition.messages}
    for message, hints in condition.messages:
        yield f"- {_line(message)}"
        if len(shared) > 1:
            yield from (f"  *Hint*: {_line(hint)}" for hint in hints)
    if len(shared) == 1:
        for hint in next(iter(shared)):
            yield from ("", f"*Hint*: {_line(hint)}")


def _line(text: str) -> str:
    """As Markdown shows it as it is: one line, no tags, no emphasis."""
    plain = " ".join(text.split())
    return plain.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_").replace("[", "\\[")
