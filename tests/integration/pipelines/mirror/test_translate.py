"""``spark-eos mirror translate``, on two clusters."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from spark_eos import cli
from tests.support.queries.mirrors import Mirror
from tests.support.waiting import wait_for


@pytest.fixture
def asked(mirror, topic, write, transactions) -> tuple[Mirror, Callable[..., int]]:
    """A mirror that has seen ten rows, a marker and ten more; and the command, for offsets of its topic: the exit
    code."""
    name = topic(1, retention_ms=-1)
    copies = mirror(name, prefix="copy.")
    transactions.commit(name, *(str(i) for i in range(10)))
    wait_for(lambda: copies.here.ends(name, committed=True)[name, 0] == 11, "the marker")
    write(name, *(b"%d" % i for i in range(10)))
    copies.run()

    def translate(*words: object) -> int:
        target = ["--bootstrap-servers", copies.there.bootstrap_servers]
        source = ["--source", copies.here.bootstrap_servers, "--map", copies.targets.map]
        return cli.main([*target, "mirror", "translate", name, "0", *map(str, words), *source])

    return copies, translate


def test_offsets_are_looked_up(asked, there, capsys):
    """As text and as JSON; several at once, in their order."""
    copies, translate = asked
    at = [row.offset for row in there.rows(f"copy.{copies.topics}")]
    assert translate(11, 3) == 0
    assert capsys.readouterr().out == (
        f"{copies.topics}-0 offset 11: is at offset {at[10]} of copy.{copies.topics}-0\n"
        f"{copies.topics}-0 offset 3: is at offset {at[3]} of copy.{copies.topics}-0\n"
    )
    assert translate(20, "--format", "json") == 0
    (found,) = json.loads(capsys.readouterr().out)["offsets"]
    target_id = copies.entries()[0].target_id
    place = {"topic": f"copy.{copies.topics}", "topic_id": target_id, "partition": 0, "offset": at[19]}
    assert found == {"topic": copies.topics, "partition": 0, "offset": 20, "target": place}
