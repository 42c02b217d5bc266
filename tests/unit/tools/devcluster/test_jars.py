"""How jars are resolved, without a network."""

from __future__ import annotations

import sys

import pytest

from spark_eos.errors import DevClusterError
from spark_eos.tools.devcluster.jars import KAFKA_VERSION, kafka_jars, resolve


def test_a_pyspark_without_ivy_is_named(tmp_path, monkeypatch):
    """The slim pyspark packages have no jars: the error says which package has them, and nothing is stored."""
    slim, cache = tmp_path / "site-packages", tmp_path / "cache"
    (slim / "pyspark").mkdir(parents=True)
    (slim / "pyspark" / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(slim)
    monkeypatch.setenv("SPARK_EOS_CACHE", str(cache))
    with pytest.raises(DevClusterError) as caught:
        resolve(kafka_jars(KAFKA_VERSION))
    assert caught.value.condition == "EOS_DEVCLUSTER_DOWNLOAD"
    assert "pip install pyspark" in caught.value.hint
    assert not list(cache.rglob("*.jar"))
