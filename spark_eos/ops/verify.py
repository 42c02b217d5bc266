"""``spark-eos verify``: whether each row of some topics got into others exactly once, by what plain consumers see.

::

    bounds ──> rows of input and output, spilled by id (history.py) ──> findings (judge.py) ──> Report

The order in which bounds are taken makes the answer hold for a query that is running: what is *due* is noted before
where the output ends, and what cannot have come through *yet*, and where the input ends, after it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka import KafkaError as ClientError

from spark_eos.errors import OptionError
from spark_eos.kafka.config import check
from spark_eos.kafka.metadata import (
    COORDINATOR_MOVING,
    TIMEOUT_S,
    Isolation,
    Offsets,
    admin_client,
    begin_offsets,
    end_offsets,
    named,
    topic_partitions,
)
from spark_eos.ops.history import Place, Reader, Spill, Where, buckets_of, row_columns, row_schema, shortened
from spark_eos.ops.judge import FAULTS, Case, Findings, History, Order, judge
from spark_eos.options import KafkaProperties

#: Seconds to wait for transactions that are just being ended, before the output or the group counts as held back.
PATIENCE_S = 3.0
#: Seconds without a row after which reading fails.
STALL_S = 60.0
#: Rows that one bucket is to hold; what is in memory while it is judged is some 300 bytes for each.
BUCKET_ROWS = 65_536


@dataclass(frozen=True)
class Question:
    """What is asked.

    ``group``: rows below its committed offsets are due, others must not be there yet. ``allow_missing``: rows may be
    left out. ``same_value``: a row's value must not change. ``limit``: examples of each fault. ``timeout_s``: how long
    a silent cluster is waited for.
    """

    kafka: KafkaProperties
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    id: Where
    output_id: Where
    group: str | None = None
    order: Order = "input-partition"
    allow_missing: bool = False
    same_value: bool = False
    limit: int = 5
    timeout_s: float = TIMEOUT_S


@dataclass(frozen=True)
class Example:
    """One faulty row: its id, or None where it cannot be read, and where it is, as ``topic-partition@offset``."""

    id: str | None
    input: str | None
    output: str | None
    note: str = ""


@dataclass(frozen=True)
class Report:
    """What was found. ``counts``: see `COUNTS`; ``faults``: those that there are, with ``examples`` of each;
    ``warnings``: what limits the answer."""

    counts: Mapping[str, int]
    examples: Mapping[str, Sequence[Example]]
    warnings: Sequence[str]
    faults: Sequence[str]

    @property
    def ok(self) -> bool:
        return not self.faults

    @property
    def verdict(self) -> str:
        if self.ok:
            return f"OK: {self.counts['pairs']:,} rows got through exactly once"
        return "FAULTY: " + ", ".join(f"{self.counts[fault]:,} {label(fault)}" for fault in self.faults)


#: Every count of a report, with its line in the table.
COUNTS = {
    "input": "rows in the input",
    "input_uncommitted": "rows of the input that only read_uncommitted sees",
    "output": "rows in the output",
    "output_uncommitted": "rows of the output that only read_uncommitted sees",
    "pairs": "rows of the output that are a row of the input",
    "waiting": "rows of the input that are not due yet",
    "lost": "due, and not in the output",
    "doubled": "more often in the output than in the input",
    "reordered": "after a younger row of the same input partition",
    "aborted_visible": "in the output, though the input never committed it",
    "unknown": "in the output, and in no input",
    "torn": "without an id that can be read, or changed",
    "early": "in the output, though the group is not past it",
}


def label(fault: str) -> str:
    return fault.replace("_", " ")


def verify(question: Question, progress: Callable[[str], None] = lambda text: None) -> Report:
    """Read everything and judge. ``progress`` is called now and then with a line for people. Raises EosError."""
    check(question.kafka, "consumer")
    bounds = _bounds(question)
    findings = Findings(question.limit)
    with tempfile.TemporaryDirectory(prefix="spark-eos-verify-") as name:
        folder = Path(name)
        intake = _Intake(question, bounds, folder, findings, progress)
        history = intake.history()
        progress("judging")
        judge(history, findings, folder, question.order)
        return _report(question, bounds, findings, intake.counts)


# Bounds


@dataclass(frozen=True)
class _Bounds:
    """Places of both sides; for each input place the offset up to which rows are due, and with a group that from which
    none may be there."""

    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    due: tuple[int, ...]
    done: tuple[int, ...] | None
    warnings: tuple[str, ...]


def _bounds(question: Question) -> _Bounds:
    """Take the bounds, in the order that lets them be compared (see the module)."""
    kafka, timeout_s = question.kafka, question.timeout_s
    topics = dict.fromkeys(question.inputs + question.outputs)
    counts = topic_partitions(kafka, topics, timeout_s)
    partitions = {topic: range(count) for topic, count in counts.items()}
    of_input = {topic: partitions[topic] for topic in question.inputs}
    of_output = {topic: partitions[topic] for topic in question.outputs}
    warnings: list[str] = []

    stable = end_offsets(kafka, of_input, "read_committed", timeout_s)
    before = _group_offsets(question, of_input, warnings) if question.group else stable
    ends = end_offsets(kafka, of_output, "read_uncommitted", timeout_s)
    outputs = _places(kafka, of_output, _settled(question, of_output, ends), ends, timeout_s)
    after = _group_offsets(question, of_input, warnings) if question.group else None
    stable = end_offsets(kafka, of_input, "read_committed", timeout_s)
    ends = end_offsets(kafka, of_input, "read_uncommitted", timeout_s)
    inputs = _places(kafka, of_input, stable, ends, timeout_s)

    due = tuple(before[place.topic][place.partition] for place in inputs)
    done = tuple(after[place.topic][place.partition] for place in inputs) if after is not None else None
    warnings += _warnings(question, inputs, outputs, due)
    return _Bounds(inputs, outputs, due, done, tuple(dict.fromkeys(warnings)))


def _places(
    kafka: KafkaProperties, partitions: Mapping[str, Iterable[int]], stable: Offsets, ends: Offsets, timeout_s: float
) -> tuple[Place, ...]:
    begins = begin_offsets(kafka, partitions, timeout_s)
    return tuple(
        Place(topic, p, begins[topic][p], stable[topic][p], max(stable[topic][p], ends[topic][p]))
        for topic, numbers in partitions.items()
        for p in numbers
    )


def _settled(question: Question, partitions: Mapping[str, Iterable[int]], ends: Offsets) -> Offsets:
    """Last stable offsets once all before ``ends`` is stable, or when `PATIENCE_S` is over: never past ``ends``."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        stable = end_offsets(question.kafka, partitions, "read_committed", question.timeout_s)
        stable = {topic: {p: min(at, ends[topic][p]) for p, at in of.items()} for topic, of in stable.items()}
        if stable == ends or time.monotonic() > deadline:
            return stable
        time.sleep(0.05)


def _group_offsets(question: Question, partitions: Mapping[str, Iterable[int]], warnings: list[str]) -> Offsets:
    """What the group has committed of the inputs, 0 where nothing. Raises OptionError, ConnectionFailed, KafkaError."""
    assert question.group is not None
    began = time.monotonic()
    asked = [TopicPartition(topic, p) for topic, numbers in partitions.items() for p in numbers]
    while True:
        waited_s = time.monotonic() - began
        pending = waited_s < PATIENCE_S  # offsets of a transaction that is just being ended
        try:
            (future,) = (
                admin_client(question.kafka)
                .list_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(question.group, asked)],
                    require_stable=pending,
                    request_timeout=question.timeout_s,
                )
                .values()
            )
            found = future.result().topic_partitions
            failed = next((place.error for place in found if place.error), None)
            if failed is None:
                break
        except KafkaException as error:
            failed = error.args[0]
        if failed.code() == ClientError.UNSTABLE_OFFSET_COMMIT:
            if not pending:
                raise named(question.kafka, f"the group {question.group}", failed, waited_s)
        elif failed.code() not in COORDINATOR_MOVING or waited_s > question.timeout_s:
            raise named(question.kafka, f"the group {question.group}", failed, waited_s)
        time.sleep(0.05)
    if all(place.offset < 0 for place in found):
        raise OptionError(
            "EOS_VERIFY_GROUP_EMPTY",
            f"The group '{question.group}' has committed no offset of {', '.join(partitions)}.",
            hint="Check its name; leave --group out where the job publishes no offsets.",
            group=question.group,
        )
    if not pending:
        warnings.append(f"a transaction holds offsets of the group {question.group} that are not committed yet")
    offsets: Offsets = {topic: {} for topic in partitions}
    for place in found:
        offsets[place.topic][place.partition] = max(0, place.offset)
    return offsets


def _warnings(
    question: Question, inputs: Sequence[Place], outputs: Sequence[Place], due: Sequence[int]
) -> Iterable[str]:
    for place in outputs:
        if place.stable < place.end:
            yield f"an open transaction holds {place} back: readers get to {place.stable} of {place.end}"
    for place, limit in zip(inputs, due, strict=True):
        if question.group and limit > place.end:
            yield f"the group {question.group} is at {limit} of {place}, which ends at {place.end}"
        if place.begin > 0:
            yield f"{place} begins at {place.begin}: rows of the output that are older count as unknown"
    for place in outputs:
        if place.begin > 0:
            yield f"{place} begins at {place.begin}: rows of the input that were older there count as lost"


# Rows


class _Intake:
    """Reads both sides into a `History`. ``counts``: rows, by the names in `COUNTS`."""

    def __init__(
        self,
        question: Question,
        bounds: _Bounds,
        folder: Path,
        findings: Findings,
        progress: Callable[[str], None],
    ) -> None:
        self.counts = {"input_uncommitted": 0, "output_uncommitted": 0}
        self._question, self._bounds, self._findings, self._progress = question, bounds, findings, progress
        rows = max(sum(p.end - p.begin for p in side) for side in (bounds.inputs, bounds.outputs))
        self._buckets = 1 << max(0, (rows // BUCKET_ROWS).bit_length())
        self._folder = folder
        self._read, self._next_word, self._began = 0, 0.0, time.monotonic()

    def history(self) -> History:
        question, bounds = self._question, self._bounds
        value = question.same_value
        input_, gaps_in = self._committed("input", bounds.inputs, question.id, row_schema(value=value))
        schema = row_schema(key=question.order == "key", value=value)
        output, gaps_out = self._committed("output", bounds.outputs, question.output_id, schema)
        uncommitted = self._uncommitted_input(gaps_in)
        self._uncommitted_output(gaps_out)
        ends = [place.end for place in bounds.outputs]
        return History(input_, output, uncommitted, bounds.due, bounds.done, ends, self._buckets)

    def _committed(self, side: str, places: Sequence[Place], where: Where, schema: Any) -> tuple[Spill, dict[int, int]]:
        """All committed rows; and for places in which `read_uncommitted` may see more, how many rows there were."""
        spill = Spill(self._folder / side, schema)
        gaps: dict[int, int] = {}
        total = 0
        with self._reader("read_committed", side) as reader:
            for index, place in enumerate(places):
                count = 0
                for messages in reader.read(place, place.stable):
                    count += len(messages)
                    self._keep(spill, side, index, where, messages)
                total += count
                if count < place.end - place.begin:  # markers, aborted or open transactions, or compaction
                    gaps[index] = count
        self.counts[side] = total
        return spill.finish(), gaps

    def _keep(self, spill: Spill, side: str, place: int, where: Where, messages: list[Any]) -> None:
        ids = where.ids(messages)
        if None in ids:
            for message, found in zip(messages, ids, strict=True):
                if found is None:
                    self._unreadable(side, place, message.offset(), where)
            messages = [message for message, found in zip(messages, ids, strict=True) if found is not None]
            ids = [found for found in ids if found is not None]
            if not ids:
                return
        ids = list(map(shortened, ids))
        spill.add(row_columns(messages, place, ids, spill.schema), buckets_of(ids, self._buckets))

    def _unreadable(self, side: str, place: int, offset: int, where: Where) -> None:
        at = (-1, -1, place, offset) if side == "input" else (place, offset, -1, -1)
        self._findings.add_case("torn", Case(*at, note=f"no id at {where}"))

    def _uncommitted_input(self, gaps: Mapping[int, int]) -> Spill:
        """Of the input's places with gaps all rows, committed or not: only their ids matter."""
        spill = Spill(self._folder / "uncommitted", row_schema())
        total = 0
        with self._reader("read_uncommitted", "input again, uncommitted") as reader:
            for index in gaps:
                place = self._bounds.inputs[index]
                for messages in reader.read(place, place.end):
                    total += len(messages)
                    ids = self._question.id.ids(messages)
                    readable = [message for message, found in zip(messages, ids, strict=True) if found is not None]
                    ids = [shortened(found) for found in ids if found is not None]
                    spill.add(row_columns(readable, index, ids, spill.schema), buckets_of(ids, self._buckets))
        self.counts["input_uncommitted"] = total - sum(gaps.values())
        return spill.finish()

    def _uncommitted_output(self, gaps: Mapping[int, int]) -> None:
        """Of the output's places with gaps only how many rows there are."""
        total = 0
        with self._reader("read_uncommitted", "output again, uncommitted") as reader:
            for index in gaps:
                place = self._bounds.outputs[index]
                total += sum(map(len, reader.read(place, place.end)))
        self.counts["output_uncommitted"] = total - sum(gaps.values())

    def _reader(self, isolation: Isolation, what: str) -> Reader:
        def told(rows: int) -> None:
            self._read += rows
            now = time.monotonic()
            if now > self._next_word:
                self._next_word = now + 0.25
                speed = self._read / max(0.001, now - self._began)
                self._progress(f"reading the {what}: {self._read:,} rows, {speed:,.0f} a second")

        return Reader(self._question.kafka, isolation, STALL_S, told)


# Report


def _report(question: Question, bounds: _Bounds, findings: Findings, rows: Mapping[str, int]) -> Report:
    counts = {**rows, **findings.counts, "waiting": findings.waiting, "pairs": findings.pairs}
    faults = [f for f in FAULTS if counts[f] and not (f == "lost" and question.allow_missing)]

    def spot(places: Sequence[Place], place: int, offset: int) -> str | None:
        return f"{places[place]}@{offset}" if place >= 0 else None

    def example(case: Case) -> Example:
        return Example(
            None if case.note.startswith("no id") else case.id.decode(errors="backslashreplace"),
            spot(bounds.inputs, case.in_place, case.in_offset),
            spot(bounds.outputs, case.out_place, case.out_offset),
            case.note,
        )

    return Report(
        {name: counts[name] for name in COUNTS},
        {fault: [example(case) for case in findings.cases[fault]] for fault in faults},
        bounds.warnings,
        faults,
    )


def as_json(question: Question, report: Report) -> dict[str, Any]:
    """The report as plain data; no Kafka property but the servers is in it."""
    return {
        "ok": report.ok,
        "verdict": report.verdict,
        "faults": list(report.faults),
        "counts": dict(report.counts),
        "examples": {f: [vars(e) for e in examples] for f, examples in report.examples.items() if examples},
        "warnings": list(report.warnings),
        "question": {
            "bootstrap.servers": question.kafka.bootstrap_servers,
            "input": list(question.inputs),
            "output": list(question.outputs),
            "id": str(question.id),
            "output_id": str(question.output_id),
            "group": question.group,
            "order": question.order,
            "allow_missing": question.allow_missing,
            "same_value": question.same_value,
        },
    }


def as_text(question: Question, report: Report) -> str:
    """The report for people: a table, examples, warnings, and the verdict as the last line."""
    group = f", group {question.group}" if question.group else ""
    lines = [f"{', '.join(question.inputs)} -> {', '.join(question.outputs)}{group}", ""]
    for name, meaning in COUNTS.items():
        note = {"lost": " (allowed)" * question.allow_missing}.get(name, "")
        if name == "reordered" and question.order == "none" or name == "early" and not question.group:
            lines.append(f"{label(name):>18} {'-':>13}  (not asked)")
        else:
            lines.append(f"{label(name):>18} {report.counts[name]:>13,}  {meaning}{note}")
    for fault, examples in report.examples.items():
        if examples:
            lines += ["", f"{label(fault)}, {len(examples)} of {report.counts[fault]:,}:"]
            lines += [f"  {_example_text(example)}" for example in examples]
    lines += [""] * bool(report.warnings) + [f"warning: {warning}" for warning in report.warnings]
    return "\n".join([*lines, "", report.verdict])


def _example_text(example: Example) -> str:
    parts = ["id " + example.id if example.id is not None else ""]
    parts += [f"input {example.input}" if example.input else "", f"output {example.output}" if example.output else ""]
    return "  ".join(part for part in [*parts, example.note and f"({example.note})"] if part)
