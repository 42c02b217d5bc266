"""What is said to a broker to be let in, mechanism by mechanism, against the examples of the standards."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.kafka.config.client import Sasl
from spark_eos.kafka.net import sasl as module
from spark_eos.kafka.net.sasl import Refused, conversation
from tests.support.servers.token_server import CLIENT, SECRET, TokenServer
from tests.support.servers.unused_hosts import nobody

#: RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = f"r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.fixture
def nonce(monkeypatch) -> str:
    """The client's, that of the example."""
    monkeypatch.setattr(module.secrets, "token_urlsafe", lambda size: NONCE)
    return NONCE


@pytest.fixture
def scram(nonce):
    """A conversation with the client's nonce of the example, past its first message."""
    talk = conversation(Sasl("SCRAM-SHA-256", "user", "pencil"), "broker")
    assert next(talk) == f"n,,n=user,r={NONCE}".encode()
    return talk


def test_plain_sends_user_and_password():
    """RFC 4616, without an identity to act as."""
    assert list(conversation(Sasl("PLAIN", "tim", "tanstaaftanstaaf"), "broker")) == [b"\0tim\0tanstaaftanstaaf"]


def test_scram_says_what_the_standard_says(scram):
    """The example of RFC 7677, to the byte; the broker's signature ends it."""
    assert scram.send(CHALLENGE.encode()) == f"{CHALLENGE.partition(',')[0].join(['c=biws,', ''])},p={PROOF}".encode()
    with pytest.raises(StopIteration):
        scram.send(f"v={SIGNATURE}".encode())


@pytest.mark.parametrize(
    ("challenge", "final", "why"),
    [
        (CHALLENGE.replace(NONCE, "another"), None, "not one to this client"),
        (CHALLENGE.partition("%")[0] + CHALLENGE[CHALLENGE.index(",s=") :], None, "not one to this client"),
        (CHALLENGE.replace("4096", "1"), None, "1 iterations"),
        (CHALLENGE.replace("4096", "50000000"), None, "50000000 iterations"),
        (CHALLENGE.replace("4096", "9" * 5000), None, "not one to this client"),
        (CHALLENGE.replace("4096", "4_096"), None, "not one to this client"),
        (CHALLENGE.replace("4096", "-4096"), None, "not one to this client"),
        ("m=ext," + CHALLENGE, None, "not one to this client"),
        (CHALLENGE + ",m=ext", None, "not one to this client"),
        (CHALLENGE.replace("W22ZaJ0SNY7soEsUEjb6gQ==", ""), None, "not one to this client"),
        (CHALLENGE.replace("W22ZaJ0SNY7soEsUEjb6gQ==", "W22Za"), None, "not one to this client"),
        (CHALLENGE, "", "not to be trusted"),
        (CHALLENGE, "v=", "not to be trusted"),
        (CHALLENGE, "e=\x1b[2Jno\nforged", r"no\\nforged"),
        (CHALLENGE, "v=" + base64.b64encode(bytes(32)).decode(), "not to be trusted"),
        (CHALLENGE, "e=invalid-proof", "invalid-proof"),
    ],
)
def test_scram_trusts_no_broker_that_does_not_know_the_password(scram, challenge, final, why):
    """A foreign nonce, none of its own, too few or too many iterations, an extension that has to be understood, no
    salt, a wrong signature, and a refusal, whose words cannot move a terminal's cursor."""
    with pytest.raises(Refused, match=why):
        scram.send(challenge.encode())
        scram.send(final.encode())


@given(st.binary(max_size=200) | st.text("rsimv=,0123456789A+/", max_size=80).map(lambda t: f"r={NONCE}x{t}".encode()))
def test_any_challenge_ends_in_the_next_message_or_a_refusal(challenge):
    """Nothing else is raised, and nothing takes long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.secrets, "token_urlsafe", lambda size: NONCE)
        talk = conversation(Sasl("SCRAM-SHA-512", "user", "pencil"), "broker")
        next(talk)
        with suppress(Refused):
            assert talk.send(challenge).startswith(b"c=biws,r=" + NONCE.encode())
            talk.send(challenge)


def test_scram_escapes_what_has_a_meaning(nonce):
    """Commas and equals signs in a user's name."""
    assert next(conversation(Sasl("SCRAM-SHA-512", "a,b=c", ""), "broker")) == f"n,,n=a=2Cb=3Dc,r={nonce}".encode()


def claims(message: bytes) -> dict:
    token = message.split(b"Bearer ")[1].split(b"\x01")[0].decode()
    assert token.endswith(".")
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def unsecured(config: str, extensions: str = "") -> Sasl:
    settings = {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": config}
    return Sasl("OAUTHBEARER", oauthbearer=settings | {"sasl.oauthbearer.extensions": extensions})


def test_an_unsecured_token_has_the_claims_of_its_settings():
    """As librdkafka makes it of the same properties."""
    talk = conversation(unsecured("principal=ann scope=a,b lifeSeconds=60"), "broker")
    message = next(talk)
    assert message.startswith(b"n,,\x01auth=Bearer ") and message.endswith(b"\x01\x01")
    found = claims(message)
    assert (found["sub"], found["scope"], found["exp"] - found["iat"]) == ("ann", ["a", "b"], 60)
    with pytest.raises(StopIteration):
        talk.send(b"")


def test_extensions_follow_the_token():
    """Each with its end, and no end between them."""
    message = next(conversation(unsecured("principal=ann", "a=1,2,, b=3,"), "broker"))
    assert message.endswith(b".\x01a=1,2\x01b=3\x01\x01")


def test_a_refused_token_is_told_with_the_brokers_reason():
    """After the one byte that the broker waits for."""
    talk = conversation(unsecured("principal=eve"), "broker")
    next(talk)
    assert talk.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(Refused, match="invalid_token"):
        talk.send(b"")


@pytest.fixture
def token_server() -> Iterator[TokenServer]:
    server = TokenServer()
    yield server
    server.close()


def oidc(url: str, secret: str = SECRET) -> Sasl:
    settings = {
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.id": CLIENT,
        "sasl.oauthbearer.client.secret": secret,
        "sasl.oauthbearer.scope": "kafka",
    }
    return Sasl("OAUTHBEARER", oauthbearer=settings)


def test_a_token_is_issued_once_for_many_connections(token_server):
    """By client credentials, until most of its life is over."""
    messages = {next(conversation(oidc(token_server.url), "broker")) for _ in range(3)}
    assert messages == {f"n,,\x01auth=Bearer {token}\x01\x01".encode() for token in token_server.issued}
    assert token_server.asked == [{"grant_type": "client_credentials", "scope": "kafka"}]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"<html>", "no access_token"),
        (b"[" * 100_000, "no access_token"),
        (b"[1]", "no access_token"),
        (b'{"access_token": 1}', "no access_token"),
        (b'{"access_token": ""}', "no access_token"),
        (b'{"access_token": "a b\\u0001auth=x"}', "no access_token"),
        (b'{"access_token": "a", "token_type": "mac"}', "bearer"),
        (b'{"access_token": "a", "token_type": null}', "bearer"),
        (b'{"access_token": "a", "expires_in": "soon\\u001b[2J"}', r"soon\\x1b\[2J"),
        (b'{"access_token": "a", "expires_in": NaN}', "expires_in"),
        (b'{"access_token": "a", "expires_in": Infinity}', "expires_in"),
        (b'{"access_token": "a", "expires_in": -1}', "expires_in"),
        (b'{"access_token": "a", "expires_in": true}', "expires_in"),
        (b'{"access_token": "a", "expires_in": [1]}', "expires_in"),
        (b'{"access_token": "a", "expires_in": "nan"}', "expires_in"),
        (b'{"access_token": "' + b"a" * (1 << 20) + b'"}', "too large"),
    ],
)
def test_an_answer_that_is_no_token_is_told_as_that(token_server, answer, why):
    """Whatever a token server sends, it is an error that may go away, and it names the server."""
    token_server.answer = answer
    with pytest.raises(OSError, match=f"no token from http://127.0.0.1:.*{why}") as caught:
        next(conversation(oidc(token_server.url), "broker"))
    assert not isinstance(caught.value, Refused)


@pytest.mark.parametrize("life", ["100", '"100"', "100.5", "1e300", "9" * 400])
def test_a_life_is_a_number_in_any_form(token_server, life):
    """Also as a text, as some servers write it; a life without an end has one."""
    token_server.answer = b'{"access_token": "a", "expires_in": %b, "token_type": "BEARER"}' % life.encode()
    assert next(conversation(oidc(token_server.url), "broker")) == b"n,,\x01auth=Bearer a\x01\x01"


@pytest.mark.parametrize("exp", ["null", "true", "-1", "NaN", "Infinity", "9" * 400, '"x"', "[]"])
def test_a_token_may_claim_any_time(token_server, exp):
    """It is used as one whose time is not known."""
    part = base64.urlsafe_b64encode(b'{"sub": "ann", "exp": %b}' % exp.encode()).rstrip(b"=")
    token_server.answer = b'{"access_token": "h.%b.s"}' % part
    assert next(conversation(oidc(token_server.url), "broker")).startswith(b"n,,\x01auth=Bearer h.")


def test_a_client_without_a_token_is_told_why(token_server):
    """Final where the server says no, not final where it cannot be reached; without the secret."""
    with pytest.raises(Refused, match="401") as caught:
        next(conversation(oidc(token_server.url, "wrong-hunter"), "broker"))
    assert "wrong-hunter" not in str(caught.value)
    with nobody() as address, pytest.raises(OSError, match="no token") as unreachable:
        next(conversation(oidc(f"http://{address}/token", "other-hunter"), "broker"))
    assert not isinstance(unreachable.value, Refused)
