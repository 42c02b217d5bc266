"""What a job finds out before Spark starts, on a real broker: each mistake ends it by name, and writes nothing."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from deltalake import DeltaTable, Schema

from spark_eos.source.schema import arrow_schema


@pytest.fixture
def topics(topic: Callable[..., str], servers: str, tmp_path: Path) -> dict[str, str]:
    """Names that files use."""
    return {"in": topic(1), "out": topic(1), "servers": servers, "folder": str(tmp_path)}


@pytest.fixture
def servers(cluster) -> str:
    return cluster.bootstrap_servers


@pytest.fixture
def checked(
    topics: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Exit code and stderr of a job with this file."""

    def run(job: str, config: dict[str, object], *options: str) -> tuple[int, str]:
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump(config | {"kafka": {"bootstrap.servers": topics["servers"]}}))
        code = importlib.import_module(f"jobs.{job}").main(["--conf", str(file), *options])
        return code, capfd.readouterr().err

    return run


def to_topics(topics: dict[str, str], **more: object) -> dict[str, object]:
    return {
        "source": {"subscribe": topics["in"]},
        "transform": {"sql": "SELECT value FROM input"},
        "sink": {"topic": topics["out"]},
        "checkpoint": f"{topics['folder']}/checkpoint",
        **more,
    }


def to_table(topics: dict[str, str], **target: object) -> dict[str, object]:
    return {
        "source": {"subscribe": topics["in"]},
        "target": {"path": f"{topics['folder']}/t", **target},
        "checkpoint": f"{topics['folder']}/checkpoint",
    }


def into_itself(topics: dict[str, str]) -> dict[str, object]:
    return to_topics(topics, transform={"copy": "same"}, sink={"topic": topics["in"]})


def folder_for_merges(topics: dict[str, str]) -> dict[str, object]:
    Path(topics["folder"], "t").mkdir()
    Path(topics["folder"], "t", "a.csv").write_text("")
    return to_table(topics, merge=["k"]) | {"transform": {"sql": "SELECT 1 AS k FROM input"}}


def other_columns(topics: dict[str, str]) -> dict[str, object]:
    columns = arrow_schema(include_headers=False).remove(0)
    DeltaTable.create(f"{topics['folder']}/t", Schema.from_arrow(columns))
    return to_table(topics)


def no_source_table(topics: dict[str, str]) -> dict[str, object]:
    return {"source": {"path": f"{topics['folder']}/t"}, "sink": {"topic": topics["out"]}, "checkpoint": "checkpoint"}


@pytest.mark.parametrize(
    ("job", "config", "condition"),
    [
        ("consume_transform_produce", into_itself, "EOS_OPTION_CONFLICT"),
        ("kafka_to_delta", folder_for_merges, "EOS_DELTA_NO_TABLE"),
        ("kafka_to_delta", other_columns, "EOS_TABLE_DIFFERS"),
        ("delta_to_kafka", no_source_table, "EOS_DELTA_NO_TABLE"),
    ],
)
def test_a_mistake_is_named_before_spark_starts(job, config, condition, topics, checked, tmp_path):
    """And nothing was made: no checkpoint, no table, no lock."""
    given = config(topics)
    before = sorted(tmp_path.rglob("*"))
    code, said = checked(job, given)
    assert code == 1 and f"failed: [{condition}] " in said
    assert "starting Spark" not in said
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "job.yaml"])


@pytest.mark.parametrize(
    ("job", "config", "lines"),
    [
        (
            "consume_transform_produce",
            to_topics,
            ["the checkpoint {folder}/checkpoint", "the cluster at {servers} and on it {in}, {out}", "the topic {out}"],
        ),
        (
            "kafka_to_delta",
            to_table,
            ["the cluster at {servers} and on it {in}", "the table {folder}/t, and its columns"],
        ),
    ],
)
def test_a_check_says_what_it_looked_at_and_ends(job, config, lines, topics, checked, tmp_path):
    """Exit code 0; nothing was written."""
    code, said = checked(job, config(topics), "--check")
    assert code == 0
    for line in lines:
        assert f"checked: {line.format(**topics)}" in said
    assert "starting Spark" not in said and said.splitlines()[-1].startswith("nothing stands in the way")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "job.yaml"]
