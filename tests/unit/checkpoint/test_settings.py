"""Hadoop's settings: which are taken, from where, and that none of their values prints."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_eos.checkpoint import settings
from spark_eos.checkpoint.settings import HadoopSettings, of_spark, setting_name
from spark_eos.checkpoint.stores import NoStore, open_store
from spark_eos.errors import OptionError

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
def machine(tmp_path, environ) -> Path:
    """A machine whose Hadoop and Spark are configured by files in this folder; two more variables are set."""
    settings._of_files.cache_clear()
    environ(HADOOP_CONF_DIR=tmp_path, SPARK_CONF_DIR=tmp_path, YARN_CONF_DIR=None, SPARK_HOME=None)
    environ(EOS_HERE="there", EOS_EMPTY="")
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
        ("fs.s3a.bucket.a.b.access.key", "fs.s3a.bucket.a.b.access.key"),
        ("fs.azure.account.oauth2.client.id", "fs.azure.account.oauth2.client.id"),
        (
            "fs.azure.account.auth.type.here.dfs.core.windows.net",
            "fs.azure.account.auth.type.here.dfs.core.windows.net",
        ),
        ("google.cloud.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile"),
        ("fs.s3a.connection.maximum", None),
        ("fs.s3a.secret.kye", None),
        ("fs.s3a.bukcet.lake.access.key", None),
        ("fs.azure.acount.key.here.dfs.core.windows.net", None),
        ("fs.azure.account.keys", None),
        ("fs.gs.auth.service.account.keyfile", None),
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
    assert dict(HadoopSettings().on_this_machine()) == {"fs.defaultFS": "s3a://lake", "fs.s3a.endpoint": "minio:9000"}


def test_the_query_goes_before_the_machine(machine):
    """And spark-defaults.conf before core-site.xml, as for Spark."""
    (machine / "core-site.xml").write_text(SITE)
    lines = ["# spark.hadoop.fs.s3a.session.token no", "spark.hadoop.fs.s3a.endpoint  other:1", "spark.master=local"]
    lines += ["spark.hadoop.fs.s3a.secret.key=a=b", ""]
    (machine / "spark-defaults.conf").write_text("\n".join(lines))
    found = HadoopSettings({"fs.s3a.secret.key": "mine"}).on_this_machine()
    assert found["fs.s3a.endpoint"] == "other:1"
    assert found["fs.s3a.secret.key"] == "mine"
    assert HadoopSettings().on_this_machine()["fs.s3a.secret.key"] == "a=b"
    assert "fs.s3a.session.token" not in found


@pytest.mark.parametrize("text", ["", "<configuration>", "no xml at all"])
def test_files_that_cannot_be_read_say_nothing(machine, text):
    """Spark stops on them by itself."""
    (machine / "core-site.xml").write_text(text)
    assert dict(HadoopSettings().on_this_machine()) == {}


def test_no_value_prints():
    """They travel with the query, which Spark describes in logs."""
    secret = HadoopSettings({"fs.s3a.secret.key": "hush"})
    assert "hush" not in repr(secret)
    assert "hush" not in f"{secret} {secret!r}"
    again = pickle.loads(pickle.dumps(secret))
    assert again == secret
    assert hash(again) == hash(secret)


def test_a_session_of_connect_has_what_its_configuration_has():
    """There is no JVM at hand, but the server's configuration can be asked for. What a session does not say is no
    error: the machine and the environment may say it."""
    conf = {"spark.hadoop.fs.s3a.endpoint": "minio:9000", "spark.app.name": "x"}
    session = SimpleNamespace(conf=SimpleNamespace(getAll=conf))
    assert dict(HadoopSettings.from_session(session)) == of_spark(conf) == {"fs.s3a.endpoint": "minio:9000"}
    assert dict(HadoopSettings.from_session(SimpleNamespace())) == {}


@pytest.mark.parametrize(
    ("value", "means"),
    [
        ("${env.EOS_HERE}", "there"),
        ("a${env.EOS_HERE}${fs.s3a.endpoint}", "athereminio"),
        (
            "${env.EOS_EMPTY-x}|${env.EOS_EMPTY:-x}|${env.EOS_NONE-x}|${env.EOS_NONE:-${name.here}}|${env.EOS_NONE-}",
            "|x|x|5|",
        ),
        ("$${env.EOS_HERE} ${} $5 { }", "$there ${} $5 { }"),
    ],
)
def test_variables_are_replaced_as_by_hadoop(machine, value, means):
    """By the environment and the other settings."""
    others = {"fs.s3a.endpoint": "minio", "name.here": "${other}", "other": "5", "fs.s3a.secret.key": value}
    rows = (f"<property><name>{key}</name><value>{text}</value></property>" for key, text in others.items())
    (machine / "core-site.xml").write_text(f"<configuration>{''.join(rows)}</configuration>")
    assert HadoopSettings().on_this_machine()["fs.s3a.secret.key"] == means
    assert of_spark({f"spark.hadoop.{key}": text for key, text in others.items()})["fs.s3a.secret.key"] == means


@pytest.mark.parametrize(
    "value", ["${env.EOS_NONE}", "${user.home}/x", "${fs.s3a.session.token}", "${x${env.EOS_NONE}"]
)
def test_a_variable_without_a_value_is_refused_where_it_is_used(value):
    """By the setting's name: as it is, it would be a secret that the store refuses. What is not used is no error."""
    found = HadoopSettings(
        of_spark({"spark.hadoop.fs.s3a.session.token": value, "spark.hadoop.fs.s3a.access.key": "a"})
    )
    assert found.get("fs.s3a.access.key") == "a"
    with pytest.raises(OptionError, match=r"EOS_OPTION_INVALID.*fs\.s3a\.session\.token"):
        found.get("fs.s3a.session.token")
    with pytest.raises(NoStore, match=r"fs\.s3a\.session\.token"):
        open_store("s3a://lake/a", HadoopSettings({**found, "fs.s3a.secret.key": "b"}))


def test_settings_of_a_query_are_there_once():
    """A mapping can have two names that differ in capital letters only."""
    with pytest.raises(OptionError, match=r"EOS_OPTION_CONFLICT.*fs\.s3a\.access\.key"):
        HadoopSettings.split_off({"fs.s3a.access.key": "a", "fs.s3a.Access.Key": "b"}, {})


def test_a_file_of_properties_is_read_as_by_java(machine):
    """Escapes, lines that go on, and bytes that are no text, as in a comment."""
    lines = (
        b"# f\xfcr alle \\",
        rb"spark.hadoop.fs.s3a.endpoint=http\://h\:9000",
        b"spark.hadoop.fs.s3a.secret.key a\\",
        rb"   b\u0041\\",
        rb"spark.hadoop.fs.s3a.access.key : \=c",
        rb"spark.hadoop.fs.s3a.session.token",
        b"!spark.hadoop.fs.s3a.endpoint.region no",
    )
    (machine / "spark-defaults.conf").write_bytes(b"\n".join(lines) + b"\n")
    assert dict(HadoopSettings().on_this_machine()) == {
        "fs.s3a.endpoint": "http://h:9000",
        "fs.s3a.secret.key": "abA\\",
        "fs.s3a.access.key": "=c",
    }
