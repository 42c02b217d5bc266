"""errors.md: a print of spark_eos/conditions.toml."""

from __future__ import annotations

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

A condition stands for what is to be done about it, and has a wording for each thing that leads to it. This page is a
print of `spark_eos/conditions.toml`, made by `make docs`; `{names}` in braces are filled in at run time.
[stopped.md](stopped.md) explains step by step what to do about each error that ends a query.

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
    return "\n".join([INTRODUCTION, *_index(), *_sections()]) + "\n"


def _index() -> Iterator[str]:
    yield from ("", "## All conditions", "", "| condition | raised | restart |", "| --- | --- | --- |")
    for condition in sorted(conditions(), key=lambda condition: condition.name):
        link = f"[`{condition.name}`](#{condition.name.lower()})"
        yield f"| {link} | {', '.join(condition.raised)} | {'yes' if condition.restart else ''} |"


def _sections() -> Iterator[str]:
    kind = ""
    for condition in conditions():
        if condition.kind != kind:
            kind = condition.kind
            yield from ("", f"## {kind}")
        yield from ("", f"### {condition.name}", "", *_messages(condition))


def _messages(condition: Condition) -> Iterator[str]:
    """A bullet for each message, with its hint below; a hint that all of them share comes once, after them."""
    hints = {hint for _, hint in condition.texts}
    for message, hint in condition.texts:
        yield f"- {_line(message)}"
        if len(hints) > 1:
            yield f"  *Hint*: {_line(hint)}"
    if len(hints) == 1:
        yield from ("", f"*Hint*: {_line(hints.pop())}")


def _line(text: str) -> str:
    """As Markdown shows it as it is: one line, no tags, no emphasis."""
    plain = " ".join(text.replace("{{", "{").replace("}}", "}").split())
    return plain.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_").replace("[", "\\[")
