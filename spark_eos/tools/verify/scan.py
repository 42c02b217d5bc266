"""Reads topics and tables, and spills the id, the partition and the offset of each row."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Message

from spark_eos.errors import EosError, stop
from spark_eos.kafka.config.properties import Isolation
from spark_eos.tools.verify.bounds import PartitionBounds, VerifiedBounds
from spark_eos.tools.verify.comparison import Comparison, IdPlace
from spark_eos.tools.verify.judge import Case, Findings, History
from spark_eos.tools.verify.reader import RowReader
from spark_eos.tools.verify.sample import Sample
from spark_eos.tools.verify.spill import Spill, buckets_of, made_id, shortened
from spark_eos.tools.verify.table_ids import VALUE, TableIds, check_columns
from spark_eos.tools.verify.tables import TableAddress

#: Target rows of one bucket; judging it takes some 300 bytes of memory for each.
BUCKET_ROWS = 65_536


class Scan:
    """Reads both sides into a `History`. ``counts``: rows, by the names in `COUNTS`. ``warnings``: possible limits of
    the answer."""

    def __init__(
        self,
        comparison: Comparison,
        bounds: VerifiedBounds,
        folder: Path,
        findings: Findings,
        progress: Callable[[str], None],
    ) -> None:
        self.counts = {"input_uncommitted": 0, "output_uncommitted": 0}
        self.warnings: list[str] = []
        self._question, self._bounds, self._findings, self._progress = comparison, bounds, findings, progress
        rows = max(sum(p.end - p.begin for p in side) for side in (bounds.inputs, bounds.outputs))
        rows = max(rows, 0 if bounds.table is None else bounds.table.rows())
        self._buckets = 1 << max(0, (rows // BUCKET_ROWS).bit_length())
        self._folder = folder
        self._read, self._next_word, self._began = 0, 0.0, time.monotonic()

    def history(self) -> History:
        """Read both sides. Raises CommandError (EOS_VERIFY_IMPOSSIBLE) if no row of a side has an id."""
        comparison, bounds = self._question, self._bounds
        value = comparison.same_value
        schema = row_schema(value=value)
        due = bounds.due
        if comparison.input_table is None:
            input_, gaps_in = self._committed("input", bounds.inputs, comparison.id, schema)
        else:
            input_, gaps_in = self._of_table("input", comparison.input_table, comparison.id, schema), {}
            due = (input_.rows,)
        schema = row_schema(key=comparison.order == "key", value=value)
        if comparison.output_table is None:
            output, gaps_out = self._committed("output", bounds.outputs, comparison.output_id, schema)
        else:
            output, gaps_out = self._of_table("output", comparison.output_table, comparison.output_id, schema), {}
        uncommitted = self._uncommitted_input(gaps_in)
        self._uncommitted_output(gaps_out)
        ends = [partition.end for partition in bounds.outputs]
        return History(input_, output, uncommitted, due, bounds.done, ends, self._buckets)

    def _committed(
        self, side: str, partitions: Sequence[PartitionBounds], id_place: IdPlace, schema: pa.Schema
    ) -> tuple[Spill, dict[int, int]]:
        """Read all committed rows. Returns their number for partitions in which `read_uncommitted` may see more."""
        spill, sample = Spill(self._folder / side, schema), Sample()
        gaps: dict[int, int] = {}
        rows: Counter[str] = Counter()  # by topic
        ids: Counter[str] = Counter()
        with self._reader("read_committed", side) as reader:
            for index, partition in enumerate(partitions):
                count = 0
                for messages in reader.read(partition, partition.stable):
                    count += len(messages)
                    ids[partition.topic] += self._keep(spill, sample, index, id_place, messages)
                rows[partition.topic] += count
                if count < partition.end - partition.begin:  # markers, aborted or open transactions, or compaction
                    gaps[index] = count
        self.counts[side] = rows.total()
        nameless = [topic for topic, count in rows.items() if count and not ids[topic]]
        if nameless and not ids.total():
            raise _no_id(side, rows, id_place, sample, "key, value, header:NAME or json:FIELD")
        self.warnings += [f"no row of {topic} has an id at {id_place}" for topic in nameless]
        return spill.finish(), gaps

    def _of_table(self, side: str, address: TableAddress, id_place: IdPlace, schema: pa.Schema) -> Spill:
        """Read all rows of the table. Their partition is 0, and their offsets number the rows that have an id."""
        spill, table, read = Spill(self._folder / side, schema), self._bounds.table, 0
        assert table is not None
        where = TableIds.at(str(address), id_place, table.columns, self._question.inputs)
        values = [VALUE] * self._question.same_value
        at = (-1, -1, 0, 0) if side == "input" else (0, 0, -1, -1)
        check_columns(str(address), values, table.columns)
        for batch in table.batches(list(dict.fromkeys([*where.columns, *values]))):
            read += batch.num_rows
            self._tell(side, batch.num_rows)
            ids = where.ids(batch)
            present = shortened([id_ for id_ in ids if id_ is not None])
            for _ in range(len(ids) - len(present)):
                self._findings.add_case("torn", Case(*at, note=f"no id at {id_place}"))
            columns = {
                "id": pa.array(present, pa.binary()),
                "partition": pa.repeat(pa.scalar(0, pa.int32()), len(present)),
                "offset": pa.array(range(spill.rows, spill.rows + len(present)), pa.int64()),
            }
            if values:
                hashes = [hash(value) for value, id_ in zip(where.values(batch), ids, strict=True) if id_ is not None]
                columns["value"] = pa.array(hashes, pa.int64())
            spill.add(columns, buckets_of(present, self._buckets))
        self.counts[side] = read
        if read and not spill.rows:
            columns_there = f"Its columns are {', '.join(table.columns)}"
            raise _no_id(side, {str(address): read}, id_place, columns_there, "column:NAME, key, value or json:FIELD")
        return spill.finish()

    def _keep(self, spill: Spill, sample: Sample, partition: int, id_place: IdPlace, messages: list[Message]) -> int:
        """Spill the messages of one partition. Returns how many have an id."""
        ids = id_place.ids(messages)
        if None in ids:
            sample.add(partition, [message for message, id_ in zip(messages, ids, strict=True) if id_ is None])
        self._spill(spill, partition, ids, messages)
        return len(ids) - ids.count(None)

    def _spill(self, spill: Spill, partition: int, ids: list[bytes | None], messages: list[Message]) -> None:
        """Spill the messages of one partition, with an id that is made for each that has none."""
        kept = shortened(
            [
                made_id(message.key(), message.value()) if id_ is None else id_
                for message, id_ in zip(messages, ids, strict=True)
            ]
        )
        if kept:
            spill.add(row_columns(messages, partition, kept, spill.schema), buckets_of(kept, self._buckets))

    def _uncommitted_input(self, gaps: Mapping[int, int]) -> Spill:
        """Read all rows of input partitions with gaps, committed or not: only their ids matter."""
        spill = Spill(self._folder / "uncommitted", row_schema())
        total = 0
        with self._reader("read_uncommitted", "input again, uncommitted") as reader:
            for index in gaps:
                partition = self._bounds.inputs[index]
                for messages in reader.read(partition, partition.end):
                    total += len(messages)
                    self._spill(spill, index, self._question.id.ids(messages), messages)
        self.counts["input_uncommitted"] = max(0, total - sum(gaps.values()))  # compaction may have removed some
        return spill.finish()

    def _uncommitted_output(self, gaps: Mapping[int, int]) -> None:
        """Count the rows of output partitions with gaps."""
        total = 0
        with self._reader("read_uncommitted", "output again, uncommitted") as reader:
            for index in gaps:
                partition = self._bounds.outputs[index]
                total += sum(map(len, reader.read(partition, partition.end)))
        self.counts["output_uncommitted"] = max(0, total - sum(gaps.values()))

    def _reader(self, isolation: Isolation, what: str) -> RowReader:
        return RowReader(self._question.kafka, isolation, functools.partial(self._tell, what))

    def _tell(self, what: str, rows: int) -> None:
        """Count rows that were read."""
        self._read += rows
        now = time.monotonic()
        if now > self._next_word:
            self._next_word = now + 0.25
            speed = self._read / max(0.001, now - self._began)
            self._progress(f"reading the {what}: {self._read:,} rows, {speed:,.0f} a second")


def _no_id(side: str, rows: Mapping[str, int], id_place: IdPlace, sample: Sample | str, choices: str) -> EosError:
    """Return the error for rows without an id. ``rows``: by topic, or of the table; ``choices``: the values that the
    option takes here."""
    option = "--id" if side == "input" else "--output-id"
    return stop(
        "EOS_VERIFY_IMPOSSIBLE.no_id",
        side=side,
        topics=list(rows),
        where=str(id_place),
        rows=", ".join(rows),
        place=id_place,
        read=sum(rows.values()),
        sample=sample,
        option=option,
        places=choices,
    )


def row_schema(key: bool = False, value: bool = False) -> pa.Schema:
    """Return a row of a topic: its id, the index of its partition, its offset; its key and its value's hash if
    wanted."""
    fields = [("id", pa.binary()), ("partition", pa.int32()), ("offset", pa.int64())]
    return pa.schema(fields + [("key", pa.binary())] * key + [("value", pa.int64())] * value)


def row_columns(messages: list[Message], partition: int, ids: list[bytes], schema: pa.Schema) -> dict[str, pa.Array]:
    """Convert messages of one partition to columns of `row_schema`, in a pass for each field, without Python for each
    row."""
    columns = {
        "id": pa.array(ids, pa.binary()),
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), len(messages)),
        "offset": pa.array(list(map(Message.offset, messages)), pa.int64()),
    }
    if "key" in schema.names:
        keys = list(map(Message.key, messages))
        named = iter(shortened([key for key in keys if key is not None]))
        columns["key"] = pa.array([key if key is None else next(named) for key in keys], pa.binary())
    if "value" in schema.names:
        columns["value"] = pa.array(list(map(hash, map(Message.value, messages))), pa.int64())
    return columns
