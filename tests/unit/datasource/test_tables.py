"""Tables of Spark's catalog: how their options get to where the tables are used."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from spark_eos.datasource.tables import columns, is_created, options_of
from spark_eos.errors import OptionError
from spark_eos.options.writes import write_options
from spark_eos.protocol.head import BatchWrite
from spark_eos.source.schema import schema

READ = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "startingoffsets": "earliest"}
WRITTEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}


def created(options: dict[str, str]) -> dict[str, str]:
    """What Spark hands over for CREATE TABLE: options twice, once behind a prefix, and other properties."""
    more = {"provider": "eos-kafka", "owner": "somebody", "comment": "c", "location": "file:/w/t", "my.prop": "1"}
    return {**more, **options, **{f"option.{key}": value for key, value in options.items()}}


def stored(schema: StructType) -> StructType:
    """A table's columns as a catalog gives them back."""
    return StructType.fromJson(schema.jsonValue())


def test_a_table_that_is_read_has_the_columns_of_the_source():
    """With headers where it asks for them, as ``load()`` has them."""
    for more, headers in (({}, False), ({"includeheaders": "true"}, True)):
        assert is_created(created(READ | more)) and not is_created(READ | more)
        found = columns(created(READ | more))
        assert [(f.name, f.dataType) for f in found.fields] == [(f.name, f.dataType) for f in schema(headers).fields]
        assert options_of(stored(found), {}) == READ | more


def test_a_table_that_is_written_has_the_columns_of_a_row():
    """Without those that only a broker gives, as INSERT fills in all of them."""
    found = columns(created(WRITTEN))
    assert found.names == ["key", "value", "headers", "partition", "timestamp"]
    assert options_of(stored(found), {}) == WRITTEN


def test_columns_that_were_read_from_a_table_may_be_written():
    """They still have its options, which are none of the sink's."""
    read = stored(columns(created(READ)))
    some = StructType([field for field in read.fields if field.name in ("key", "value")])
    assert options_of(some, WRITTEN, writes=True) == WRITTEN
    assert options_of(some, {}) == READ
    both = StructType([*some.fields, *stored(columns(created(WRITTEN))).fields])
    assert options_of(both, {}, writes=True) == WRITTEN


@given(
    st.text(min_size=1).filter(lambda text: "PRIVATE KEY" not in text),
    st.sampled_from(["kafka.client.id", "kafka.group.id"]),
)
def test_options_come_back_as_they_were_given(value, name):
    """Whatever characters they have; and an option of the use itself goes before that of the table."""
    found = stored(columns(created(READ | {name: value})))
    assert options_of(found, {}) == READ | {name: value}
    assert options_of(found, {name.upper(): "other"}) == READ | {name.upper(): "other"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.sasl.password", "x"),
        ("kafka.ssl.key.password", "x"),
        ("kafka.sasl.jaas.config", "x"),
        ("kafka.ssl.keystore.key", "x"),
        ("kafka.ssl.certificate.pem", "-----BEGIN PRIVATE KEY-----"),
    ],
)
@pytest.mark.parametrize("of", [READ, WRITTEN])
def test_a_secret_is_no_option_of_a_table(name, value, of):
    """Spark writes the metadata of columns into other tables, and a secret with it."""
    with pytest.raises(OptionError, match="WITH") as caught:
        columns(created(of | {name: value}))
    assert (caught.value.condition, caught.value.parameters["option"]) == ("EOS_TABLE_SECRET", name)
    assert value == "x" or value not in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"subscribe": "t"}, READ | {"subscribee": "t"}, WRITTEN | {"topik": "t"}])
def test_bad_options_are_refused_when_the_table_is_created(options):
    """A table's options are refused as early as a query's."""
    with pytest.raises(OptionError, match="EOS_OPTION"):
        columns(created(options))


def test_a_table_names_no_single_write():
    """Every INSERT but the first would be done already. One with a `job.id` of its own may be two-phase."""
    with pytest.raises(OptionError, match=r"EOS_OPTION_CONFLICT.*job\.id.*WITH"):
        columns(created(WRITTEN | {"job.id": "x"}))
    found = columns(created(WRITTEN | {"transaction.two.phase.commit": "true"}))
    assert write_options(options_of(stored(found), {"job.id": "x"}, writes=True)).write == BatchWrite("x", "t")


def test_a_use_without_any_options_says_what_spark_does_not_pass_on():
    """Options of a use that is no table are left alone."""
    for options in ({}, {"checkpointlocation": "c"}, {"path": "p"}):
        with pytest.raises(OptionError, match=r"EOS_OPTION_MISSING.*INSERT INTO"):
            options_of(schema(False), options)
    assert options_of(schema(False), READ) == READ
