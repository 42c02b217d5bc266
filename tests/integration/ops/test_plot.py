"""Pictures of a query that nobody has recorded."""

from __future__ import annotations

import struct

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger.owners import Cluster
from spark_eos.ops.checkpoint_timeline import timeline_from, traces_of
from spark_eos.options.table import DEFAULT_LEDGER_TOPIC, DEFAULT_PREFIX


def test_a_query_is_drawn_from_its_checkpoint_and_its_cluster(quiet, tmp_path):
    """Three starts with a micro-batch each, with their decisions; in one picture, which says what nobody has written
    down."""
    picture = tmp_path / "query.png"
    told = quiet.told("plot", str(quiet.checkpoint), "--to", str(picture))
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    assert (width > 1_000, height > 500) == (True, True)
    assert told["runs"] == ["unknown"] * 3
    assert told["batches"].keys() == {"committed"}
    assert any("Not recorded" in said for said in told["unknown"])


def test_the_traces_of_a_query(quiet, cluster):
    """When each micro-batch was planned, decided and done: in this order, as all clocks are one here."""
    kafka = KafkaProperties({"bootstrap.servers": cluster.bootstrap_servers})
    traces = traces_of(
        Checkpoint(str(quiet.checkpoint)), Cluster(broker_client(kafka), DEFAULT_LEDGER_TOPIC, DEFAULT_PREFIX)
    )
    timeline = timeline_from(traces)
    with_rows = [batch for batch in timeline.batches if batch.rows]
    assert [batch.rows for batch in with_rows] == [3, 3, 3]
    assert len({batch.run for batch in with_rows}) == len(timeline.runs) == 3
    for batch in with_rows:
        assert batch.prepare[0] < batch.prepare[1] == batch.decide[0] < batch.whole[1], batch
