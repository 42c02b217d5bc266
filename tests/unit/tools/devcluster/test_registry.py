"""A registry that does not come up; tests/integration/pipelines/registry has one that does."""

import sys

import pytest

from spark_eos.errors import DevClusterError
from spark_eos.tools.devcluster import registry


def test_a_registry_that_ends_at_once_is_an_error_with_its_log(monkeypatch):
    """With the last lines of what it printed, and nothing is left of it."""
    monkeypatch.setattr(registry, "_command", lambda port: [sys.executable, "-c", "exit('the port is taken')"])
    found = registry.DevRegistry()
    with pytest.raises(DevClusterError, match="the port is taken") as caught:
        found.open()
    assert caught.value.entry == "EOS_DEVCLUSTER_FAILED"
    assert not found.process.home.exists()
    found.close()
