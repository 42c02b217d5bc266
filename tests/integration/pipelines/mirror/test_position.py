"""`spark-eos mirror position` between two clusters: a mirror whose checkpoint is lost goes on with a new one; each row
once, and where `spark-eos mirror translate` says."""

from __future__ import annotations

import json
import shutil

import pytest

from spark_eos import cli
from spark_eos.ledger.owners import Cluster
from spark_eos.options.table import DEFAULT_LEDGER_TOPIC, DEFAULT_PREFIX
from tests.support.judges.kafka_view import write as put
from tests.support.queries.mirrors import check_same
from tests.support.spark.session_faults import armed
from tests.support.waiting import TIMEOUT


def test_a_lost_checkpoint_after_a_decision(mirror, topic, tmp_path, capsys):
    """Decided and not committed: the command settles that, and its rows are not written again; those after it are. Then
    offsets are looked up, as text and as JSON; several at once, in their order."""
    name = topic(2, retention_ms=-1)
    lost = mirror(name, prefix="p.")

    def feed(*partitions: int) -> None:
        rows = [(p, f"{p}.{i}") for p in partitions for i in range(600)]  # two partitions of so many are two tasks
        put(lost.here.bootstrap_servers, name, rows, commit=True)

    def command(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        source = ["--source", lost.here.bootstrap_servers, "--map", lost.targets.map]
        code = cli.main(["--bootstrap-servers", lost.there.bootstrap_servers, "mirror", *words, *source])
        return code, *capsys.readouterr()

    def position(*more: str) -> tuple[int, str, str]:
        return command("position", "--query", query.id, *more)

    feed(0, 1)
    lost.run()
    feed(0, 1)
    with armed(lost.spark, "commit.decided=fail", tmp_path / "decided"):
        query = lost.start()
        with pytest.raises(Exception, match="fault injected"):
            query.awaitTermination(TIMEOUT)
    ends = lost.here.ends(name, committed=True)
    shutil.rmtree(lost.checkpoint)
    code, _, refusal = position()
    assert code == 2 and "EOS_MIRROR_NOT_SETTLED" in refusal and "--yes" in refusal
    code, settled, error = position("--yes", "--format", "json")
    assert code == 0, error
    found = json.loads(settled)
    head = Cluster(lost.client, DEFAULT_LEDGER_TOPIC, DEFAULT_PREFIX).ports(query.id).ledger.read()
    assert found["starting_offsets"] == {name: {str(p): end for (_, p), end in ends.items()}}
    assert (found["batch"], found["unread"], found["written_again"]) == (head.decision.batch, [], [])
    assert position("--format", "json")[1] == settled  # nothing more has to be done for it
    code, text, _ = position()
    assert code == 0 and f"startingOffsets: {json.dumps(found['starting_offsets'])}" in text
    feed(1)
    lost.reads["startingOffsets"] = json.dumps(found["starting_offsets"])
    lost.run()
    check_same(lost, name)
    at = [row.offset for row in lost.there.rows(f"p.{name}") if row.partition == 1]
    assert command("translate", name, "1", "601", "3")[:2] == (  # behind the first marker, and before it
        0,
        f"{name}-1 offset 601: is at offset {at[600]} of p.{name}-1\n"
        f"{name}-1 offset 3: is at offset {at[3]} of p.{name}-1\n",
    )
    (found,) = json.loads(command("translate", name, "1", "20", "--format", "json")[1])["offsets"]
    place = {"topic": f"p.{name}", "topic_id": lost.entries()[0].target_id, "partition": 1, "offset": at[20]}
    assert found == {"topic": name, "partition": 1, "offset": 20, "target": place}
