"""The settings of a job's Spark session on their way to its JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import PROGRAM_S

ROOT = Path(__file__).parents[3]
#: Prints the settings that the JVM has, and who has the secret on the command line.
PROGRAM = """
import json, sys
from pathlib import Path
from jobs.runner.session import start

given = json.loads(sys.stdin.read())
spark = start("settings", given)
lines = {}
for file in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        lines[file.parent.name] = file.read_bytes().decode("utf-8", "replace")
    except OSError:
        pass
java = spark._jvm.java.lang
heap = java.Runtime.getRuntime().maxMemory()
print(json.dumps({
    "got": {name: spark.sparkContext.getConf().get(name) for name in given},
    "hadoop": spark._jsc.hadoopConfiguration().get("fs.s3a.secret.key"),
    "seen": [line for line in lines.values() if "VERY-" + "SECRET" in line],
    "looked": sum("spark-submit" in line or "SparkSubmit" in line for line in lines.values()),
    "heap": heap,
    "java": [java.System.getProperty(name) for name in ("of.the.defaults", "log4j2.configurationFile")],
}))
spark.stop()
"""


def test_settings_reach_the_jvm_and_no_command_line(tmp_path):
    """Whatever characters they have, and also those that only the start of a JVM can heed, such as its memory; beside
    those of spark-defaults.conf."""
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.extraJavaOptions -Dof.the.defaults=kept\n")
    given = {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "600m",
        "spark.hadoop.fs.s3a.secret.key": "VERY-SECRET: a=b#c!d\\e\"f'g $HOME %x é 日本 😀",
    }
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_SUBMIT_ARGS"}
    environment |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        env=environment,
        timeout=PROGRAM_S,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["got"] == given
    assert answer["hadoop"] == given["spark.hadoop.fs.s3a.secret.key"]
    assert answer["looked"] and answer["seen"] == []
    assert answer["heap"] < 700 * 2**20
    of_the_defaults, log_settings = answer["java"]
    assert of_the_defaults == "kept" and log_settings.endswith("/spark_eos/log4j2.properties")
