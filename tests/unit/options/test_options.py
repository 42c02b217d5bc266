"""The sink's options: parsed, checked, named. The source's are tested with its reader."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from spark_eos.errors import OptionError
from spark_eos.options import parse
from spark_eos.options.bounds import parse_duration, parse_time
from spark_eos.options.parse import batch_options, sink_options, source_options, stream_options
from spark_eos.options.table import DEFAULT_LEDGER_TOPIC, DEFAULT_PREFIX, SINK, SINK_OWNED, SOURCE, SOURCE_OWNED
from spark_eos.options.values import parse_batch, parse_positive, parse_size, parse_version
from tests.support.judges.conditions import raises

LEAST = {"kafka.bootstrap.servers": "127.0.0.1:1"}


def refused(**options: str) -> OptionError:
    with pytest.raises(OptionError) as caught:
        sink_options(LEAST | options)
    return caught.value


def test_least_options():
    """Bootstrap servers are enough; the rest has the defaults that the docs name."""
    options = sink_options(LEAST)
    assert options.kafka.bootstrap_servers == "127.0.0.1:1"
    assert (options.prefix, options.ledger_topic, options.ledger_begin) == (
        DEFAULT_PREFIX,
        DEFAULT_LEDGER_TOPIC,
        None,
    )
    assert (options.topic, options.group_id, options.checkpoint_location, options.transaction_timeout_ms) == (None,) * 4


def test_every_option_of_the_table_is_parsed_into_its_field():
    """Whatever the case in which it is written; Spark hands them over in lower case."""
    given = {
        "topic": "t",
        "deadLetters.topic": "d",
        "checkpointLocation": "/c",
        "transactionalIdPrefix": "p",
        "transaction.timeout.ms": "7000",
        "transaction.two.phase.commit": "True",
        "ledger.topic": "l",
        "ledger.begin": "12",
        "offsets.group.id": "g",
    }
    assert given.keys() == {option.name for option in SINK}
    for write in (str, str.lower, str.upper):
        options = sink_options(LEAST | {write(name): value for name, value in given.items()})
        assert {option.name: getattr(options, option.attribute) for option in SINK} == given | {
            "transaction.timeout.ms": 7000,
            "transaction.two.phase.commit": True,
            "ledger.begin": 12,
        }


def test_options_as_spark_hands_them_over():
    """With what Spark adds itself: a path, the query's name."""
    raw = CaseInsensitiveDict(LEAST | {"topic": "t", "path": "", "queryName": "q"})
    assert sink_options(raw).topic == "t"


def test_a_sink_with_a_path_is_refused():
    """From start("x") or toTable("x"): the rows would go elsewhere without a word."""
    error = refused(topic="t", path="file:/warehouse/x")
    assert (error.condition, error.parameters["path"]) == ("EOS_OPTION_INVALID", "file:/warehouse/x")


def test_a_source_with_nothing_but_a_path_is_told_that_it_names_no_topic():
    """As in load("flights")."""
    with pytest.raises(OptionError, match=r'\(flights\) names no topic.*"subscribe"'):
        stream_options(LEAST | {"path": "flights"})


def test_an_option_of_the_other_side_is_told_where_it_belongs():
    """Rather than what it resembles."""
    assert "source: set it on readStream" in refused(includeheaders="true").hint
    with pytest.raises(OptionError, match="sink: set it on writeStream"):
        stream_options(LEAST | {"subscribe": "t", "ledger.topic": "l"})


@pytest.mark.parametrize("servers", ["kafka://host:9092", "host:9092,http://host:9093"])
def test_servers_are_hosts_and_ports(servers):
    """Any other scheme than a listener's would be tried in vain for seconds."""
    with pytest.raises(OptionError, match=r"EOS_OPTION_INVALID.*://host.*host:port"):
        sink_options({"kafka.bootstrap.servers": servers})
    assert sink_options({"kafka.bootstrap.servers": "PLAINTEXT://host:9092, SASL_SSL://other:1"}).kafka


@pytest.mark.parametrize("server", ["9092", ":9092", "host:", "host:port", "host:99999", "a:1;b:1", "a:1 b:1", "::1"])
def test_an_address_that_cannot_be_one_is_refused(server):
    """It would be tried in vain until the time is up, and a restart would seem to help. The wrong one is named."""
    with raises("EOS_OPTION_INVALID", f"'{server}'. Hint: Use host:port"):
        sink_options({"kafka.bootstrap.servers": f"host:9092,{server}"})


def test_a_password_in_an_address_is_not_shown():
    """Some write it as in other URLs. The host is named."""
    with pytest.raises(OptionError) as caught:
        sink_options({"kafka.bootstrap.servers": "SASL_SSL://user:p4ss,w@host:9092"})
    assert "p4ss" not in f"{caught.value} {caught.value.parameters}" and "host:9092" in caught.value.message


@pytest.mark.parametrize(
    "given",
    [
        {"subscribePattern": "a{99999999999}"},
        {"subscribePattern": "(" * 20_000},
        {"startingOffsets": '{"t":{"0":%s}}' % ("1" * 5_000)},
        {"startingOffsets": '{"t":' + "[" * 100_000},
        {"startingOffsetsByTimestamp": '{"t":{"0":%s}}' % ("1" * 5_000)},
        {"assign": "[" * 100_000},
        {"assign": '{"\\ud800":[0]}'},
        {"#sink": "{"},
        {"fetchOffset.retryIntervalMs": str(2**63 - 1)},
        {"kafkaConsumer.pollTimeoutMs": str(2**31)},
    ],
    ids=lambda given: next(iter(given)),
)
def test_what_a_parser_of_python_refuses_is_an_option_error(given):
    """Whatever it raises; it is told before anything runs."""
    selection = {} if given.keys() & {"assign", "subscribePattern"} else {"subscribe": "t"}
    with pytest.raises(OptionError, match=next(iter(given))) as caught:
        stream_options({**LEAST, **selection, **given})
    assert caught.value.condition == "EOS_OPTION_INVALID" and len(str(caught.value)) < 1_000


@pytest.mark.parametrize("parse", [stream_options, batch_options])
def test_offsets_of_no_topic_are_not_the_default(parse):
    """The user has named a beginning. It lacks every partition, as the cluster's answer will show."""
    assert parse({**LEAST, "subscribe": "t", "startingOffsets": "{}"}).starting == {}


def test_an_empty_group_is_none(caplog):
    """It does not go before the prefix."""
    options = stream_options({**LEAST, "subscribe": "t", "kafka.group.id": "", "groupIdPrefix": "p"})
    assert (options.group_id or "").startswith("p") and not caplog.records


def test_addresses_as_kafkas_clients_take_them():
    """Names without a port, numbers in names, addresses of both families, spaces around and commas behind."""
    assert sink_options({"kafka.bootstrap.servers": "host, 1.example:9092,10.0.0.1:1, [::1]:9092,SSL://a_b-c:65535,"})


def test_options_travel_and_are_equal_afterwards():
    """They are keys of caches in the workers; their secrets do not print."""
    options = sink_options(LEAST | {"topic": "t", "kafka.sasl.password": "hunter2"})
    copy = pickle.loads(pickle.dumps(options))
    assert copy == options
    assert hash(copy) == hash(options)
    assert copy.kafka["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(options) and "'sasl.password': '***'" in repr(options)


@pytest.mark.parametrize("servers", [None, "", ",", " , "])
def test_missing_bootstrap_servers(servers):
    """With the very call to write."""
    with raises("EOS_OPTION_MISSING", '.option("kafka.bootstrap.servers"'):
        sink_options({} if servers is None else {"kafka.bootstrap.servers": servers})


@pytest.mark.parametrize("key", SINK_OWNED)
def test_reserved_kafka_keys_are_refused_by_name(key):
    """Each with what to do instead, in whatever case it is written."""
    for written in (f"kafka.{key}", f"Kafka.{key.upper()}"):
        error = refused(**{written: "x"})
        assert error.condition == "EOS_OPTION_RESERVED"
        assert f"kafka.{key}" in error.message
        assert SINK_OWNED[key] in error.message


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("topics", "topic"),
        ("transactional.id.prefix", "transactionalIdPrefix"),
        ("transaction.timeout", "transaction.timeout.ms"),
        ("offset.group.id", "offsets.group.id"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
    ],
)
def test_an_unknown_option_names_the_nearest(written, meant):
    """A misspelt option that was ignored would change what the query does."""
    error = refused(**{written: "x"})
    assert error.condition == "EOS_OPTION_UNKNOWN"
    assert f"'{written}'" in error.message
    assert meant in error.hint


def test_an_unknown_option_that_is_near_nothing_lists_all():
    """So that nobody has to look elsewhere."""
    assert all(option.name in refused(zzz="x").hint for option in SINK)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("transaction.timeout.ms", "0"),
        ("transaction.timeout.ms", "1.5"),
        ("ledger.begin", "true"),
        ("topic", ""),
        ("transactionalIdPrefix", " "),
        ("ledger.topic", ""),
        ("kafka.partitioner", "murmur3"),
        ("kafka.partitioner", "Murmur2_Random"),
    ],
)
def test_bad_values_are_named(option, value):
    """With option and value."""
    error = refused(**{option: value})
    assert error.condition == "EOS_OPTION_INVALID"
    assert f"'{option}'" in error.message
    assert value.strip() in error.message


def test_a_group_needs_the_checkpoint():
    """The offsets come from there, and the sink is not told of a location set for the session."""
    error = refused(**{"offsets.group.id": "g"})
    assert error.condition == "EOS_OPTION_MISSING"
    assert "checkpointLocation" in error.message
    assert ".option(" in error.hint


def test_a_private_key_in_an_option_is_warned_of_once(caplog):
    """Spark would print it; its value is not in the warning. A file's name is no key."""
    parse._warn_of_key.cache_clear()
    key = "-----BEGIN PRIVATE KEY----- hunter2 -----END PRIVATE KEY-----"
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    for _ in range(2):
        source_options(given | {"kafka.ssl.keystore.key": key, "kafka.ssl.key.location": "/key.pem"})
    (record,) = [record for record in caplog.records if "private key" in record.getMessage()]
    assert "kafka.ssl.keystore.key" in record.getMessage() and "hunter2" not in record.getMessage()


def test_both_sides_refuse_what_they_own_and_take_what_the_other_owns():
    """A producer setting is none of the source's business."""
    for key in SOURCE_OWNED.keys() - SINK_OWNED.keys():
        assert sink_options(LEAST | {f"kafka.{key}": "x"}).kafka[key] == "x"
    for key in SINK_OWNED.keys() - SOURCE_OWNED.keys() - {"group.id"}:  # the source has a use for it of its own
        assert source_options(LEAST | {"subscribe": "t", f"kafka.{key}": "x"}).kafka[key] == "x"


def test_the_tables_have_no_option_twice():
    """Options are told apart without regard to case."""
    for table in (SOURCE, SINK):
        names = [option.name.lower() for option in table]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("512b", 512), ("64k", 65536), ("1 MB", 1 << 20), ("2g", 2 << 30)]
)
def test_sizes(text, size):
    """As Spark writes them."""
    assert parse_size("maxBytesPerTrigger", text) == size


@pytest.mark.parametrize("text", ["", "0", "0m", "-1", "1.5g", "m", "1x", "1bb"])
def test_what_is_no_size(text):
    """The error says what is."""
    with pytest.raises(OptionError, match=r"EOS_OPTION_INVALID.*maxBytesPerTrigger"):
        parse_size("maxBytesPerTrigger", text)


def test_an_option_is_one_whatever_its_case():
    """Mappings that Spark does not pass on can have both."""
    assert sink_options({**LEAST, "Topic": "a", "topic": "a"}).topic == "a"
    assert refused(Topic="a", topic="b").condition == "EOS_OPTION_CONFLICT"
    assert sink_options({**LEAST, "kafka.Client.Id": "a", "kafka.client.id": "a"}).kafka["client.id"] == "a"
    assert refused(**{"kafka.Security.Protocol": "SSL", "kafka.security.protocol": "PLAINTEXT"}).condition == (
        "EOS_OPTION_CONFLICT"
    )


@pytest.mark.parametrize("text", ["1_000", "\uff11\uff12", "٣", "²", "9" * 5000])
def test_numbers_are_ascii_digits(text):
    """Where Python reads another number than the user sees, or Spark would refuse it."""
    for parse_ in (parse_positive, parse_size, parse_batch, parse_version, parse_time, parse_duration):
        with pytest.raises(OptionError, match="EOS_OPTION_INVALID"):
            parse_("x", text)
    assert (parse_positive("x", " 007 "), parse_size("x", "1k"), parse_batch("x", "0")) == (7, 1024, 0)
