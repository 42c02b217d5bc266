"""errors.md: an index of spark_eos/conditions.toml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spark_eos import errors

INTRODUCTION = """# Errors

Every error has a condition name, a message and a hint:

    [EOS_TOPIC_MISSING] localhost:9092 has no topic or partition flights. Hint: Create it, or correct the name. …

In Spark it is at the end of a `StreamingQueryException`, or of an `AnalysisException` of `load` and `start`;
`spark_eos.reason(error)` extracts it:

```python
spark.sparkContext.setLogLevel("OFF")  # or by SPARK_CONF_DIR, as in the quickstart
try:
    query = rows.writeStream.format("eos-kafka").options(**options).start()
    query.awaitTermination()
except PySparkException as error:  # from pyspark.errors
    sys.exit(str(spark_eos.reason(error) or error))
```

An error of spark-eos is a single line without a stack trace. The lines around it come from Spark, which logs the stack
trace of its JVM and adds the query's plan to the exception.

A condition stands for what is to be done about it. This page lists them with what they say first, where `{names}`
in braces are filled in; the message and the hint that a query prints say the rest, and `spark_eos/conditions.toml` has
all of them. [stopped.md](stopped.md) explains step by step what to do about each error that ends a query.

- **raised**: *start* is the driver before any task, at the start of a query or when a micro-batch is planned, so also
  in a query that has been running for long. *task* is a task that reads or writes. *commit* is the driver after the
  last task. *tool* is a command or a job, not a query.
- **restart**: *yes* if the same query continues when it is started again with nothing changed, at once or as soon as
  the cluster is healthy. Otherwise something has to be changed first. In code: `reason(error).restart_helps`."""


@dataclass(frozen=True)
class Condition:
    """One condition. ``texts``: message and hint of each wording; ``raised``: where in a query's run."""

    name: str
    kind: str
    raised: tuple[str, ...]
    restart: bool
    texts: tuple[tuple[str, str], ...]


def conditions() -> tuple[Condition, ...]:
    """The whole table, by class and name."""
    found = [_condition(name, row) for name, row in errors.conditions().items()]
    return tuple(sorted(found, key=lambda condition: (condition.kind, condition.name)))


def _condition(name: str, row: Mapping[str, object]) -> Condition:
    wordings = [wording for wording in (row, *row.values()) if isinstance(wording, dict) and "message" in wording]
    texts = tuple((wording["message"], wording["hint"]) for wording in wordings)
    return Condition(name, str(row["class"]), tuple(row["raised"]), bool(row.get("restart")), texts)  # type: ignore[arg-type]


def page() -> str:
    """errors.md."""
    return "\n".join([INTRODUCTION, *_index()]) + "\n"


def _index() -> Iterator[str]:
    """A row for each condition, and in it the first sentence of its first message."""
    yield from ("", "| condition | says, among others | raised | restart |", "| --- | --- | --- | --- |")
    for condition in sorted(conditions(), key=lambda condition: condition.name):
        raised, restart = ", ".join(condition.raised), "yes" if condition.restart else ""
        yield f"| `{condition.name}` | {_sentence(condition.texts[0][0])} | {raised} | {restart} |"


def _sentence(text: str) -> str:
    """The first one, as Markdown shows it as it is: one line, no tags, no emphasis, no cell's end."""
    plain = re.split(r"(?<=[.;:]) ", " ".join(text.replace("{{", "{").replace("}}", "}").split()))[0].rstrip(".;:")
    return re.sub(r"([*_\[|])", r"\\\1", plain.replace("<", "&lt;"))
