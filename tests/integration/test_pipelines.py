"""Declarative Pipelines: a flow from topic to topic by `create_sink`, run by Spark's own command, again and again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from spark_eos.tools.devcluster import DevCluster
from tests.support.runs.installed_wheel import ROOT
from tests.support.waiting import PROGRAM_S

pytestmark = [
    pytest.mark.chaos,  # a run takes 20 seconds
    pytest.mark.skipif(
        not Path(pyspark.__file__).with_name("pipelines").is_dir(), reason="this Spark has no pipelines"
    ),
]

SPEC = """
name: copies
storage: file://{folder}/storage
libraries: [{{glob: {{include: "flows/**"}}}}]
"""
FLOW = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
servers = {{"kafka.bootstrap.servers": "{servers}"}}
dp.create_sink("copies", "eos-kafka", servers | {{"topic": "{target}", "offsets.group.id": "{group}"}})


@dp.append_flow(target="copies", name="copy")
def copy():
    rows = spark.readStream.format("eos-kafka").options(**servers).option("subscribe", "{source}")
    return rows.option("startingOffsets", "earliest").load().select("value")
"""


class Pipeline:
    """A project of one flow."""

    def __init__(self, folder: Path, cluster: DevCluster, source: str, target: str) -> None:
        self._folder = folder
        (folder / "spark-pipeline.yml").write_text(SPEC.format(folder=folder))
        (folder / "flows").mkdir()
        text = FLOW.format(servers=cluster.bootstrap_servers, source=source, target=target, group=f"group-{target}")
        (folder / "flows" / "copy.py").write_text(text)
        # Where Spark looks for data sources: a wheel puts it there, an editable install does not.
        (folder / "path").mkdir()
        (folder / "path" / "pyspark_spark_eos").symlink_to(ROOT / "spark_eos" / "datasource" / "autoload")

    def run(self, *arguments: str) -> None:
        """Run it to its end, in a Spark of its own."""
        home = Path(pyspark.__file__).parent
        conf = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.log.level": "WARN"}
        command = [str(home / "bin" / "spark-pipelines"), "run", "--remote", "local[2]", *arguments]
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_TESTING": "1",  # the server inside takes a free port
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(self._folder / "path"), str(ROOT)]),
        }
        for name, value in conf.items():
            command += ["--conf", f"{name}={value}"]
        done = subprocess.run(
            command, cwd=self._folder, env=environment, check=False, capture_output=True, text=True, timeout=PROGRAM_S
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_pipeline_goes_on_where_its_last_run_ended(cluster, view, topic, write, tmp_path):
    """Its own checkpoint, trigger and output mode fit the sink; offsets and rows are committed together."""
    source, target = topic(2), topic(1)
    pipeline = Pipeline(tmp_path, cluster, source, target)
    for values in ("abc", "de"):
        write(source, *values)
        pipeline.run()
        assert view.group(f"group-{target}", source) == view.ends(source)
    assert sorted(view.values(target)) == list("abcde")
