"""Translates the Java client's property names to librdkafka's.

Some names without an equivalent are kept for this package, which translates them when it creates a client of
librdkafka: Java's stores (`stores`) and the settings of tokens (`tokens`).
"""

from __future__ import annotations

import functools
import re

from spark_eos.errors import EosError, stop, unsupported_option
from spark_eos.kafka.config.jaas import login_properties, parse_jaas
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.config.values import INTEGERS, normalized, within

#: Alternative names of a property, of the Java client or aliases of librdkafka, with the name used internally.
RENAMED = {
    "auto.commit.enable": "enable.auto.commit",
    "compression.codec": "compression.type",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.ms": "linger.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.required.acks": "acks",
    "request.timeout.ms": "socket.timeout.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.assertion.template.file": "sasl.oauthbearer.assertion.jwt.template.file",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "max.request.size": "message.max.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}

#: Limits of ``buffer.memory`` in bytes; librdkafka takes its property in KiB.
_BUFFER_BYTES = (1024, 2_147_483_647 * 1024)

#: Java names without a librdkafka equivalent; ignoring them changes neither results nor security.
WITHOUT_TWIN = frozenset(
    {
        "auto.include.jmx.reporter",
        "bootstrap.resolve.timeout.ms",
        "default.api.timeout.ms",
        "delivery.report.only.error",  # of librdkafka, whose Python client refuses it as a text
        "exclude.internal.topics",
        # Key and value are binary; a side of the query that has one of these refuses it.
        *("key.deserializer", "key.serializer", "value.deserializer", "value.serializer"),
        "max.block.ms",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        # Brokers check tokens, and name the user by a claim; a client only sends them.
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "share.acquire.mode",
        "socket.connection.setup.timeout.max.ms",
    }
)

#: Names of this package or of the Java client that librdkafka does not have; it gets them in another form.
OWN = frozenset(
    {
        *("aws.profile", "aws.region", "aws.role.arn", "aws.role.session.name", "aws.sts.region"),
        "sasl.oauthbearer.header.urlencode",
        *("ssl.truststore.location", "ssl.truststore.password"),
    }
)

#: Names that the user has to replace, with their replacements.
REFUSED = {
    "partitioner.class": "use 'kafka.partitioner' (murmur2_random is the Java client's) or the 'partition' column",
    "partitioner.ignore.keys": "use 'kafka.partitioner', such as random, or the 'partition' column",
    "sasl.login.class": "there is no JVM client; use sasl.username and sasl.password",
    "transaction.two.phase.commit.enable": "use the sink's option 'transaction.two.phase.commit'",
    "security.providers": "there is no JVM client",
    "ssl.engine.factory.class": "there is no JVM client; use ssl.{ca,certificate,key}.location",
    "ssl.keymanager.algorithm": "there is no JVM client",
    "ssl.provider": "there is no JVM client",
    "ssl.secure.random.implementation": "there is no JVM client",
    "ssl.trustmanager.algorithm": "there is no JVM client",
    "default.topic.config": "write the topic's properties beside the others",
    # librdkafka has these, but this package's own client does not.
    "debug": "set the level of the logger 'spark_eos'",
    "log_level": "set the level of the logger 'spark_eos'",
    "plugin.library.paths": "only librdkafka has plugins",
    "ssl.ca.certificate.stores": "write the authorities to a file, and use ssl.ca.location",
    "ssl.curves.list": "OpenSSL decides",
    "ssl.engine.id": "keys are read from files or stores only",
    "ssl.engine.location": "keys are read from files or stores only",
    "ssl.providers": "OpenSSL's own configuration decides",
    "ssl.sigalgs.list": "OpenSSL decides",
    "topic.blacklist": "leave the topics out of 'subscribe' or 'subscribePattern'",
    "sasl.oauthbearer.assertion.file": "tokens are issued for client credentials only",
    "sasl.oauthbearer.assertion.private.key.file": "tokens are issued for client credentials only",
    "sasl.oauthbearer.assertion.private.key.pem": "tokens are issued for client credentials only",
}

#: Classes of the Java client and of AWS that do the same as this package.
HANDLERS = {
    "sasl.login.callback.handler.class": {
        "OAuthBearerLoginCallbackHandler",
        "OAuthBearerUnsecuredLoginCallbackHandler",
        "IAMOAuthBearerLoginCallbackHandler",
    },
    "sasl.client.callback.handler.class": {"IAMClientCallbackHandler"},
    "sasl.oauthbearer.jwt.retriever.class": {
        "ClientCredentialsJwtRetriever",
        "DefaultJwtRetriever",
        "FileJwtRetriever",
    },
}


#: Properties that say the same thing in different ways. librdkafka follows one of them and ignores the others.
_ALTERNATIVES_OF = (
    ("ssl.ca.location", "ssl.ca.pem", "ssl.truststore.location"),
    ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location"),
    ("ssl.key.location", "ssl.key.pem", "ssl.keystore.location"),
    ("https.ca.location", "https.ca.pem"),
)


def canonical(kafka: KafkaProperties) -> dict[str, str]:
    """Return the properties under librdkafka's names and the names of `OWN`, with normalized values (`values`).

    Raises OptionError for properties that cannot be translated, for invalid values, for two names of one property with
    different values, and for addresses of another protocol.
    """
    return dict(_canonical(kafka))


@functools.lru_cache(maxsize=64)
def _canonical(kafka: KafkaProperties) -> dict[str, str]:
    for key, why in REFUSED.items():
        if key in kafka:
            raise stop("EOS_OPTION_UNSUPPORTED.remove", option=f"kafka.{key}", key=key, why=why, instead="")
    result = _renamed(kafka)
    _translate_handlers(result)
    _translate_jaas(result)
    _translate_protocols(result)
    _translate_stores(result)
    for names in _ALTERNATIVES_OF:
        given = [name for name in names if name in result]
        if len(given) > 1:
            raise _conflict(given[0], given[1])
    _check_schemes(result)
    return result


def _check_schemes(properties: dict[str, str]) -> None:
    """Refuse a broker's address whose scheme, such as ``SASL_SSL://``, differs from the property of the protocol: a
    scheme does not set the protocol, so it would not be followed."""
    protocol, servers = properties.get("security.protocol", "plaintext"), properties.get("bootstrap.servers", "")
    for server in servers.split(",") if "@" not in servers else ():  # these are no addresses, and may have a password
        scheme, separator, _ = server.strip().rpartition("://")
        if separator and scheme.lower() != protocol:
            raise stop("EOS_OPTION_CONFLICT.scheme", option="kafka.bootstrap.servers", scheme=scheme, protocol=protocol)


def _renamed(kafka: KafkaProperties) -> dict[str, str]:
    result: dict[str, str] = {}
    given_as: dict[str, str] = {}
    without_effect = WITHOUT_TWIN | _overridden(kafka)
    for key, given in kafka.items():
        if key in without_effect:
            continue
        name, value = _translated(key, given)
        if _is_unset(name, value):
            continue
        value = normalized(key, name, value)
        if result.get(name, value) != value:
            raise _conflict(given_as[name], key)
        result[name], given_as[name] = value, key
    return result


def _overridden(kafka: KafkaProperties) -> set[str]:
    """Return names that have no effect beside the other properties: the levels of other codecs, and the Java client's
    timeout of requests beside that of librdkafka, which has both."""
    codecs = {value.strip().lower() for key, value in kafka.items() if RENAMED.get(key, key) == "compression.type"}
    levels = {f"compression.{other}.level" for other in {"gzip", "lz4", "zstd"} - codecs}
    return levels | ({"request.timeout.ms"} if "socket.timeout.ms" in kafka else set())


def _translated(key: str, value: str) -> tuple[str, str]:
    if key == "buffer.memory":
        return "queue.buffering.max.kbytes", str(within(key, value, *_BUFFER_BYTES) // 1024)
    if key == "request.timeout.ms":  # the Java client takes more than librdkafka
        first, last = INTEGERS["socket.timeout.ms"]
        return "socket.timeout.ms", str(min(within(key, value, first, 2_147_483_647), last))
    name = RENAMED.get(key, key)
    if name == "ssl.endpoint.identification.algorithm":  # the Java client disables it with an empty string
        return name, value or "none"
    return name, value.strip().upper() if name == "sasl.mechanism" else value


def _is_unset(name: str, value: str) -> bool:
    """Return whether librdkafka treats the value as unset. An empty path would otherwise be the working directory."""
    return not value and name.startswith(("ssl.", "https.ca.")) and not name.endswith("password")


def _conflict(one: str, other: str) -> EosError:
    return stop(
        "EOS_OPTION_CONFLICT.both", given=f"Options 'kafka.{one}' and 'kafka.{other}', which are the same property,"
    )


def _translate_handlers(properties: dict[str, str]) -> None:
    """Drop Java's own callback handlers, which change nothing here, except for that of AWS's tokens."""
    for key, known in HANDLERS.items():
        given = properties.pop(key, None)
        name = (given or "").rpartition(".")[2]
        if given and name not in known:
            raise unsupported_option(
                f"kafka.{key}",
                f"{given}, a class for a JVM client,",
                "kafka.sasl.oauthbearer.token.endpoint.url with ….client.credentials.client.id and ….client.secret, "
                "or kafka.sasl.mechanism=AWS_MSK_IAM, or kafka.sasl.username and kafka.sasl.password",
            )
        if name.startswith("IAM"):
            _set_iam(properties, key)


def _translate_jaas(properties: dict[str, str]) -> None:
    text = properties.pop("sasl.jaas.config", None)
    for name, value in login_properties(parse_jaas(text)).items() if text is not None else ():
        if name == "sasl.mechanism":
            _set_iam(properties, "sasl.jaas.config")
        elif value and properties.setdefault(name, value) != value:
            raise _conflict(name, "sasl.jaas.config")


def _set_iam(properties: dict[str, str], key: str) -> None:
    """Set AWS_MSK_IAM, as Java configures AWS's tokens as OAUTHBEARER or as AWS's own mechanism."""
    if properties.get("sasl.mechanism", "OAUTHBEARER") not in ("OAUTHBEARER", "AWS_MSK_IAM"):
        raise _conflict("sasl.mechanism", key)
    properties["sasl.mechanism"] = "AWS_MSK_IAM"


def _translate_protocols(properties: dict[str, str]) -> None:
    """Remove the lists of TLS versions, as OpenSSL offers 1.2 and 1.3. Raises OptionError for a list that these do not
    satisfy."""
    for key in ("ssl.protocol", "ssl.enabled.protocols"):
        given = {name.strip() for name in properties.pop(key, "TLSv1.2").split(",")}
        enough = {"TLSv1.2", "TLSv1.3", "TLS"} if key == "ssl.protocol" else {"TLSv1.2"}
        if not given & enough:
            raise unsupported_option(
                f"kafka.{key}",
                f"{','.join(sorted(given))}, while OpenSSL offers TLSv1.2 and TLSv1.3",
                "TLSv1.2 besides, or remove the option: the brokers decide which one is used",
            )


def _translate_stores(properties: dict[str, str]) -> None:
    """Translate ``ssl.truststore.*`` and ``ssl.keystore.*``. Stores of type PEM are plain files; the type of others is
    detected when they are read."""
    for key in ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem", "https.ca.pem"):
        if key in properties:
            properties[key] = _wrapped(properties[key])
    for store, files in (
        ("truststore", ("ssl.ca.location",)),
        ("keystore", ("ssl.certificate.location", "ssl.key.location")),
    ):
        type_ = properties.pop(f"ssl.{store}.type", "JKS").upper()
        if type_ not in ("PEM", "JKS", "PKCS12"):
            raise unsupported_option(
                f"kafka.ssl.{store}.type",
                type_,
                (
                    f"PEM or PKCS12: keytool -importkeystore -srckeystore STORE -srcstoretype {type_} -destkeystore "
                    "STORE.p12 -deststoretype PKCS12 converts it"
                ),
            )
        if type_ == "PEM":
            location = properties.pop(f"ssl.{store}.location", None)
            properties.pop(f"ssl.{store}.password", None)
            for name in files if location is not None else ():
                if properties.setdefault(name, location or "") != location:
                    raise _conflict(name, f"ssl.{store}.location")


def _wrapped(pem: str) -> str:
    """Return a PEM in lines, as OpenSSL requires; Java also accepts one line, with spaces or escaped line ends between
    the parts. Replaces letters that are not ASCII, which only comments have, and which Python refuses: without any, an
    empty text would mean the system's authorities."""

    def wrap(found: re.Match[str]) -> str:
        data = re.sub(r"\s+", "", found[2])
        lines = [data[i : i + 64] for i in range(0, len(data), 64)]
        return "\n".join([f"-----BEGIN {found[1]}-----", *lines, f"-----END {found[1]}-----", ""])

    block = r"-----BEGIN ([A-Z0-9 ]+)-----\s*([A-Za-z0-9+/=\s]+?)\s*-----END \1-----\s*"
    return re.sub(block, wrap, re.sub(r"[^\0-\x7f]", "\n", pem.replace("\\n", "\n")))
