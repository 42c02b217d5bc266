"""What Spark is handed at the door, and what it is refused, without Spark or a cluster."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from spark_eos.datasource.provider import EosKafkaDataSource
from spark_eos.errors import EosError, OptionError, SchemaError, UnsupportedError
from spark_eos.sink.writer import EosKafkaStreamWriter
from spark_eos.source.reader import EosKafkaStreamReader
from spark_eos.spark.tracebacks import hidden_traceback
from tests.support.judges.conditions import raises
from tests.support.waiting import TIMEOUT

VALUE = StructType([StructField("value", StringType())])


def source(**options: str) -> EosKafkaDataSource:
    """For a cluster that nobody may need."""
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", **{key.replace("__", "."): v for key, v in options.items()}}
    return EosKafkaDataSource(CaseInsensitiveDict(given))


@pytest.mark.parametrize(
    ("options", "schema", "condition"),
    [
        ({"endingOffsets": "latest"}, None, "EOS_OPTION_UNSUPPORTED"),
        ({}, VALUE, "EOS_SCHEMA_INVALID"),
        ({"nonsense": "1"}, VALUE, "EOS_OPTION_UNKNOWN"),
    ],
)
def test_a_stream_reader_is_refused_by_its_first_call(options, schema, condition):
    """Spark would hide what streamReader raises behind an UnboundLocalError."""
    made = source(subscribe="t", **options)
    reader = made.streamReader(schema or made.schema())
    ways = (reader.initialOffset, reader.prepareForTriggerAvailableNow, lambda: reader.partitions({}, {}))
    for first in ways:  # of a new query, one that ends with what is there, and one that goes on
        with raises(condition):
            first()
    reader.stop()


def test_a_schema_that_is_the_sources_own_is_taken():
    """Spark passes it if the user gave none; whether a column may be null makes no difference."""
    made = source(subscribe="t", includeHeaders="true")
    own = made.schema()
    given = StructType([StructField(field.name, field.dataType, not field.nullable) for field in own])
    for schema in (own, given):
        assert isinstance(made.streamReader(schema), EosKafkaStreamReader)
        made.reader(schema)


@pytest.mark.parametrize("change", [lambda fields: fields[1:], lambda fields: fields[::-1]])
def test_any_other_schema_is_refused_with_both(change):
    """The tasks would die of it, one after the other."""
    made = source(subscribe="t")
    given = StructType(change(list(made.schema())))
    with pytest.raises(SchemaError, match=r"EOS_SCHEMA_INVALID.*offset bigint.*Remove .schema"):
        made.reader(given)
    with pytest.raises(SchemaError, match=r"\.schema\(…\) sets value int"):
        made.reader(StructType([StructField("value", IntegerType())]))


def test_batches_do_not_overwrite():
    """With what to use instead."""
    with pytest.raises(UnsupportedError, match=r"EOS_USE_UNSUPPORTED.*append"):
        source(topic="t").writer(VALUE, True)


def test_the_cluster_is_looked_at_for_the_tasks_and_not_for_commits():
    """The first thing that the look finds is a bad property, without a broker."""
    made = source(topic="t", kafka__compression__type="foo")
    with pytest.raises(OptionError, match="EOS_OPTION_INVALID"):
        made.streamWriter(VALUE, False)
    sent = pickle.loads(pickle.dumps(made))
    assert isinstance(sent.streamWriter(schema=VALUE, overwrite=False), EosKafkaStreamWriter)


def test_the_stack_is_hidden_in_a_worker_and_nowhere_else():
    """Of errors of ours; a defect keeps it. Spark's worker is a module of pyspark that was started by its name."""
    with pytest.raises(EosError), hidden_traceback():
        raise EosError("EOS_X", "What.", hint="Do.")
    assert "SPARK_HIDE_TRACEBACK" not in os.environ
    script = (
        "import io, sys, runpy; from pyspark.util import handle_worker_exception\n"
        "from spark_eos.errors import EosError; from spark_eos.spark.tracebacks import hidden_traceback\n"
        "sys.modules['__main__'].__spec__ = __import__('pyspark.daemon').daemon.__spec__\n"
        "for error in (ValueError('a defect'), EosError('EOS_X', 'What.', hint='Do.')):\n"
        "    told = io.BytesIO()\n"
        "    try:\n"
        "        with hidden_traceback(): raise error\n"
        "    except Exception as caught: handle_worker_exception(caught, told)\n"
        "    print(told.getvalue()[8:].decode())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.stdout.startswith("Traceback"), done.stderr
    assert done.stdout.strip().endswith("ValueError: a defect\n\nspark_eos.errors.EosError: [EOS_X] What. Hint: Do.")
