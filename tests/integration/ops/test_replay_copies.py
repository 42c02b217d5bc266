"""`spark-eos replay` of a copy, whose offset log also names the cluster."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from spark_eos import cli
from tests.support.queries.copies import CopiedFrom
from tests.support.waiting import wait_for


def test_a_replay_of_a_copy(spark, view, topic, write, tmp_path, capsys):
    """The rows after micro-batch 1 are there once more, the group goes back and on, and the old query is retired."""
    query = CopiedFrom(spark, view, tmp_path / "query", topic(), topic())
    old, new, group = query.checkpoint, tmp_path / "again", f"group-of-{query.target}"

    def run(checkpoint: Path) -> list[int]:
        """How often the row of each feed is visible after it."""
        query.checkpoint = checkpoint
        query.run(offsets__group__id=group)
        found = Counter(query.values())
        return [found[name] for name in sorted(found)]

    write(query.source, b"0", b"1", b"2")
    query.reads = {"maxOffsetsPerTrigger": 1}
    assert run(old) == [1, 1, 1]
    query.reads = {}
    servers = ["--bootstrap-servers", view.bootstrap_servers]
    words = ["replay", str(old), "--new", str(new), "--to-batch", "1", "--again", "--yes"]
    assert cli.main([*servers, *words]) == 0, capsys.readouterr()
    assert view.group(group, query.source) == {(query.source, 0): 1}
    write(query.source, b"3")
    query.stopped_by("EOS_QUERY_RETIRED")
    assert run(new) == [1, 2, 2, 1]
    wait_for(lambda: view.group(group, query.source) == view.ends(query.source), "the offsets")
    query.forget(1)  # of the new one, whose micro-batch 0 was made by the command
    assert run(new) == [1, 2, 2, 1]
    query.checkpoint = old
    query.stopped_by("EOS_QUERY_RETIRED")
