"""How jars are resolved, without a network."""

from __future__ import annotations

import sys

import pytest

from spark_eos.errors import DevClusterError
from spark_eos.tools.devcluster.jars import KAFKA_VERSION, JarSet, download, kafka_jars, reason_of, resolve
from tests.support.judges.conditions import raises

_NOT_FOUND = ["::          UNRESOLVED DEPENDENCIES         ::", ":: org.a#b;1.0: not found", ":: org.c#d;2: not found"]
_REFUSED = "Server access error at url https://maven.example/a.pom (java.net.ConnectException: Connection refused)"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (_NOT_FOUND, "org.a#b;1.0: not found, org.c#d;2: not found"),
        ([*_NOT_FOUND, ":::: ERRORS", _REFUSED, "", _REFUSED], _REFUSED),
        (["a", "Could not find or load main class"], "Ivy says: a / Could not find or load main class"),
    ],
)
def test_why_ivy_has_failed_is_said_in_one_line(said: list[str], reason: str):
    """What it prints are forty lines."""
    assert reason_of(said) == reason


def test_a_pyspark_without_ivy_is_named(tmp_path, environ, monkeypatch):
    """The slim pyspark packages have no jars: the error says which package has them, and nothing is stored."""
    slim, cache = tmp_path / "site-packages", tmp_path / "cache"
    (slim / "pyspark").mkdir(parents=True)
    (slim / "pyspark" / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(slim)
    environ(SPARK_EOS_CACHE=cache)
    with raises("EOS_DEVCLUSTER_DOWNLOAD", "pip install pyspark"):
        resolve(kafka_jars(KAFKA_VERSION))
    assert not list(cache.rglob("*.jar"))


def test_what_is_no_jar_is_refused(tmp_path, java):
    """Such as a proxy's page, for which there is no checksum."""
    java("17")  # in place of Ivy, which finds nothing more
    (tmp_path / "b-1.jar").write_text("<html>")
    with pytest.raises(DevClusterError, match=r"EOS_DEVCLUSTER_DOWNLOAD.*b-1\.jar is no jar"):
        download(JarSet("set", plain=("a:b:1",)), tmp_path)
