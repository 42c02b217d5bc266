"""Parsing of offsets, timestamps and partitions that the user writes as JSON.

The result is ``{topic: {partition: offset}}``, ends exclusive.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from spark_eos.errors import OptionError
from spark_eos.topic_partition import PartitionOffsets

LATEST = -1
EARLIEST = -2

_OFFSETS_EXAMPLE = '{"topic1":{"0":23,"1":-2},"topic2":{"0":-1}}'
_TIMES_EXAMPLE = '{"topic1":{"0":1700000000000,"1":1700000000000}}'
_PARTITIONS_EXAMPLE = '{"topic1":[0,1],"topic2":[2,4]}'


# Parsing


def parse_offsets(option: str, text: str) -> PartitionOffsets:
    """JSON with an offset for each partition, which may be EARLIEST or LATEST; also a line of this source's offset log,
    of which only the offsets count.

    Raises OptionError: EOS_OPTION_OFFSETS_JSON with line and column, EOS_OPTION_OFFSETS with the topic and partition.
    """

    def check(topic: str, p: str, at: object) -> int:
        if type(at) is not int or at < EARLIEST:
            hint = "Offsets are whole numbers from 0; -2 is earliest, -1 latest."
            raise bad(option, f"says {json.dumps(at)} for {topic}-{p}.", hint=hint, topic=topic, partition=p)
        return at

    return _numbers(option, text, check, _OFFSETS_EXAMPLE)


def parse_times(option: str, text: str) -> PartitionOffsets:
    """JSON with a timestamp for each partition, in milliseconds since 1970. Errors as for `parse_offsets`."""

    def check(topic: str, p: str, at: object) -> int:
        if type(at) is not int or at < 0:
            hint = "Times are milliseconds since 1970."
            raise bad(option, f"says {json.dumps(at)} for {topic}-{p}.", hint=hint, topic=topic, partition=p)
        return at

    return _numbers(option, text, check, _TIMES_EXAMPLE)


def parse_partitions(option: str, text: str) -> dict[str, tuple[int, ...]]:
    """JSON with the partitions of each topic. Errors as for `parse_offsets`."""
    result = {}
    for topic, partitions in _object(option, text, _PARTITIONS_EXAMPLE).items():
        if not isinstance(partitions, list) or not partitions:
            raise bad(option, f"has no partitions for topic '{topic}'.", hint=f"Write it like {_PARTITIONS_EXAMPLE}.")
        for p in partitions:
            if type(p) is not int or p < 0:
                raise bad(
                    option,
                    f"has the partition {json.dumps(p)} for topic '{topic}'.",
                    hint="Partitions are numbered 0, 1, 2, …",
                )
        result[topic] = tuple(sorted(set(partitions)))
    if not result:
        raise bad(option, "contains no topic.", hint=f"Write it like {_PARTITIONS_EXAMPLE}.")
    return result


def fill_in(option: str, wanted: PartitionOffsets, begin: PartitionOffsets, end: PartitionOffsets) -> PartitionOffsets:
    """Replace EARLIEST and LATEST by offsets. Raises OptionError if ``wanted`` does not match the partitions."""
    check_same_partitions(option, wanted, begin)
    return {
        topic: {
            p: begin[topic][p] if at == EARLIEST else end[topic][p] if at == LATEST else at for p, at in rest.items()
        }
        for topic, rest in wanted.items()
    }


def check_same_partitions(option: str, wanted: PartitionOffsets, there: PartitionOffsets) -> None:
    """Raise OptionError (EOS_OPTION_OFFSETS) unless ``wanted`` has exactly the partitions that are read."""
    for topic in wanted:
        if topic not in there:
            raise bad(
                option,
                f"contains topic '{topic}', which is not read.",
                hint=f"Add it to the topics to read, or remove it here. Topics to read: {', '.join(sorted(there))}.",
                topic=topic,
            )
    for topic, partitions in there.items():
        missing = sorted(partitions.keys() - wanted.get(topic, {}).keys())
        if missing:
            raise bad(
                option,
                f"does not include {', '.join(f'{topic}-{p}' for p in missing)}.",
                hint="Include every partition; -2 is earliest and -1 latest for offsets.",
                topic=topic,
            )
        unknown = sorted(wanted[topic].keys() - partitions.keys())
        if unknown:
            raise bad(
                option,
                f"names {topic}-{unknown[0]}, but the partitions read of this topic are "
                f"{', '.join(map(str, sorted(partitions)))}.",
                hint="Use partitions that exist.",
                topic=topic,
                partition=unknown[0],
            )


def check_known(option: str, offsets: PartitionOffsets, begin: PartitionOffsets, end: PartitionOffsets) -> None:
    """Raise OptionError (EOS_OPTION_OFFSETS) for an offset outside of its partition's log."""
    for topic, partitions in offsets.items():
        for p, at in partitions.items():
            low, high = begin[topic][p], end[topic][p]
            if not low <= at <= high:
                raise bad(
                    option,
                    f"is {at} for {topic}-{p}, which has the offsets {low} to {high}.",
                    hint="Use an offset in that range, -2 for earliest or -1 for latest.",
                    topic=topic,
                    partition=p,
                )


def bad(option: str, what: str, hint: str, **parameters: object) -> OptionError:
    """The error for an option with offsets or partitions; ``what`` continues the sentence after the option's name."""
    return OptionError("EOS_OPTION_OFFSETS", f"Option '{option}' {what}", hint=hint, option=option, **parameters)


def _numbers(option: str, text: str, check: Callable[[str, str, object], int], example: str) -> PartitionOffsets:
    """The value of each partition, as ``check(topic, partition, value)`` passes it on."""
    result: PartitionOffsets = {}
    for topic, partitions in _object(option, text, example).items():
        if topic.startswith("#"):  # as no topic does
            continue
        if not isinstance(partitions, dict) or not partitions:
            raise bad(option, f"has no partitions for topic '{topic}'.", hint=f"Write it like {example}.", topic=topic)
        result[topic] = {_partition(option, topic, key): check(topic, key, at) for key, at in partitions.items()}
    return result


def _partition(option: str, topic: str, key: str) -> int:
    if not key.isascii() or not key.isdigit():
        raise bad(
            option,
            f"has the partition '{key}' for topic '{topic}'.",
            hint="Partitions are numbered 0, 1, 2, …",
            topic=topic,
        )
    return int(key)


def _object(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text, object_pairs_hook=lambda pairs: _unique(option, pairs))
    except json.JSONDecodeError as error:
        raise OptionError(
            "EOS_OPTION_OFFSETS_JSON",
            f"Option '{option}' is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.",
            hint=f"Write it like {example}.",
            option=option,
            line=error.lineno,
            column=error.colno,
        ) from None
    if not isinstance(parsed, dict):
        raise bad(option, f"is '{text}'.", hint=f"Write it like {example}.")
    return parsed


def _unique(option: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise bad(option, f"contains '{twice}' twice.", hint="Include each topic and partition once.")
    return result
