"""Kills while some rows are dead letters: each row is in one of the topics, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.chaos.test_kills import EVERY, struck
from tests.support.judges.kafka_view import KafkaView
from tests.support.kills import query
from tests.support.kills.scene import Scene
from tests.support.queries.data_paths import also_by
from tests.support.runs.case_cover import in_turn
from tests.support.waiting import wait_for

LIMIT = 10_000
LARGE = "x" * LIMIT
#: A kill for every day: between the last task's report and the decision.
SHARE = ("commit.verified", "dead")


class LetterScene(Scene):
    """Every seventh row is too large for the outputs; one partition has only such rows."""

    def __init__(self, view: KafkaView, topic: Callable[..., str], folder: Path, way: str = "rows") -> None:
        self.letters = topic(2, max_message_bytes=1_000_000)

        def limited(partitions: int) -> str:
            """The input is the first one."""
            made.append(topic(partitions, **({"max_message_bytes": LIMIT} if made else {})))
            return made[-1]

        made: list[str] = []
        super().__init__(view, limited, folder, way=way, sink={"deadLetters.topic": self.letters})

    def value(self, partition: int, number: int) -> str:
        large = partition == 3 or number % 7 == 3
        return super().value(partition, number) + (LARGE if large else "")

    def check(self, query_id: str) -> None:
        """Small rows in order in the output, large ones in the dead-letter topic, once for each output that refuses
        them; offsets published, nothing open."""
        wait_for(lambda: self.view.held(self.output, self.letters) == {}, "the markers")
        rows = self.view.rows(self.output)
        for p, values in self.values.items():
            visible = [row.value.decode() for row in rows if row.partition == p]
            assert visible == [query.expected(value) for value in values if LARGE not in value]
        letters = Counter(
            (dict(row.headers)["__spark_eos.target.topic"], row.value) for row in self.view.rows(self.letters)
        )
        large = [
            query.expected(value).encode() for values in self.values.values() for value in values if LARGE in value
        ]
        outputs = (self.output, self.spec.also)
        assert letters == {(str(topic).encode(), value): 1 for topic in outputs for value in large}
        assert self.view.group(self.group, self.input) == self.view.ends(self.input)
        assert self.view.open_transactions(query_id) == set()


@in_turn("dead letters")
def test_a_kill_with_dead_letters(view: KafkaView, topic: Callable[..., str], spark: SparkSession, tmp_path: Path):
    """The share of the set for every day."""
    struck(LetterScene(view, topic, tmp_path), spark, *SHARE)


@pytest.mark.chaos
@also_by("transform")
@pytest.mark.parametrize(("point", "variant"), [case for case in EVERY if case[0].startswith(("prepare", "commit"))])
def test_kills_with_dead_letters(point, variant, view, topic, way, spark, tmp_path):
    """Wherever rows and letters are written, decided on and committed."""
    struck(LetterScene(view, topic, tmp_path, way), spark, point, variant)
