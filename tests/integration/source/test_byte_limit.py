"""Micro-batches of about so many bytes, from a real log."""

from __future__ import annotations

import pytest

from tests.support.queries.source_calls import run, values

SMALL, LARGE = "s" * 200, "l" * 20_000


@pytest.fixture
def mixed(topic, write) -> tuple[str, list[str]]:
    """A topic of some small rows and then large ones, 2 MB in all, in record batches of 40 KB at the most; and its
    values."""
    name = topic()
    small, large = [f"{i:05d}{SMALL}" for i in range(2000)], [f"{i:05d}{LARGE}" for i in range(80)]
    for some, count in ((small, 50), (large, 2)):
        for i in range(0, len(some), count):
            write(name, *some[i : i + count])
    return name, small + large


def sizes(batches: list[list[dict]]) -> list[int]:
    return [sum(len(row["value"]) for row in batch) for batch in batches if batch]


def test_micro_batches_of_about_so_many_bytes(reader, mixed):
    """None is much larger than asked for, though rows become a hundred times as large; every row is read once."""
    name, wanted = mixed
    batches, _ = run(reader(name, maxBytesPerTrigger="300k"))
    assert values(batches) == wanted
    assert len(sizes(batches)) >= 5
    assert max(sizes(batches)) < 2 * 300 * 1024
