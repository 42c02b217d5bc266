"""The run of an ingest: which error ends it, and how often it lists its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from jobs.files import ingest
from jobs.files.writing import ThroughSpark
from spark_eos.errors import stop
from spark_eos.pipelines.files.notes import Taken
from tests.support.judges.conditions import raises
from tests.unit.jobs.conftest import Loaded


@pytest.fixture
def opened(loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ingest.FolderIngest]:
    """``opened(unfinished, raised)``: an ingest of an empty folder. ``unfinished``: it has to write its last
    micro-batch again, which raises this."""

    def opened(unfinished: bool, raised: Exception | None = None) -> ingest.FolderIngest:
        run = Mock(unfinished=unfinished, taken=Taken(), batch=3)
        monkeypatch.setattr(ingest, "IngestRun", lambda _: run)
        monkeypatch.setattr(ingest, "writing_of", lambda *_: Mock(write=Mock(side_effect=raised)))
        context = MagicMock()
        context.stop.asked.side_effect = [False, True]
        job = loaded("ingest_files", f"files: {{path: {tmp_path}}}, trigger: 0 seconds")
        return ingest.FolderIngest(context, job)

    return opened


@pytest.mark.parametrize(
    ("raised", "condition"),
    [
        (stop("EOS_FILE_STORE", uri="file:///a", why="no answer"), "EOS_FILE_STORE"),
        (stop("EOS_FILE_CHANGED_WHILE_READ", uri="file:///a", how="it is longer"), "EOS_FILE_NEEDED"),
        (stop("EOS_FILE_UNREADABLE.read", uri="file:///a", why="no such file"), "EOS_FILE_NEEDED"),
    ],
)
def test_a_repair_needs_a_person_only_where_the_file_is_another_one(raised, condition, opened) -> None:
    """A store that does not answer is tried again by a restart."""
    with raises(condition):
        opened(unfinished=True, raised=raised).run()


def test_a_folder_is_not_listed_without_a_pause(opened, monkeypatch) -> None:
    """Whatever the trigger is."""
    monkeypatch.setattr(ingest, "pause", pause := Mock())
    opened(unfinished=False).run()
    ((seconds, _),) = (call.args for call in pause.call_args_list)
    assert seconds > 0


def test_a_policy_of_the_session_does_not_change_what_a_date_is() -> None:
    """With LEGACY, Spark takes 30.02.2026 for 2 March."""
    spark: Any = MagicMock()
    spark.conf.get.return_value = None
    ThroughSpark(spark, *[MagicMock()] * 3)
    spark.conf.set.assert_any_call("spark.sql.legacy.timeParserPolicy", "CORRECTED")
