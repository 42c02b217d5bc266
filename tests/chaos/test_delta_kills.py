"""Topic → Delta table by merges → topic, with kills on both ways, as people start the jobs: every change is there once.

Driver and JVM get SIGKILL, then the same job is started again until its input is drained. Kills of appends are in
test_table_kills.py and test_from_table_kills.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Message, Producer
from deltalake import DeltaTable

from demo import processes
from tests.support.judges.recorder import judged, of_topics
from tests.support.kills.job_program import drained, killed_at, started
from tests.support.tables.delta import ToDelta, ToKafka, history, rows_of, settings
from tests.support.waiting import PROGRAM_S, TIMEOUT, wait_for

pytestmark = pytest.mark.chaos

PARTITIONS, BATCH = 2, 10
#: Each merge takes a second or more.
MERGED = 40

MERGE = "SELECT string(key) AS k, string(value) AS v, topic, partition, offset, value IS NULL AS deleted FROM input"
FEED = ", merge: [k], delta.enableChangeDataFeed: true"
CHANGES = "SELECT k AS key, v AS value, _commit_version, _change_type FROM input"


@pytest.fixture
def there(cluster, topic, tmp_path) -> ToDelta:
    return ToDelta(None, cluster.bootstrap_servers, topic(PARTITIONS), tmp_path)


@pytest.fixture
def back(cluster, topic, view, tmp_path) -> Iterator[ToKafka]:
    """What readers of the topic see during the test is judged at its end."""
    made = ToKafka(None, cluster.bootstrap_servers, topic(PARTITIONS), tmp_path)
    with judged(view, of_topics(view, made.topic, known_by=whole)):
        yield made


def whole(row: Message) -> bytes:
    """All that it has: values come again in other changes, and some rows have none."""
    return repr((row.key(), row.value(), row.headers(), row.timestamp())).encode()


def killed_between_commits(to: ToDelta, config: Path, folder: Path) -> None:
    """Kill the job while the table has a micro-batch with rows, and Spark has not noted that it is done."""
    log, commits = to.table / "_delta_log", to.checkpoint / "commits"

    def committed() -> list[int]:
        """The micro-batches of which the table has files."""
        found = []
        for file in log.glob("*.json"):
            actions = [json.loads(line) for line in file.read_text().splitlines()]
            if any("add" in action for action in actions):
                done = [action["txn"] for action in actions if "txn" in action]
                found += [txn["version"] for txn in done if "#" not in txn["appId"]]
        return found

    with started("kafka_to_delta", config, folder) as job:
        seen = 0

        def caught() -> bool:
            nonlocal seen
            assert job.poll() is None, "the job has ended before it could be killed"
            if len(list(log.glob("*.json"))) <= seen:
                return False
            with processes.frozen(job.pid):
                seen = len(list(log.glob("*.json")))
                batches = committed()
                if not batches or (commits / f"{max(batches)}").exists():
                    return False
                processes.kill(job.pid)
                return True

        wait_for(caught, (folder / "kafka_to_delta.log").read_text, PROGRAM_S)
        job.wait()
    assert not (commits / f"{max(committed())}").exists()


def spark() -> str:
    return f"spark: {json.dumps(settings())}"


@pytest.mark.parametrize("point", ["prepare.prepared", "commit.decided", "commit.ended"])
def test_merges_and_changes_come_through_once(there: ToDelta, back: ToKafka, view, tmp_path, point: str):
    """Each key's last row is in the table, and its history in the topic, without a change too many or too few."""
    producer = Producer({"bootstrap.servers": view.bootstrap_servers})
    for n in range(MERGED):
        key = n % 8
        value = None if n % 11 == 10 else f"{n}"
        producer.produce(there.topic, value, f"{key}", partition=key % PARTITIONS)
    assert producer.flush(TIMEOUT) == 0
    config = there.config(MERGE, source=f", maxOffsetsPerTrigger: {BATCH}", target=FEED, more=spark())
    killed_between_commits(there, config, tmp_path)
    drained("kafka_to_delta", config, tmp_path)
    last = {row.key.decode(): row.value for row in sorted(view.rows(there.topic), key=lambda row: row.offset)}
    assert rows_of(there.table) == sorted((key, value.decode()) for key, value in last.items() if value is not None)

    source = ", readChangeFeed: true, startingVersion: 0, maxFilesPerTrigger: 2"
    config = back.config(CHANGES, source=source, more=spark())
    killed_at(f"{point}=hold@2", "delta_to_kafka", config, tmp_path)  # in a micro-batch with rows
    drained("delta_to_kafka", config, tmp_path)
    feed = DeltaTable(str(there.table)).load_cdf(starting_version=0)
    changes = [
        (row["k"].encode(), (row["_commit_version"], row["_change_type"], row["v"]))
        for row in pa.table(feed.read_all()).to_pylist()
    ]
    found = history(view, back.topic)
    assert sorted((key, change) for key, all_ in found.items() for change in all_) == sorted(changes)
    for all_ in found.values():
        assert [version for version, _, _ in all_] == sorted(version for version, _, _ in all_)
