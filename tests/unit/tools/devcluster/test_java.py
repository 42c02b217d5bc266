"""Which Java is taken, and what is said when there is none."""

import pytest

from spark_eos.tools.devcluster import DevCluster
from spark_eos.tools.devcluster.java import find_java
from tests.support.judges.conditions import raises


@pytest.fixture
def java_home(tmp_path, environ):
    """``java_home(says)``: the program of a JAVA_HOME, which says that, or is not there. Before, there is no Java."""
    environ(JAVA_HOME=None, PATH=tmp_path)

    def make(says=None):
        environ(JAVA_HOME=tmp_path)
        program = tmp_path / "bin" / "java"
        if says is not None:
            program.parent.mkdir()
            program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
            program.chmod(0o755)
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
def test_takes_java_17_and_newer(java_home, says, version):
    """The version is found in whatever `java -version` prints."""
    path = java_home(says)
    assert (find_java().path, find_java().version) == (path, version)


def test_options_from_the_environment_are_not_repeated(java_home):
    """They may have the password of a proxy."""
    java_home('NOTE: Picked up JDK_JAVA_OPTIONS: -Da="secret"\nPicked up _JAVA_OPTIONS: secret\nopenjdk version "17"')
    assert find_java().build == 'openjdk version "17"'


@pytest.mark.parametrize(("says", "version"), [('java version "1.8.0_452"', 8), ('openjdk version "11.0.2"', 11)])
def test_refuses_an_older_java(java_home, says, version):
    """A Java that is too old is named with its path and version."""
    path = java_home(says)
    with raises("EOS_JAVA_NOT_FOUND", f"{path} is Java {version}, but Spark and Apache Kafka need 17 or newer"):
        find_java()


def test_says_that_java_home_has_no_java(java_home, tmp_path):
    """A wrong JAVA_HOME is not passed over for a Java on the PATH."""
    path = java_home()
    with raises("EOS_JAVA_NOT_FOUND", f"JAVA_HOME is {tmp_path}, but there is no program {path}"):
        find_java()


@pytest.mark.usefixtures("java_home")
def test_a_cluster_says_that_there_is_no_java():
    """Without any Java, the hint says where one is looked for."""
    with raises("EOS_JAVA_NOT_FOUND", "no `java` on the PATH", "JAVA_HOME"), DevCluster():
        pass
