"""Copies whose transform is SQL, on a real broker and Spark."""

from __future__ import annotations

import json

import pytest

from tests.support.runs.case_cover import one_for_every_day
from tests.support.waiting import wait_for


def test_sql_filters_and_computes_each_record_once_over_a_restart(copy, transactions, write):
    """Order, keys and partitions are those of the query's columns; a replay of what is decided writes nothing."""
    query = copy(2)
    late = (
        "SELECT key, json_extract_string(decode(value), '$.n') AS value, partition FROM input WHERE value LIKE '%late%'"
    )
    late = late.replace("value LIKE", "decode(value) LIKE")
    for partition in range(2):
        for n in range(300):
            told = {"n": n, "is": "late" if n % 3 else "on time"}
            write(query.source, json.dumps(told).encode(), partition=partition, key=b"k")
    query.run(late)
    transactions.commit(query.source, '{"n": 300, "is": "late"}', partition=1)
    transactions.abort(query.source, '{"n": 301, "is": "late"}', partition=1)
    query.forget(1)
    query.run(late)
    wanted = [str(n).encode() for n in range(300) if n % 3]
    for partition, more in ((0, []), (1, [b"300"])):
        assert [row.value for row in query.rows() if row.partition == partition] == wanted + more


@pytest.mark.parametrize("way", one_for_every_day("rejected records", ["deadLetters", "drop"]))
def test_rejected_records_are_letters_by_the_same_decision_with_the_groups_offsets(
    way, copy, topic, view, write, heard
):
    """Those for which SQL fails, and those with an error of its own, of two tasks; they are counted. A replay of what
    is decided writes nothing."""
    query, letters = copy(2), topic(1, max_message_bytes=10_000_000)
    query.reads, query.more = {"minPartitions": 2}, {"on_malformed": way, "ordered": False}
    group = f"group-{query.target}"
    values = [b"1", b"no", b"-3", b"4", b"-5", b"x"]
    write(query.source, *values, partition=0, key=b"k")
    write(query.source, b"-7", partition=1, key=b"k")
    sql = """
        SELECT key, (CAST(decode(value) AS INT) * 2)::VARCHAR AS value, "offset",
            CASE WHEN CAST(decode(value) AS INT) < 0 THEN 'it is negative' END AS error
        FROM input
    """
    options = {"deadLetters__topic": letters, "offsets__group__id": group}
    query.run(sql, **options)
    query.forget(1)
    query.run(sql, **options)
    told = [(event["batch"], event["rows"], event["dropped"], event["dead_letters"]) for event in heard(3)]
    assert told[1:] == ([(1, 7, 0, 5), (1, 7, 0, 0)] if way == "deadLetters" else [(1, 2, 5, 0), (1, 2, 0, 0)])
    assert query.values() == [b"2", b"8"]
    assert view.group(group, query.source) == view.ends(query.source)
    wait_for(lambda: view.held(letters) == {}, "the markers")
    found = [(row.value, dict(row.headers)) for row in view.rows(letters)]
    rejected = sorted([b"no", b"-3", b"-5", b"x", b"-7"]) if way == "deadLetters" else []
    assert sorted(value for value, _ in found) == rejected
    for value, headers in found:
        place = [headers[f"__streams.errors.{name}"].decode() for name in ("topic", "partition", "offset")]
        assert place == [query.source, *(("1", "0") if value == b"-7" else ("0", str(values.index(value))))]
        why = headers["__streams.errors.message"]
        assert why == b"it is negative" if value.startswith(b"-") else b"Conversion Error" in why


def test_an_error_column_stops_the_query_where_nothing_else_is_set(copy, write):
    """With the record's place and the reason."""
    query = copy(1)
    write(query.source, b"a", b"b")
    sql = "SELECT value, \"offset\", CASE WHEN value = 'b'::BLOB THEN 'it is b' END AS error FROM input"
    text = query.stopped_by("EOS_RECORD_REJECTED", sql)
    assert f"offset 1 of {query.source}-0: it is b" in text
    assert query.rows() == []
