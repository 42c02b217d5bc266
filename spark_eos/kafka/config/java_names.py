"""Translates the Java client's property names to librdkafka's."""

from __future__ import annotations

import re

from spark_eos.errors import OptionError
from spark_eos.kafka.config.properties import KafkaProperties

#: Alternative names of a property, of the Java client or aliases of librdkafka, with the name used internally.
RENAMED = {
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

#: Java names without a librdkafka equivalent; ignoring them changes neither results nor security.
WITHOUT_TWIN = frozenset(
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

#: Java names that the user has to replace, with what to use instead.
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


def canonical(kafka: KafkaProperties) -> dict[str, str]:
    """The properties under librdkafka's names. Raises OptionError for properties that cannot be translated."""
    for key, why in _REFUSED.items():
        if key in kafka:
            raise unsupported(key, f"cannot be used: {why}.", hint="Remove it.")
    result = {key: value for key, value in kafka.items() if key not in RENAMED and key not in WITHOUT_TWIN}
    for java, name in RENAMED.items():
        if java in kafka:
            result.setdefault(name, kafka[java])  # librdkafka's own name takes precedence
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
        raise unsupported(
            "sasl.jaas.config",
            "is supported for PlainLoginModule and ScramLoginModule with username and password only.",
            hint="Use kafka.sasl.mechanism with kafka.sasl.username and kafka.sasl.password, "
            "or kafka.sasl.oauthbearer.*, or kafka.sasl.kerberos.*.",
        )
    properties.setdefault("sasl.username", values["username"])
    properties.setdefault("sasl.password", values["password"])


def _translate_stores(properties: dict[str, str]) -> None:
    """``ssl.truststore.*`` and ``ssl.keystore.*`` of type PEM; other types are for the JVM only."""
    if "ssl.endpoint.identification.algorithm" in properties:  # the Java client disables it with an empty string
        algorithm = properties["ssl.endpoint.identification.algorithm"].strip().lower()
        properties["ssl.endpoint.identification.algorithm"] = algorithm or "none"
    for store in ("truststore", "keystore"):
        type_ = properties.pop(f"ssl.{store}.type", None)
        location = properties.pop(f"ssl.{store}.location", None)
        properties.pop(f"ssl.{store}.password", None)
        if (type_ or "PEM").upper() != "PEM" or (location is not None and type_ is None):
            raise unsupported(
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


def unsupported(key: str, what: str, hint: str) -> OptionError:
    return OptionError("EOS_OPTION_KAFKA_UNSUPPORTED", f"Option 'kafka.{key}' {what}", hint=hint, option=f"kafka.{key}")
