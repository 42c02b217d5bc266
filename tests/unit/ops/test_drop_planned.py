"""A dropped micro-batch whose command was interrupted, without a cluster and without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.ops import drop_planned as dropping
from tests.simulation.by_hand import Brokers, on_brokers, stopped
from tests.simulation.ledger import PREFIX
from tests.simulation.plan import QUERY


class Killed(BaseException):
    """The command, where it stands."""


@on_brokers
def test_the_first_micro_batch_dropped_by_a_command_that_was_killed(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Before its last step: the offset log is empty by then, and the command goes on all the same."""
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"t":{"0":5}}')
    where = str(tmp_path)
    heads = SimpleNamespace(newest_of_all=dict)
    cluster: Any = SimpleNamespace(
        ports=lambda _: brokers.ports(),
        head=lambda _: brokers.ports().ledger.read(),
        prefix_of=lambda _: PREFIX,
        heads=heads,
    )

    def drop() -> None:
        dropping.drop(dropping.plan(Checkpoint(where), cluster), cluster, HadoopSettings())

    def killed(*_: object) -> None:
        raise Killed

    brokers.prepared(brokers.open("r1"))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(dropping, "resume", killed)
        drop()
    assert list((tmp_path / "offsets").iterdir()) == []
    stopped("EOS_DROP_UNFINISHED", lambda: brokers.open("r2"))
    drop()
    stopped("EOS_DROP_REFUSED", drop)
    brokers.open("r3")
