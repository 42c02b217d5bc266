"""Offsets as the user writes them, as Spark keeps them, and as the source counts with them.

Inside: ``{topic: {partition: offset}}``, ends exclusive. In the offset log: the built-in source's JSON with partitions
as texts, ``{"flights": {"0": 23, "1": 5}}``. Spark compares offsets as JSON text: the order of keys is fixed here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from spark_eos.errors import OptionError

Offsets = dict[str, dict[int, int]]
#: Where a new query begins. As offsets, EARLIEST and LATEST may stand for a number.
StartingOffsets = Literal["earliest", "latest"] | Offsets

LATEST = -1
EARLIEST = -2

_EXAMPLE = '{"topic1":{"0":23,"1":-2},"topic2":{"0":-1}}'


def to_spark(offsets: Offsets) -> dict[str, dict[str, int]]:
    """For the offset log: topics in the order of their names, partitions in the order of their numbers."""
    return {topic: {str(p): offsets[topic][p] for p in sorted(offsets[topic])} for topic in sorted(offsets)}


def from_spark(logged: Mapping[str, Mapping[str, int]]) -> Offsets:
    """What `to_spark` made, or what the built-in source wrote into an offset log."""
    return {topic: {int(p): offset for p, offset in partitions.items()} for topic, partitions in logged.items()}


def parse_starting_offsets(option: str, text: str) -> StartingOffsets:
    """``earliest``, ``latest`` or JSON; -1 and -2 are left for `resolve`.

    Raises OptionError: EOS_OPTION_OFFSETS_JSON with line and column, EOS_OPTION_OFFSETS with the topic and partition.
    """
    word = text.strip().lower()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    if not text.lstrip().startswith("{"):
        raise _bad(option, f"is '{text}'.", hint=f"It takes earliest, latest or JSON such as {_EXAMPLE}.")
    try:
        parsed = json.loads(text, object_pairs_hook=lambda pairs: _unique(option, pairs))
    except json.JSONDecodeError as error:
        raise OptionError(
            "EOS_OPTION_OFFSETS_JSON",
            f"Option '{option}' is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.",
            hint=f"Write it like {_EXAMPLE}.",
            option=option,
            line=error.lineno,
            column=error.colno,
        ) from None
    return {topic: _partitions(option, topic, partitions) for topic, partitions in parsed.items()}


def resolve(option: str, wanted: StartingOffsets, begin: Offsets, end: Offsets) -> Offsets:
    """The offsets that ``wanted`` means for topics that begin and end so; ``end`` is the high watermark or before it.

    Raises OptionError where ``wanted`` names what is not there, leaves something out, or lies outside of a partition.
    """
    if wanted == "earliest":
        return begin
    if wanted == "latest":
        return end
    _check_same_partitions(option, wanted, begin)
    return {
        topic: {
            p: begin[topic][p] if at == EARLIEST else end[topic][p] if at == LATEST else at for p, at in rest.items()
        }
        for topic, rest in wanted.items()
    }


def check_inside(option: str, offsets: Offsets, begin: Offsets, high_watermark: Offsets) -> None:
    """Raise OptionError (EOS_OPTION_OFFSETS) for an offset that its partition does not have or never had."""
    for topic, partitions in offsets.items():
        for p, at in partitions.items():
            low, high = begin[topic][p], high_watermark[topic][p]
            if not low <= at <= high:
                raise _bad(
                    option,
                    f"says {at} for {topic}-{p}, which holds the offsets from {low} up to {high}.",
                    hint="Give an offset in that range, or -2 for earliest or -1 for latest.",
                    topic=topic,
                    partition=p,
                )


def _unique(option: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _bad(option, f"names '{twice}' twice.", hint="Name each topic and partition once.")
    return result


def _partitions(option: str, topic: str, partitions: Any) -> dict[int, int]:
    if not isinstance(partitions, dict) or not partitions:
        raise _bad(option, f"has no partitions for topic '{topic}'.", hint=f"Write it like {_EXAMPLE}.", topic=topic)
    result = {}
    for key, at in partitions.items():
        if not key.isascii() or not key.isdigit():
            raise _bad(
                option, f"names '{key}' as a partition of '{topic}'.", hint="Partitions are 0, 1, 2, …", topic=topic
            )
        if type(at) is not int or at < EARLIEST:
            hint = "Offsets are whole numbers from 0; -2 is earliest, -1 latest."
            raise _bad(option, f"says {json.dumps(at)} for {topic}-{key}.", hint=hint, topic=topic, partition=key)
        result[int(key)] = at
    return result


def _check_same_partitions(option: str, wanted: Offsets, there: Offsets) -> None:
    for topic in wanted:
        if topic not in there:
            raise _bad(
                option,
                f"names topic '{topic}', which is not subscribed to.",
                hint=f"Add it to 'subscribe' or leave it out here; subscribed: {', '.join(sorted(there))}.",
                topic=topic,
            )
    for topic, partitions in there.items():
        missing = sorted(partitions.keys() - wanted.get(topic, {}).keys())
        if missing:
            raise _bad(
                option,
                f"leaves out {', '.join(f'{topic}-{p}' for p in missing)}.",
                hint="Name every partition; -2 is earliest, -1 latest.",
                topic=topic,
            )
        unknown = sorted(wanted[topic].keys() - partitions.keys())
        if unknown:
            raise _bad(
                option,
                f"names {topic}-{unknown[0]}, but the topic has the partitions 0 to {len(partitions) - 1}.",
                hint="Name the partitions that are there.",
                topic=topic,
                partition=unknown[0],
            )


def _bad(option: str, what: str, hint: str, **parameters: Any) -> OptionError:
    return OptionError("EOS_OPTION_OFFSETS", f"Option '{option}' {what}", hint=hint, option=option, **parameters)
