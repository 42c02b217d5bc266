"""options.md: every option of source and sink, and the same options of Spark's built-in format beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from _pages.elsewhere import ELSEWHERE
from spark_eos.kafka.config.java_names import REFUSED
from spark_eos.kafka.config.own_client import WITHOUT_EFFECT
from spark_eos.options.table import SINK, SINK_OWNED, SOURCE, SOURCE_OWNED, Option
from spark_eos.options.writes import WRITE

INTRODUCTION = """# Options

Generated from the code by `make docs`. Option names are not case-sensitive.
[The last table](#compared-with-sparks-kafka-format) compares each option with Spark's own `kafka` format."""

STORE = (
    "Settings of the [file system of the checkpoint](sink.md#where-the-checkpoint-is), by Hadoop's names; for a stream "
    "with `checkpointLocation`."
)
#: Properties without an effect that users of other clients set often.
_OFTEN_TUNED = (
    *("linger.ms", "retries", "max.in.flight.requests.per.connection", "queue.buffering.max.messages"),
    *("fetch.min.bytes", "max.poll.records", "session.timeout.ms", "metadata.max.age.ms"),
)
KAFKA = "Any Kafka client property; Java client names are accepted. An unknown property is an error."


def page() -> str:
    """options.md."""
    source = _side("Source", SOURCE, SOURCE_OWNED)
    sink = _side("Sink", SINK, SINK_OWNED, f"| `fs.…`, `google.cloud.auth.…` | those of the session | {STORE} |")
    return "\n".join([INTRODUCTION, *source, *sink, *_writes(), *_client(), *_comparison()]) + "\n"


def _writes() -> Iterator[str]:
    (job,) = (option for option in WRITE if option not in SINK)
    yield from ("", "## Batch writes", "", "[Batch writes](batch.md) (`df.write`) have these options of the sink:")
    yield ", ".join(f"`{o.name}`" for o in WRITE if o is not job) + ", `kafka.*`. They have one of their own:"
    yield from ("", "| option | default | meaning |", "| --- | --- | --- |")
    yield f"| `{job.name}` | {job.default} | {job.doc} |"


def _side(title: str, table: tuple[Option, ...], owned: dict[str, str], *more: str) -> Iterator[str]:
    yield from ("", f"## {title}", "", "| option | default | meaning |", "| --- | --- | --- |")
    yield from (f"| `{o.name}` | {o.default} | {o.doc} |" for o in table)
    yield f"| `kafka.*` | `kafka.bootstrap.servers` is required | {KAFKA} |"
    yield from more
    yield from ("", f"Properties that cannot be set: {_names(owned)}.")


def _names(properties: Iterable[str]) -> str:
    return ", ".join(f"`kafka.{key}`" for key in properties)


def _client() -> Iterator[str]:
    yield from ("", "## Kafka client properties", "")
    yield "spark-eos has [a client of its own](design.md#choices). Names of properties are librdkafka's, or the Java"
    yield "client's, most of which have an equivalent and are translated. Errors of properties that cannot be set"
    yield "say what to do instead. Refused on both sides:"
    yield f"{_names(REFUSED)}."
    yield ""
    tuned = _names(key for key in _OFTEN_TUNED if key in WITHOUT_EFFECT)
    yield "Accepted and ignored is what changes neither results nor security (`WITHOUT_TWIN` in"
    yield "[java_names.py](../spark_eos/kafka/config/java_names.py)), and what tunes librdkafka alone (`WITHOUT_EFFECT`"
    yield f"in [own_client.py](../spark_eos/kafka/config/own_client.py)), such as {tuned}."
    yield "A property that only one side refuses is ignored by the other."


def _comparison() -> Iterator[str]:
    yield from ("", "## Compared with Spark's kafka format", "")
    yield "Beside the `kafka` format of Spark 4.2. The source's columns are the same in name, type and order; the sink"
    yield "also has the column `timestamp`. Properties that Spark's format refuses are refused here, too."
    yield ""
    same = ", ".join(_code(option.name) for option in SOURCE if option.parity == "same")
    yield f"- **The same**: {same}."
    for side, table in (("source", SOURCE), ("sink", SINK)):
        yield f"- **New in the {side}**: {', '.join(_code(option.name) for option in table if not option.parity)}."
    only_source = [(o.name, o.parity, "") for o in SOURCE if o.parity not in ("", "same")]
    only_sink = [(o.name, "", o.parity) for o in SINK if o.parity not in ("", "same")]
    rest = [(other.name, other.source, other.sink) for other in ELSEWHERE]
    for title, side in (("source", 1), ("sink", 2)):
        yield from ("", f"Otherwise in the {title}:", "")
        rows = [*only_source, *only_sink, *rest]
        yield from (f"- {_code(row[0])}: {row[side]}" for row in rows if row[side])


def _code(name: str) -> str:
    """Names as code, the words between them as they are."""
    return ", ".join(f"`{part}`" if " " not in part else part for part in name.split(", "))
