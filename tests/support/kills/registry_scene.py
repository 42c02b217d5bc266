"""A scene whose records have schemas of a registry, which changes when the query is dead and before it goes on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.support.judges.kafka_view import KafkaView
from tests.support.kills import query
from tests.support.kills.registry_records import KNOWN, LATER, LATER_SCHEMA, NEVER, SCHEMA, SUBJECT, of_record, record
from tests.support.kills.scene import Scene
from tests.support.servers.fake_registry import FakeRegistry
from tests.support.waiting import wait_for

#: What becomes of the registry while the query is dead: it learns an id, is away when the query is started, or is
#: another one then, where the first id means something else.
CHANGES = ("learns", "away", "anew")
#: What the first start may stop with, where tasks have something to read.
_STOPS = {"away": "EOS_REGISTRY_UNREACHABLE", "anew": "EOS_REGISTRY_CHANGED"}

SCHEMAS = {KNOWN: SCHEMA}
VERSIONS = {SUBJECT: KNOWN}


class RegistryScene(Scene):
    """``change``: one of `CHANGES`. ``lost``: so many transactions that are open when the query is dead are aborted, so
    that those that are decided have to be written again."""

    def __init__(
        self,
        view: KafkaView,
        topic: Callable[..., str],
        folder: Path,
        registry: FakeRegistry,
        change: str,
        lost: int = 0,
    ) -> None:
        self.registry, self._change, self._lost = registry, change, lost
        self.letters = topic(max_message_bytes=2_000_000)
        super().__init__(view, topic, folder, way="transform", registry=registry.url, letters=self.letters)

    def value(self, partition: int, number: int) -> str:
        """A record of one id or another."""
        return record({2: LATER, 4: NEVER}.get(number % 5, KNOWN), super().value(partition, number))

    def drain(self, spark: SparkSession) -> str:
        """First of all, what is open is lost, and the registry changes. Where it is away or another one, the query may
        stop, by the name of that, and goes on when the registry is there again."""
        change, self._change = self._change, ""
        if change:
            id_ = json.loads(Path(self.spec.checkpoint, "metadata").read_text())["id"]
            for name in sorted(self.view.open_transactions(id_))[: self._lost]:
                self.view.end_transaction(name, commit=False)
        if change == "learns":
            self.registry.schemas[LATER] = LATER_SCHEMA
        elif change:
            with self.registry.away() if change == "away" else self.registry.anew({KNOWN: LATER_SCHEMA}):
                try:
                    super().drain(spark)
                except StreamingQueryException as error:
                    assert _STOPS[change] in str(error)
        return super().drain(spark)

    def check(self, query_id: str) -> None:
        """Every record is a row or a dead letter, once; one whose id was known at all times is a row, one whose id was
        known at none is a letter. Rows keep their order. Offsets are published, and nothing is open."""
        outputs = [topic for topic in (self.output, self.spec.also) if topic]
        wait_for(lambda: self.view.held(*outputs, self.letters) == {}, "the markers")
        letters = Counter(of_record(value) for value in self.view.values(self.letters))
        records = [of_record(value) for values in self.values.values() for value in values]
        assert set(letters.values()) <= {1} and letters.keys() <= set(records)
        ids = {id_: {row for of, row in records if of == id_} for id_ in (KNOWN, LATER, NEVER)}
        lettered = {row for _, row in letters}
        assert ids[NEVER] <= lettered and not ids[KNOWN] & lettered
        for topic in outputs:
            rows = self.view.rows(topic)
            for p, values in self.values.items():
                wanted = [row for _, row in map(of_record, values) if row not in lettered]
                assert [row.value.decode() for row in rows if row.partition == p] == list(map(query.expected, wanted))
        assert self.view.group(self.group, self.input) == self.view.ends(self.input)
        assert self.view.open_transactions(query_id) == set()
