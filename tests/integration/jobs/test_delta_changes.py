"""The change data feed of a table → topics: every change once, each key's in its order, with version and kind."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.covering import one_for_every_day
from tests.support.delta import ToDelta, ToKafka, forget_the_last_commit, history, rows_of

CHANGES = "SELECT k AS key, v AS value, _commit_version, _change_type FROM input"
MERGE = "SELECT string(key) AS k, string(value) AS v, topic, partition, offset, value IS NULL AS deleted FROM input"
FEED = ", merge: [k], delta.enableChangeDataFeed: true"


ENGINES = pytest.mark.parametrize("engine", ["spark", "duckdb"])


@pytest.mark.chaos
@ENGINES
def test_changes_come_once_and_in_the_order_of_each_key(job: ToDelta, back: ToKafka, write, view, engine: str):
    """Inserts, updates and deletes of several commits in one micro-batch, which is replayed; first the snapshot."""
    write(job.topic, "a0", key="a")
    write(job.topic, "b0", key="b")
    assert job.run(MERGE, target=FEED) is None
    assert back.run(CHANGES, source=", readChangeFeed: true", engine=engine) is None
    for n in range(1, 3):
        write(job.topic, f"a{n}", key="a")
        write(job.topic, None if n == 1 else "b again", key="b")
        assert job.run(MERGE, target=FEED) is None
    assert back.run(CHANGES, source=", readChangeFeed: true", engine=engine) is None
    forget_the_last_commit(back.checkpoint)
    assert back.run(CHANGES, source=", readChangeFeed: true", engine=engine) is None
    found = history(view, back.topic)
    kinds = {key: [(kind, value) for _, kind, value in changes] for key, changes in found.items()}
    assert kinds == {
        b"a": [
            ("insert", "a0"),
            ("update_preimage", "a0"), ("update_postimage", "a1"),
            ("update_preimage", "a1"), ("update_postimage", "a2"),
        ],
        b"b": [("insert", "b0"), ("delete", "b0"), ("insert", "b again")],
    }  # fmt: skip
    versions = {key: [version for version, _, _ in changes] for key, changes in found.items()}
    assert all(versions[key] == sorted(versions[key]) for key in versions)
    assert rows_of(back.table) == [("a", "a2"), ("b", "b again")]


@pytest.mark.chaos
@ENGINES
def test_many_changes_of_many_keys_end_in_the_tables_state(job: ToDelta, back: ToKafka, view, engine: str):
    """Overwrites, updates and deletes of the whole table, in one micro-batch: who takes the last change of each key has
    the table's rows, and every key's versions ascend."""
    back.sql("CREATE TABLE {t} (k STRING, v STRING) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    for n in range(4):
        back.sql(f"INSERT INTO {{t}} SELECT string(id), '{n}' FROM range({100 * n}, {100 * n + 100}, 1, 3)")
        back.sql(f"UPDATE {{t}} SET v = v || '+{n}' WHERE int(k) % 3 = {n % 3}")
        back.sql(f"DELETE FROM {{t}} WHERE int(k) % 7 = {n}")
        back.sql(f"INSERT OVERWRITE {{t}} SELECT /*+ REPARTITION(3) */ k, v || '.' FROM {{t}} WHERE int(k) % 11 <> {n}")
    source = ", readChangeFeed: true, startingVersion: 0"
    assert back.run(CHANGES, source=source, more="tasks: 3", engine=engine) is None
    found = history(view, back.topic)
    columns = "_commit_version, _change_type, k, v"
    recorded = back.sql(f"SELECT {columns} FROM table_changes_by_path('{back.table}', 0)")
    assert Counter(recorded) == Counter(
        (version, kind, key.decode(), value) for key, changes in found.items() for version, kind, value in changes
    )
    assert all(
        [version for version, _, _ in changes] == sorted(version for version, _, _ in changes)
        for changes in found.values()
    )
    last = {key.decode(): changes[-1] for key, changes in found.items()}
    state = sorted((key, value) for key, (_, kind, value) in last.items() if kind != "delete")
    assert state == sorted(rows_of(back.table))


@pytest.mark.chaos
def test_a_commit_that_is_cut_where_order_would_be_lost_is_an_error(back: ToKafka, view):
    """An overwrite adds files and removes others: with a limit of files, the deletes might come after the inserts."""
    back.sql("CREATE TABLE {t} (k STRING, v STRING) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    back.sql("INSERT INTO {t} SELECT /*+ REPARTITION(2) */ string(id), 'old' FROM range(10)")
    source = ", readChangeFeed: true, maxFilesPerTrigger: 1"
    assert back.run(CHANGES, source=source) is None
    back.sql("INSERT OVERWRITE {t} SELECT /*+ REPARTITION(2) */ string(id), 'new' FROM range(10)")
    cut = back.run(CHANGES, source=source)
    assert cut.condition == "EOS_DELTA_COMMIT_CUT" and "ends within version 2 of the table" in cut.text
    assert {kind for changes in history(view, back.topic).values() for _, kind, _ in changes} == {"insert"}


@pytest.mark.chaos
@ENGINES
def test_changes_that_were_not_recorded_are_an_error(back: ToKafka, engine: str):
    """A table without a feed, at the start; versions before it was turned on, when they are read."""
    back.sql("CREATE TABLE {t} (k STRING, v STRING) USING delta")
    back.sql("INSERT INTO {t} VALUES ('a', '1')")
    without = back.run(CHANGES, source=", readChangeFeed: true", engine=engine)
    assert without.condition == "EOS_DELTA_TABLE_SETTINGS" and "SET TBLPROPERTIES" in without.text
    back.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    too_early = back.run(CHANGES, source=", readChangeFeed: true, startingVersion: 0", engine=engine)
    assert too_early.condition == "EOS_DELTA_TABLE_SETTINGS"
    assert ("version [" if engine == "spark" else "version 0 of") in too_early.text


@pytest.mark.chaos
def test_changes_need_the_columns_that_order_them(back: ToKafka):
    """A transformation that leaves them out is refused before the query starts."""
    back.sql("CREATE TABLE {t} (k STRING, v STRING) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    refused = back.run("SELECT k AS key, v AS value FROM input", source=", readChangeFeed: true")
    assert refused.condition == "EOS_CONFIG_INVALID_VALUE"
    assert "has no column '_commit_version', '_change_type'" in refused.text


@pytest.mark.parametrize(
    ("sql", "condition", "says"),
    one_for_every_day(
        "an order that is not known",
        [
            (
                CHANGES.replace("_commit_version", "string(_commit_version) AS _commit_version"),
                "EOS_DELTA_COLUMNS",
                "type string",
            ),
            (
                CHANGES.replace("_change_type", "nullif(_change_type, 'insert') AS _change_type"),
                "EOS_DELTA_NULL_ORDER",
                "type NULL. Hint",
            ),
            (
                CHANGES.replace("_change_type", "upper(_change_type) AS _change_type"),
                "EOS_DELTA_NULL_ORDER",
                "version is 1, and its type INSERT",
            ),
            (
                CHANGES.replace("_commit_version", "nullif(_commit_version, 1) AS _commit_version"),
                "EOS_DELTA_NULL_ORDER",
                "version is NULL",
            ),
        ],
    ),
    ids=["version as a text", "no kind", "another kind", "no version"],
)
def test_changes_whose_order_is_not_known_are_refused(back: ToKafka, view, sql: str, condition: str, says: str):
    """A transformation that changes what orders them: nothing of the micro-batch is in the topic."""
    back.sql("CREATE TABLE {t} (k STRING, v STRING) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    back.sql("INSERT INTO {t} VALUES ('a', '1')")
    refused = back.run(sql, source=", readChangeFeed: true")
    assert refused.condition == condition and says in refused.text, refused
    assert view.rows(back.topic) == []
