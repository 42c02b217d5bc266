"""Hadoop's settings: which are taken, from where, and that none of their values prints."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_eos.checkpoint import settings
from spark_eos.checkpoint.settings import HadoopSettings, here, of_session, of_spark, setting_name

SITE = """<?xml version="1.0"?>
<configuration>
  <property><name>fs.defaultFS</name><value>s3a://lake</value></property>
  <property><name>fs.s3a.endpoint</name><value>minio:9000</value></property>
  <property><name>fs.s3a.access.key</name><value>default</value><source>core-default.xml</source></property>
  <property><name>io.file.buffer.size</name><value>4096</value></property>
  <property><name>fs.s3a.secret.key</name><value></value></property>
</configuration>
"""


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Path:
    """A machine whose Hadoop and Spark are configured by files in this folder."""
    settings._of_files.cache_clear()
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    yield tmp_path
    settings._of_files.cache_clear()


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("fs.s3a.access.key", "fs.s3a.access.key"),
        ("fs.s3a.bucket.lake.endpoint", "fs.s3a.bucket.lake.endpoint"),
        ("fs.defaultfs", "fs.defaultFS"),  # PySpark's dictionary of options has small letters only
        ("FS.S3A.Endpoint.Region", "fs.s3a.endpoint.region"),
        ("fs.azure.account.key.here.dfs.core.windows.net", "fs.azure.account.key.here.dfs.core.windows.net"),
        ("fs.s3a.connection.maximum", None),
        ("fs.file.impl", None),
        ("topic", None),
    ],
)
def test_the_settings_that_are_looked_at(key, name):
    """Where a store is and who asks; nothing about threads and buffers."""
    assert setting_name(key) == name


def test_hadoops_own_defaults_are_not_what_the_user_set(machine):
    """Each of the hundreds of defaults would else count as the user's."""
    (machine / "core-site.xml").write_text(SITE)
    assert dict(here(HadoopSettings())) == {"fs.defaultFS": "s3a://lake", "fs.s3a.endpoint": "minio:9000"}


def test_the_query_goes_before_the_machine(machine):
    """And spark-defaults.conf before core-site.xml, as for Spark."""
    (machine / "core-site.xml").write_text(SITE)
    lines = ["# spark.hadoop.fs.s3a.session.token no", "spark.hadoop.fs.s3a.endpoint  other:1", "spark.master=local"]
    lines += ["spark.hadoop.fs.s3a.secret.key=a=b", ""]
    (machine / "spark-defaults.conf").write_text("\n".join(lines))
    found = here(HadoopSettings({"fs.s3a.secret.key": "mine"}))
    assert found["fs.s3a.endpoint"] == "other:1"
    assert found["fs.s3a.secret.key"] == "mine"
    assert here(HadoopSettings())["fs.s3a.secret.key"] == "a=b"
    assert "fs.s3a.session.token" not in found


@pytest.mark.parametrize("text", ["", "<configuration>", "no xml at all"])
def test_files_that_cannot_be_read_say_nothing(machine, text):
    """Spark stops on them by itself."""
    (machine / "core-site.xml").write_text(text)
    assert dict(here(HadoopSettings())) == {}


def test_no_value_prints():
    """They travel with the query, which Spark describes in logs."""
    secret = HadoopSettings({"fs.s3a.secret.key": "hush"})
    assert "hush" not in repr(secret)
    assert "hush" not in f"{secret} {secret!r}"
    again = pickle.loads(pickle.dumps(secret))
    assert again == secret
    assert hash(again) == hash(secret)


def test_a_session_of_connect_has_what_its_configuration_has():
    """There is no JVM at hand, but the server's configuration can be asked for."""
    conf = {"spark.hadoop.fs.s3a.endpoint": "minio:9000", "spark.app.name": "x"}
    assert of_session(SimpleNamespace(conf=SimpleNamespace(getAll=conf))) == {"fs.s3a.endpoint": "minio:9000"}
    assert of_spark(conf) == {"fs.s3a.endpoint": "minio:9000"}


def test_a_session_that_gives_nothing_away():
    """What it does not say is not an error: the machine and the environment may say it."""
    assert of_session(SimpleNamespace()) == {}
