"""Which Java is taken, and what is said when there is none."""

import pytest

from spark_eos.tools.devcluster import DevCluster
from spark_eos.tools.devcluster.java import find_java
from tests.support.judges.conditions import raises


@pytest.fixture
def fake_java(tmp_path, monkeypatch):
    """``fake_java(says, code=0)`` makes a JAVA_HOME whose java says that."""

    def make(says, code=0):
        home = tmp_path / "jdk"
        (home / "bin").mkdir(parents=True)
        program = home / "bin" / "java"
        program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
        program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(home))
        return str(program)

    return make


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Da="b"\nopenjdk version "17.0.1" 2021-10-19', 17),
    ],
)
def test_takes_java_17_and_newer(fake_java, says, version):
    """The version is found in whatever `java -version` prints."""
    path = fake_java(says)
    assert (find_java().path, find_java().version) == (path, version)


def test_options_from_the_environment_are_not_repeated(fake_java):
    """They may have the password of a proxy."""
    fake_java('NOTE: Picked up JDK_JAVA_OPTIONS: -Da="secret"\nPicked up _JAVA_OPTIONS: secret\nopenjdk version "17"')
    assert find_java().build == 'openjdk version "17"'


@pytest.mark.parametrize(("says", "version"), [('java version "1.8.0_452"', 8), ('openjdk version "11.0.2"', 11)])
def test_refuses_an_older_java(fake_java, says, version):
    """A Java that is too old is named with its path and version."""
    path = fake_java(says)
    with raises("EOS_JAVA_NOT_FOUND", f"{path} is Java {version}, but Spark and Apache Kafka need 17 or newer"):
        find_java()


def test_says_that_java_home_has_no_java(tmp_path, monkeypatch):
    """A wrong JAVA_HOME is not passed over for a Java on the PATH."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with raises("EOS_JAVA_NOT_FOUND", f"JAVA_HOME is {tmp_path}, but there is no program"):
        find_java()


def test_a_cluster_says_that_there_is_no_java(tmp_path, monkeypatch):
    """Without any Java, the hint says where one is looked for."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with raises("EOS_JAVA_NOT_FOUND", "no `java` on the PATH", "JAVA_HOME"), DevCluster():
        pass
