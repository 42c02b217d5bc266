"""Commands about a query whose transactional ids have a prefix of its own, which nobody names; and a wrong one."""

from __future__ import annotations

import json

import pytest

from spark_eos.protocol.head import NOBODY
from spark_eos.protocol.open import open_run
from spark_eos.protocol.ports import State
from tests.support.left import PREFIX

AT_ONCE = ("--watch", "0", "--quiet", "0")


@pytest.mark.parametrize("command", ["transactions abort", "recover"])
def test_a_query_goes_on_after_a_command_that_was_not_told_its_prefix(command, left, tmp_path, capsys):
    """It finds what is open, fences the run, and leaves a head that the next start accepts."""
    prepared = left.prepare(0)
    where = str(left.checkpoint(tmp_path))
    assert left.command("list") == 1
    assert prepared.pair.id in capsys.readouterr().out
    if command == "recover":
        assert left.ask("recover", where, *AT_ONCE) == 0
        assert prepared.pair.id in capsys.readouterr().out
        assert left.ask("recover", where, "--yes", *AT_ONCE) == 0
    else:
        assert left.command("abort", "--yes") == 0
    assert left.state(prepared) is State.COMPLETE_ABORT
    assert left.ports.ledger.read().run == NOBODY
    assert open_run(left.ports, "the next run", 0, endtxn_version=5, prefix=PREFIX).generation == 3
    assert left.command("list") == 0


def test_another_prefix_is_refused_by_name(left, tmp_path, capsys):
    """By every command, before anything is done; that of the query itself may be named."""
    prepared, before = left.prepare(0), left.ports.ledger.read()
    where = str(left.checkpoint(tmp_path))
    commands = [
        *(["transactions", action, "--query", left.query] for action in ("list", "describe", "abort", "settle")),
        *(["recover", where, *AT_ONCE], ["query", "status", where, *AT_ONCE], ["checkpoint", "show", where]),
        *(["checkpoint", "drop", where], ["checkpoint", "adopt", where]),
    ]
    for words in commands:
        more = ["--yes"] if words[-2:] != AT_ONCE and words[1] in ("abort", "settle", "drop") else []
        for wrong in ("spark-eos", PREFIX[:-1], f"{PREFIX}-2"):
            assert left.ask(*words, *more, "--prefix", wrong, "--format", "json") == 2, words
            answer = json.loads(capsys.readouterr().out)
            assert answer["error"]["condition"] in ("EOS_PREFIX_MISMATCH", "EOS_ADOPT_NOTHING_DONE"), words
    assert left.command("list", "--prefix", PREFIX) == 1
    assert left.ports.ledger.read() == before
    assert left.state(prepared) is State.ONGOING


def test_a_list_of_a_prefix_that_no_query_has(left, capsys):
    """Is no empty list."""
    assert left.ask("transactions", "list", "--prefix", "nobodys") == 2
    assert "EOS_PREFIX_MISMATCH" in capsys.readouterr().err
    assert left.ask("transactions", "list", "--prefix", PREFIX) == 0
