"""The sections ``source`` and ``sink`` of jobs that read or write topics: they are options of the connector.

The table of all options checks them before Spark starts. Its errors then name the section and the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from spark_eos.errors import OptionError
from spark_eos.kafka.config.librdkafka import check
from spark_eos.options.parse import SinkOptions, SourceOptions, sink_options, stream_options
from spark_eos.options.selection import Pattern

from .values import Rejected

T = TypeVar("T")
Sink = Callable[[Mapping[str, str]], SinkOptions]

#: Options for which every job with a checkpoint has a key of its own.
CHECKPOINT = {"checkpointlocation": "Use 'checkpoint', beside 'sink'."}
_STARTS = {"startingOffsets": "earliest"}

#: How a hint writes an option in Python.
_CALL = re.compile(r"""\.option\("([^"]+)", ("[^"]*"|…)\)""")
#: Parts of values that an error could show. Shorter ones are words and numbers.
_PART = re.compile(r"[^\s,;:{}\[\]\"']{5,}")
_NOT_SECRET = frozenset({"false", "earliest", "latest", "group"})


def options_of(kafka: Mapping[str, str], section: Mapping[str, str]) -> dict[str, str]:
    """Return all options of one end. ``kafka``: the client properties of both ends, which the section's override."""
    return _one_of_each({f"kafka.{name}": value for name, value in kafka.items()}, section)


def source_options_of(kafka: Mapping[str, str], section: Mapping[str, str]) -> dict[str, str]:
    """Return all options of a source. A job's new query begins at ``earliest``, if nothing else is set."""
    return _one_of_each(_STARTS, options_of(kafka, section))


def _one_of_each(*options: Mapping[str, str]) -> dict[str, str]:
    """Merge the options. Among names that differ in capital letters only, the last one counts."""
    return dict({name.lower(): (name, value) for each in options for name, value in each.items()}.values())


def option(options: Mapping[str, str], name: str) -> str | None:
    """Return the value of an option, whose name may be written in any case."""
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)


def only_topic(source: Mapping[str, str]) -> str | None:
    """Return the topic that is read, if it is one and named."""
    names = (option(source, "subscribe") or "").split(",")
    return names[0].strip() or None if len(names) == 1 else None


def refuse(section: str, options: Mapping[str, str], owned: Mapping[str, str]) -> None:
    """Raise Rejected for an option that the job itself sets. ``owned``: these options in lower case → what to do
    instead."""
    for name in options:
        if name.lower() in owned:
            raise Rejected("is an option that this job sets itself.", owned[name.lower()], [section, name])


def source_of(
    section: Mapping[str, str], options: Mapping[str, str], more: Callable[[SourceOptions], None] = lambda _: None
) -> SourceOptions:
    """Parse all options of the connector's source. ``section``: options in the section ``source``;
    ``more``: further checks. Raises OptionError."""

    def parse() -> SourceOptions:
        stream = stream_options(options)
        check(stream.kafka, "consumer")
        more(stream)
        return stream

    return located(parse, "source", section, options)


def sink_of(section: Mapping[str, str], options: Mapping[str, str], parse: Sink = sink_options) -> SinkOptions:
    """Parse the options of the section ``sink`` by ``parse``. Raises OptionError."""

    def parsed() -> SinkOptions:
        sink = parse(options)
        check(sink.kafka, "producer")
        return sink

    return located(parsed, "sink", section, options)


def located(parse: Callable[[], T], section: str, own: Iterable[str], options: Mapping[str, str]) -> T:
    """Call ``parse`` with the options. Its error names an option's key in the file, and shows no value. ``own``:
    the keys of the section. Raises OptionError."""
    try:
        return parse()
    except OptionError as error:
        name = str(error.parameters.get("option", ""))
        here = [f"{section}.{each}" for each in own if each.lower() == name.lower()]
        shared = [name] if name.startswith("kafka.") and option(options, name) is not None else []
        key = [*here, *shared, section][0]
        hint = _CALL.sub(r"'\1: \2'", error.hint)
        message = f"'{key}': {_without_values(error.message, options)}"
        raise error.reworded(message, _without_values(hint, options), key=key) from None


def _without_values(text: str, options: Mapping[str, str]) -> str:
    parts = {part for value in options.values() for part in _PART.findall(value)} - _NOT_SECRET
    for part in sorted(parts, key=len, reverse=True):
        text = re.sub(rf"(?<![\w.-]){re.escape(part)}(?![\w-])", "…", text)
    return text


def selected(options: SourceOptions) -> str:
    """Describe the input of a source."""
    selection = options.selection
    return f"topics that match {selection.regex}" if isinstance(selection, Pattern) else ", ".join(selection.topics)


def topics_of(options: SourceOptions) -> list[str]:
    """Return the topics that a source reads by name; none where it reads by a pattern."""
    return [] if isinstance(options.selection, Pattern) else list(options.selection.topics)


def begins(parsed: SourceOptions, options: Mapping[str, str]) -> str:
    """Describe the start of a new query."""
    name = parsed.starting_option
    return f"{option(options, name)}" if name == "startingOffsets" else f"{name} {option(options, name)}"
