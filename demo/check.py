"""Compares the rows in Kafka with the expected ones. ``judge`` takes and returns plain data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from demo.flights import FLIGHT_PARTITIONS, INPUT_TOPIC, OUTPUT_TOPICS, Expected
from demo.topics import Reader, TopicRow, group_offsets
from spark_eos.base.topic_partition import TopicPartition

_NO_ID = -1


@dataclass(frozen=True)
class Judgement:
    """Counts of rows of the output, as a ``read_committed`` consumer sees it.

    ``out_of_order``: rows whose first copy comes after that of a later row of the same input partition, in the same
    output partition. ``wrong``: unexpected rows, and rows with a wrong topic, key or value.
    """

    visible: int
    lost: int
    doubled: int
    out_of_order: int
    aborted_visible: int
    wrong: int

    @property
    def ok(self) -> bool:
        return not (self.lost or self.doubled or self.out_of_order or self.aborted_visible or self.wrong)


@dataclass(frozen=True)
class OutputFindings:
    """The findings. ``rewritten``: rows of aborted transactions in the output topics.

    ``held``: output partitions in which an open transaction holds back readers. ``group_ok``: whether the consumer
    group's offsets are the end of the input; None if the sink commits none.
    """

    rows_in: int
    expected: int
    judgement: Judgement
    rewritten: int
    held: int
    group_ok: bool | None

    @property
    def ok(self) -> bool:
        return self.judgement.ok and self.held == 0 and self.group_ok is not False


@dataclass(frozen=True)
class Input:
    """The input as a ``read_committed`` consumer sees it: the partition of each id, the end of each partition."""

    came_from: Mapping[int, int]
    end_offsets: Mapping[TopicPartition, int]


def read_input(bootstrap_servers: str) -> Input:
    with Reader(bootstrap_servers, [INPUT_TOPIC], committed=True) as reader:
        came_from = {json.loads(row.value)["id"]: row.partition for row in reader.to_end() if row.value is not None}
        return Input(came_from, reader.end_offsets())


def examine(
    bootstrap_servers: str, input_: Input, expected: Mapping[int, Expected], group: str | None, prefix: str = ""
) -> OutputFindings:
    """Read the output as a consumer would, and judge. ``prefix``: of the output topics' names."""
    topics = [prefix + topic for topic in OUTPUT_TOPICS]
    with Reader(bootstrap_servers, topics, committed=True) as reader:
        rows = [replace(row, topic=row.topic.removeprefix(prefix)) for row in reader.to_end()]
        stable_ends = reader.end_offsets()
    with Reader(bootstrap_servers, topics, committed=False) as reader:
        written = sum(1 for _ in reader.to_end())
        end_offsets = reader.end_offsets()
    committed = group_offsets(bootstrap_servers, group, INPUT_TOPIC, FLIGHT_PARTITIONS) if group else None
    return OutputFindings(
        rows_in=len(input_.came_from),
        expected=len(expected),
        judgement=judge(rows, expected, input_.came_from),
        rewritten=written - len(rows),
        held=sum(end_offsets[place] != stable_ends[place] for place in end_offsets),
        group_ok=committed == input_.end_offsets if group else None,
    )


def judge(rows: Iterable[TopicRow], expected: Mapping[int, Expected], came_from: Mapping[int, int]) -> Judgement:
    """Compare the output's rows, in the order of each partition, with the expected ones.

    ``came_from``: the input partition of each id.
    """
    seen: set[int] = set()
    newest: dict[tuple[str, int, int], int] = {}
    visible = doubled = out_of_order = aborted = wrong = 0
    for row in rows:
        visible += 1
        fields = _fields(row)
        row_id: int = fields.get("id", _NO_ID)
        if fields.get("aborted"):
            aborted += 1
        elif row_id not in expected or not _equal(row, fields, expected[row_id]):
            wrong += 1
        elif row_id in seen:
            doubled += 1
        else:
            seen.add(row_id)
            lane = (row.topic, row.partition, came_from[row_id])
            out_of_order += row_id < newest.get(lane, -1)
            newest[lane] = max(row_id, newest.get(lane, -1))
    return Judgement(visible, len(expected.keys() - seen), doubled, out_of_order, aborted, wrong)


def _equal(row: TopicRow, fields: Mapping[str, Any], expected: Expected) -> bool:
    return row.topic == expected.topic and row.key == expected.key.encode() and fields == expected.fields


def _fields(row: TopicRow) -> dict[str, Any]:
    """The value's fields; none for a value that is not a JSON object."""
    try:
        fields = json.loads(row.value or b"")
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
