"""Tokens of OAUTHBEARER, for our own connections and for librdkafka's clients: issued by a server for client
credentials, read from a file, signed with AWS credentials, or signed by nobody, for tests.

A token is kept for the next connection until most of its life is over.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import re
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_eos.errors import stop
from spark_eos.kafka.config import msk
from spark_eos.kafka.config.values import boolean, enumerated
from spark_eos.printable import excerpt

_TIMEOUT_S = 10.0
#: Of a token's life, after which a new one is asked for.
_FRESH_SHARE = 0.8
#: For how long a token is good of which nobody says it.
_UNKNOWN_LIFE_S = 60.0
_LARGEST = 1 << 20
_LIFE = re.compile("[0-9]{1,9}")
#: Of a token by what its server says: more is as good as for ever.
_LONGEST_LIFE_S = 10.0 * 365 * 86_400
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")
#: RFC 6750: what may stand behind the word Bearer, and so nothing that would end the message to the broker.
_BEARER = re.compile(r"[A-Za-z0-9\-._~+/]{1,1000000}=*")


class TokenRefused(OSError):
    """This user gets no token, and retrying will not help."""


@dataclass(frozen=True)
class Token:
    """``expires_at``: seconds since the epoch."""

    value: str = field(repr=False)
    expires_at: float
    principal: str = ""


def token_settings(user: Mapping[str, str]) -> dict[str, str]:
    """What a token is made of, of the properties by their internal names. Raises OptionError where it is too little."""
    found = {key: value for key, value in user.items() if "oauthbearer" in key or key.startswith(("aws.", "https.ca"))}
    if user.get("sasl.mechanism", "") == "AWS_MSK_IAM":
        found["aws.region"] = msk.region(found, user.get("bootstrap.servers", ""))
    elif _is_unsecured(found):
        _check_unsecured(found)
    else:
        _check_endpoint(found)
    return found


def token(settings: Mapping[str, str]) -> Token:
    """One that is good for some time yet. Raises OSError, `TokenRefused` where retrying will not help."""
    key = frozenset(settings.items())
    with _lock:
        known = _tokens.get(key)
        if known is None or time.time() >= known[1]:
            made = _source(settings)(settings)
            known = _tokens[key] = made, time.time() + (made.expires_at - time.time()) * _FRESH_SHARE
        return known[0]


def forget(settings: Mapping[str, str], refused: Token) -> None:
    """The brokers do not take this one: the next connection gets a new one."""
    key = frozenset(settings.items())
    with _lock:
        known = _tokens.get(key)
        if known is not None and known[0] == refused:
            del _tokens[key]


_tokens: dict[frozenset[tuple[str, str]], tuple[Token, float]] = {}
_lock = threading.Lock()


def _source(settings: Mapping[str, str]) -> Callable[[Mapping[str, str]], Token]:
    if "aws.region" in settings:
        return _signed
    if _is_unsecured(settings):
        return _unsecured
    return _in_file if _endpoint(settings).startswith("file:") else _issued


# Which settings

_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"


def _endpoint(settings: Mapping[str, str]) -> str:
    return settings.get(_ENDPOINT, "").strip()


def _is_unsecured(settings: Mapping[str, str]) -> bool:
    return boolean(settings, "enable.sasl.oauthbearer.unsecure.jwt", False)


def _unsecured_claims(settings: Mapping[str, str]) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in settings.get("sasl.oauthbearer.config", "").split())


def _check_unsecured(settings: Mapping[str, str]) -> None:
    if _endpoint(settings):
        raise stop("EOS_OPTION_CONFLICT.unsecured_token")
    given = _unsecured_claims(settings)
    if not given.get("principal") or not _LIFE.fullmatch(given.get("lifeSeconds", "3600")):
        raise stop("EOS_OPTION_INVALID.unsecured_token")


def _check_endpoint(settings: Mapping[str, str]) -> None:
    for key, only in (
        ("sasl.oauthbearer.grant.type", "client_credentials"),
        ("sasl.oauthbearer.metadata.authentication.type", "none"),
    ):
        if enumerated(settings, key, only) != only:
            raise stop("EOS_OPTION_UNSUPPORTED.token_grant", option=f"kafka.{key}", key=key, value=settings[key])
    scheme = urllib.parse.urlsplit(_endpoint(settings)).scheme
    if scheme not in ("http", "https", "file"):
        if not _endpoint(settings):
            raise stop("EOS_OPTION_MISSING.token_endpoint", option=f"kafka.{_ENDPOINT}")
        raise stop("EOS_OPTION_INVALID.token_endpoint", option=f"kafka.{_ENDPOINT}")
    for what in ("id", "secret"):
        if scheme != "file" and not settings.get(f"sasl.oauthbearer.client.{what}"):
            raise stop(
                "EOS_OPTION_MISSING.oauth_client",
                option=f"kafka.sasl.oauthbearer.client.credentials.client.{what}",
                what=what,
            )


# Where tokens come from


def _unsecured(settings: Mapping[str, str]) -> Token:
    """An unsigned JSON web token, for brokers of a test, from ``sasl.oauthbearer.config`` as librdkafka reads it."""
    given = _unsecured_claims(settings)
    life_s = int(given.get("lifeSeconds", "3600"))
    # Brokers look at their clock in whole milliseconds, and refuse what begins later.
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
    """A JSON web token that something else renews, such as the service account's of a pod."""
    path = urllib.request.url2pathname(urllib.parse.urlsplit(_endpoint(settings)).path)
    with Path(path).open("rb") as file:
        text = file.read(_LARGEST + 1).decode(errors="replace").strip()
    if not _BEARER.fullmatch(text):
        raise OSError(f"{path} holds no token")
    claims = _claims(text)
    return Token(text, _expiry(claims), _principal(claims))


def _issued(settings: Mapping[str, str]) -> Token:
    """Client credentials (RFC 6749, 4.4). Like the Java client, without encoding them, unless it is told to."""
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
    except (OSError, http.client.HTTPException) as error:
        raise OSError(f"no token from {_shown(url)}: {excerpt(str(error))}") from None
    return _token_of(data, _shown(url))


def _read(answer: http.client.HTTPResponse) -> bytes:
    """The whole answer. Raises OSError where it is too large, or takes too long: each piece may come in time."""
    until, data = time.monotonic() + _TIMEOUT_S, b""
    while piece := answer.read1(1 << 16):
        data += piece
        if len(data) > _LARGEST or time.monotonic() > until:
            raise OSError("its answer is too large" if len(data) > _LARGEST else "its answer does not come to an end")
    return data


def _token_of(data: bytes, server: str) -> Token:
    """The token in a token server's answer (RFC 6749, 5.1). Raises OSError where there is none."""
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
    """A number of JSON, or one that some servers write as a text, at most `_LONGEST_LIFE_S`; None for anything else."""
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
    """The secret is for nobody but the server that the user has named."""

    def redirect_request(self, *_: object) -> None:
        return None


def _opener(settings: Mapping[str, str]) -> urllib.request.OpenerDirector:
    """The token server's certificate may be signed by another authority than the brokers'."""
    tls = ssl.create_default_context(cafile=settings.get("https.ca.location"), cadata=settings.get("https.ca.pem"))
    return urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=tls))


def _claims(text: str) -> dict[str, Any]:
    """The claims of a JSON web token; empty for a token of another kind."""
    try:
        part = text.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _expiry(claims: Mapping[str, Any]) -> float:
    """When it expires; what has no sensible time is used as if nobody had said it."""
    found = claims.get("exp")
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found < math.inf:
        return time.time() + _UNKNOWN_LIFE_S
    return float(min(found, time.time() + _LONGEST_LIFE_S))


def _shown(url: str) -> str:
    """Without a user and what comes after a question mark."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
