"""How `spark-eos verify` describes rows in which it found no id."""

from __future__ import annotations

import json
from unittest.mock import Mock

import pytest
from confluent_kafka import Message

from spark_eos.tools.verify.sample import MOST_NAMES, SAMPLE_ROWS, Sample


def described(*messages: Message) -> str:
    sample = Sample()
    sample.add(0, list(messages))
    return str(sample)


def row(**fields: object) -> Message:
    return Message(value=json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (Message(), "keys are null, values are null, and there are no headers"),
        (
            Message(value=b"x", key=b"k", headers=[("a", b"1")]),
            "keys are there, values are not JSON, and headers are a",
        ),
        (Message(headers=[("a", b"1"), ("b", None)]), "headers are a and b (null)"),
        (Message(value=b"\xff"), "values are not JSON"),
        (Message(value=b"[" * 100_000), "values are not JSON"),
        (Message(value=b"7"), "values are JSON, but not objects"),
        (Message(value=b"{}"), "values are JSON objects without fields"),
        (row(id=1, name="x", ok=True), "values are JSON objects with the fields id, name and ok"),
        (row(id=None, tags=[1], name="x"), "the fields id (null), tags (array) and name"),
        (row(order={"id": 1, "of": {"a": "x"}}), "the fields order.id and order.of.a"),
        (row(empty={}), "the fields empty (object)"),
        (row(**{"a\nb": 1, "c.d": 1, "x" * 99: 1}), f"the fields 'a\\nb', 'c.d' and {'x' * 39}…"),
    ],
)
def test_what_a_row_looks_like(message: Message, found: str) -> None:
    """Whatever is in it; fields that an id can be at by their path, others with what they hold instead."""
    assert found in described(message)


def test_rows_that_differ() -> None:
    """Are told by their number."""
    text = described(*[Message(value=b"x", key=b"k")] * 3, row(id=1), row(id=2))
    assert text == (
        "Of the 5 looked at, 3 have a key, values are not JSON (3) and JSON objects (2) with the fields id, "
        "and there are no headers"
    )


@pytest.mark.parametrize("count", [2, 50])
def test_values_are_never_told(count: int) -> None:
    """Nor keys of a map, which are as good as values: each of them is in few rows."""
    rows = [
        Message(
            value=json.dumps({"of": {f"person-{n}": "secret"}}).encode(),
            key=b"secret",
            headers=[(f"h{n}", b"secret")],
        )
        for n in range(count)
    ]
    text = described(*rows)
    assert "secret" not in text
    assert "person" not in text
    assert text.endswith("values are JSON objects whose fields differ, and headers differ")
    assert "h1" not in text


def test_many_fields_are_cut_short() -> None:
    """The first of those that most rows have."""
    text = described(row(**{f"f{n:02}": n for n in range(MOST_NAMES + 5)}))
    assert f"f{MOST_NAMES - 1:02} and 5 more" in text
    assert f"f{MOST_NAMES:02}" not in text


def test_headers_that_cannot_be_read_are_left_out() -> None:
    """As confluent-kafka raises this for a name that is not UTF-8."""
    message = Mock(spec=Message, headers=Mock(side_effect=SystemError))
    message.value.return_value, message.key.return_value = b"x", None
    assert described(message) == "Of the 1 looked at, keys are null, values are not JSON, and there are no headers"


def test_some_rows_of_each_partition_are_looked_at() -> None:
    """So that a large topic is described by all of its partitions, and costs no more than a small one."""
    sample = Sample()
    for place in (0, 1, 0):
        sample.add(place, [Message(value=b"x")] * SAMPLE_ROWS)
    assert str(sample).startswith(f"Of the {2 * SAMPLE_ROWS} looked at,")
