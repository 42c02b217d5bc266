"""What not every version of Spark has."""

from __future__ import annotations

import importlib.util

import pytest
from pyspark.sql.streaming import datasource

from spark_eos.spark import versions as spark


def test_spark_has_its_own_classes():
    """Where there is admission control, Spark looks at the very classes."""
    assert spark.ReadMaxRows is datasource.ReadMaxRows
    assert spark.SupportsTriggerAvailableNow is datasource.SupportsTriggerAvailableNow


def test_a_spark_without_admission_control(not_installed):
    """Every name exists in each version."""
    not_installed(datasource.__name__)
    spec = importlib.util.find_spec("spark_eos.spark.versions")
    without = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(without)
    assert without.ReadMaxRows(5).max_rows == 5
    assert isinstance(without.ReadMaxRows(5), without.ReadLimit)
    assert not isinstance(without.ReadAllAvailable(), without.ReadMaxRows)
    assert without.ReadMaxRows is not datasource.ReadMaxRows


@pytest.mark.parametrize(
    ("variables", "tcp"),
    [
        ({}, False),
        ({"PYTHON_WORKER_FACTORY_SECRET": "s"}, True),
        ({"PYTHON_WORKER_FACTORY_SECRET": "s", "PYTHON_UNIX_DOMAIN_ENABLED": "false"}, True),
        ({"PYTHON_WORKER_FACTORY_SECRET": "s", "PYTHON_UNIX_DOMAIN_ENABLED": "True"}, False),
    ],
)
def test_a_worker_on_tcp(variables, tcp, environ):
    """By what Spark tells its workers; this process is none."""
    environ(**{"PYTHON_WORKER_FACTORY_SECRET": None, "PYTHON_UNIX_DOMAIN_ENABLED": None} | variables)
    assert spark.worker_uses_tcp() == tcp
