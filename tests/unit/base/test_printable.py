"""What other people wrote, as it may be printed."""

from __future__ import annotations

import json
import logging
import unicodedata
from dataclasses import replace
from urllib.parse import unquote

import pytest
from hypothesis import strategies as st

from spark_eos.base.log import logger
from spark_eos.base.printable import excerpt, hidden, json_text, printable, printable_lines
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.cli.mirror import move_answer
from spark_eos.cli.options import Format, print_answer
from spark_eos.errors import DevClusterError, EosError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.ops.answer import Answer, table
from spark_eos.ops.doctor.findings import Finding, Severity
from spark_eos.ops.doctor.findings import as_text as findings_as_text
from spark_eos.ops.state import QueryState
from spark_eos.ops.status import as_text as status_as_text
from spark_eos.pipelines.mirror.offsets import GroupMove
from spark_eos.tools.verify import Comparison, Example, IdPlace, Report
from spark_eos.tools.verify import as_text as verify_as_text
from spark_eos.tools.verify.report import COUNTS
from spark_eos.tools.verify.tables import TableAddress
from tests.support.runs.input_counts import inputs


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("client-1", "client-1"),
        ("töpic ✓", "töpic ✓"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("a\nERROR forged\r", r"a\nERROR forged\r"),
        ("\x9b31m\u202egnp.exe\u2028\ud800", r"\x9b31m\u202egnp.exe\u2028\ud800"),
    ],
)
def test_nothing_moves_the_cursor_or_begins_a_line(text, shown):
    """Escapes of terminals, of eight bits too, ends of lines, and marks that turn the reading direction around."""
    assert printable(text) == shown


@pytest.mark.parametrize(
    "address",
    [
        "https://bob:pa-sswd@db/cat",
        "https://bob:pa/sswd@db/cat",
        "https://bob:pa@sswd@db/cat",
        "https://bob:pa?sswd@db/cat",
        "https://bob:pa#sswd@db/cat",
        "https://bob:pa%2Fsswd@db/cat",
        "https://bob:pa sswd@db/cat",
    ],
)
def test_users_and_passwords_of_addresses_are_left_out(address):
    """Whatever is in them, and wherever a library thinks that the host begins."""
    host = "db" if "pa-" in address else "sswd@db"
    text = hidden(f"cannot reach {address} or {unquote(address)}: no host '{host}'", (), ["db", address])
    assert "bob" not in text and "sswd" not in text
    assert text.startswith("cannot reach https://***@db/cat or https://***@db/cat: no host")
    assert hidden("to s3://bucket/a", (), ["s3://bucket/a", "x@y", ""]) == "to s3://bucket/a"


def test_how_short_a_secret_may_be_is_the_same_for_all():
    """Whoever hides it, and for a part of a password, too."""
    settings = {"fs.s3a.secret.key": "abc", "fs.s3a.session.token": "de"}
    for shown in (
        hidden("no abc, de", settings.values()),
        HadoopSettings(settings).hide("no abc, de"),
        hidden("no abc, de", (), ["s3://me:abc/de@host"]),
    ):
        assert shown == "no ***, de"
    address = TableAddress.parse("delta:/t", settings)
    assert address is not None
    with pytest.raises(EosError) as caught, address.refused():
        raise ValueError("no abc, de")
    assert "no ***, de" in caught.value.message


REPORT = Report(dict.fromkeys(COUNTS, 0), {}, (), [])
COMPARISON = Comparison(
    KafkaProperties({"bootstrap.servers": "h:1"}), ("in",), ("out",), IdPlace("key"), IdPlace("key"), group="g"
)


def is_plain(text: str) -> bool:
    """By Unicode's own categories: no control, no format, no surrogate, no separator but the space."""
    return all(unicodedata.category(c)[0] not in "CZ" or c == " " for c in text)


@inputs(st.text())
def test_any_text_is_on_one_line_and_can_be_encoded(text):
    """However it is shown."""
    for shown in (printable(text), excerpt(text), *printable_lines(text).split("\n"), *json_text([text]).split("\n")):
        shown.encode()
        assert is_plain(shown)
    assert json.loads(json_text([text])) == [text]


@pytest.mark.parametrize(("sent", "shown"), [(b"\xff\x1b", r"\xff\x1b"), ("x" * 5000, "x" * 1000 + "…")])
def test_what_a_peer_has_sent_is_cut(sent, shown):
    """Bytes that are no text are escaped, too."""
    assert excerpt(sent) == shown


@inputs(st.binary())
def test_any_bytes_have_an_excerpt(data):
    """On one line."""
    assert is_plain(excerpt(data))


HOSTILE = "c\x1b[2J\x9b31m\n26/11/25 10:15:00 ERROR forged\u202e"


def test_errors_have_one_line():
    """Whoever has written a part of them."""
    error = EosError("EOS_TEST", f"in use by {HOSTILE}.", hint=f"Stop {HOSTILE}.")
    assert is_plain(str(error)) and is_plain(error.message) and is_plain(error.hint)


def test_the_end_of_a_log_keeps_its_lines():
    """Of a broker of the development cluster, without what a terminal would obey."""
    error = DevClusterError("EOS_TEST", "It ends with:\nfirst\n\x1b[2Jsecond\n", hint="Look.")
    assert error.message == "It ends with:\nfirst\n\\x1b[2Jsecond\n"


def test_a_line_of_the_log_is_one_line(caplog):
    """Also where it has a stack below it, and whoever's handler writes it."""
    with caplog.at_level(logging.WARNING, "spark_eos"):
        logger.warning("member %s of %d", HOSTILE, 3)
    assert [is_plain(record.getMessage()) for record in caplog.records] == [True]


def test_cells_of_tables_have_one_line():
    """Ids of transactions and names of groups may hold anything."""
    assert all(is_plain(line) for line in table([["id", "x"], [HOSTILE, "y"]]))


@pytest.mark.parametrize(
    "report",
    [
        lambda text: findings_as_text([Finding("c", text, Severity.ERROR, text, text, (text,))]),
        lambda text: move_answer(GroupMove(text, (), (text,), deletes=False)).text,
        lambda text: status_as_text(QueryState(text)),
        lambda text: verify_as_text(
            COMPARISON, replace(REPORT, examples={"doubled": [Example(text, text, text, text)]})
        ),
    ],
    ids=["doctor", "mirror", "status", "verify"],
)
def test_a_text_of_others_begins_no_line_of_a_report(report):
    """Names of groups and ids of rows and transactions may hold anything."""
    hostile = report(HOSTILE)
    assert all(map(is_plain, hostile.split("\n")))
    assert hostile.count("\n") == report("x").count("\n")


@pytest.mark.parametrize("output", list(Format))
def test_commands_print_no_escapes(output, capsys):
    """In either format; JSON can be read back."""
    assert print_answer(output, lambda: Answer({"member": HOSTILE}, f"first\n{HOSTILE}")) == 0
    printed = capsys.readouterr().out
    assert all(is_plain(line) for line in printed.split("\n"))
    assert output is Format.TEXT or json.loads(printed) == {"member": HOSTILE}
