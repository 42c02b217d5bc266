"""Tokens for Amazon MSK, as far as that goes without AWS: signed with made-up credentials, and taken by a made-up
broker."""

from __future__ import annotations

import base64
import time
import urllib.parse
from collections.abc import Iterator

import pytest

from spark_eos.errors import ConnectionFailed
from spark_eos.kafka.config import tokens
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from tests.support.servers.fake_broker import FakeBroker
from tests.support.waiting import TIMEOUT

SECRET = "hunter2hunter2hunter2"


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    broker = FakeBroker(0, {})
    yield broker
    broker.close()


@pytest.fixture(autouse=True)
def nothing_of_this_machine(environ, monkeypatch, tmp_path):
    """No credentials, and no question to a network for them; no token of another test."""
    environ(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None, AWS_PROFILE=None, AWS_REGION=None)
    environ(**{name: tmp_path / name for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")})
    environ(AWS_EC2_METADATA_DISABLED="true")
    monkeypatch.setattr(tokens, "_tokens", {})


@pytest.fixture
def credentials(nothing_of_this_machine, environ):
    """In the environment."""
    environ(AWS_ACCESS_KEY_ID="AKIDOFANN", AWS_SECRET_ACCESS_KEY=SECRET)


@pytest.fixture
def no_proxy(environ):
    """Nobody listens where the proxy for all servers would be."""
    environ(https_proxy="http://127.0.0.1:1", no_proxy=None)


def client(broker: FakeBroker, **more: str) -> BrokerClient:
    given = {"bootstrap.servers": f"127.0.0.1:{broker.port}", "security.protocol": "SASL_PLAINTEXT"}
    given |= {"sasl.mechanism": "AWS_MSK_IAM", "aws.region": "eu-west-1"}
    return BrokerClient(KafkaProperties(given | {key.replace("__", "."): value for key, value in more.items()}))


def signed(broker: FakeBroker) -> dict[str, str]:
    """What the first token's address asks for."""
    text = broker.said[0].split(b"Bearer ")[1].split(b"\x01")[0]
    address = base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4)).decode()
    assert address.startswith("https://kafka.eu-west-1.amazonaws.com/?")
    return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(address).query))


def test_a_token_that_is_signed_with_the_credentials_of_the_environment(broker, credentials, long_tries):
    """It goes to the broker as OAUTHBEARER; one for all connections, until most of its quarter of an hour is over."""
    for _ in range(2):
        own = client(broker)
        assert own.brokers() == [0]
        own.close()
    asked = signed(broker)
    assert (asked["Action"], asked["X-Amz-Expires"]) == ("kafka-cluster:Connect", "900")
    assert asked["X-Amz-Credential"].startswith("AKIDOFANN/")
    assert "/eu-west-1/kafka-cluster/" in asked["X-Amz-Credential"]
    assert len(broker.said) == 2 and len(set(broker.said)) == 1
    made = tokens.token({"aws.region": "eu-west-1"})
    assert made.value.encode() in broker.said[0] and 800 < made.expires_at - time.time() <= 900
    assert SECRET.encode() not in b"".join(broker.said)


def test_the_profile_that_is_named(broker, tmp_path):
    """As ``awsProfileName`` of IAMLoginModule."""
    file = tmp_path / "AWS_SHARED_CREDENTIALS_FILE"
    file.write_text(f"[team]\naws_access_key_id = AKIDOFTEAM\naws_secret_access_key = {SECRET}\n")
    jaas = 'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="team";'
    assert client(broker, sasl__jaas__config=jaas).brokers() == [0]
    assert signed(broker)["X-Amz-Credential"].startswith("AKIDOFTEAM/")


@pytest.mark.parametrize(("more", "says"), [({}, "no AWS credentials were found"), ({"aws__profile": "x"}, "profile")])
def test_without_credentials(more, says, broker, one_try):
    """They may yet come, as a role of this machine; until then, the error says so."""
    with pytest.raises(ConnectionFailed, match=says):
        client(broker, **more).metadata([], timeout_s=TIMEOUT)
    assert broker.said == []


def test_credentials_that_the_library_cannot_read(credentials, environ):
    """It raises what is no error of its own."""
    environ(AWS_CREDENTIAL_EXPIRATION="soon")
    with pytest.raises(OSError, match=r"no token for Amazon MSK in eu-west-1: .*soon"):
        tokens.token({"aws.region": "eu-west-1"})


ENDPOINT = "sasl.oauthbearer.token.endpoint.url"


def no_token_from(shown: str) -> pytest.RaisesExc[OSError]:
    """There is none, as nobody answers, by an error that has this address."""
    return pytest.raises(OSError, match=f"^no token from {shown}: ")


@pytest.mark.usefixtures("no_proxy")
@pytest.mark.parametrize("user", ["", "ann:pa-ss@", "ann:pa@ss@"])
def test_a_token_servers_address_is_shown_without_a_user(user):
    """And without its query, which may have a secret."""
    with no_token_from("https://host:8443/token"):
        tokens.token({ENDPOINT: f"https://{user}host:8443/token?secret=x"})


@pytest.mark.usefixtures("no_proxy")
@pytest.mark.parametrize("url", ["https://ann:pa/ss@host/token", "https://ann:p?s@host", "https://host/token?key=a@b"])
def test_only_the_scheme_is_shown_of_an_address_that_can_be_read_in_two_ways(url):
    """What follows the @ may be a host, or the end of a secret."""
    with no_token_from("https://…"):
        tokens.token({ENDPOINT: url})
