"""The user's ``kafka.*`` properties, in the words of the two clients that speak to the cluster.

Users write librdkafka's names or, as with Spark's built-in source and sink, the Java client's. Both are served::

    KafkaProperties ─canonical()─> librdkafka's names ─┬─> librdkafka_config()    confluent-kafka: rows, offsets
                                                       └─> kafka_python_config()  kafka-python: others' transactions

Keys that only the other kind of client understands (a producer's for a consumer) are ignored by librdkafka: people
share one set of properties between a source and a sink. A key that nobody understands is an error; `check` finds it
on the driver.
"""

from __future__ import annotations

import contextlib
import ctypes
import difflib
import functools
import ipaddress
import logging
import os
import re
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from spark_eos.errors import OptionError
from spark_eos.options.parse import KafkaProperties, is_secret

Kind = Literal["consumer", "producer", "admin"]

#: What librdkafka says about its connections. Silent unless the user's logging sets its level: an unreachable broker
#: would otherwise print a line for every attempt, and the errors that matter are raised with their reason.
client_log = logging.getLogger("spark_eos.librdkafka")
if client_log.level == logging.NOTSET:
    client_log.setLevel(logging.CRITICAL + 1)

#: Names of one property that has two, the Java client's or librdkafka's own alias, with the one used from here on.
_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "max.request.size": "message.max.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}

#: Java names that tune what librdkafka does not have; to leave them out changes neither results nor security.
_WITHOUT_TWIN = frozenset(
    {
        "auto.include.jmx.reporter",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "max.block.ms",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
    }
)

#: Java names that the user must replace, with what to use.
_REFUSED = {
    "partitioner.class": "use 'kafka.partitioner' (murmur2_random is the Java client's) or the 'partition' column",
    "sasl.client.callback.handler.class": "there is no JVM client; use sasl.oauthbearer.* or sasl.username",
    "sasl.login.callback.handler.class": "there is no JVM client; use sasl.oauthbearer.* or sasl.username",
    "sasl.login.class": "there is no JVM client; use sasl.username and sasl.password",
    "security.providers": "there is no JVM client",
    "ssl.enabled.protocols": "OpenSSL decides; it offers TLS 1.2 and 1.3",
    "ssl.engine.factory.class": "there is no JVM client; use ssl.{ca,certificate,key}.location",
    "ssl.keymanager.algorithm": "there is no JVM client",
    "ssl.protocol": "OpenSSL decides; it offers TLS 1.2 and 1.3",
    "ssl.trustmanager.algorithm": "there is no JVM client",
    "default.topic.config": "write the topic's properties beside the others",
}

#: Properties of the connection that `kafka_python_config` follows too.
_CONNECTION = frozenset(
    [
        *("bootstrap.servers", "broker.address.family", "client.id", "enable.metrics.push", "socket.timeout.ms"),
        *("reconnect.backoff.max.ms", "reconnect.backoff.ms"),
        *("security.protocol", "sasl.mechanism", "sasl.username", "sasl.password"),
        *("enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm"),
        *("ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem"),
        *("ssl.key.location", "ssl.key.pem", "ssl.key.password", "ssl.crl.location"),
    ]
)
#: Properties that say nothing to the other kind of client, and for each kind all that is well without librdkafka.
_OF_PRODUCERS = frozenset(
    [
        *("acks", "batch.num.messages", "batch.size", "compression.codec", "compression.level", "compression.type"),
        *("delivery.timeout.ms", "enable.gapless.guarantee", "enable.idempotence", "linger.ms", "max.in.flight"),
        *("max.in.flight.requests.per.connection", "message.max.bytes", "message.send.max.retries", "partitioner"),
        *("message.timeout.ms", "queue.buffering.max.kbytes", "queue.buffering.max.messages", "retries"),
        *("queue.buffering.max.ms", "request.required.acks", "retry.backoff.max.ms", "retry.backoff.ms"),
        *("sticky.partitioning.linger.ms", "transaction.timeout.ms", "transactional.id"),
    ]
)
_OF_CONSUMERS = frozenset(
    [
        *("auto.offset.reset", "check.crcs", "client.rack", "enable.auto.commit", "fetch.error.backoff.ms"),
        *("fetch.max.bytes", "fetch.min.bytes", "fetch.queue.backoff.ms", "fetch.wait.max.ms", "group.id"),
        *("group.instance.id", "heartbeat.interval.ms", "isolation.level", "max.partition.fetch.bytes"),
        *("max.poll.interval.ms", "partition.assignment.strategy", "queued.max.messages.kbytes"),
        *("queued.min.messages", "session.timeout.ms"),
    ]
)
_FOLLOWED = {
    "consumer": _CONNECTION | _OF_PRODUCERS | {"max.partition.fetch.bytes"},
    "producer": _CONNECTION | _OF_CONSUMERS.union(
        ["batch.size", "compression.codec", "compression.level", "compression.type"],
        ["linger.ms", "queue.buffering.max.ms"],  # nothing is held back that could be sent
    ),
}
#: Codecs that Arrow compresses as every Kafka client reads them.
_CODECS = ("none", "gzip", "lz4", "zstd")
_SILENCE_S = 30.0

#: Set where the user says nothing. The back-off is that of a cluster nearby; the telemetry of KIP-714 costs every
#: short-lived client two requests.
_DEFAULTS = {"reconnect.backoff.ms": "10", "reconnect.backoff.max.ms": "1000", "enable.metrics.push": "false"}


def librdkafka_config(
    kafka: KafkaProperties,
    kind: Kind,
    ours: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Configuration of a confluent-kafka client: ``defaults``, over them what the user gave, over that ``ours``.

    Call `check` once on the driver before: a wrong key then is an OptionError, not an error of the client.
    """
    user = canonical(kafka)
    config: dict[str, Any] = {**_DEFAULTS, **(defaults or {}), **user}
    if kind == "consumer":
        config.setdefault("group.id", "spark-eos")  # librdkafka asks for one even where nothing joins a group
    if _on_loopback(kafka.bootstrap_servers):
        config.setdefault(
            "broker.address.family", "v4"
        )  # 'localhost' is tried as ::1 first, which costs a round of back-off
    if not user.keys() & {"debug", "log_level"}:  # who sets one of these wants to see the log on stderr
        config["logger"] = client_log
    return {**config, **(ours or {})}


def silence_seconds(properties: KafkaProperties) -> float:
    """For how long a broker that has been asked may be silent, by our own sockets."""
    return min(_SILENCE_S, int(canonical(properties).get("socket.timeout.ms", 60_000)) / 1000)


def kafka_python_config(kafka: KafkaProperties) -> dict[str, Any]:
    """Keyword arguments of ``kafka.KafkaAdminClient``. Raises OptionError where it has no match for a property."""
    user = canonical(kafka)
    protocol = user.get("security.protocol", "PLAINTEXT").upper()
    config: dict[str, Any] = {
        "bootstrap_servers": [server.strip() for server in user["bootstrap.servers"].split(",") if server.strip()],
        "client_id": user.get("client.id", "spark-eos"),
        "security_protocol": protocol,
        # Over the limit the client fails, whoever else is asking.
        "max_in_flight_requests_per_connection": 1000,
        "request_timeout_ms": int(user.get("socket.timeout.ms", 30_000)),
        "reconnect_backoff_ms": int(user.get("reconnect.backoff.ms", 10)),
        "reconnect_backoff_max_ms": int(user.get("reconnect.backoff.max.ms", 1000)),
    }
    if protocol.startswith("SASL"):
        config |= _kafka_python_sasl(user)
    if protocol.endswith("SSL"):
        config["ssl_context"] = _ssl_context(user)
    return config


def is_for_librdkafka(kafka: KafkaProperties, kind: Literal["consumer", "producer"]) -> bool:
    """Whether a client of this kind that does without librdkafka would miss some of the properties."""
    user = canonical(kafka)
    if not user.keys() <= _FOLLOWED[kind]:
        return True
    if kind == "producer" and codec(kafka) not in _CODECS:
        return True
    if not user.get("security.protocol", "").upper().startswith("SASL"):
        return False
    mechanism = user.get("sasl.mechanism", "GSSAPI").upper()
    return mechanism != "PLAIN" and not mechanism.startswith("SCRAM-")


def codec(kafka: KafkaProperties) -> str:
    """What record batches are to be compressed with; librdkafka has two names for it."""
    user = canonical(kafka)
    return user.get("compression.type", user.get("compression.codec", "none"))


def check(kafka: KafkaProperties, kind: Kind) -> None:
    """Raise OptionError for a property that this kind of client does not know or whose value it refuses.

    librdkafka is asked itself, by making a client that knows no broker (0.5 ms, no connection).
    """
    _check(kafka, kind)


@functools.lru_cache(maxsize=64)
def _check(kafka: KafkaProperties, kind: Kind) -> None:
    from confluent_kafka import Consumer, KafkaException, Producer

    config = librdkafka_config(kafka, kind)
    for key in config:
        if key.endswith("_cb"):
            raise _unknown(key)
    del config["bootstrap.servers"]
    try:
        client = Consumer(config) if kind == "consumer" else Producer(config)
    except KafkaException as error:
        raise _refusal(kafka, error.args[0].str()) from None
    if kind == "consumer":
        client.close()


def canonical(kafka: KafkaProperties) -> dict[str, str]:
    """The properties under librdkafka's names. Raises OptionError for what cannot be translated."""
    for key, why in _REFUSED.items():
        if key in kafka:
            raise _unsupported(key, f"cannot be used: {why}.", hint="Remove it.")
    result = {key: value for key, value in kafka.items() if key not in _RENAMED and key not in _WITHOUT_TWIN}
    for java, name in _RENAMED.items():
        if java in kafka:
            result.setdefault(name, kafka[java])  # librdkafka's own name goes before
    if "buffer.memory" in result:
        bytes_ = result.pop("buffer.memory")
        result.setdefault("queue.buffering.max.kbytes", str(int(bytes_) // 1024) if bytes_.isdigit() else bytes_)
    _translate_jaas(result)
    _translate_stores(result)
    return result


def _translate_jaas(properties: dict[str, str]) -> None:
    text = properties.pop("sasl.jaas.config", None)
    if text is None:
        return
    module = text.split(maxsplit=1)[0].rpartition(".")[2] if text.strip() else ""
    found = re.findall(r"(\w+)\s*=\s*(?:\"((?:\\.|[^\"\\])*)\"|'((?:\\.|[^'\\])*)'|([^\s;]+))", text)
    values = {key: re.sub(r"\\(.)", r"\1", double or single or bare) for key, double, single, bare in found}
    if module not in ("PlainLoginModule", "ScramLoginModule") or not {"username", "password"} <= values.keys():
        raise _unsupported(
            "sasl.jaas.config",
            "is understood for PlainLoginModule and ScramLoginModule with a username and a password only.",
            hint="Use kafka.sasl.mechanism with kafka.sasl.username and kafka.sasl.password, "
            "or kafka.sasl.oauthbearer.*, or kafka.sasl.kerberos.*.",
        )
    properties.setdefault("sasl.username", values["username"])
    properties.setdefault("sasl.password", values["password"])


def _translate_stores(properties: dict[str, str]) -> None:
    """``ssl.truststore.*`` and ``ssl.keystore.*`` of type PEM; everything else is for the JVM only."""
    if "ssl.endpoint.identification.algorithm" in properties:  # the Java client turns it off with an empty text
        algorithm = properties["ssl.endpoint.identification.algorithm"].strip().lower()
        properties["ssl.endpoint.identification.algorithm"] = algorithm or "none"
    for store in ("truststore", "keystore"):
        type_ = properties.pop(f"ssl.{store}.type", None)
        location = properties.pop(f"ssl.{store}.location", None)
        properties.pop(f"ssl.{store}.password", None)
        if (type_ or "PEM").upper() != "PEM" or (location is not None and type_ is None):
            raise _unsupported(
                f"ssl.{store}.location",
                f"is a Java {store} of type {(type_ or 'JKS').upper()}; spark-eos reads PEM.",
                hint=f"Export it as PEM and add kafka.ssl.{store}.type=PEM, or use kafka.ssl.ca.location, "
                "kafka.ssl.certificate.location and kafka.ssl.key.location.",
            )
        if location is not None:
            for name in (
                ("ssl.ca.location",) if store == "truststore" else ("ssl.certificate.location", "ssl.key.location")
            ):
                properties.setdefault(name, location)


def _kafka_python_sasl(user: Mapping[str, str]) -> dict[str, Any]:
    mechanism = user.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism == "GSSAPI":
        service = user.get("sasl.kerberos.service.name", "kafka")
        return {"sasl_mechanism": mechanism, "sasl_kerberos_service_name": service}
    if mechanism == "PLAIN" or mechanism.startswith("SCRAM-"):
        return {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user.get("sasl.username"),
            "sasl_plain_password": user.get("sasl.password"),
        }
    raise _unsupported(
        "sasl.mechanism",
        f"is {mechanism}, which the sink does not speak.",
        hint="Use PLAIN, SCRAM-SHA-256/512 or GSSAPI.",
    )


def _ssl_context(user: Mapping[str, str]) -> ssl.SSLContext:
    verify = user.get("enable.ssl.certificate.verification", "true").lower() == "true"
    try:
        context = ssl.create_default_context(cafile=user.get("ssl.ca.location"), cadata=user.get("ssl.ca.pem"))
        context.check_hostname = verify and user.get("ssl.endpoint.identification.algorithm", "https") == "https"
        context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
        if "ssl.crl.location" in user:
            context.load_verify_locations(user["ssl.crl.location"])
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        _load_certificate(context, user)
    except (OSError, ssl.SSLError) as error:
        raise OptionError(
            "EOS_OPTION_KAFKA_INVALID",
            f"The kafka.ssl.* certificates cannot be loaded: {error}.",
            hint="Check that the files exist, are PEM and can be read here.",
        ) from None
    return context


def _load_certificate(context: ssl.SSLContext, user: Mapping[str, str]) -> None:
    with contextlib.ExitStack() as stack:

        def path(name: str) -> str | None:
            text = user.get(f"{name}.pem")
            if text is None:
                return user.get(f"{name}.location")
            file = stack.enter_context(tempfile.NamedTemporaryFile("w", suffix=".pem"))  # made with mode 0600
            file.write(text)
            file.flush()
            return file.name

        certificate = path("ssl.certificate")
        if certificate is not None:
            context.load_cert_chain(certificate, path("ssl.key"), user.get("ssl.key.password"))


def _on_loopback(servers: str) -> bool:
    hosts = [server.rpartition("://")[2].rpartition(":")[0] or server for server in map(str.strip, servers.split(","))]

    def loopback(host: str) -> bool:
        try:
            return host == "localhost" or ipaddress.IPv4Address(host).is_loopback
        except ValueError:
            return False

    return all(map(loopback, hosts))


def _refusal(kafka: KafkaProperties, text: str) -> OptionError:
    """What librdkafka said when it refused a configuration, as our error."""
    unknown = re.search(r'No such configuration property: "([^"]+)"', text)
    if unknown:
        return _unknown(unknown[1])
    for key, value in kafka.items():
        if is_secret(key) and value:
            text = text.replace(value, "***")
    named = re.search(r'(?:property|value for) "([^"]+)"', text)
    name = "sasl.mechanisms" if "SASL mechanism:" in text else named[1] if named else ""
    key = _as_given(kafka, name)
    known = _librdkafka_properties().get(name)
    if key and known and known.allowed:
        message = f"Option 'kafka.{key}' is '{'***' if is_secret(key) else kafka[key]}'."
        hint = f"It takes {known.allowed}."
    else:
        message = f"librdkafka refuses the kafka.* options: {text.strip().rstrip('.')}."
        hint = f"Correct 'kafka.{key}'." if key else "Correct the kafka.* options."
    return OptionError("EOS_OPTION_KAFKA_INVALID", message, hint=hint, reason=text.strip())


def _as_given(kafka: KafkaProperties, name: str) -> str | None:
    """The user's key for the property that librdkafka names: the same, an alias of it, or Java's name."""
    aliases = {name} | {alias for alias, known in _librdkafka_properties().items() if known.alias_of == name}
    return next((key for key in kafka if key in aliases or _RENAMED.get(key) in aliases), None)


def _unknown(key: str) -> OptionError:
    known = property_names()
    near = difflib.get_close_matches(key, known, n=1)
    return OptionError(
        "EOS_OPTION_KAFKA_UNKNOWN",
        f"There is no Kafka client property '{key}' (option 'kafka.{key}').",
        hint=f"Did you mean 'kafka.{near[0]}'?"
        if near
        else "It takes librdkafka's properties and the Java client's names.",
        option=f"kafka.{key}",
        nearest=near[0] if near else None,
    )


def _unsupported(key: str, what: str, hint: str) -> OptionError:
    return OptionError("EOS_OPTION_KAFKA_UNSUPPORTED", f"Option 'kafka.{key}' {what}", hint=hint, option=f"kafka.{key}")


def property_names() -> tuple[str, ...]:
    """Every property name that may be given: librdkafka's own, as it lists them, and the Java names known here."""
    java = {*_RENAMED, *_WITHOUT_TWIN, "buffer.memory", "sasl.jaas.config"}
    return tuple(sorted(java | _librdkafka_properties().keys()))


@dataclass(frozen=True)
class _Property:
    """A row of librdkafka's table. ``allowed``: the values, such as ``none, gzip`` or ``0 to 900000``; may be empty."""

    allowed: str
    alias_of: str


@functools.lru_cache(maxsize=1)
def _librdkafka_properties() -> dict[str, _Property]:
    """librdkafka can print the table of its properties, but only to a C stream. Empty where it cannot be called."""
    try:
        rows = [[cell.strip() for cell in line.split("|")] for line in _librdkafka_table().splitlines()]
    except (OSError, AttributeError):  # symbols hidden: only the hints of errors suffer
        return {}
    known: dict[str, _Property] = {}
    for name, _, allowed, *_, text in (row for row in rows if len(row) == 6):
        allowed = allowed.replace(" .. ", " to ")
        alias = re.match(r"Alias for `([^`]+)`", text)
        if re.fullmatch(r"[a-z]+(\.[a-z]+)*", name):  # first for a client, then again for a topic
            known.setdefault(name, _Property(allowed or _listed(text), alias[1] if alias else ""))
    return known


def _listed(text: str) -> str:
    """The values that the description of a property lists, where its range is left empty."""
    supported = re.search(r"Supported: ([^.]+)\.", text)
    return supported[1] if supported else ", ".join(re.findall(r"`(\w+)` - ", text))


def _librdkafka_table() -> str:
    from confluent_kafka import cimpl

    library, libc = ctypes.CDLL(cimpl.__file__), ctypes.CDLL(None)
    fdopen: Callable[..., Any] = libc.fdopen
    libc.fdopen.restype, libc.fdopen.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_char_p]
    libc.fclose.argtypes = library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    with tempfile.TemporaryFile() as file:
        stream = fdopen(os.dup(file.fileno()), b"w")
        library.rd_kafka_conf_properties_show(stream)
        libc.fclose(stream)
        file.seek(0)
        return file.read().decode()
