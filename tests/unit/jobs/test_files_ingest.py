"""The run of an ingest: which error ends it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from jobs.files.ingest import FolderIngest
from jobs.files.writing import ThroughSpark
from spark_eos.errors import stop
from tests.support.judges.conditions import raises


@pytest.mark.parametrize(
    ("raised", "condition"),
    [
        (stop("EOS_FILE_STORE", uri="file:///a", why="no answer"), "EOS_FILE_STORE"),
        (stop("EOS_FILE_CHANGED_WHILE_READ", uri="file:///a", how="it is longer"), "EOS_FILE_NEEDED"),
        (stop("EOS_FILE_UNREADABLE.read", uri="file:///a", why="no such file"), "EOS_FILE_NEEDED"),
    ],
)
def test_a_repair_needs_a_person_only_where_the_file_is_another_one(raised, condition, monkeypatch) -> None:
    """A store that does not answer is tried again by a restart."""

    def write(*_: object) -> None:
        raise raised

    ingest = object.__new__(FolderIngest)
    monkeypatch.setattr(ingest, "_run", SimpleNamespace(taken=SimpleNamespace(splits=[]), batch=3), raising=False)
    monkeypatch.setattr(ingest, "_write", write)
    with raises(condition):
        ingest._finish()


def test_a_folder_is_not_listed_without_a_pause(monkeypatch) -> None:
    """Whatever the trigger is."""
    ingest: Any = object.__new__(FolderIngest)
    ingest._job = SimpleNamespace(available_now=False, trigger="0 seconds")
    ingest._complete = SimpleNamespace(soon=False)
    assert ingest._pause_s > 0


def test_a_policy_of_the_session_does_not_change_what_a_date_is() -> None:
    """With LEGACY, Spark takes 30.02.2026 for 2 March."""
    spark: Any = MagicMock()
    spark.conf.get.return_value = None
    ThroughSpark(spark, *[MagicMock()] * 3)
    spark.conf.set.assert_any_call("spark.sql.legacy.timeParserPolicy", "CORRECTED")
