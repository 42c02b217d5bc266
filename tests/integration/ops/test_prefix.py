"""Commands about a query whose transactional ids have a prefix of its own, which nobody names; and a wrong one."""

from __future__ import annotations

import json

import pytest

from spark_eos.protocol.head import NOBODY
from spark_eos.protocol.open import NewRun, open_run
from spark_eos.protocol.ports import State
from tests.support.queries.stopped_query import AT_ONCE, PREFIX


@pytest.mark.parametrize("by", ["checkpoint", "id"])
def test_a_query_goes_on_after_a_command_that_was_not_told_its_prefix(by, left, tmp_path, capsys):
    """It finds what is open, fences the run, and leaves a head that the next start accepts."""
    prepared = left.prepare(0)
    where = str(left.checkpoint(tmp_path))
    assert left.status() == 1
    assert prepared.pair.id in capsys.readouterr().out
    if by == "checkpoint":
        assert left.ask("recover", where, *AT_ONCE) == 0
        assert prepared.pair.id in capsys.readouterr().out
        assert left.ask("recover", where, "--yes", *AT_ONCE) == 0
    else:
        assert left.recover("--abort-only", "--yes") == 0
    assert left.state(prepared) is State.COMPLETE_ABORT
    assert left.ports.ledger.read().run == NOBODY
    assert open_run(left.ports, NewRun("the next run", 0, prefix=PREFIX)).generation == 3
    left.view.wait_for_markers(left.query)
    assert left.status() == 0


def test_another_prefix_is_refused_by_name(left, tmp_path, capsys):
    """By every command, before anything is done; that of the query itself may be named."""
    prepared, before = left.prepare(0), left.ports.ledger.read()
    where = str(left.checkpoint(tmp_path))
    query = ["--query", left.query, *AT_ONCE]
    commands = [
        *(["status", *query], ["status", where, *AT_ONCE], ["recover", where, *AT_ONCE, "--yes"]),
        *(["recover", *query, part, "--yes"] for part in ("--abort-only", "--settle-only")),
        ["recover", where, "--drop-planned", "--yes"],
    ]
    for words in commands:
        for wrong in ("spark-eos", PREFIX[:-1], f"{PREFIX}-2"):
            assert left.ask(*words, "--prefix", wrong, "--format", "json") == 2, words
            answer = json.loads(capsys.readouterr().out)
            assert answer["error"]["condition"] == "EOS_PREFIX_MISMATCH", words
    assert left.status("--prefix", PREFIX) == 1
    assert left.ports.ledger.read() == before
    assert left.state(prepared) is State.ONGOING


def test_a_list_of_a_prefix_that_no_query_has(left, capsys):
    """Is no empty list."""
    assert left.ask("status", "--prefix", "nobodys") == 2
    assert "EOS_PREFIX_MISMATCH" in capsys.readouterr().err
    assert left.ask("status", "--prefix", PREFIX) == 0
