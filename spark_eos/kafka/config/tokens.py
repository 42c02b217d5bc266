"""OAUTHBEARER tokens, for the own client and for librdkafka: from a token server by client credentials, from a file,
signed with AWS credentials, or unsigned, for tests.

A token is kept until most of its lifetime is over.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_eos.base.printable import excerpt
from spark_eos.errors import invalid_option, missing_option, stop, unsupported_option
from spark_eos.kafka.config import msk
from spark_eos.kafka.config.stores import certificates_unusable
from spark_eos.kafka.config.tls import context_trusting
from spark_eos.kafka.config.values import boolean, enumerated

_TIMEOUT_S = 10.0
#: The share of a token's lifetime after which a new one is requested.
_FRESH_SHARE = 0.8
#: The lifetime of a token without an expiry.
_UNKNOWN_LIFE_S = 60.0
_LARGEST = 1 << 20
_LIFE = re.compile("[0-9]{1,9}")
#: The longest lifetime that is believed.
_LONGEST_LIFE_S = 10.0 * 365 * 86_400
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")
#: Characters of a token (RFC 6750), none of which would end the message to the broker.
_BEARER = re.compile(r"[A-Za-z0-9\-._~+/]{1,1000000}=*")


class TokenRefused(OSError):
    """No token can be had, and retrying will not help."""


@dataclass(frozen=True)
class Token:
    """An OAuth token. ``expires_at``: seconds since 1970."""

    value: str = field(repr=False)
    expires_at: float
    principal: str = ""


def token_settings(user: Mapping[str, str]) -> dict[str, str]:
    """Return the properties about tokens, by their internal names. Raises OptionError if some are missing."""
    settings = {
        key: value for key, value in user.items() if "oauthbearer" in key or key.startswith(("aws.", "https.ca"))
    }
    if user.get("sasl.mechanism", "") == "AWS_MSK_IAM":
        settings["aws.region"] = msk.region(settings, user.get("bootstrap.servers", ""))
    elif _is_unsecured(settings):
        _check_unsecured(settings)
    else:
        _check_endpoint(settings)
    return settings


def token_owner(settings: Mapping[str, str]) -> str:
    """Return the owner of the tokens of these settings, in words."""
    if "aws.region" in settings:
        return "the owner of the AWS credentials"
    if _is_unsecured(settings):
        return f"user '{unsecured_claims(settings)['principal']}'"
    client = settings.get("sasl.oauthbearer.client.id")
    return f"client '{client}'" if client else f"the owner of the token in {_shown(_endpoint(settings))}"


def token(settings: Mapping[str, str]) -> Token:
    """Return a token that is valid for some time: the last one if there is no new one yet. Threads that wait while
    another one requests the same token share its result, also a failure.

    Raises OSError; `TokenRefused` if retrying will not help.
    """
    since = time.monotonic()
    key = frozenset(settings.items())
    with _lock_of(key):
        known = _tokens.get(key)
        if known is None or time.time() >= known[1]:
            try:
                made = _new_token(key, settings, since)
            except OSError:
                if known is None or time.time() >= known[0].expires_at:
                    raise
                # A silent server took the time of this connection; the next ones have theirs.
                known = _tokens[key] = known[0], min(time.time() + _TIMEOUT_S, known[0].expires_at)
            else:
                known = _tokens[key] = made, time.time() + (made.expires_at - time.time()) * _FRESH_SHARE
        return known[0]


def _new_token(key: _Key, settings: Mapping[str, str], since: float) -> Token:
    """Request a token, unless a request has failed ``since`` then."""
    failed = _failures.get(key)
    if failed is not None and failed[2] > since:
        raise failed[0](failed[1])
    try:
        return _source(settings)(settings)
    except OSError as error:
        _failures[key] = type(error), str(error), time.monotonic()
        raise


def forget(settings: Mapping[str, str], refused: Token) -> None:
    """Forget a token that the brokers rejected: the next connection gets a new one."""
    key = frozenset(settings.items())
    with _lock_of(key):
        known = _tokens.get(key)
        if known is not None and known[0] == refused:
            del _tokens[key]


_Key = frozenset[tuple[str, str]]
#: Tokens, each with the time from which a new one is requested; the last failures: class, text and time; locks.
_tokens: dict[_Key, tuple[Token, float]] = {}
_failures: dict[_Key, tuple[type[OSError], str, float]] = {}
_locks: dict[_Key, threading.Lock] = {}


def _lock_of(key: _Key) -> threading.Lock:
    return _locks.setdefault(key, threading.Lock())


def _source(settings: Mapping[str, str]) -> Callable[[Mapping[str, str]], Token]:
    if "aws.region" in settings:
        return _signed
    if _is_unsecured(settings):
        return _unsecured
    return _in_file if _endpoint(settings).lower().startswith("file:") else _issued


# Which settings

_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_CREDENTIALS = "sasl.oauthbearer.client.credentials.client."
_ENDPOINTS = "the address of a token server, https://… or file:///…; for Amazon MSK, kafka.sasl.mechanism=AWS_MSK_IAM"


def _endpoint(settings: Mapping[str, str]) -> str:
    return settings.get(_ENDPOINT, "").strip()


def _is_unsecured(settings: Mapping[str, str]) -> bool:
    return boolean(settings, "enable.sasl.oauthbearer.unsecure.jwt", False)


def extensions(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the SASL extensions, which are separated by commas. A part without an equals sign belongs to the value
    before it, as of an extension that is a list."""
    parts = re.split(r",(?=[^,=]*=)", settings.get("sasl.oauthbearer.extensions", ""))
    return dict(part.partition("=")[::2] for part in (part.strip(", \t\r\n") for part in parts) if part)


def unsecured_claims(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the claims of unsecured tokens, which are separated by white space."""
    return dict(part.partition("=")[::2] for part in settings.get("sasl.oauthbearer.config", "").split())


def _check_unsecured(settings: Mapping[str, str]) -> None:
    if _endpoint(settings):
        raise stop(
            "EOS_OPTION_CONFLICT.both",
            given=f"Options 'kafka.enable.sasl.oauthbearer.unsecure.jwt' and 'kafka.{_ENDPOINT}', for the token,",
        )
    given = unsecured_claims(settings)
    if not given.get("principal") or not _LIFE.fullmatch(given.get("lifeSeconds", "3600")):
        raise invalid_option(
            "kafka.sasl.oauthbearer.config",
            "without a principal, or with a lifetime that is not a number of seconds",
            "principal=NAME, with lifeSeconds=3600 and scope=A,B as needed; or unsecuredLoginStringClaim_sub and "
            "unsecuredLoginLifetimeSeconds in kafka.sasl.jaas.config",
        )


def _check_endpoint(settings: Mapping[str, str]) -> None:
    for key, only in (
        ("sasl.oauthbearer.grant.type", "client_credentials"),
        ("sasl.oauthbearer.metadata.authentication.type", "none"),
    ):
        if enumerated(settings, key, only) != only:
            raise unsupported_option(
                f"kafka.{key}",
                f"{settings[key]}, while tokens are for client credentials only,",
                f"kafka.{_CREDENTIALS}id and ….secret without it, or kafka.{_ENDPOINT}=file:///… with a file of tokens",
            )
    scheme = _endpoint(settings).partition(":")[0].lower()
    if scheme not in ("http", "https", "file"):
        if not _endpoint(settings):
            raise missing_option(
                f"kafka.{_ENDPOINT}",
                "OAUTHBEARER needs it",
                _ENDPOINTS,
            )
        raise invalid_option(
            f"kafka.{_ENDPOINT}",
            "not the address of a token server",
            _ENDPOINTS,
        )
    if not _can_be_asked(_endpoint(settings)):
        raise invalid_option(
            f"kafka.{_ENDPOINT}",
            "an address with a user or a password, a character that is not percent-encoded, or a wrong host or port",
            f"https://HOST/PATH; the client's id and secret are 'kafka.{_CREDENTIALS}id' and '….secret'",
        )
    for what in ("id", "secret"):
        if scheme != "file" and not settings.get(f"sasl.oauthbearer.client.{what}"):
            raise missing_option(
                f"kafka.{_CREDENTIALS}{what}",
                "the token server requires it",
                f"the client's {what}, or set clientId and clientSecret of the module in kafka.sasl.jaas.config",
            )
    if scheme != "file" and not settings.keys().isdisjoint({"https.ca.location", "https.ca.pem"}):
        try:
            _opener(settings)
        except (OSError, ValueError) as error:
            raise certificates_unusable(error, "kafka.https.ca.*") from None


def _can_be_asked(url: str) -> bool:
    """Return whether the URL is of a file, or one that urllib can send a request to. Checked before, as urllib takes
    user information for a part of the host's name, and its errors show the URL that it refuses."""
    try:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme == "file":
            return True
        host = (parts.hostname or "").encode("idna")
        return bool(host) and parts.port != 0 and "@" not in parts.netloc and re.fullmatch("[!-~]+", url) is not None
    except ValueError:
        return False


# Where tokens come from


def _unsecured(settings: Mapping[str, str]) -> Token:
    """Return an unsigned JSON web token, for brokers of a test, from ``sasl.oauthbearer.config`` as librdkafka reads
    it."""
    given = unsecured_claims(settings)
    life_s = int(given.get("lifeSeconds", "3600"))
    # Brokers look at their clock in whole milliseconds, and refuse a token that begins later.
    now, principal = int(time.time()), given.get("principal", "")
    claims: dict[str, object] = {
        given.get("principalClaimName", "sub"): principal,
        "iat": now,
        "exp": now + life_s,
    }
    if "scope" in given:
        claims[given.get("scopeClaimName", "scope")] = given["scope"].split(",")
    parts = [json.dumps(part, separators=(",", ":")).encode() for part in ({"alg": "none"}, claims)]
    text = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."
    return Token(text, now + life_s, principal)


def _in_file(settings: Mapping[str, str]) -> Token:
    """Return a JSON web token in a file that other software renews, such as a pod's service account token."""
    path = urllib.request.url2pathname(urllib.parse.urlsplit(_endpoint(settings)).path)
    with Path(path).open("rb") as file:
        text = file.read(_LARGEST + 1).decode(errors="replace").strip()
    if not _BEARER.fullmatch(text):
        raise OSError(f"{path} holds no token")
    claims = _claims(text)
    return Token(text, _expiry(claims), _principal(claims))


def _issued(settings: Mapping[str, str]) -> Token:
    """Request a token by client credentials (RFC 6749, 4.4), which like the Java client's are URL-encoded only if an
    option requires that."""
    url = _endpoint(settings)
    pair = [settings.get(f"sasl.oauthbearer.client.{what}", "") for what in ("id", "secret")]
    if boolean(settings, "sasl.oauthbearer.header.urlencode", False):
        pair = [urllib.parse.quote_plus(part) for part in pair]
    form = {"grant_type": "client_credentials"}
    if settings.get("sasl.oauthbearer.scope"):
        form["scope"] = settings["sasl.oauthbearer.scope"]
    head = {"Authorization": f"Basic {base64.b64encode(':'.join(pair).encode()).decode()}"}
    try:
        request = urllib.request.Request(url, urllib.parse.urlencode(form).encode(), head)
        with _opener(settings).open(request, timeout=_TIMEOUT_S) as answer:
            data = _read(answer)
    except urllib.error.HTTPError as error:
        failure = TokenRefused if 400 <= error.code < 500 and error.code not in (408, 429) else OSError
        raise failure(f"{_shown(url)} issues no token: {error.code} {excerpt(str(error.reason))}") from None
    except (http.client.InvalidURL, UnicodeError) as error:  # as of a proxy; its text may show a password or a query
        raise OSError(f"no token from {_shown(url)}: {type(error).__name__}") from None
    except (OSError, http.client.HTTPException) as error:
        raise OSError(f"no token from {_shown(url)}: {excerpt(str(error))}") from None
    return _token_of(data, _shown(url))


def _read(answer: http.client.HTTPResponse) -> bytes:
    """Return the whole response. Raises OSError if it is too large or takes too long."""
    until, data = time.monotonic() + _TIMEOUT_S, b""
    while piece := answer.read1(1 << 16):
        data += piece
        if len(data) > _LARGEST or time.monotonic() > until:
            raise OSError("its answer is too large" if len(data) > _LARGEST else "its answer does not come to an end")
    return data


def _token_of(data: bytes, server: str) -> Token:
    """Return the token in a token server's response (RFC 6749, 5.1). Raises OSError if there is none."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        answer = None
    text = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(text, str) or not _BEARER.fullmatch(text):
        raise OSError(f"no token from {server}: its answer has no access_token")
    kind, life_s = answer.get("token_type", "bearer"), answer.get("expires_in")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise OSError(f"no token from {server}: its token is none of type bearer: {excerpt(str(kind), 40)}")
    claims = _claims(text)
    if life_s is None:
        return Token(text, _expiry(claims), _principal(claims))
    seconds = _seconds(life_s)
    if seconds is None:
        raise OSError(f"no token from {server}: its expires_in is no number of seconds: {excerpt(str(life_s), 40)}")
    return Token(text, time.time() + seconds, _principal(claims))


def _seconds(value: object) -> float | None:
    """Return a number in JSON, or a number in a text, as some servers send; at most `_LONGEST_LIFE_S`. None for
    anything else."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        return None
    return float(min(value, _LONGEST_LIFE_S))


def _principal(claims: Mapping[str, Any]) -> str:
    return str(claims.get("sub", ""))


def _signed(settings: Mapping[str, str]) -> Token:
    return Token(*msk.sign(settings))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the secret is only for the server that the user has configured."""

    def redirect_request(self, *_: object) -> None:
        return None


def _opener(settings: Mapping[str, str]) -> urllib.request.OpenerDirector:
    """Return an HTTPS client; the token server's certificate may have another authority than the brokers'."""
    tls = context_trusting(settings.get("https.ca.location"), settings.get("https.ca.pem"))
    return urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=tls))


def _claims(text: str) -> dict[str, Any]:
    """Return the claims of a JSON web token; empty for a token of another kind."""
    try:
        part = text.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _expiry(claims: Mapping[str, Any]) -> float:
    """Return the token's expiry; without a sensible one, the default lifetime counts."""
    expiry = claims.get("exp")
    if isinstance(expiry, bool) or not isinstance(expiry, (int, float)) or not 0 < expiry < math.inf:
        return time.time() + _UNKNOWN_LIFE_S
    return float(min(expiry, time.time() + _LONGEST_LIFE_S))


def _shown(url: str) -> str:
    """Return a URL without user information and query. Where an @ may be in the query, or other signs in a password,
    only its scheme."""
    scheme, _, rest = url.partition("://")
    user, _, address = rest.rpartition("@")
    if set(user) & set("/?#"):
        return f"{scheme}://…"
    parts = urllib.parse.urlsplit(f"{scheme}://{address}")
    return f"{parts.scheme}://{parts.netloc}{parts.path}"
