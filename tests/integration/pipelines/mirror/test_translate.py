"""``spark-eos mirror translate``, on two clusters."""

from __future__ import annotations

import json

from spark_eos import cli
from tests.support.waiting import wait_for


def test_offsets_are_looked_up(mirror, topic, write, transactions, there, capsys):
    """As text and as JSON; several at once, in their order. The mirror has seen ten rows, a marker and ten more."""
    name = topic(1, retention_ms=-1)
    copies = mirror(name, prefix="copy.")
    transactions.commit(name, *(str(i) for i in range(10)))
    wait_for(lambda: copies.here.ends(name, committed=True)[name, 0] == 11, "the marker")
    write(name, *(b"%d" % i for i in range(10)))
    copies.run()

    def translate(*words: str) -> str:
        target = ["--bootstrap-servers", there.bootstrap_servers]
        source = ["--source", copies.here.bootstrap_servers, "--map", copies.targets.map]
        assert cli.main([*target, "mirror", "translate", name, "0", *words, *source]) == 0
        return capsys.readouterr().out

    at = [row.offset for row in there.rows(f"copy.{name}")]
    assert translate("11", "3") == (
        f"{name}-0 offset 11: is at offset {at[10]} of copy.{name}-0\n"
        f"{name}-0 offset 3: is at offset {at[3]} of copy.{name}-0\n"
    )
    (found,) = json.loads(translate("20", "--format", "json"))["offsets"]
    place = {"topic": f"copy.{name}", "topic_id": copies.entries()[0].target_id, "partition": 0, "offset": at[19]}
    assert found == {"topic": name, "partition": 0, "offset": 20, "target": place}
