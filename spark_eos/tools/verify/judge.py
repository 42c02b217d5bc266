"""Compares an output's rows with its input's, bucket by bucket. Rows in, findings out; no Kafka.

A row of the input and a row of the output are a *pair* if they have the same id and are the same copy of it: the first
with the first, the second with the second, in the order of topics, partitions and offsets, but due rows come first,
and where values are compared, rows with the same value. A row without a pair is lost if it is in the input; in the
output it is doubled, aborted-visible or unknown. Rows of the input with the same id, and value where these are
compared, cannot be told apart: they are counted, and have no order if they are in several partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.tools.verify.comparison import Order
from spark_eos.tools.verify.spill import BY_VALUE, RUN_ROWS, Spill, buckets_of

FAULTS = ("lost", "doubled", "reordered", "aborted_visible", "unknown", "torn", "early")

#: The order in an output partition is checked this many offsets at a time, as a power of two.
SEGMENT_BITS = 18


@dataclass(frozen=True)
class History:
    """All rows that count, each spilled in buckets of its id.

    ``input``, ``output``: the rows that `read_committed` sees. ``uncommitted``: the rows that `read_uncommitted` sees
    of the input partitions in which the two differ. ``due``: for each input partition, the offset below which rows must
    have come through. ``done``: the offset from which no row may have come through, or None. ``output_ends``: of the
    output partitions. ``buckets``: how many there are, a power of two.
    """

    input: Spill
    output: Spill
    uncommitted: Spill
    due: Sequence[int]
    done: Sequence[int] | None
    output_ends: Sequence[int]
    buckets: int


@dataclass(frozen=True, order=True)
class Case:
    """One faulty row: indexes of its partitions and its offsets, -1 if it is not on that side."""

    out_partition: int
    out_offset: int
    in_partition: int
    in_offset: int
    id: bytes = b""
    note: str = ""


@dataclass
class Findings:
    """The number of rows with each fault, with the first ``limit`` of each; the number of pairs, faulty or not, of rows
    without a pair that are not due yet, and of rows of the input that cannot be told apart."""

    limit: int = 5
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAULTS, 0))
    cases: dict[str, list[Case]] = field(default_factory=lambda: {fault: [] for fault in FAULTS})
    pairs: int = 0
    waiting: int = 0
    shared: int = 0

    def add(self, fault: str, rows: pa.Table, note: str = "") -> None:
        """Add rows with the columns of a pair, any of which may be null."""
        self.counts[fault] += rows.num_rows
        if not rows.num_rows or not self.limit:
            return
        rows = rows.select(_PAIR).sort_by([(name, "ascending") for name in _PAIR[:4]]).slice(0, self.limit)
        self._keep(fault, [_case(row, note) for row in rows.to_pylist()])

    def add_case(self, fault: str, case: Case) -> None:
        """Count one more case of a fault, which is kept as an example while there are few. Cases come in order."""
        self.counts[fault] += 1
        if len(self.cases[fault]) < self.limit:  # they are in order
            self._keep(fault, [case])

    def _keep(self, fault: str, cases: list[Case]) -> None:
        self.cases[fault] = sorted(self.cases[fault] + cases)[: self.limit]


_PAIR = ["out_partition", "out_offset", "in_partition", "in_offset", "id"]


def _case(row: dict[str, Any], note: str) -> Case:
    out_partition, out_offset, in_partition, in_offset = (
        -1 if row[name] is None else int(row[name]) for name in _PAIR[:4]
    )
    return Case(out_partition, out_offset, in_partition, in_offset, row["id"], note)


def judge_history(
    history: History,
    findings: Findings,
    folder: Path,
    order: Order = "input-partition",
    *,
    segment_bits: int = SEGMENT_BITS,
    run_rows: int = RUN_ROWS,
) -> None:
    """Add all faults to ``findings``. Needs space in ``folder`` for the pairs, unless ``order`` is none."""
    pairs = None
    if order != "none":
        fields = list(zip(_PAIR, (pa.int32(), pa.int64(), pa.int32(), pa.int64(), pa.binary()), strict=True))
        schema = pa.schema(fields + [("key", pa.binary())] * (order == "key"))
        pairs = Spill(folder / "pairs", schema, run_rows)
    for number in sorted({*history.input.buckets, *history.output.buckets}):
        pairs_of_bucket = _judge_bucket(history, number, findings)
        if pairs is not None:
            _spill(pairs, pairs_of_bucket, history, segment_bits)
    if pairs is not None:
        for late in _out_of_order(pairs.finish(), carry=order == "input-partition"):
            findings.add("reordered", late)


def _judge_bucket(history: History, number: int, findings: Findings) -> pa.Table:
    """Judge everything but the order. Returns the pairs that have one."""
    sent, got = history.input.bucket(number), history.output.bucket(number)
    by_value = "value" in sent.column_names
    sent = _marked(sent, ["id", "value"] if by_value else ["id"])
    sent = sent.append_column("waits", pc.greater_equal(sent["offset"], _limits(history.due, sent["partition"])))
    both, only_in, only_out = _pairs(sent, got, by_value=by_value)
    findings.pairs += both.num_rows
    shared = sent.num_rows - pc.sum(sent["alone"], min_count=0).as_py()
    findings.shared += shared
    lost = only_in.filter(pc.invert(only_in["in_waits"]))
    findings.add("lost", lost)
    findings.waiting += only_in.num_rows - lost.num_rows
    _judge_surplus(only_out, sent, history.uncommitted.bucket(number), findings)
    if history.done is not None:
        findings.add(
            "early", both.filter(pc.greater_equal(both["in_offset"], _limits(history.done, both["in_partition"])))
        )
    if "in_value" in both.column_names:
        findings.add("torn", both.filter(pc.not_equal(both["in_value"], both["out_value"])), "value differs")
    if not shared:
        return both
    scattered = pa.concat_arrays([_scattered(sent), _scattered(got)])
    return both.filter(pc.or_(both["in_alone"], pc.invert(pc.is_in(both["id"], scattered))))


def _judge_surplus(surplus: pa.Table, sent: pa.Table, uncommitted: pa.Table, findings: Findings) -> None:
    """Find out why rows of the output have no pair."""
    is_known = pc.is_in(surplus["id"], sent["id"].combine_chunks())
    findings.add("doubled", surplus.filter(is_known))
    strangers = surplus.filter(pc.invert(is_known))
    is_aborted = pc.is_in(strangers["id"], uncommitted["id"].combine_chunks())
    findings.add("aborted_visible", strangers.filter(is_aborted))
    unknown = strangers.filter(pc.invert(is_aborted))
    has_id = pc.invert(pc.starts_with(unknown["id"], BY_VALUE))
    findings.add("unknown", unknown.filter(has_id))
    findings.add("torn", unknown.filter(pc.invert(has_id)))


def _pairs(sent: pa.Table, got: pa.Table, *, by_value: bool) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return the pairs, with columns ``in_…`` and ``out_…``, and the rows of either side without one, where the other
    side's are null. ``by_value``: rows with the same value belong together first."""
    if not by_value:
        return _joined(sent, got, ["id"])
    same, only_in, only_out = _joined(sent, got, ["id", "value"])
    left, right = (
        rows.select(["id", *(f"{side}_{name}" for name in of.column_names[1:])]).rename_columns(of.column_names)
        for rows, side, of in ((only_in, "in", sent), (only_out, "out", got))
    )
    others, only_in, only_out = _joined(left, right, ["id"])
    return pa.concat_tables([same, others.select(same.column_names)]), only_in, only_out


def _joined(sent: pa.Table, got: pa.Table, names: Sequence[str]) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Join like `_pairs` the rows that are equal in these columns, of which ``id`` is the first, and are the same
    copy."""
    keys = [*names, "copy"]
    left, right = (
        _with_copies(side, names).rename_columns(
            ["id", *(f"{prefix}_{name}" for name in side.column_names[1:]), "copy"]
        )
        for prefix, side in (("in", sent), ("out", got))
    )
    for name in names[1:]:
        left, right = (side.append_column(name, side[f"{of}_{name}"]) for of, side in (("in", left), ("out", right)))
    joined = left.join(right, keys, join_type="full outer").drop_columns(keys[1:]).combine_chunks()
    no_in, no_out = pc.is_null(joined["in_partition"]), pc.is_null(joined["out_partition"])
    return joined.filter(pc.invert(pc.or_(no_in, no_out))), joined.filter(no_out), joined.filter(no_in)


def _with_copies(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Add a column ``copy``: 0 for the first row with the same values in these columns, 1 for the second, by partition
    and offset, but due rows first. ``names``: ``id`` and maybe others."""
    if _all_differ(rows):
        return rows.append_column("copy", pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows))
    by = [*names, *["waits"] * ("waits" in rows.column_names), "partition", "offset"]
    rows = rows.sort_by([(name, "ascending") for name in by]).combine_chunks()
    index = _counting(rows.num_rows)
    first = pc.fill_null_forward(pc.if_else(_changes(rows, names), index, pa.scalar(None, pa.int64())))
    return rows.append_column("copy", pc.subtract(index, first))


def _marked(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Add a column ``alone``: whether no other row has the same values in these columns."""
    if _all_differ(rows):
        return rows.append_column("alone", pa.repeat(pa.scalar(True), rows.num_rows))
    rows = rows.sort_by([(name, "ascending") for name in names]).combine_chunks()
    is_first = _changes(rows, names)
    return rows.append_column("alone", pc.and_(is_first, pa.concat_arrays([is_first[1:], pa.array([True])])))


def _scattered(rows: pa.Table) -> pa.Array:
    """Return the ids whose rows are in several partitions: pairs of these may be others than the ones that were."""
    of_id = rows.group_by("id").aggregate([("partition", "min"), ("partition", "max")])
    return of_id.filter(pc.not_equal(of_id["partition_min"], of_id["partition_max"]))["id"].combine_chunks()


def _all_differ(rows: pa.Table) -> bool:
    """Tell whether all ids differ, as usual: then nothing needs to be sorted."""
    return bool(pc.count_distinct(rows["id"]).as_py() == rows.num_rows)


def _limits(offsets: Sequence[int], partitions: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.array(offsets, pa.int64()).take(partitions.combine_chunks())


def _counting(count: int) -> pa.Array:
    """Return 0, 1, 2, …"""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)


def _changes(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """Tell for each row whether it differs from the one before it in any of these columns; the first one does."""
    changed = None
    for name in names:
        column = rows[name].combine_chunks()
        differs = pc.not_equal(column[1:], column[:-1])
        changed = differs if changed is None else pc.or_(changed, differs)
    return pa.concat_arrays([pa.array([True]), changed])


# Order


def _spill(pairs: Spill, rows: pa.Table, history: History, segment_bits: int) -> None:
    """Put pairs into the bucket in which their order is judged.

    By partition: segments of the output's partitions, which come one after the other, so that a maximum for each lane
    is all that must be remembered. By key: all rows of a key are together, as there may be too many keys to remember.
    """
    if "key" in pairs.schema.names:
        rows = rows.rename_columns({"out_key": "key"})
        rows = rows.filter(pc.is_valid(rows["key"]))  # rows without a key have no order
        bucket = buckets_of(rows["key"].to_pylist(), history.buckets)
    else:
        firsts, segments = [], 0
        for end in history.output_ends:
            firsts.append(segments)
            segments += (end >> segment_bits) + 1
        segment = pc.shift_right(rows["out_offset"].combine_chunks(), segment_bits)
        bucket = pc.add(segment, _limits(firsts, rows["out_partition"]))
    pairs.add({name: rows[name].combine_chunks() for name in pairs.schema.names}, bucket)


def _out_of_order(pairs: Spill, carry: bool) -> Iterator[pa.Table]:
    """Yield pairs whose input row is older than the input row of an earlier row in the same lane of the output.

    A lane is an input partition in an output partition, and a key where there is one. ``carry``: the lanes of an output
    partition go on from one bucket to the next; output partitions come one after the other.
    """
    lane = [name for name in ("in_partition", "out_partition", "key") if name in pairs.schema.names]
    newest = pairs.schema.empty_table()
    for number in pairs.buckets:
        rows = pa.concat_tables([newest, pairs.bucket(number)])
        rows = rows.sort_by([(name, "ascending") for name in (*lane, "out_offset")]).combine_chunks()
        # Lanes are numbered upwards, so one running maximum over all of them restarts with each. Of an int64, offsets
        # leave enough bits for the lanes of one bucket: even 17 trillion leave bits for 500,000 of them.
        lanes = pc.cumulative_sum(_changes(rows, lane).cast(pa.int64()))
        bits = pc.max(rows["in_offset"]).as_py().bit_length()
        height = pc.add(pc.shift_left(lanes, bits), rows["in_offset"].combine_chunks())
        yield rows.filter(pc.less(height, pc.cumulative_max(height)))
        if carry:
            rows = rows.filter(pc.equal(rows["out_partition"], pc.max(rows["out_partition"])))
            maxima = rows.group_by(lane).aggregate([("in_offset", "max")])
            before_all = pa.repeat(pa.scalar(-1, pa.int64()), maxima.num_rows)
            nameless = pa.repeat(pa.scalar(b"", pa.binary()), maxima.num_rows)
            columns = [maxima["out_partition"], before_all, maxima["in_partition"], maxima["in_offset_max"], nameless]
            newest = pa.table(columns, schema=pairs.schema)
