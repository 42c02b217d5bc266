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
from spark_eos.errors import stop

LATEST = -1
EARLIEST = -2

_OFFSETS_EXAMPLE = '{"topic1":{"0":23,"1":-2},"topic2":{"0":-1}}'
_TIMES_EXAMPLE = '{"topic1":{"0":1700000000000,"1":1700000000000}}'
_PARTITIONS_EXAMPLE = '{"topic1":[0,1],"topic2":[2,4]}'


# Parsing


def parse_offsets(option: str, text: str) -> PartitionOffsets:
    """JSON with an offset for each partition, which may be EARLIEST or LATEST; also a line of this source's offset log,
    of which only the offsets count.

    Raises OptionError: EOS_OPTION_INVALID with line and column, EOS_OPTION_INVALID with the topic and partition.
    """

    def check(topic: str, p: str, at: object) -> int:
        if type(at) is not int or not EARLIEST <= at <= LARGEST:
            raise stop("EOS_OPTION_INVALID.offset", option=option, topic=topic, partition=p, offset=json.dumps(at))
        return at

    return _numbers(option, text, check, _OFFSETS_EXAMPLE)


def parse_times(option: str, text: str) -> PartitionOffsets:
    """JSON with a timestamp for each partition, in milliseconds since 1970. Errors as for `parse_offsets`."""

    def check(topic: str, p: str, at: object) -> int:
        if type(at) is not int or not 0 <= at <= LARGEST:
            raise stop("EOS_OPTION_INVALID.time", option=option, topic=topic, partition=p, time=json.dumps(at))
        return at

    return _numbers(option, text, check, _TIMES_EXAMPLE)


def parse_partitions(option: str, text: str) -> dict[str, tuple[int, ...]]:
    """JSON with the partitions of each topic. Errors as for `parse_offsets`."""
    result = {}
    for topic, partitions in _object(option, text, _PARTITIONS_EXAMPLE).items():
        if not isinstance(partitions, list) or not partitions:
            raise stop("EOS_OPTION_INVALID.assign_empty", option=option, topic=topic)
        for p in partitions:
            if type(p) is not int or p < 0:
                raise stop("EOS_OPTION_INVALID.assign_partition", option=option, partition=json.dumps(p), topic=topic)
        result[topic] = tuple(sorted(set(partitions)))
    if not result:
        raise stop("EOS_OPTION_INVALID.no_topics", option=option)
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
            raise stop("EOS_OPTION_INVALID.topic_not_read", option=option, topic=topic, topics=", ".join(sorted(there)))
    for topic, partitions in there.items():
        missing = sorted(partitions.keys() - wanted.get(topic, {}).keys())
        if missing:
            raise stop(
                "EOS_OPTION_INVALID.partitions_missing",
                option=option,
                topic=topic,
                missing=", ".join(f"{topic}-{p}" for p in missing),
            )
        unknown = sorted(wanted[topic].keys() - partitions.keys())
        if unknown:
            raise stop(
                "EOS_OPTION_INVALID.partition_not_there",
                option=option,
                topic=topic,
                partition=unknown[0],
                partitions=", ".join(map(str, sorted(partitions))),
            )


def check_known(option: str, offsets: PartitionOffsets, begin: PartitionOffsets, end: PartitionOffsets) -> None:
    """Raise OptionError (EOS_OPTION_INVALID) for an offset outside of its partition's log."""
    for topic, partitions in offsets.items():
        for p, at in partitions.items():
            low, high = begin[topic][p], end[topic][p]
            if not low <= at <= high:
                raise stop(
                    "EOS_OPTION_INVALID.offset_outside",
                    option=option,
                    topic=topic,
                    partition=p,
                    offset=at,
                    low=low,
                    high=high,
                )


def _numbers(option: str, text: str, check: Callable[[str, str, object], int], example: str) -> PartitionOffsets:
    """The value of each partition, as ``check(topic, partition, value)`` passes it on."""
    result: PartitionOffsets = {}
    for topic, partitions in _object(option, text, example).items():
        if is_mark(topic):  # of a line of the offset log
            continue
        if not isinstance(partitions, dict) or not partitions:
            raise stop("EOS_OPTION_INVALID.partitions_empty", option=option, topic=topic, example=example)
        result[topic] = {_partition(option, topic, key): check(topic, key, at) for key, at in partitions.items()}
    return result


def _partition(option: str, topic: str, key: str) -> int:
    number = plain_number(key)
    if number is None:
        raise stop("EOS_OPTION_INVALID.partition_number", option=option, topic=topic, partition=key)
    return number


def _object(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text, object_pairs_hook=lambda pairs: _unique(option, pairs))
    except json.JSONDecodeError as error:
        raise stop(
            "EOS_OPTION_INVALID.offsets_json",
            option=option,
            line=error.lineno,
            column=error.colno,
            problem=error.msg,
            example=example,
        ) from None
    if not isinstance(parsed, dict):
        raise stop("EOS_OPTION_INVALID.offsets_object", option=option, value=text, example=example)
    return parsed


def _unique(option: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    "".join(result).encode()  # a half of a surrogate pair is in no name that can be sent
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise stop("EOS_OPTION_INVALID.twice", option=option, twice=twice)
    return result
