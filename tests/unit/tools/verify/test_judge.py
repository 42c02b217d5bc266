"""The judge of `spark-eos verify` against a checker of a few lines with dicts."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_eos.tools.verify.judge import _PAIR, FAULTS, Findings, History, _out_of_order, judge_history
from spark_eos.tools.verify.scan import row_schema
from spark_eos.tools.verify.spill import Spill, buckets_of


@dataclass(frozen=True)
class Row:
    """A row of either side. ``partition``: its index."""

    id: bytes
    partition: int
    offset: int
    key: bytes | None = None
    value: int = 0


@dataclass(frozen=True)
class Rows:
    """All rows of a history, and the group's offsets by input place, before and after. ``same_value``: values are
    compared."""

    input: list[Row]
    output: list[Row]
    uncommitted: list[Row]
    due: tuple[int, ...]
    done: tuple[int, ...] | None
    order: str = "input-partition"
    same_value: bool = True


def paired(sent: list[Row], got: list[Row], by_value: bool) -> list[tuple[Row, Row]]:
    """The rows of one id that belong together, of both sides in their order."""
    pairs = []
    for row in sent if by_value else ():
        same = next((one for one in got if one.value == row.value and one not in [two for _, two in pairs]), None)
        pairs += [] if same is None else [(row, same)]
    left, right = (
        [row for row in side if row not in [pair[n] for pair in pairs]] for n, side in enumerate((sent, got))
    )
    return pairs + list(zip(left, right, strict=False))


def naive(rows: Rows) -> dict[str, Counter]:
    """Ids by fault: what the judge must find."""
    faults: dict[str, Counter] = {fault: Counter() for fault in FAULTS}
    sent, got = defaultdict(list), defaultdict(list)
    for side, of in ((rows.input, sent), (rows.output, got)):
        for row in sorted(side, key=lambda row: (row.partition, row.offset)):
            of[row.id].append(row)
    for of_id in sent.values():
        of_id.sort(key=lambda row: row.offset >= rows.due[row.partition])
    aborted = {row.id for row in rows.uncommitted}
    pairs = [pair for id_ in list(sent) for pair in paired(sent[id_], got[id_], rows.same_value)]
    for id_ in {**sent, **got}:
        for row in sent[id_]:
            faults["lost"][id_] += row.offset < rows.due[row.partition] and row not in [one for one, _ in pairs]
        for _ in got[id_][len(sent[id_]) :]:
            faults["doubled" if sent[id_] else "aborted_visible" if id_ in aborted else "unknown"][id_] += 1
    newest: dict = {}
    for i, o in sorted(pairs, key=lambda pair: (pair[1].partition, pair[1].offset)):
        faults["early"][i.id] += rows.done is not None and i.offset >= rows.done[i.partition]
        faults["torn"][i.id] += rows.same_value and i.value != o.value
        if shared(rows)[told_by(rows, i)] > 1 and any(
            len({row.partition for row in of[i.id]}) > 1 for of in (sent, got)
        ):
            continue
        lane = (i.partition, o.partition, o.key if rows.order == "key" else None)
        if rows.order == "input-partition" or (rows.order == "key" and o.key is not None):
            faults["reordered"][i.id] += i.offset < newest.get(lane, -1)
            newest[lane] = max(i.offset, newest.get(lane, -1))
    return {fault: +ids for fault, ids in faults.items()}


def told_by(rows: Rows, row: Row) -> tuple:
    return (row.id, row.value) if rows.same_value else (row.id,)


def shared(rows: Rows) -> Counter:
    """How many rows of the input are told by each id."""
    return Counter(told_by(rows, row) for row in rows.input)


#: So few that all their seams are met.
BUCKETS = 4


def spill(folder: Path, name: str, rows: list[Row], value: bool) -> Spill:
    """Rows as the reader would have spilled them, two at a time."""
    result = Spill(folder / name, row_schema(key=name == "output", value=value), run_rows=3)
    for start in range(0, len(rows), 2):
        some = rows[start : start + 2]
        columns = {f: pa.array([getattr(r, f) for r in some], result.schema.field(f).type) for f in result.schema.names}
        result.add(columns, buckets_of([row.id for row in some], BUCKETS))
    return result.finish()


def judged(rows: Rows, limit: int = 1000) -> Findings:
    """What the judge finds, with segments as small."""
    findings = Findings(limit)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ends = [1 + max((r.offset for r in rows.output if r.partition == p), default=0) for p in range(3)]
        names = ("input", "output", "uncommitted")
        sides = [spill(folder, name, getattr(rows, name), rows.same_value) for name in names]
        history = History(*sides, rows.due, rows.done, ends, BUCKETS)
        judge_history(history, findings, folder, rows.order, segment_bits=1, run_rows=3)
    return findings


def ids_of(findings: Findings) -> dict[str, Counter]:
    return {fault: Counter(case.id for case in cases) for fault, cases in findings.cases.items()}


def side(ids: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[Row]]:
    """Rows in three partitions, at offsets that rise with gaps between them."""
    row = st.tuples(ids, st.integers(0, 2), st.integers(1, 2), st.sampled_from([None, b"k", b"l"]), st.integers(0, 1))

    def place(drawn: list[tuple]) -> list[Row]:
        ends = [0, 0, 0]
        rows = []
        for id_, at, step, key, value in drawn:
            rows.append(Row(id_, at, ends[at], key, value))
            ends[at] += step
        return rows

    return st.lists(row, max_size=25).map(place)


IDS = st.integers(0, 9).map(lambda n: b"%d" % n)
LIMITS = st.tuples(*[st.integers(0, 12)] * 3)
ORDERS = st.sampled_from(["input-partition", "input-partition", "key", "none"])
HISTORIES = st.builds(
    Rows,
    side(IDS),
    side(IDS),
    side(st.integers(5, 14).map(lambda n: b"%d" % n)),
    LIMITS,
    st.none() | LIMITS,
    ORDERS,
    st.booleans(),
)


def values(*numbers: int) -> list[Row]:
    """Rows of one id with these values."""
    return [Row(b"k", 0, offset, value=number) for offset, number in enumerate(numbers)]


def ids(text: str, partition: int = 0) -> list[Row]:
    """Rows of one value, the id of each of which is a letter."""
    return [Row(id_.encode(), partition, offset) for offset, id_ in enumerate(text)]


DUE = (9, 9, 9)


@given(HISTORIES)
# Rows of one id are told by their values, in any order, as a table has them; a third value is torn.
@example(Rows(values(1, 2, 2), values(2, 2, 1), [], DUE, None, "none"))
@example(Rows(values(1, 2, 2), values(2, 2, 3), [], DUE, None, "none"))
@example(Rows(values(2, 2, 3), values(1, 2, 2), [], DUE, None, "none"))
# Two topics with ids from 1 on, whose rows came in any order; and before the rows of the first one are due.
@example(Rows(ids("12") + ids("13", 1), ids("1312"), [], DUE, DUE, same_value=False))
@example(Rows(ids("12") + ids("13", 1), ids("13"), [], (0, 9, 9), (0, 9, 9), same_value=False))
# In one partition, first with first is the only way in which rows that cannot be told apart may have kept their order.
@example(Rows(ids("abab"), ids("aabb"), [], DUE, None, same_value=False))
# In several partitions of the output, they may have come in any.
@example(Rows(ids("aba"), ids("ba") + ids("a", 1), [], DUE, None, same_value=False))
def test_finds_what_a_naive_checker_finds(rows: Rows) -> None:
    """Any history: the same ids, as often, under the same fault; and all rows are accounted for."""
    findings = judged(rows)
    assert ids_of(findings) == naive(rows)
    assert findings.counts == {fault: ids.total() for fault, ids in naive(rows).items()}
    counts = findings.counts
    assert len(rows.input) == findings.pairs + counts["lost"] + findings.waiting
    strangers = counts["doubled"] + counts["aborted_visible"] + counts["unknown"]
    assert len(rows.output) == findings.pairs + strangers
    assert findings.shared == sum(count for count in shared(rows).values() if count > 1)


@st.composite
def nearly_clean(draw: st.DrawFn) -> Rows:
    """Unique rows copied in order, some of which were then swapped, left out, repeated, or made up."""
    drawn = draw(side(IDS))
    rows = [Row(b"%d" % n, row.partition, row.offset) for n, row in enumerate(drawn)]
    copies = list(rows)
    for _ in range(draw(st.integers(0, 3)) if rows else 0):
        i, j = (draw(st.integers(0, len(copies) - 1)) for _ in "ij")
        copies[i], copies[j] = copies[j], copies[i]
    copies = [row for row in copies for _ in range(draw(st.sampled_from([1, 1, 1, 1, 0, 2])))]
    copies += [Row(b"%d" % n, 0, 0) for n in draw(st.lists(st.integers(50, 54)))]
    ends = [0, 0]
    output = []
    for row in copies:
        to = draw(st.sampled_from([0, 0, 0, 1]))
        output.append(Row(row.id, to, ends[to], draw(st.sampled_from([b"k", b"k", b"l", None]))))
        ends[to] += draw(st.integers(1, 3))
    aborted = [Row(b"%d" % n, 0, at) for at, n in enumerate(draw(st.lists(st.integers(45, 52))))]
    return Rows(rows, output, aborted, draw(LIMITS), draw(st.none() | LIMITS), draw(ORDERS))


@given(nearly_clean())
def test_finds_what_was_planted(rows: Rows) -> None:
    """Few faults in a long history, so that each is seen by itself and over the seams of buckets and segments."""
    assert ids_of(judged(rows)) == naive(rows)


def test_examples_are_the_first_in_the_output_and_no_more_than_asked_for() -> None:
    """Buckets come in any order; what is shown is in the order of the log."""
    output = [Row(b"%d" % n, n % 2, n) for n in range(20)]
    findings = judged(Rows([], output, [], (0, 0, 0), None), limit=3)
    assert findings.counts["unknown"] == 20
    assert [(case.out_partition, case.out_offset) for case in findings.cases["unknown"]] == [(0, 0), (0, 2), (0, 4)]


def test_a_bucket_is_in_few_batches(tmp_path: Path) -> None:
    """Or their number would grow with the square of the rows, as there are more buckets then."""
    rows, buckets, runs = Spill(tmp_path / "rows", row_schema(), run_rows=4096), 8192, 12
    columns = {name: pa.nulls(buckets, rows.schema.field(name).type) for name in rows.schema.names}
    for _ in range(runs):
        rows.add(columns, pa.array(range(buckets), pa.int64()))
    assert sum(map(len, rows.finish()._batches.values())) <= buckets * runs // 2


@pytest.mark.parametrize(("places", "offset"), [(20, 1 << 56), (725, 5)], ids=["far offsets", "many lanes"])
def test_lanes_that_are_full_of_order(places: int, offset: int, tmp_path: Path) -> None:
    """One row in each, so that none is late: however many lanes there are in one bucket, and over all buckets."""
    schema = pa.schema(list(zip(_PAIR, (pa.int32(), pa.int64(), pa.int32(), pa.int64(), pa.binary()), strict=True)))
    pairs, count = Spill(tmp_path / "pairs", schema, 1 << 20), places**2
    number = np.arange(count)
    out, into = number // places, number % places
    pairs.add(
        {
            "out_partition": pa.array(out, pa.int32()),
            "out_offset": pa.array(into, pa.int64()),
            "in_partition": pa.array(into, pa.int32()),
            "in_offset": pa.array(np.full(count, offset), pa.int64()),
            "id": pa.array([b"x"] * count, pa.binary()),
        },
        pa.array(out if offset > 5 else np.zeros(count), pa.int64()),
    )
    pairs.finish()
    assert sum(late.num_rows for late in _out_of_order(pairs, carry=True)) == 0
