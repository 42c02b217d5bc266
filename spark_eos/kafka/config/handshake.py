"""The properties as kafka-python knows them, which opens our own connections."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from spark_eos.errors import OptionError
from spark_eos.kafka.config.java_names import canonical, unsupported
from spark_eos.kafka.config.librdkafka import load_certificate
from spark_eos.kafka.config.properties import KafkaProperties

_SILENCE_S = 30.0


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
        config |= _sasl(user)
    if protocol.endswith("SSL"):
        config["ssl_context"] = _ssl_context(user)
    return config


def _sasl(user: Mapping[str, str]) -> dict[str, Any]:
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
    raise unsupported(
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
        load_certificate(context, user)
    except (OSError, ssl.SSLError) as error:
        raise OptionError(
            "EOS_OPTION_KAFKA_INVALID",
            f"The kafka.ssl.* certificates cannot be loaded: {error}.",
            hint="Check that the files exist, are PEM and can be read here.",
        ) from None
    return context
