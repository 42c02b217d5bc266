"""The ``kafka.*`` options become the configurations of two clients: names, refusals, secrets."""

import ssl
import subprocess
import sys

import pytest

from spark_eos.errors import OptionError
from spark_eos.kafka.config import client, librdkafka
from spark_eos.kafka.config.java_names import REFUSED, RENAMED, WITHOUT_TWIN, canonical
from spark_eos.kafka.config.own_client import FOLLOWED, WITHOUT_EFFECT
from spark_eos.kafka.config.properties import KafkaProperties, is_secret
from spark_eos.options.parse import sink_options, stream_options
from spark_eos.options.table import SINK_OWNED, SOURCE_OWNED
from tests.support.judges.librdkafka_conf import librdkafka_table
from tests.support.waiting import TIMEOUT


def properties(**more: str) -> KafkaProperties:
    return KafkaProperties({"bootstrap.servers": "kafka.example:9092", **more})


@pytest.mark.parametrize(
    ("java", "value", "name", "expected"),
    [
        ("request.timeout.ms", "7000", "socket.timeout.ms", "7000"),
        ("request.timeout.ms", "2147483647", "socket.timeout.ms", "300000"),
        ("max.request.size", "2000000", "message.max.bytes", "2000000"),
        ("buffer.memory", "33554432", "queue.buffering.max.kbytes", "32768"),
        ("fetch.max.wait.ms", "50", "fetch.wait.max.ms", "50"),
        ("receive.buffer.bytes", "65536", "socket.receive.buffer.bytes", "65536"),
        ("ssl.endpoint.identification.algorithm", "", "ssl.endpoint.identification.algorithm", "none"),
        ("sasl.mechanisms", "PLAIN", "sasl.mechanism", "PLAIN"),
        ("linger.ms", "7", "linger.ms", "7"),
        ("max.partition.fetch.bytes", "1000000", "max.partition.fetch.bytes", "1000000"),
    ],
)
def test_a_java_name_means_its_librdkafka_twin(java, value, name, expected):
    """Every translated name reaches librdkafka under its own name, with the value in its own unit."""
    result = librdkafka.librdkafka_config(properties(**{java: value}), "producer")
    assert result[name] == expected
    assert java == name or java not in result


def test_levels_of_codecs_are_those_of_the_codec_that_is_used():
    """Java has one for each."""
    levels = {"compression.gzip.level": "3", "compression.zstd.level": "7", "compression.lz4.level": "17"}
    for codec, level in (("zstd", "7"), ("GZIP", "3"), ("snappy", None), (None, None)):
        kafka = properties(**levels, **({"compression.type": codec} if codec else {}))
        client.client_config(kafka)
        assert librdkafka.librdkafka_config(kafka, "producer").get("compression.level") == level
    with pytest.raises(OptionError, match=r"kafka\.compression\.lz4\.level"):
        canonical(properties(**levels, **{"compression.codec": "lz4"}))


def test_the_timeout_of_requests_is_librdkafkas_where_both_are_given():
    """It has Java's, too, for the brokers' wait for their replicas."""
    both = {"request.timeout.ms": "30000", "socket.timeout.ms": "60000"}
    assert canonical(properties(**both))["socket.timeout.ms"] == "60000"


#: Of the Java client 4.3, those that no test above names; and one of librdkafka, whose Python client takes no text.
_WITHOUT_EFFECT = [
    "delivery.report.only.error",
    *("bootstrap.resolve.timeout.ms", "share.acquire.mode", "sasl.oauthbearer.assertion.template.file"),
    *("key.deserializer", "key.serializer", "value.deserializer", "value.serializer"),
]


@pytest.mark.parametrize("key", _WITHOUT_EFFECT)
def test_properties_without_effect_are_let_through(key):
    """By both clients."""
    client.client_config(properties(**{key: "1"}))
    librdkafka.check(properties(**{key: "1"}), "producer")


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("partitioner.ignore.keys", "kafka.partitioner"),
        ("ssl.provider", "no JVM"),
        ("ssl.secure.random.implementation", "no JVM"),
        ("transaction.two.phase.commit.enable", "'transaction.two.phase.commit'"),
        ("debug", "logger 'spark_eos'"),
        ("plugin.library.paths", "plugins"),
        ("topic.blacklist", "'subscribePattern'"),
        ("ssl.ca.certificate.stores", "ssl.ca.location"),
    ],
)
def test_properties_of_java_or_librdkafka_alone_are_refused_by_name(key, instead):
    """On the driver, with what to do instead."""
    for call in (client.client_config, lambda kafka: librdkafka.check(kafka, "consumer")):
        with pytest.raises(OptionError, match=rf"'kafka\.{key}' cannot be used: .*{instead}") as caught:
            call(properties(**{key: "1"}))
        assert caught.value.condition == "EOS_OPTION_UNSUPPORTED"


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("linger.mss", "linger.ms"),
        ("fetch.max.byte", "fetch.max.bytes"),
        ("bufer.memory", "buffer.memory"),
        ("security.protcol", "security.protocol"),
        ("Security.Protocol", "security.protocol"),
        ("ssl.ca.locaton", "ssl.ca.location"),
        ("error_cb", None),
        ("qqqqq", None),
    ],
)
def test_an_unknown_property_is_named_with_the_nearest_one(key, nearest):
    """By both clients: a connection would be without TLS, or with other authorities than those that were meant. Nor is
    a callback an option, which is a text."""
    for call in (client.client_config, lambda kafka: librdkafka.check(kafka, "consumer")):
        with pytest.raises(OptionError, match=key) as caught:
            call(properties(**{key: "1"}))
        assert caught.value.condition == "EOS_OPTION_UNKNOWN"
        assert caught.value.parameters.get("nearest") == (nearest and f"kafka.{nearest}")


@pytest.mark.parametrize(
    ("key", "value", "takes"),
    [
        ("client.dns.lookup", "resolve_canonical_bootstrap_servers_only", "use_all_dns_ips"),
        ("compression.type", "foo", "none, gzip, snappy, lz4, zstd"),
        ("batch.size", "99999999999", "1 to 2147483647"),
        ("batch.size", "x", "1 to 2147483647"),
        ("request.timeout.ms", "1", "10 to 2147483647"),
        ("socket.timeout.ms", "1e4", "10 to 300000"),
        ("fetch.message.max.bytes", "64k", "1 to 1000000000"),
        ("security.protocol", "SSLL", "plaintext, ssl, sasl_plaintext, sasl_ssl"),
        ("security.protocol", "ssl ", "plaintext, ssl, sasl_plaintext, sasl_ssl"),
        ("enable.ssl.certificate.verification", "yes", "true, false"),
        ("broker.address.family", "v7", "any, v4, v6"),
        ("buffer.memory", "-5", "1024 to 2199023254528"),
        ("buffer.memory", "1000", "1024 to 2199023254528"),
        ("buffer.memory", "64m", "1024 to 2199023254528"),
        ("buffer.memory", "9" * 40, "1024 to 2199023254528"),
    ],
)
def test_a_bad_value_is_named_with_what_the_property_takes(key, value, takes):
    """By the user's name for it, which may be Java's, before any connection; whoever asks, and by both clients in the
    same words."""
    for call in (client.client_config, canonical, lambda kafka: librdkafka.check(kafka, "consumer")):
        with pytest.raises(OptionError) as caught:
            call(properties(**{key: value}))
        error = caught.value
        assert error.condition == "EOS_OPTION_INVALID"
        assert (error.message, error.hint) == (f"Option 'kafka.{key}' is '{value}'.", f"Use {takes}.")


@pytest.mark.parametrize(("key", "value"), [("linger.ms", "99999999"), ("linger.ms", "x"), ("max.request.size", "1")])
def test_a_value_that_changes_nothing_is_not_judged(key, value):
    """One that only librdkafka follows stops the commands that read by it, and no query."""
    kafka = properties(**{key: value})
    client.client_config(kafka)
    with pytest.raises(OptionError, match="refused by librdkafka"):
        librdkafka.check(kafka, "producer")


def test_a_file_that_is_not_there():
    """What librdkafka says is passed on; and the other client's error is no bare FileNotFoundError from its depth."""
    kafka = properties(**{"security.protocol": "SSL", "ssl.ca.location": "/nowhere/ca.pem"})
    with pytest.raises(OptionError, match=r"ssl\.ca\.location failed"):
        librdkafka.check(kafka, "producer")
    with pytest.raises(OptionError, match="EOS_OPTION_INVALID"):
        client.client_config(kafka)


def test_properties_of_the_other_kind_are_let_through():
    """One set of properties may serve a source and a sink."""
    shared = {"linger.ms": "5", "max.poll.records": "100", "max.block.ms": "1000", "buffer.memory": "33554432"}
    for kind in ("consumer", "producer"):
        librdkafka.check(properties(**shared), kind)


@pytest.mark.parametrize("name", ["bootstrap.servers", "client.id", "sasl.password"])
def test_a_value_with_bytes_that_are_no_text(name):
    """Python reads arguments of commands that are not UTF-8 so. The error names the property, and not the value."""
    kafka = properties(**{name: "p\udce4ss"})
    for call in (client.client_config, lambda kafka: librdkafka.check(kafka, "consumer")):
        with pytest.raises(OptionError, match=f"EOS_OPTION_INVALID.*Option 'kafka.{name}' is not UTF-8. Hint"):
            call(kafka)


def test_ours_is_written_on_top():
    """What the connector sets cannot be overridden."""
    kafka, ours = properties(**{"enable.partition.eof": "false"}), {"enable.partition.eof": "true"}
    assert librdkafka.librdkafka_config(kafka, "consumer", ours).items() >= ours.items()


@pytest.mark.parametrize(
    ("servers", "family"),
    [
        ("localhost:9092,127.0.0.1:9093", "v4"),
        ("PLAINTEXT://localhost:9092", "v4"),
        ("localhost:1,kafka:1", None),
        ("[::1]:9", None),
    ],
)
def test_only_the_loopback_is_tied_to_ipv4(servers, family):
    """Elsewhere the resolver decides."""
    kafka = KafkaProperties({"bootstrap.servers": servers})
    assert librdkafka.librdkafka_config(kafka, "producer").get("broker.address.family") == family


def test_an_unreachable_broker_prints_nothing():
    """The reason comes with our error; librdkafka's own lines go to a logger that is silent unless asked for."""
    script = (
        "from confluent_kafka import KafkaException; from confluent_kafka.admin import AdminClient\n"
        "from spark_eos.kafka.config.librdkafka import librdkafka_config\n"
        "from spark_eos.kafka.config.properties import KafkaProperties\n"
        "client = AdminClient(librdkafka_config(KafkaProperties({'bootstrap.servers': '127.0.0.1:1'}), 'admin'))\n"
        "try: client.list_topics(timeout=0.3)\n"
        "except KafkaException: print('unreachable')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.stdout, done.stderr) == ("unreachable\n", "")


def test_connections_follow_the_properties():
    """SASL over TLS, as for a hosted cluster; the password does not print."""
    login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "ann", "sasl.password": "hunter2"}
    how = client.client_config(properties(**{"security.protocol": "sasl_ssl", "client.id": "me", **login}))
    tls = how.tls.context()
    assert tls.verify_mode is ssl.CERT_REQUIRED and tls.check_hostname
    assert (how.servers, how.client_id) == ((("kafka.example", 9092),), "me")
    assert (how.sasl.mechanism, how.sasl.username, how.sasl.password) == ("SCRAM-SHA-512", "ann", "hunter2")
    assert "hunter2" not in repr(how)


@pytest.mark.parametrize(
    ("servers", "protocol", "addresses"),
    [
        ("a:1", "SSL", [("a", 1)]),
        (" a , b:2 ,", "PLAINTEXT", [("a", 9092), ("b", 2)]),
        ("PLAINTEXT://a.example:9093", "plaintext", [("a.example", 9093)]),
        ("ssl://h", "SSL", [("h", 9092)]),
        ("[::1]:5,[fe80::1]", "PLAINTEXT", [("::1", 5), ("fe80::1", 9092)]),
    ],
)
def test_addresses_are_read_in_every_form(servers, protocol, addresses):
    """Several, with the protocol before them in any case, of IP version 6, and without a port."""
    config = client.client_config(KafkaProperties({"bootstrap.servers": servers, "security.protocol": protocol}))
    assert list(config.servers) == addresses and (config.tls is not None) == (protocol == "SSL")


@pytest.mark.parametrize(
    "servers", ["a:b", "http//a:1", "a:1:2", "h:0", "h:65536", "h:\uff19\uff10", "h 1:90", "h;i:90"]
)
def test_what_is_no_address_is_refused(servers):
    """By its text, before anything is looked up or connected."""
    with pytest.raises(OptionError, match=servers) as caught:
        client.client_config(KafkaProperties({"bootstrap.servers": servers}))
    assert caught.value.condition == "EOS_OPTION_INVALID"


@pytest.mark.parametrize(
    "servers",
    [
        "SSL://user:hunter2@h:1",
        "user:hunter2@h",
        "user:hunter2@p@h:1",
        "hunter2@h:1",
        "a:1,user:hunter2,p@h:1",
        "user:1,hunter2@h:1",
        "user:p,hunter2@h:1",
        "user:p,hunter2://p@h:1",
    ],
)
def test_a_password_in_an_address_is_not_shown(servers):
    """Kafka's addresses have none, whatever the user thinks. Nor is it taken for a part of a host's name, which every
    later error would show."""
    kafka = {"bootstrap.servers": servers, "security.protocol": "ssl"}
    reads = {"kafka.bootstrap.servers": servers, "subscribe": "t"}
    for call in (lambda: client.client_config(KafkaProperties(kafka)), lambda: stream_options(reads)):
        with pytest.raises(OptionError, match=r"bootstrap\.servers") as caught:
            call()
        assert "hunter2" not in f"{caught.value} {caught.value.parameters}"


def test_a_mechanism_that_is_not_spoken_is_refused():
    """With those that are."""
    kafka = properties(**{"security.protocol": "SASL_SSL", "sasl.mechanism": "DIGEST-MD5"})
    with pytest.raises(OptionError, match="OAUTHBEARER") as caught:
        client.client_config(kafka)
    assert caught.value.condition == "EOS_OPTION_UNSUPPORTED"


@pytest.mark.parametrize(
    "key",
    [
        "sasl.password",
        "sasl.jaas.config",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    ],
)
def test_secrets_do_not_print(key):
    """Neither in a representation nor in an error that quotes librdkafka."""
    kafka = properties(**{key: "hunter2"})
    assert is_secret(key)
    for text in (repr(kafka), str(kafka)):
        assert "hunter2" not in text and f"'{key}': '***'" in text
    assert "hunter2" not in str(librdkafka._refusal(kafka, 'Invalid value "hunter2" for configuration property "x"'))


@pytest.mark.parametrize("key", ["sasl.mechanism", "sasl.username", "ssl.ca.location", "client.id", "key.serializer"])
def test_what_is_no_secret_prints(key):
    """Else nobody could find a mistake in it."""
    assert not is_secret(key) and "shown" in repr(properties(**{key: "shown"}))


def test_a_secret_of_one_letter_does_not_show_by_its_absence():
    """The other words of librdkafka stay as they are."""
    kafka = properties(**{"security.protocol": "SSL", "ssl.key.password": "p", "ssl.key.location": "/nowhere"})
    with pytest.raises(OptionError, match="Failed to create producer: ssl"):
        librdkafka.check(kafka, "producer")
    assert '"***"' in librdkafka._refusal(kafka, 'Invalid value "p" for what it is').message


#: Of librdkafka's own properties, those that no user can set by an option.
_NOT_BY_USERS = {
    *("builtin.features", "default_topic_conf", "interceptors", "metadata.broker.list", "opaque"),
    *("ssl_ca", "ssl_certificate"),
    *("ssl_engine_callback_data", "ssl_key", "msg_order_cmp"),
}


def _settable(kind: str) -> list[str]:
    """The properties of librdkafka that a reader, or a writer, may be given."""
    letter = {"consumer": "C", "producer": "P"}[kind]
    rows = [[cell.strip() for cell in line.split("|")] for line in librdkafka_table().splitlines()]
    names = {row[0] for row in rows if len(row) >= 6 and row[1] in ("*", letter)}
    owned = SOURCE_OWNED if kind == "consumer" else SINK_OWNED
    names = {RENAMED.get(name, name) for name in names}
    return sorted(n for n in names - _NOT_BY_USERS - owned.keys() if not n.endswith("_cb"))


@pytest.mark.parametrize("kind", ["consumer", "producer"])
def test_every_property_of_librdkafka_is_followed_or_without_effect_or_refused(kind):
    """Of those that a reader, or a writer, may be given."""
    known = _settable(kind)
    assert len(known) > 100
    assert set(known) - REFUSED.keys() <= FOLLOWED | WITHOUT_EFFECT | WITHOUT_TWIN
    assert not FOLLOWED & WITHOUT_EFFECT and not (FOLLOWED | WITHOUT_EFFECT) & REFUSED.keys()


@pytest.mark.parametrize("key", ["batch.num.messages", "message.max.bytes", "max.request.size"])
def test_limits_that_only_librdkafka_has_are_refused_by_the_sink_alone(key):
    """One set of properties may serve a source and a sink; ours limits batches by one property."""
    given = {"kafka.bootstrap.servers": "h:1", f"kafka.{key}": "100000"}
    with pytest.raises(OptionError, match=r"kafka\.batch\.size") as caught:
        sink_options({**given, "topic": "t"})
    assert caught.value.condition == "EOS_OPTION_RESERVED"
    client.client_config(stream_options({**given, "subscribe": "t"}).kafka)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("key", ["sasl.username", "sasl.password"])
@pytest.mark.parametrize("empty", [False, True])
def test_a_login_without_user_or_password_is_refused(mechanism, key, empty):
    """Before a broker refuses it, which cannot say what is missing; also one that a variable left empty."""
    login = {"sasl.username": "ann", "sasl.password": "hunter2"}
    del login[key]
    login |= {key: ""} if empty else {}
    with pytest.raises(OptionError, match=rf"EOS_OPTION_MISSING.*'kafka\.{key}' is missing"):
        client.client_config(properties(**{"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, **login}))


def test_known_properties_do_not_load_librdkafka():
    """The own client is made in every task."""
    code = (
        "import sys; from spark_eos.kafka.config.client import client_config;"
        "from spark_eos.kafka.config.properties import KafkaProperties as K;"
        "client_config(K({'bootstrap.servers': 'h:1', 'security.protocol': 'ssl', 'session.timeout.ms': '9',"
        "'acks': 'all', 'ssl.truststore.type': 'PEM', 'client.dns.lookup': 'use_all_dns_ips',"
        "'metric.reporters': 'x'}));"
        "print('confluent_kafka' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


@pytest.mark.parametrize(
    ("server", "protocol"),
    [
        ("SASL_SSL://h:9093", None),
        ("ssl://h:9093", "plaintext"),
        ("h:9092, PLAINTEXT://h:9093", "SSL"),
        ("http://h:9093", None),
    ],
)
def test_an_address_of_another_protocol_is_refused(server, protocol):
    """librdkafka passes over it, and the own client would connect by the property alone."""
    given = {"bootstrap.servers": server} | ({"security.protocol": protocol} if protocol else {})
    for call in (client.client_config, lambda kafka: librdkafka.check(kafka, "producer")):
        with pytest.raises(OptionError, match="EOS_OPTION_CONFLICT"):
            call(KafkaProperties(given))
