"""The user's ``registry.*`` settings, by which a schema registry is reached. They are sent to workers; no secret in
them is printed."""

from __future__ import annotations

import difflib
import html
import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, quote_plus, urlsplit

from spark_eos.base.frozen_settings import Settings
from spark_eos.base.whole_numbers import whole_number
from spark_eos.errors import invalid_option, missing_option, stop

_PREFIX = "registry."
_URL, _CONTEXT, _TIMEOUT, _SOURCE = "url", "context", "timeout.ms", "bearer.auth.credentials.source"
_TOKEN, _CLUSTER = "bearer.auth.token", "bearer.auth.logical.cluster"
#: Milliseconds for one request, with all of its retries and addresses.
_DEFAULT_TIMEOUT_MS = 10_000
_MOST_TIMEOUT_MS = 86_400_000


@dataclass(frozen=True)
class RegistrySetting:
    """A setting: its name without ``registry.``, and its description in docs/registry.md."""

    name: str
    doc: str
    secret: bool = False


#: Settings of confluent-kafka's registry client have the client's names.
SETTINGS = (
    RegistrySetting(_URL, "Addresses of the registry, with commas between them: each is tried in turn. Required."),
    RegistrySetting(
        _CONTEXT, "Context in which subjects and ids are looked up (Confluent's `:.NAME:`). By default none."
    ),
    RegistrySetting(
        _TIMEOUT, f"Milliseconds for one request, with all its retries and addresses; {_DEFAULT_TIMEOUT_MS}."
    ),
    RegistrySetting("basic.auth.user.info", "`user:password`.", secret=True),
    RegistrySetting(_SOURCE, "`STATIC_TOKEN`, `OAUTHBEARER` or `OAUTHBEARER_AZURE_IMDS`."),
    RegistrySetting(_TOKEN, "Token, for `STATIC_TOKEN`.", secret=True),
    RegistrySetting(_CLUSTER, "Logical cluster, sent with tokens. By default empty."),
    RegistrySetting("bearer.auth.identity.pool.id", "Identity pool, sent with tokens."),
    RegistrySetting("bearer.auth.issuer.endpoint.url", "Where tokens are fetched, for `OAUTHBEARER`."),
    RegistrySetting("bearer.auth.issuer.endpoint.query", "What is asked there, for `OAUTHBEARER_AZURE_IMDS`."),
    RegistrySetting("bearer.auth.client.id", "Client id, for `OAUTHBEARER`."),
    RegistrySetting("bearer.auth.client.secret", "Client secret, for `OAUTHBEARER`.", secret=True),
    RegistrySetting("bearer.auth.scope", "Scope, for `OAUTHBEARER`."),
    RegistrySetting("ssl.ca.location", "File or folder with the certificates of authorities (PEM)."),
    RegistrySetting("ssl.certificate.location", "File with the client's certificate (PEM)."),
    RegistrySetting("ssl.key.location", "File with its private key (PEM)."),
    RegistrySetting("ssl.key.password", "Password of the private key.", secret=True),
    RegistrySetting("proxy", "Address of a proxy."),
)
_BY_NAME = {setting.name: setting for setting in SETTINGS}
#: Settings that are addresses, each with the advice against a user and a password in it.
_ADDRESSES = {
    _URL: "the address alone, and set 'registry.basic.auth.user.info' to user:password",
    "proxy": "the address alone: a proxy that asks for a password is not supported",
    "bearer.auth.issuer.endpoint.url": (
        "the address alone, and set 'registry.bearer.auth.client.id' and 'registry.bearer.auth.client.secret'"
    ),
}
_SOURCES = ("STATIC_TOKEN", "OAUTHBEARER", "OAUTHBEARER_AZURE_IMDS")


class RegistrySettings(Settings):
    """The settings, checked by `registry_settings`, by name without ``registry.``. Its repr has ``***`` for secrets."""

    def __repr__(self) -> str:
        return repr({k: "***" if _BY_NAME[k].secret else v for k, v in self._values.items()})

    @property
    def urls(self) -> tuple[str, ...]:
        """The registry's addresses, without a slash at the end."""
        return tuple(url.strip().rstrip("/") for url in self._values[_URL].split(","))

    @property
    def name(self) -> str:
        """The addresses as messages show them; they have no credentials."""
        return ", ".join(self.urls)

    @property
    def timeout_s(self) -> float:
        """Seconds for one request, with all of its retries and addresses."""
        return int(self._values.get(_TIMEOUT, _DEFAULT_TIMEOUT_MS)) / 1000

    @property
    def context(self) -> str:
        """The context's name, without colons and dot; empty for the default one."""
        return self._values.get(_CONTEXT, "")

    def qualified(self, subject: str) -> str:
        """Return the subject's name in the context."""
        return f":.{self.context}:{subject}" if self.context and not subject.startswith(":.") else subject

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that no message may contain, the longest first: secrets, and the forms in which requests have them, or
        in which a client shows a server's answer that repeats these."""
        values = [value for name, value in self._values.items() if _BY_NAME[name].secret]
        values += [value.partition(":")[2] for value in values]
        client = self._values.get("bearer.auth.client.id", ""), self._values.get("bearer.auth.client.secret", "")
        pairs = [":".join(client), ":".join(map(quote_plus, client))] if client[1] else []
        forms = {form for value in [*values, *pairs] if value for form in _forms(value)}
        return tuple(sorted(forms, key=len, reverse=True))

    def client_conf(self, retries: int) -> dict[str, object]:
        """Return the configuration of confluent-kafka's client. Each try has a share of ``timeout_s``, so that all
        tries at all addresses take no longer than that."""
        tries = len(self.urls) * (retries + 1)
        conf: dict[str, object] = {k: v for k, v in self._values.items() if k not in (_CONTEXT, _TIMEOUT)}
        conf |= {_URL: ",".join(self.urls), "timeout": self.timeout_s / tries, "max.retries": retries}
        conf |= {"retries.wait.ms": 100, "retries.max.wait.ms": 500}
        if "ssl.certificate.location" in conf:
            conf.setdefault("ssl.key.password", "")  # else OpenSSL asks for it on the terminal
        if _SOURCE in conf:
            conf.setdefault(_CLUSTER, "")
        return conf


def _forms(secret: str) -> set[str]:
    """Return the secret as it is, in base64, for addresses, in JSON and in HTML, and each of these as Python prints
    texts and bytes, by either quote."""
    sent = {secret, b64encode(secret.encode()).decode(), quote(secret, safe=""), quote(secret), quote_plus(secret)}
    sent |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], html.escape(secret)}
    # With a double quote in it, Python prints a text in single ones, and escapes these.
    printed = {repr(one).removeprefix("b")[2:-1] for text in sent for one in (f'"{text}', f'"{text}'.encode())}
    return sent | printed | {one.replace("\\'", "'") for one in printed}


def registry_settings(given: str | Mapping[str, object]) -> RegistrySettings:
    """Check the user's settings: addresses alone, or settings by name, with or without ``registry.``. Raises
    OptionError, which names settings and shows no value of a secret."""
    named = {_URL: given} if isinstance(given, str) else given
    values: dict[str, str] = {}
    for given_name, value in named.items():
        name = given_name.lower().removeprefix(_PREFIX)
        if name not in _BY_NAME:
            raise _unknown(name)
        if value is not None:
            # A password may begin or end with a space.
            values[name] = str(value).strip("\r\n" if _BY_NAME[name].secret else None)
    if not values.get(_URL):
        raise missing_option(
            _PREFIX + _URL, "it names the schema registry", "the registry's address, such as http://localhost:8081"
        )
    for name in _ADDRESSES:
        for address in values.get(name, "").split(",") if values.get(name) else ():
            _check_address(name, address.strip())
    timeout = values.get(_TIMEOUT, str(_DEFAULT_TIMEOUT_MS))
    if not 0 < (whole_number(timeout) or 0) <= _MOST_TIMEOUT_MS:
        raise invalid_option(_PREFIX + _TIMEOUT, f"'{timeout}'", f"a whole number from 1 to {_MOST_TIMEOUT_MS}")
    values[_CONTEXT] = values.get(_CONTEXT, "").strip(":").removeprefix(".")
    _check_credentials(values)
    return RegistrySettings({name: value for name, value in values.items() if value or name == _CLUSTER})


def _check_credentials(values: dict[str, str]) -> None:
    """Raise OptionError unless there is a password or a token or neither. A token without a source is a static one."""
    user_info = values.get("basic.auth.user.info")
    if user_info is not None and ":" not in user_info:
        raise invalid_option(
            _PREFIX + "basic.auth.user.info", "not a user and a password with a colon between them", "user:password"
        )
    if _TOKEN in values:
        values.setdefault(_SOURCE, _SOURCES[0])
    source = values.get(_SOURCE)
    if source is not None and source not in _SOURCES:
        raise invalid_option(
            _PREFIX + _SOURCE,
            f"set to another value than these: {', '.join(_SOURCES)}",
            "one of them: functions of your own that fetch tokens would not reach the workers",
        )
    if source is not None and user_info is not None:
        raise stop(
            "EOS_OPTION_CONFLICT.both",
            given=f"Option '{_PREFIX + _SOURCE}', for a token, and 'registry.basic.auth.user.info', for a password,",
            option=_PREFIX + _SOURCE,
        )


def _check_address(name: str, address: str) -> None:
    """Raise OptionError unless this is an HTTP address. Credentials in it are refused: they would be printed."""
    try:
        parts = urlsplit(address)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        right = right and (name != _URL or not (parts.query or parts.fragment))
        userinfo = "@" in parts.netloc
    except ValueError:
        right = userinfo = False
    if userinfo:
        raise invalid_option(
            _PREFIX + name,
            "an address with a user or a password, which would be printed with it",
            _ADDRESSES[name],
        )
    if not right:
        raise invalid_option(
            _PREFIX + name,
            "not an address",
            "http://host:port or https://host:port, with the path of Confluent's API if there is one",
        )


def _unknown(name: str) -> Exception:
    near = difflib.get_close_matches(name, _BY_NAME, n=1)
    if near:
        return stop("EOS_OPTION_UNKNOWN.near", option=_PREFIX + name, nearest=_PREFIX + near[0])
    return stop(
        "EOS_OPTION_UNKNOWN.option", option=_PREFIX + name, names=f"{', '.join(_BY_NAME)}, each after 'registry.'"
    )
