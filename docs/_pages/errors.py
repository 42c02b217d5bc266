"""errors.md: an index of spark_eos/conditions.toml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spark_eos import errors

INTRODUCTION = """# Errors

Every error has a condition name, a message and a hint:

    [EOS_TOPIC_MISSING] localhost:9092 has no topic or partition flights. Hint: Create it, or correct the name. …

In Spark it is at the end of a `StreamingQueryException`, or of an `AnalysisException` of `load` and `start`, from which
[`spark_eos.reason(error)`](api.md#reason) extracts it.

A condition stands for what is to be done about it. A sentence stands beside those that have a single message, where
`{names}` in braces are filled in; the others have several. `spark_eos/conditions.toml` has all messages and hints, and
[stopped.md](stopped.md) says what to do about errors that end a query, by the state of the query."""


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
    """Two lists of all conditions, by whether a restart helps."""
    by_name = sorted(conditions(), key=lambda condition: condition.name)
    yield from ("", "## A restart helps", "")
    yield "At once, or as soon as the cluster is healthy, with nothing changed. In code: `reason(error).restart_helps`."
    yield from ("", *_items([condition for condition in by_name if condition.restart]))
    yield from ("", "## Something has to be changed first", "")
    yield from _items([condition for condition in by_name if not condition.restart])


def _items(listed: Sequence[Condition]) -> Iterator[str]:
    """Each condition with one message, with its first sentence; then the names of those with several messages."""
    for condition in listed:
        if len(condition.texts) == 1:
            yield f"- `{condition.name}`: {_sentence(condition.texts[0][0])}"
    yield f"- Several messages: {', '.join(f'`{condition.name}`' for condition in listed if len(condition.texts) > 1)}"


def _sentence(text: str) -> str:
    """Return the first sentence as one line of Markdown that shows it as it is: no tags, no emphasis."""
    plain = re.split(r"(?<=[.;:]) ", " ".join(text.replace("{{", "{").replace("}}", "}").split()))[0].rstrip(".;:")
    return re.sub(r"([*_\[])", r"\\\1", plain.replace("<", "&lt;"))
