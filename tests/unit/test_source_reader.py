"""The reader's schema, options and what of it travels; its behaviour needs a broker and is tested there."""

import pickle

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadMaxRows

from spark_eos.errors import OptionError
from spark_eos.options import source_options
from spark_eos.source.reader import EosKafkaStreamReader
from spark_eos.source.schema import ARROW_SCHEMA, SCHEMA

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a,b"}


def test_arrow_schema_is_the_one_that_spark_expects():
    """Spark refuses a batch that differs in a type, a time zone or nullability."""
    assert ARROW_SCHEMA.equals(to_arrow_schema(SCHEMA, timezone="UTC"))


def test_columns_are_those_of_the_built_in_source():
    """Names, types and order."""
    assert SCHEMA.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )


def test_the_reader_travels_as_its_options():
    """Planner, driver and tasks each unpickle their own; no client and no state goes along."""
    reader = EosKafkaStreamReader(source_options(OPTIONS))
    reader._initial = {"a": {"0": 1}}
    copy = pickle.loads(pickle.dumps(reader))
    assert copy._options == reader._options
    assert copy._initial is None
    assert len(pickle.dumps(reader)) < 1000


def test_the_default_read_limit_is_the_users():
    """Without one it is a number too: ReadAllAvailable is left to Trigger.Once."""
    limited = EosKafkaStreamReader(source_options(OPTIONS | {"maxOffsetsPerTrigger": "7"}))
    assert limited.getDefaultReadLimit() == ReadMaxRows(7)
    assert EosKafkaStreamReader(source_options(OPTIONS)).getDefaultReadLimit() == ReadMaxRows(2**63 - 1)


@pytest.mark.parametrize(
    ("changed", "condition"),
    [
        ({"subscribe": None}, "EOS_OPTION_MISSING"),
        ({"kafka.bootstrap.servers": None}, "EOS_OPTION_MISSING"),
        ({"subscribe": "a,,b"}, "EOS_OPTION_EMPTY"),
        ({"maxOffsetsPerTrigger": "0"}, "EOS_OPTION_NOT_A_NUMBER"),
        ({"startingOffsets": "{"}, "EOS_OPTION_OFFSETS_JSON"),
        ({"startingOffset": "earliest"}, "EOS_OPTION_UNKNOWN"),
        ({"kafka.isolation.level": "read_uncommitted"}, "EOS_OPTION_RESERVED"),
        ({"kafka.auto.offset.reset": "earliest"}, "EOS_OPTION_RESERVED"),
        ({"kafka.group.id": "g"}, "EOS_OPTION_RESERVED"),
    ],
)
def test_bad_options_are_named(changed, condition):
    """On the driver, before a broker is asked."""
    options = {key: value for key, value in (OPTIONS | changed).items() if value is not None}
    with pytest.raises(OptionError) as caught:
        source_options(options)
    assert caught.value.condition == condition
