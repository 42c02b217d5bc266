"""The user's ``kafka.*`` properties for librdkafka, by which commands read topics.

Users write librdkafka's names or, as with Spark's built-in source and sink, the Java client's::

    KafkaProperties ─canonical()─> librdkafka's names ─┬─> client_config()      this package's own client
                                                       └─> librdkafka_config()  verify, dead letters, map of a mirror

librdkafka ignores properties of the other kind of client (a producer's for a consumer), so users can share one set of
properties between a source and a sink.
"""

from __future__ import annotations

import functools
import ipaddress
import logging
import re
from collections.abc import Mapping
from typing import Any, Literal

from spark_eos.errors import EosError, invalid_option, stop
from spark_eos.kafka.config.java_names import OWN, canonical
from spark_eos.kafka.config.own_client import check_names
from spark_eos.kafka.config.properties import KafkaProperties, is_secret
from spark_eos.kafka.config.stores import certificates_unusable, without_stores
from spark_eos.kafka.config.tokens import extensions, token, token_owner, token_settings
from spark_eos.kafka.config.values import enumerated

ClientKind = Literal["consumer", "producer"]

#: librdkafka's log of its connections. Disabled unless the user's logging sets its level: an unreachable broker would
#: print a line for each attempt, and relevant errors are raised with their reason.
client_log = logging.getLogger("spark_eos.librdkafka")
if client_log.level == logging.NOTSET:
    client_log.setLevel(logging.CRITICAL + 1)

#: An idempotent producer takes no others. A query ignores the user's, which may be for other programs.
IDEMPOTENT = {
    "enable.idempotence": "true",
    "acks": "all",
    "max.in.flight.requests.per.connection": "5",
    "retries": "2147483647",
    "linger.ms": "5",
    "queuing.strategy": "fifo",
}
#: Defaults unless the user sets them. The back-off suits a nearby cluster; the telemetry of KIP-714 costs every
#: short-lived client two requests.
_DEFAULTS = {"reconnect.backoff.ms": "10", "reconnect.backoff.max.ms": "1000", "enable.metrics.push": "false"}


def librdkafka_config(
    kafka: KafkaProperties,
    kind: ClientKind,
    ours: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the configuration of a confluent-kafka client: ``defaults``, overridden by the user's properties and then
    by ``ours``.

    Call `check` once before: a wrong property then is an OptionError instead of an error of the client.
    """
    user = _for_librdkafka(canonical(kafka))
    config: dict[str, Any] = {**_DEFAULTS, **(defaults or {}), **user}
    if kind == "consumer":
        config.setdefault("group.id", "spark-eos")  # librdkafka requires one even if no group is joined
    if _on_loopback(kafka.bootstrap_servers):
        config.setdefault("broker.address.family", "v4")  # 'localhost' is tried as ::1 first, which costs one back-off
    config["logger"] = client_log
    return {**config, **(ours or {})}


def _for_librdkafka(user: Mapping[str, str]) -> dict[str, Any]:
    """Replace Java's stores by PEM, and the settings of tokens by a callback, which librdkafka calls when it needs a
    new token."""
    try:
        config: dict[str, Any] = without_stores(user)
    except OSError as error:
        raise certificates_unusable(error) from None
    if config.get("sasl.mechanism") in ("OAUTHBEARER", "AWS_MSK_IAM"):
        settings = token_settings(user)
        config = {key: value for key, value in config.items() if not key.startswith(("sasl.oauthbearer.", "https.ca."))}
        config.pop("enable.sasl.oauthbearer.unsecure.jwt", None)
        config |= {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": functools.partial(_token, settings)}
    return {key: value for key, value in config.items() if key not in OWN}


def _token(settings: Mapping[str, str], _: str) -> tuple[str, float, str, dict[str, str]]:
    """Return the token in confluent-kafka's form: token, expiry, principal, and SASL extensions."""
    granted = token(settings)
    return granted.value, granted.expires_at, granted.principal, extensions(settings)


def check_token(kafka: KafkaProperties) -> None:
    """Raise ConnectionFailed (EOS_UNAUTHENTICATED) if tokens are used and there is none: librdkafka would wait, and not
    say why there is none."""
    config = librdkafka_config(kafka, "consumer")
    if "oauth_cb" in config and enumerated(config, "security.protocol", "plaintext").startswith("sasl"):
        (settings,) = config["oauth_cb"].args
        try:
            token(settings)
        except OSError as error:
            raise stop(
                "EOS_UNAUTHENTICATED.login",
                bootstrap_servers=kafka.bootstrap_servers,
                who=token_owner(settings),
                mechanism="OAUTHBEARER",
                reason=str(error),
            ) from None


def check(kafka: KafkaProperties, kind: ClientKind) -> None:
    """Raise OptionError for a property that is unknown, or whose value this kind of client rejects: librdkafka makes a
    client without brokers (0.5 ms, no connection). It is not loaded for bootstrap servers alone."""
    check_names(kafka)
    if kafka.keys() - {"bootstrap.servers"}:
        _check(kafka, kind)


@functools.lru_cache(maxsize=64)
def _check(kafka: KafkaProperties, kind: ClientKind) -> None:
    from confluent_kafka import Consumer, KafkaException, Producer

    config = librdkafka_config(kafka, kind)
    config.pop("oauth_cb", None)  # it would be waited for
    protocol = enumerated(config, "security.protocol", "plaintext")
    if protocol.startswith("sasl") and config.get("sasl.mechanism", "GSSAPI") == "GSSAPI":
        # librdkafka as pip brings it has no Kerberos, and needs none.
        config["security.protocol"] = protocol.removeprefix("sasl_")
        config.pop("sasl.mechanism", None)
    del config["bootstrap.servers"]
    try:
        client = Consumer(config) if kind == "consumer" else Producer(config)
    except KafkaException as error:
        raise _refusal(kafka, error.args[0].str()) from None
    if kind == "consumer":
        client.close()


def _on_loopback(servers: str) -> bool:
    hosts = [server.rpartition("://")[2].rpartition(":")[0] or server for server in map(str.strip, servers.split(","))]

    def loopback(host: str) -> bool:
        try:
            return host == "localhost" or ipaddress.IPv4Address(host).is_loopback
        except ValueError:
            return False

    return all(map(loopback, hosts))


def _refusal(kafka: KafkaProperties, text: str) -> EosError:
    """Return the OptionError for librdkafka's error about a configuration."""
    for key, value in kafka.items():
        if is_secret(key) and value:
            # Whole words: one that is a letter would show by where that letter is missing.
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "***", text)
    reason = f"refused by librdkafka: {text.strip().rstrip('.')}"
    return invalid_option("kafka.*", reason, "values that it takes")
