"""Records of topics that spark-eos keeps for itself are known by their form, and rows of users never are."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from spark_eos.ledger.record_forms import OwnTopic, own_topic_of
from spark_eos.pipelines.files.folder import File
from spark_eos.pipelines.files.notes import notes_of
from spark_eos.pipelines.mirror.entries import MapEntry, OffsetRun, SourcePartition, to_record
from spark_eos.protocol.head import Head
from spark_eos.protocol.head_codec import encode
from tests.unit.protocol.test_head import heads

texts = st.text(max_size=9)
uuids = st.uuids().map(str)
values = st.recursive(st.none() | texts | st.integers(), lambda more: st.lists(more) | st.dictionaries(texts, more))


@given(uuids, heads)
def test_a_head_is_of_a_ledger(query, head):
    """Each that this version writes."""
    assert own_topic_of(query.encode(), encode(head)) is OwnTopic.LEDGER


runs = st.builds(OffsetRun, st.integers(5), st.integers(5), st.integers(1))


@given(st.builds(SourcePartition, texts, texts, st.integers(0)), texts, st.lists(runs, max_size=2))
def test_an_entry_is_of_an_offset_map(source, name, some):
    """With rows, and without."""
    key, value = to_record(MapEntry(source, name, 0, 9, name, name, tuple(some)))
    assert own_topic_of(key, value) is OwnTopic.OFFSET_MAP


@given(uuids, texts, texts)
def test_a_note_is_of_an_ingest(query, name, topic):
    """Whatever the ingest is called."""
    ((key, value),) = notes_of(query, name, topic, 3, [[File("file:///f", 1, 2, "d")]])
    assert own_topic_of(key, value) is OwnTopic.NOTES


@given(
    st.none() | st.binary() | uuids.map(str.encode), st.none() | st.binary() | values.map(json.dumps).map(str.encode)
)
def test_a_row_of_a_user_is_of_none(key, value):
    """Neither text nor JSON, under a query's id or any other key, nor a record that deletes."""
    assert own_topic_of(key, value) is None


def test_a_row_that_is_nearly_one_of_ours_is_of_none():
    """It takes all of a form, in key and value."""
    query, head = b"0b9d2c46-6f0e-4b0e-9a0b-0f8f4a3d2c11", json.loads(encode_one())
    for name in ("format", "run", "generation", "earlier", "endtxn", "decision"):
        assert own_topic_of(query, json.dumps({k: v for k, v in head.items() if k != name}).encode()) is None
    assert own_topic_of(b"flights", encode_one()) is None
    assert own_topic_of(b'{"origin":"JFK","source":"FAA"}', b'{"target":"LAX","source":"FAA"}') is None
    assert own_topic_of(b'{"query":"q","batch":1,"place":0,"more":1}', b'{"ingest":"i"}') is None
    assert own_topic_of(query, b"{" * 100_000) is None


def encode_one() -> bytes:
    return encode(Head("r", 1, (), 5))
