"""The recorder of the chaos tests on a real broker: a clean history is clean, and a row that is doubled is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.judges.histories import DOUBLED, judge
from tests.support.judges.kafka_view import write
from tests.support.judges.recorder import Recorded, Recorder
from tests.support.kills import query
from tests.support.waiting import wait_for


@pytest.mark.parametrize("window", [None, 2])
def test_what_the_readers_see_is_recorded(window, cluster, view, topic, tmp_path: Path):
    """Of both isolation levels, passes and those that go on; the plans of the checkpoint are noted as well."""
    source, out, also = topic(), topic(), topic()
    servers = cluster.bootstrap_servers
    spec = query.Spec(servers, source, out, str(tmp_path), f"group-{out}", 10, also=also)
    values = ["a", "b", "c"]
    write(servers, source, [(0, value) for value in values], commit=True)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n" + json.dumps({source: {"0": 3}}))
    with Recorder(view, Recorded(spec, pause_s=0.05, window=window)) as recorder:
        for name in (out, also):
            write(servers, name, [(0, "never")], commit=False)
            write(servers, name, [(0, query.expected(value)) for value in values], commit=True)
        readings = recorder.readings
        wait_for(lambda: len(readings) > 20, "passes")
        history = recorder.close()
        assert judge(history) == []
        levels = {(reading.committed, reading.name == "tail") for reading in readings if list(reading.rows())}
        assert levels == {(True, True), (True, False), (False, True), (False, False)}
        assert history.plans == {0: {(source, 0): 3}}
        write(servers, also, [(0, query.expected("b"))], commit=True)
        assert {anomaly.kind for anomaly in judge(recorder.close())} >= {DOUBLED}
