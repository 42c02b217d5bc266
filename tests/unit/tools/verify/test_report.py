"""`spark-eos verify`: where ids are, and what is printed."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from collections.abc import Iterator

import pytest
from confluent_kafka import Message

from spark_eos import cli
from spark_eos.errors import CommandError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.tools import verify as ops
from spark_eos.tools.verify.bounds import VerifiedBounds
from spark_eos.tools.verify.comparison import IdPlace
from spark_eos.tools.verify.judge import Findings
from spark_eos.tools.verify.report import COUNTS, make_report
from spark_eos.tools.verify.spill import BY_VALUE, MAX_ID, made_id, shortened


@pytest.mark.parametrize(
    "text",
    ["", "keys", "key:a", "json", "json:", "header:", "value:x", "column:", "place:", "place:a", "place:a,b,c,d"],
)
def test_refuses_what_names_no_place_of_an_id(text: str) -> None:
    """With the forms that it takes."""
    with pytest.raises(CommandError, match=r"EOS_VERIFY_IMPOSSIBLE.*json:FIELD"):
        IdPlace.parse(text)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b'{"a": {"b": "x"}}', b"x"),
        (b'{"a": {"b": 7}}', b"7"),
        (b'{"a": {"b": "7"}}', b"7"),
        (b'{"a": {"b": true}}', b"true"),
        (b'{"a": {"b": ""}}', b""),
        ('{"a": {"b": "é"}}'.encode(), "é".encode()),
        (b'{"a": {"b": "\\ud800"}}', b"\xed\xa0\x80"),
        (b' \n{"a": {"b": "x"}} ', b"x"),
        (b'{"a": {"b": "x"}} {', None),
        (b" ", None),
        (b"", None),
        (b"null", None),
        (b'{"a": {"b": null}}', None),
        (b'{"a": {"b": [1]}}', None),
        (b'{"a": "b"}', None),
        (b'{"a": ["b"]}', None),
        (b'{"b": 1}', None),
        (b"[]", None),
        (b"{", None),
        (b"\xff", None),
        (b"[" * 100_000, None),
        (None, None),
    ],
)
def test_id_in_a_json_value(value: bytes | None, found: bytes | None) -> None:
    """Text and numbers alike, at the end of a path; anything else is no id."""
    assert IdPlace.parse("json:a.b").ids([Message(value=value)]) == [found]


def test_id_in_a_header() -> None:
    """The last header of that name, as Kafka's own clients take it."""
    rows = [Message(headers=[("id", b"1"), ("id", b"2")]), Message(headers=[("x", b"1")]), Message()]
    assert IdPlace.parse("header:id").ids(rows) == [b"2", None, None]


def test_long_ids_are_kept_as_digests() -> None:
    """They differ when the ids do; short ones stay as they are."""
    long = b"x" * (MAX_ID + 1)
    assert shortened([]) == []
    assert shortened([b"", long[1:]]) == [b"", long[1:]]
    first, short, second = shortened([long, b"a", long + b"x"])
    assert short == b"a"
    assert first != second
    assert max(len(first), len(second)) <= MAX_ID


def test_a_row_without_an_id_is_told_by_its_value_or_else_by_its_key() -> None:
    """As a row that deletes a key has no value."""
    made = [made_id(b"k", None), made_id(b"l", None), made_id(None, None), made_id(b"k", b"k"), made_id(b"k", b"l")]
    assert made_id(b"l", b"k") == made[3]
    assert len(set(made)) == 5
    assert all(id_.startswith(BY_VALUE) and len(id_) <= MAX_ID for id_ in made)


@pytest.mark.parametrize(("same_value", "instead"), [(False, "--same-value or a unique id"), (True, "a unique id")])
def test_rows_that_cannot_be_told_apart_are_a_warning(same_value: bool, instead: str) -> None:
    """That no verdict is without."""
    comparison = dataclasses.replace(COMPARISON, same_value=same_value)
    counts = dict.fromkeys(("input", "output", "input_uncommitted", "output_uncommitted"), 4)
    report = make_report(comparison, VerifiedBounds((), (), (), None, ()), Findings(pairs=4, shared=3), counts)
    (warning,) = report.warnings
    assert warning.startswith("3 rows of the input cannot be told from others") and warning.endswith(f"use {instead}")


@pytest.fixture
def report() -> ops.Report:
    counts = {**dict.fromkeys(COUNTS, 0), "input": 1500, "output": 1501, "pairs": 1500, "doubled": 1}
    examples = {"doubled": [ops.Example("r4", None, "out-0@10")]}
    return ops.Report(counts, examples, ("an open transaction holds out-1 back: readers get to 1 of 2",), ["doubled"])


COMPARISON = ops.Comparison(
    KafkaProperties({"bootstrap.servers": "h:1", "sasl.password": "hunter2"}),
    ("in",),
    ("out",),
    IdPlace("json", "id"),
    IdPlace("key"),
    group="g",
)


def test_report_as_text(report: ops.Report) -> None:
    """Every count, the examples, the warnings; and the verdict in the last line."""
    lines = ops.as_text(COMPARISON, report).splitlines()
    assert lines[0] == "in -> out, group g"
    assert "             input         1,500  rows in the input" in lines
    assert "  id r4  output out-0@10" in lines
    assert "warning: an open transaction holds out-1 back: readers get to 1 of 2" in lines
    assert lines[-1] == "FAULTY: 1 doubled"


def test_report_as_json_has_no_secret(report: ops.Report) -> None:
    """Of the Kafka properties only the servers are in it."""
    text = json.dumps(ops.as_json(COMPARISON, report))
    assert "hunter2" not in text + repr(COMPARISON)
    assert json.loads(text)["examples"] == {"doubled": [{"id": "r4", "input": None, "output": "out-0@10", "note": ""}]}


def test_rows_that_may_be_missing_are_left_out(report: ops.Report) -> None:
    """They have a count of their own, so that ``lost`` is a fault wherever it is not 0; both are in every JSON."""
    allowed = dataclasses.replace(COMPARISON, allow_missing=True)
    counts = {**dict.fromkeys(COUNTS, 0), "pairs": 1500, "left_out": 1200}
    report = ops.Report(counts, {}, (), [])
    text = ops.as_text(allowed, report)
    assert "          left out         1,200  due, not in the output, and allowed to be missing" in text.splitlines()
    assert "lost" not in text
    assert text.endswith("OK: 1,500 rows got through exactly once, 1,200 left out")
    assert ops.as_json(allowed, report)["counts"].items() >= {("left_out", 1200), ("lost", 0)}
    assert "left out" not in ops.as_text(COMPARISON, report).rpartition("\n")[0]


VERIFY = ["--bootstrap-servers", "h:1", "verify", "--input", "in", "--output", "out", "--id", "key"]


@pytest.mark.parametrize(
    ("faults", "pairs", "code", "verdict"),
    [
        (["doubled"], 1500, 1, "FAULTY: 1 doubled"),
        ([], 1500, 0, "OK: 1,500 rows got through exactly once"),
        ([], 0, 2, "NOTHING COMPARED: of 1,500 rows of the input, none is in the output"),
    ],
)
def test_exit_code_is_the_verdict(report, monkeypatch, tmp_path, capsys, faults, pairs, code, verdict) -> None:
    """Unless the report cannot be written where it was wanted; it is printed all the same."""
    report = dataclasses.replace(report, faults=faults, counts={**report.counts, "pairs": pairs})
    monkeypatch.setattr(ops, "verify", lambda comparison, progress: report)
    assert cli.main([*VERIFY, "--json", str(tmp_path / "report.json")]) == code
    assert json.loads((tmp_path / "report.json").read_text())["verdict"] == verdict
    assert cli.main([*VERIFY, "--json", str(tmp_path / "no" / "report.json")]) == 2
    printed = capsys.readouterr()
    assert printed.out.count(verdict) == 2
    assert "cannot be written" in printed.err


@pytest.mark.parametrize(
    ("options", "entry"),
    [
        (["--output", "delta:/t", "--id", "key", "--output-id", "header:id"], "id_side"),
        (["--output", "delta:/t", "--id", "column:id"], "id_side"),
        (["--output", "b", "--id", "place"], "id_side"),
        (["--output", "b", "--id", "key", "--output-id", "column:id"], "id_side"),
        (["--output", "delta:/t", "--id", "place", "--order", "key"], "options: --order key cannot"),
        (["--output", "delta:/t", "--id", "place", "--query", "q", "--group", "g"], "options: --query cannot"),
        (["--output", "b", "--id", "key", "--query", "q"], "options: --query cannot"),
        (["--output", "delta:/t", "--output", "b", "--id", "place"], "sides"),
        (["--output", "parquet:/t", "--id", "place"], "address"),
        (["--output", "delta:", "--id", "place"], "address"),
        (["--input", "delta:/t", "--output", "iceberg:a.b", "--id", "key"], "table_input"),
        (["--input", "delta:/t", "--output", "b", "--id", "key", "--group", "g"], "table_input"),
        (["--input", "delta:/t", "--output", "b", "--id", "place"], "id_side"),
    ],
)
def test_refuses_what_cannot_be_compared(monkeypatch, options: list[str], entry: str) -> None:
    """By name, before the cluster is asked."""
    raised = []
    monkeypatch.setattr("spark_eos.cli.options.print_error", lambda output, error, code: raised.append(error) or code)
    options = options if "--input" in options else ["--input", "a", *options]
    assert cli.main(["--bootstrap-servers", "127.0.0.1:1", "verify", *options]) == 2
    entry, _, says = entry.partition(": ")
    assert [error.entry for error in raised] == [f"EOS_VERIFY_IMPOSSIBLE.{entry}"] and says in raised[0].message


def test_fewer_than_no_examples_are_refused(capsys) -> None:
    """Before the cluster is asked."""
    assert cli.main([*VERIFY, "--limit", "-1"]) == 2
    assert "'--limit'" in capsys.readouterr().err


@pytest.fixture
def on_sigterm() -> Iterator[None]:
    """Where nobody takes care of the signal, the test fails; without this, its process would end."""
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("nobody took it"))
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("on_sigterm")
def test_a_signal_removes_the_rows_on_disk(temporary_files_in, monkeypatch, tmp_path) -> None:
    """SIGTERM as well as Ctrl-C."""
    temporary_files_in(tmp_path)
    monkeypatch.setattr(ops, "take_bounds", lambda comparison: None)
    monkeypatch.setattr(ops, "Scan", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert cli.main(VERIFY) == cli.INTERRUPTED
    assert list(tmp_path.iterdir()) == []
