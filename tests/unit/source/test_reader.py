"""The reader's schema, options and what of it travels; its behaviour needs a broker and is tested there."""

import pickle

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from spark_eos.kafka.net.client import BrokerClient
from spark_eos.options.bounds import ByTime
from spark_eos.options.parse import batch_options, stream_options
from spark_eos.options.selection import Pattern
from spark_eos.source.fetching import Fetching
from spark_eos.source.reader import EosKafkaStreamReader
from spark_eos.source.schema import arrow_schema, schema
from spark_eos.spark.versions import ReadMaxRows
from tests.support.judges.conditions import raises

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a,b"}


@pytest.mark.parametrize("headers", [False, True])
def test_arrow_schema_is_the_one_that_spark_expects(headers):
    """Spark refuses a batch that differs in a type, a time zone or nullability."""
    assert arrow_schema(headers).equals(to_arrow_schema(schema(headers), timezone="UTC"))


def test_columns_are_those_of_the_built_in_source():
    """Names, types and order."""
    usual = "key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
    assert schema(False).simpleString() == f"struct<{usual}>"
    assert schema(True).simpleString() == f"struct<{usual},headers:array<struct<key:string,value:binary>>>"


def test_the_reader_travels_as_its_options():
    """Planner, driver and tasks each unpickle their own; no client and no state goes along."""
    options = stream_options(OPTIONS)
    reader = EosKafkaStreamReader(options)
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.__reduce__() == reader.__reduce__() == (EosKafkaStreamReader, (options,))
    assert len(pickle.dumps(reader)) < 1000


def test_the_default_read_limit_is_the_users():
    """Without one it is a number too: ReadAllAvailable is left to Trigger.Once."""
    limited = EosKafkaStreamReader(stream_options(OPTIONS | {"maxOffsetsPerTrigger": "7"}))
    assert limited.getDefaultReadLimit() == ReadMaxRows(7)
    assert EosKafkaStreamReader(stream_options(OPTIONS)).getDefaultReadLimit() == ReadMaxRows(2**63 - 1)


@pytest.mark.parametrize(
    ("changed", "condition"),
    [
        ({"subscribe": None}, "EOS_OPTION_MISSING"),
        ({"kafka.bootstrap.servers": None}, "EOS_OPTION_MISSING"),
        ({"subscribe": "a,,b"}, "EOS_OPTION_INVALID"),
        ({"maxOffsetsPerTrigger": "0"}, "EOS_OPTION_INVALID"),
        ({"startingOffsets": "{"}, "EOS_OPTION_INVALID"),
        ({"startingOffset": "earliest"}, "EOS_OPTION_UNKNOWN"),
        ({"kafka.auto.offset.reset": "earliest"}, "EOS_OPTION_RESERVED"),
        ({"subscribePattern": "a.*"}, "EOS_OPTION_CONFLICT"),
        ({"subscribe": None, "subscribePattern": "a(*"}, "EOS_OPTION_INVALID"),
        ({"subscribe": None, "subscribePattern": " "}, "EOS_OPTION_INVALID"),
        ({"subscribe": None, "assign": "{"}, "EOS_OPTION_INVALID"),
        ({"subscribe": None, "assign": "{}"}, "EOS_OPTION_INVALID"),
        ({"subscribe": None, "assign": '{"a":[-1]}'}, "EOS_OPTION_INVALID"),
        ({"subscribe": None, "assign": '{"a":{"0":1}}'}, "EOS_OPTION_INVALID"),
        ({"startingOffsets": "group"}, "EOS_OPTION_MISSING"),
        ({"startingTimestamp": "yesterday"}, "EOS_OPTION_INVALID"),
        ({"startingOffsetsByTimestamp": '{"a":{"0":-1}}'}, "EOS_OPTION_INVALID"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "EOS_OPTION_INVALID"),
        ({"endingOffsets": "latest"}, "EOS_OPTION_UNSUPPORTED"),
        ({"endingTimestamp": "5"}, "EOS_OPTION_UNSUPPORTED"),
        ({"endingOffsetsByTimestamp": '{"a":{"0":1}}'}, "EOS_OPTION_UNSUPPORTED"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "EOS_OPTION_CONFLICT"),
        ({"maxTriggerDelay": "soon"}, "EOS_OPTION_INVALID"),
        ({"maxTriggerDelay": "5 weeks"}, "EOS_OPTION_INVALID"),
        ({"failOnDataLoss": "no"}, "EOS_OPTION_INVALID"),
        ({"minPartitions": "0"}, "EOS_OPTION_INVALID"),
        ({"kafka.isolation.level": "committed"}, "EOS_OPTION_INVALID"),
    ],
)
def test_bad_options_are_named(changed, condition):
    """On the driver, before a broker is asked."""
    options = {key: value for key, value in (OPTIONS | changed).items() if value is not None}
    with raises(condition):
        stream_options(options)


@pytest.mark.parametrize(
    ("given", "condition"),
    [
        ({"startingOffsets": "latest"}, "EOS_OPTION_INVALID"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "EOS_OPTION_INVALID"),
        ({"endingOffsets": "earliest"}, "EOS_OPTION_INVALID"),
        ({"endingOffsets": "group"}, "EOS_OPTION_INVALID"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "EOS_OPTION_INVALID"),
        ({"startingOffsets": '{"a":{"0":5}}', "endingOffsets": '{"a":{"0":4}}'}, "EOS_OPTION_INVALID"),
        ({"startingTimestamp": "5", "endingTimestamp": "4"}, "EOS_OPTION_INVALID"),
    ],
)
def test_bad_options_of_a_batch_are_named(given, condition):
    """What the built-in source refuses, and an end before the start."""
    with raises(condition):
        batch_options(OPTIONS | given)


@pytest.mark.parametrize("parse", [stream_options, batch_options])
@pytest.mark.parametrize(("given", "most"), [({}, 128 << 20), ({"maxDecompressedBytes": "2k"}, 2048)])
def test_the_limit_goes_to_the_tasks(parse, given, most):
    """The option is one of streams and of batches."""
    options = parse(OPTIONS | given)
    assert Fetching.from_options(BrokerClient(options.kafka), options).max_decompressed_bytes == most


def test_a_time_for_all_goes_before_times_for_each_and_those_before_offsets():
    """The built-in source's order."""
    everything = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"a":{"0":7}}',
        "startingTimestamp": "8",
    }
    assert stream_options(OPTIONS | everything).starting == ByTime(8, False)
    del everything["startingTimestamp"]
    parsed = stream_options(OPTIONS | everything | {"startingOffsetsByTimestampStrategy": "Latest"})
    assert parsed.starting == ByTime({"a": {0: 7}}, True)
    assert parsed.starting_option == "startingOffsetsByTimestamp"
    del everything["startingOffsetsByTimestamp"]
    assert stream_options(OPTIONS | everything).starting == "earliest"


def test_defaults_are_those_of_the_built_in_source():
    """A stream begins at the end, a batch reads all."""
    assert (stream_options(OPTIONS).starting, stream_options(OPTIONS).ending) == ("latest", None)
    assert (batch_options(OPTIONS).starting, batch_options(OPTIONS).ending) == ("earliest", "latest")


@pytest.mark.parametrize(("text", "seconds"), [("15m", 900), ("90s", 90), ("500", 0.5), ("2 h", 7200), ("1D", 86400)])
def test_durations_as_spark_writes_them(text, seconds):
    """A number alone is milliseconds."""
    assert stream_options(OPTIONS | {"maxTriggerDelay": text}).max_trigger_delay_s == seconds


def test_the_group_is_the_users_or_begins_as_the_user_says(caplog):
    """The prefix gives way to a whole name."""
    assert stream_options(OPTIONS).group_id is None
    assert stream_options(OPTIONS | {"groupIdPrefix": "team"}).group_id == "team-spark-eos"
    assert stream_options(OPTIONS | {"groupIdPrefix": "team", "kafka.group.id": "g"}).group_id == "g"
    assert "groupIdPrefix is ignored" in caplog.text


def test_a_pattern_matches_neither_ledgers_nor_what_only_looks_like_it():
    """A match anywhere in the name, as with the built-in source."""
    names = ["flights", "old-flights-2", "carriers", "__spark_eos_ledger"]
    assert Pattern("flights").matching(names) == ["flights", "old-flights-2"]
    assert Pattern("^flights$").matching(names) == ["flights"]
    assert Pattern(".*").matching(names) == ["carriers", "flights", "old-flights-2"]


@pytest.mark.parametrize(
    ("given", "lacking"),
    [
        ({"subscribe": "a,b"}, ["b"]),
        ({"subscribePattern": "^no-such"}, []),
        ({"assign": '{"a":[0,7]}'}, ["a-7"]),
    ],
)
def test_what_a_new_query_lacks(given, lacking):
    """The built-in source leaves out partitions that are not there. A pattern has to match something."""
    selection = stream_options({"kafka.bootstrap.servers": "127.0.0.1:1"} | given).selection
    assert selection.lacking({"a": [0, 1]}) == lacking
    assert selection.lacking({}) != []


@pytest.mark.parametrize(
    "line",
    [
        {"logOffset": 0},
        5,
        0,
        [1],
        {"sourceVersion": 1, "reservoirId": "a", "index": 3},
        {"t": {"0": "100"}},
        {"t": {"0": None}},
        {"t": {"00": 100}},
        {"t": {"0": -7}},
        {"t": {"0": 1.5}},
        {"t": {"0": 10**20}},
        {"#left": {"x": {}}, "t": {"0": 100}},
    ],
    ids=str,
)
def test_a_line_of_another_source_is_a_named_error(line):
    """A checkpoint that is reused, or the sources of a union that are swapped."""
    reader = EosKafkaStreamReader(stream_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}))
    for read in (
        lambda: reader.latestOffset(line, reader.getDefaultReadLimit()),
        lambda: reader.partitions({"t": {"0": 1}}, line),
        lambda: reader.partitions(line, {"t": {"0": 1}}),
    ):
        with raises("EOS_CHECKPOINT_DAMAGED", "no offsets of partitions"):
            read()
