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

A condition stands for what is to be done about it. This page lists them with the first sentence that they may say,
where `{names}` in braces are filled in; the message and the hint that a query prints say the rest, and
`spark_eos/conditions.toml` has all of them. [stopped.md](stopped.md) says what to do about errors that end a query, by
the state of the query."""


@dataclass(frozen=True)
class Condition:
    """One condition. ``texts``: message and hint of each wording."""

    name: str
    kind: str
    restart: bool
    texts: tuple[tuple[str, str], ...]


def conditions() -> tuple[Condition, ...]:
    """The whole table, by class and name."""
    found = [_condition(name, row) for name, row in errors.conditions().items()]
    return tuple(sorted(found, key=lambda condition: (condition.kind, condition.name)))


def _condition(name: str, row: Mapping[str, object]) -> Condition:
    wordings = [wording for wording in (row, *row.values()) if isinstance(wording, dict) and "message" in wording]
    texts = tuple((wording["message"], wording["hint"]) for wording in wordings)
    return Condition(name, str(row["class"]), bool(row.get("restart")), texts)


def page() -> str:
    """errors.md."""
    return "\n".join([INTRODUCTION, *_index()]) + "\n"


def _index() -> Iterator[str]:
    """Two lists of all conditions, by whether a restart helps; each with the first sentence of its first message."""
    by_name = sorted(conditions(), key=lambda condition: condition.name)
    yield from ("", "## A restart helps", "")
    yield "At once, or as soon as the cluster is healthy, with nothing changed. In code: `reason(error).restart_helps`."
    yield from ("", *(_item(condition) for condition in by_name if condition.restart))
    yield from ("", "## Something has to be changed first", "")
    yield from (_item(condition) for condition in by_name if not condition.restart)


def _item(condition: Condition) -> str:
    return f"- `{condition.name}`: {_sentence(condition.texts[0][0])}"


def _sentence(text: str) -> str:
    """Return the first sentence as one line of Markdown that shows it as it is: no tags, no emphasis."""
    plain = re.split(r"(?<=[.;:]) ", " ".join(text.replace("{{", "{").replace("}}", "}").split()))[0].rstrip(".;:")
    return re.sub(r"([*_\[])", r"\\\1", plain.replace("<", "&lt;"))
