"""Histories of a Delta table with a change data feed, drawn from a seed and written by delta-rs, and an independent
reader of its changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.support.judges.kafka_view import Row

#: The order of the kinds of changes within a version.
KINDS = ("delete", "update_preimage", "update_postimage", "insert")
RECORDED = {"delta.enableChangeDataFeed": "true"}
KEYS = 40

#: Version, kind, key and value.
Change = tuple[int, str, str, str]


class ChangedTable:
    """A table with the columns ``key``, which is unique, ``value``, and ``p``, by which it may be partitioned.

    ``state``: the value of each key.
    """

    def __init__(self, path: Path, seed: object = "", partition_by: Iterable[str] = ()) -> None:
        self.path, self.state = path, dict[str, str]()
        self.chance = random.Random(repr(seed))
        self._number = 0
        schema = pa.schema({"key": pa.string(), "value": pa.string(), "p": pa.int32()})
        DeltaTable.create(str(path), schema, partition_by=list(partition_by), configuration=RECORDED)

    @property
    def version(self) -> int:
        """The newest."""
        return DeltaTable(str(self.path)).version()

    def change(self, times: int = 1) -> None:
        """So many versions, or fewer where there is nothing to change."""
        every = [self.insert, self.insert, self.update, self.merge, self.merge, self.delete, self.remove]
        for _ in range(times):
            self.chance.choice([*every, self.overwrite, self.compact])()

    def insert(self) -> None:
        """By an append."""
        new = [key for key in self._keys() if key not in self.state]
        if new:
            self._write({key: self._value() for key in new}, "append")

    def update(self) -> None:
        """Some rows, or none."""
        value, low = self._value(), self._key()
        DeltaTable(str(self.path)).update(updates={"value": f"'{value}'"}, predicate=f"key > '{low}'")
        self.state |= {key: value for key in self.state if key > low}

    def delete(self) -> None:
        """Some rows, or none."""
        low = self._key()
        DeltaTable(str(self.path)).delete(f"key < '{low}'")
        self.state = {key: value for key, value in self.state.items() if key >= low}

    def remove(self) -> None:
        """All rows with a value of `p`: whole files, where they are partitioned by it."""
        p = self.chance.randrange(3)
        DeltaTable(str(self.path)).delete(f"p = {p}")
        self.state = {key: value for key, value in self.state.items() if p_of(key) != p}

    def merge(self) -> None:
        """Updates, inserts, and deletes of what is no longer there."""
        rows = {key: self._value() for key in self._keys()}
        merge = DeltaTable(str(self.path)).merge(_table(rows), "t.key = s.key", source_alias="s", target_alias="t")
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
        self.state |= rows
        if self.chance.random() < 0.5:
            low = self._key()
            merge = merge.when_not_matched_by_source_delete(f"t.key < '{low}'")
            self.state = {key: value for key, value in self.state.items() if key >= low or key in rows}
        merge.execute()

    def overwrite(self) -> None:
        """All rows: a version that removes and adds files, without a file of changes."""
        rows = {key: self._value() for key in self._keys()}
        self.state = {}
        self._write(rows, "overwrite")

    def compact(self) -> None:
        """OPTIMIZE, which changes no rows."""
        DeltaTable(str(self.path)).optimize.compact()

    def _write(self, rows: dict[str, str], mode: str) -> None:
        write_deltalake(str(self.path), _table(rows), mode=mode)  # type: ignore[call-overload]  # as it is drawn
        self.state |= rows

    def _keys(self) -> list[str]:
        return sorted({self._key() for _ in range(self.chance.randint(1, 12))})

    def _key(self) -> str:
        return f"{self.chance.randrange(KEYS):03d}"

    def _value(self) -> str:
        self._number += 1
        return f"v{self._number}"


def p_of(key: str) -> int:
    """The column `p` of a key's row."""
    return int(key) % 3


def _table(rows: dict[str, str]) -> pa.Table:
    p = pa.array([p_of(key) for key in rows], pa.int32())
    return pa.table({"key": list(rows), "value": list(rows.values()), "p": p})


def written(rows: Iterable[Row]) -> list[Change]:
    """The changes that consumers of a topic see, in their order: that of each key, whose rows are in one partition."""
    found = []
    for row in sorted(rows, key=lambda row: (row.partition, row.offset)):
        headers = {name: (value or b"").decode() for name, value in row.headers}
        version, kind = headers["delta.commit.version"], headers["delta.change.type"]
        found.append((int(version), kind, (row.key or b"").decode(), (row.value or b"").decode()))
    return found


def by_library(path: Path, first: int) -> Counter[Change]:
    """The changes since a version, as delta-rs reads them: in no order."""
    read = pa.table(DeltaTable(str(path)).load_cdf(starting_version=first))
    columns = (read.column(name).to_pylist() for name in ("_commit_version", "_change_type", "key", "value"))
    return Counter(zip(*columns, strict=True))


def check_order(changes: Iterable[Change]) -> None:
    """Each key's changes are in the order in which they were made."""
    last: dict[str, tuple[int, int]] = {}
    for version, kind, key, _ in changes:
        at = version, KINDS.index(kind)
        assert last.get(key, (-1, -1)) <= at, f"{key}: {at} after {last[key]}"
        last[key] = at


def state_after(changes: Iterable[Change]) -> dict[str, str]:
    """What who takes the last change of each key has."""
    state: dict[str, str] = {}
    for _, kind, key, value in changes:
        if kind == "delete":
            state.pop(key, None)
        elif kind != "update_preimage":
            state[key] = value
    return state
