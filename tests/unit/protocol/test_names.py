"""Transactional ids: made and parsed exactly."""

from __future__ import annotations

import re
import uuid
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_eos.protocol.names import (
    SLOTS,
    TaskId,
    joined,
    ledger_name,
    names_of,
    owner_in,
    parse_task_name,
    query_of_job,
    query_of_replay,
    query_of_sink,
    task_name,
    tasks_since,
)

QUERY = "0b9d2c46-6f0e-4b0e-9a0b-0f8f4a3d2c11"
IDS = uuid.UUID("6b0f3b0e-6d0c-5c55-9c0b-6f1f6a2f3c11")

tasks = st.builds(
    TaskId,
    generation=st.integers(1, 10**6),
    partition=st.integers(0, 10**5),
    slot=st.integers(0, SLOTS - 1),
    attempt=st.integers(0, 100),
    rev=st.integers(0, 100),
)
prefixes = st.text("abz019.-_*+([\\", min_size=1, max_size=20)
queries = st.uuids().map(str)


@given(prefixes, queries, tasks)
def test_a_name_is_parsed_to_what_it_was_made_of(prefix, query, task):
    """Whatever the prefix, even one that looks like a regular expression or like a part of an id. So no two tasks share
    a name, by which one would fence the other."""
    assert parse_task_name(prefix, query, task_name(prefix, query, task)) == task


@given(prefixes, queries, tasks, prefixes, queries)
def test_a_name_of_another_query_or_prefix_is_not_ours(prefix, query, task, other_prefix, other_query):
    """Clean-up aborts what it parses, so it must never take somebody else's for its own."""
    name = task_name(prefix, query, task)
    if other_query != query:
        assert parse_task_name(prefix, other_query, name) is None
    if other_prefix != prefix:
        assert parse_task_name(other_prefix, query, name) is None


@given(st.from_regex(re.compile(r"[-r0-9]{1,12}"), fullmatch=True))
def test_what_parses_is_what_would_be_made(tail):
    """No second spelling of a name, such as a leading zero or an attempt 0 that is written out."""
    name = f"p-{QUERY}-{tail}"
    task = parse_task_name("p", QUERY, name)
    assert task is None or task_name("p", QUERY, task) == name


@pytest.mark.parametrize(
    "tail", ["1-0-2", "1-0", "01-0-0", "1-0-0-0", "1-0-0-r0", "1-0-0-r1-1", "1-0-0-", "ledger", ""]
)
def test_what_is_not_a_task_is_not_parsed(tail):
    """Wrong slots, missing or empty parts, other orders; and the ledger's own id, as aborting that as a leftover would
    undo a decision."""
    assert parse_task_name("p", QUERY, f"p-{QUERY}-{tail}") is None


def test_names_are_those_of_the_design():
    """ACLs are granted by prefix, people read the ids in the broker's tools, and a start finds by them what another
    version has left open."""
    assert ledger_name("spark-eos", QUERY) == f"spark-eos-{QUERY}-ledger"
    assert task_name("spark-eos", QUERY, TaskId(3, 12, 1)) == f"spark-eos-{QUERY}-3-12-1"
    assert task_name("spark-eos", QUERY, TaskId(3, 12, 1, attempt=2)) == f"spark-eos-{QUERY}-3-12-1-2"
    assert task_name("spark-eos", QUERY, TaskId(3, 12, 1, attempt=2, rev=4)) == f"spark-eos-{QUERY}-3-12-1-2-r4"
    assert task_name("spark-eos", QUERY, TaskId(3, 12, 1, rev=4)) == f"spark-eos-{QUERY}-3-12-1-r4"


@given(prefixes, queries, tasks)
def test_the_owner_of_a_transactional_id(prefix, query, task):
    """Whatever the prefix is, one that ends like another query's id among them; and brokers find it by a pattern."""
    for start in (prefix, f"{prefix}-{QUERY}", f"{prefix}-{QUERY}-1-0-0"):
        for name in (task_name(start, query, task), ledger_name(start, query)):
            assert owner_in(name) == (start, query)
            for pattern in (names_of(), names_of([query]), names_of([QUERY, query])):
                assert re.fullmatch(pattern, name)
    assert not re.fullmatch(names_of([QUERY]), ledger_name("p", str(uuid.uuid5(uuid.UUID(QUERY), query))))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "p",
        "p-q-3-17-1",
        f"p-{QUERY}",
        f"p-{QUERY}-x",
        f"p-{QUERY}-01-0-0",
        f"{QUERY}-ledger",
        f"p-{QUERY.upper()}-ledger",
    ],
)
def test_an_id_that_is_nobodys(name):
    """Whoever uses such ids is another program."""
    assert owner_in(name) is None


def test_each_number_is_in_the_pattern_or_not():
    """Around powers of ten and nines, where a pattern of digits is easily wrong."""
    for since in (0, 1, 9, 10, 19, 90, 99, 100, 109, 199, 999, 1000):
        pattern = re.compile(tasks_since("eos.", QUERY, since))
        found = [n for n in range(1_200) if pattern.fullmatch(task_name("eos.", QUERY, TaskId(n, 0, 0, 2, 3)))]
        assert found == list(range(since, 1_200))
        assert not pattern.fullmatch(task_name("eosX", QUERY, TaskId(since, 0, 0)))


#: With many spaces, and much of what the encoding itself uses.
names = st.text("a %025\n", max_size=6) | st.text()


def split(text: str, count: int) -> list[str]:
    """The inverse of `joined`, by another library's decoder."""
    *others, last = text.split(" ", count - 1)
    return [*map(unquote, others), last]


@given(st.lists(names, min_size=1, max_size=4))
def test_texts_that_are_joined_come_apart_again(texts):
    """So that no two lists of texts, as long as each other, are joined to the same one."""
    assert split(joined(*texts), len(texts)) == texts


@given(st.tuples(names, names), st.tuples(names, names))
@example(("flights 1", "all"), ("flights", "1 all"))
@example(("flights%20", "all"), ("flights ", "all"))
@example(("", " all"), (" ", "all"))
def test_no_two_sinks_share_a_ledger_key(one, other):
    """Else each would take the other's decisions for its own, and leave out what the other one has written."""
    assert (query_of_sink(*one) == query_of_sink(*other)) == (one == other)


@given(names, names)
def test_no_two_kinds_of_queries_share_a_ledger_key(one, other):
    """Whatever users call them."""
    sink, replay = query_of_sink(one, other), query_of_replay(one, other)
    assert len({sink, replay, query_of_job(one), query_of_job(f"{one} {other}")}) == 4


def test_ledger_keys_of_queries_of_spark_are_as_they_ever_were():
    """A version that looked under another key would find no head, and write once more what is decided."""
    assert query_of_sink(QUERY, "all of 2013 %") == str(uuid.uuid5(IDS, f"sink {QUERY} all of 2013 %"))
    assert query_of_replay(QUERY, "/data/a b") == str(uuid.uuid5(IDS, f"replay {QUERY} /data/a b"))
    assert query_of_job("flights 2013-01-01") == str(uuid.uuid5(IDS, "job flights 2013-01-01"))
