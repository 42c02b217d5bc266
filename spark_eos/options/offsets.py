"""Parsing of offsets, timestamps and partitions that the user writes as JSON.

The result is ``{topic: {partition: offset}}``, ends exclusive.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from spark_eos.base.topic_partition import PartitionOffsets
from spark_eos.base.whole_numbers import LARGEST, plain_number
from spark_eos.checkpoint.offset_log import is_mark
from spark_eos.errors import invalid_option

LATEST = -1
EARLIEST = -2

_OFFSETS_EXAMPLE = '{"topic1":{"0":23,"1":-2},"topic2":{"0":-1}}'
_TIMES_EXAMPLE = '{"topic1":{"0":1700000000000,"1":1700000000000}}'
_PARTITIONS_EXAMPLE = '{"topic1":[0,1],"topic2":[2,4]}'


# Parsing


def parse_offsets(option: str, text: str) -> PartitionOffsets:
    """Parse JSON with an offset for each partition, which may be EARLIEST or LATEST; also a line of this source's
    offset log, of which only the offsets count.

    Raises OptionError: EOS_OPTION_INVALID with line and column, EOS_OPTION_INVALID with the topic and partition.
    """

    def check(topic: str, p: str, at: object) -> int:
        if type(at) is not int or not EARLIEST <= at <= LARGEST:
            raise invalid_option(
                option, f"{json.dumps(at)} for {topic}-{p}", "a whole number from 0, -2 for earliest or -1 for latest"
            )
        return at

    return _numbers(option, text, check, _OFFSETS_EXAMPLE)


def parse_times(option: str, text: str) -> PartitionOffsets:
    """Parse JSON with a timestamp for each partition, in milliseconds since 1970. Errors as for `parse_offsets`."""

    def check(topic: str, p: str, at: object) -> int:
        if type(at) is not int or not 0 <= at <= LARGEST:
            raise invalid_option(option, f"{json.dumps(at)} for {topic}-{p}", "milliseconds since 1970")
        return at

    return _numbers(option, text, check, _TIMES_EXAMPLE)


def parse_partitions(option: str, text: str) -> dict[str, tuple[int, ...]]:
    """Parse JSON with the partitions of each topic. Errors as for `parse_offsets`."""
    result = {}
    for topic, partitions in _object(option, text, _PARTITIONS_EXAMPLE).items():
        if not isinstance(partitions, list) or not partitions:
            raise invalid_option(
                option, f"without partitions for topic '{topic}'", f"a value like {_PARTITIONS_EXAMPLE}"
            )
        for p in partitions:
            if type(p) is not int or p < 0:
                raise invalid_option(
                    option, f"set for partition {json.dumps(p)} of topic '{topic}'", "partitions by number: 0, 1, 2, …"
                )
        result[topic] = tuple(sorted(set(partitions)))
    if not result:
        raise invalid_option(option, "without a topic", f"a value like {_PARTITIONS_EXAMPLE}")
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
    """Raise OptionError (EOS_OPTION_INVALID) unless ``wanted`` has exactly the partitions that are read."""
    for topic in wanted:
        if topic not in there:
            raise invalid_option(
                option,
                f"set for topic '{topic}', which is not read",
                f"the topics to read, which are {', '.join(sorted(there))}, or add it to them",
            )
    for topic, partitions in there.items():
        missing = sorted(partitions.keys() - wanted.get(topic, {}).keys())
        if missing:
            raise invalid_option(
                option,
                f"without {', '.join(f'{topic}-{p}' for p in missing)}",
                "every partition; -2 is earliest and -1 latest for offsets",
            )
        unknown = sorted(wanted[topic].keys() - partitions.keys())
        if unknown:
            raise invalid_option(
                option,
                (
                    f"set for {topic}-{unknown[0]}, but the partitions read of this topic are "
                    f"{', '.join(map(str, sorted(partitions)))}"
                ),
                "partitions that exist",
            )


def check_known(option: str, offsets: PartitionOffsets, begin: PartitionOffsets, end: PartitionOffsets) -> None:
    """Raise OptionError (EOS_OPTION_INVALID) for an offset outside of its partition's log."""
    for topic, partitions in offsets.items():
        for p, at in partitions.items():
            low, high = begin[topic][p], end[topic][p]
            if not low <= at <= high:
                raise invalid_option(
                    option,
                    f"{at} for {topic}-{p}, which has the offsets {low} to {high}",
                    "an offset in that range, -2 for earliest or -1 for latest",
                )


def _numbers(option: str, text: str, check: Callable[[str, str, object], int], example: str) -> PartitionOffsets:
    """Return the value of each partition, as ``check(topic, partition, value)`` passes it on."""
    result: PartitionOffsets = {}
    for topic, partitions in _object(option, text, example).items():
        if is_mark(topic):  # of a line of the offset log
            continue
        if not isinstance(partitions, dict) or not partitions:
            raise invalid_option(option, f"without partitions for topic '{topic}'", f"a value like {example}")
        result[topic] = {_partition(option, topic, key): check(topic, key, at) for key, at in partitions.items()}
    return result


def _partition(option: str, topic: str, key: str) -> int:
    number = plain_number(key)
    if number is None:
        raise invalid_option(
            option, f"set for partition '{key}' of topic '{topic}'", "partitions by number: 0, 1, 2, …"
        )
    return number


def _object(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text, object_pairs_hook=lambda pairs: _unique(option, pairs))
    except json.JSONDecodeError as error:
        raise invalid_option(
            option, f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}", f"a value like {example}"
        ) from None
    if not isinstance(parsed, dict):
        raise invalid_option(option, f"'{text}'", f"a value like {example}")
    return parsed


def _unique(option: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    "".join(result).encode()  # a half of a surrogate pair is in no name that can be sent
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise invalid_option(option, f"set for '{twice}' twice", "each topic and partition once")
    return result
