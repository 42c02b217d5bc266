"""An operator aborts one partition of a transaction while the driver is held between its decision and its commit: the
job does not end as if nothing had happened, nor does it start again so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger.lookup import RecordLookup
from spark_eos.tools.devcluster import DevCluster
from tests.integration.jobs.test_job import CONFIG, DOUBLE, MODULE, Setting, run, running
from tests.integration.sink.test_looking_back import TRANSACTIONS
from tests.support.waiting import PROGRAM_S, wait_for

pytestmark = pytest.mark.chaos

ROWS = 8_000
#: Micro-batch 0 reads nothing.
AT = "commit.decided"
TRANSFORMS = {"by SQL": DOUBLE, "copied": None}


@pytest.fixture
def setting(cluster: DevCluster, topic: Callable[..., str], tmp_path: Path) -> Setting:
    return Setting(cluster, topic, tmp_path)


def config(setting: Setting, transform: str | None) -> Path:
    if transform is not None:
        return setting.config(transform)
    file = setting.folder / "job.yaml"
    places = {"servers": setting.servers, "source": setting.source, "target": setting.target}
    places |= {"checkpoint": str(setting.folder / "checkpoint"), "trigger": "availableNow"}
    file.write_text(CONFIG.replace("  {transform}", "  copy: same").format(**places))
    return file


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_job_whose_output_was_aborted_in_one_partition_fails(setting, cluster, tmp_path, transform):
    """Ten seconds after the decision, say; the transaction is younger than a minute."""
    setting.produce(*(json.dumps({"n": n % 1000}) for n in range(ROWS)))
    faults, log, conf = tmp_path / "faults", tmp_path / "log", config(setting, transform)
    faults.mkdir()
    armed = {"SPARK_EOS_FAULTS": f"{AT}=hold@2", "SPARK_EOS_FAULTS_DIR": str(faults)}
    with running(*MODULE, "--conf", str(conf), log=log, **armed) as job:
        wait_for((faults / AT).exists, log.read_text, PROGRAM_S)
        data = RecordLookup(broker_client(KafkaProperties({"bootstrap.servers": setting.servers})))
        led = wait_for(lambda: data.partition(setting.target, 1), "the partition's leader")
        start = min(led.open.values())
        place = ["--topic", setting.target, "--partition", "1", "--start-offset", str(start)]
        cluster.java_tool(TRANSACTIONS, "--bootstrap-server", setting.servers, "abort", *place)
        (faults / AT).unlink()
        assert job.wait(PROGRAM_S) == 1, log.read_text()
    assert "EOS_ROWS_MISSING" in log.read_text() and f"{setting.target}-1" in log.read_text()
    before = setting.output()
    assert 0 < len(before) < ROWS

    setting.produce(json.dumps({"n": 1}))
    again = run(*MODULE, "--conf", str(conf))
    assert again.returncode == 1, again.stderr
    assert "EOS_ROWS_MISSING" in again.stderr
    assert setting.output() == before
