"""Questions to a real registry: answers, refusals, credentials, and what comes when nobody answers."""

from __future__ import annotations

import base64
import socket
import ssl
import subprocess
import sys
import time
import traceback
import uuid
from dataclasses import replace
from unittest import mock

import pytest

from spark_eos.errors import EosError
from spark_eos.pipelines.registry import client
from spark_eos.pipelines.registry import settings as settings_module
from spark_eos.pipelines.registry.client import Registry
from spark_eos.pipelines.registry.schemas import Reference, Schema
from spark_eos.pipelines.registry.settings import registry_settings
from tests.support.servers.certificates import Authority
from tests.support.servers.registry_front import TOKEN, TOKEN_PATH, front, guid_of
from tests.support.waiting import PROGRAM_S, TIMEOUT

SECRET = "the-secret-of-the-registry"
ORDER = '{"type":"record","name":"Order","namespace":"acme","fields":[{"name":"id","type":"long"}]}'
TEXT = ORDER.replace('"long"', '"string"')


def new_schema() -> str:
    """One that no registry has, so that it gets the next id."""
    return ORDER.replace('"Order"', f'"Order{uuid.uuid4().hex}"')


def asking(url: str, **settings: object) -> Registry:
    """A client of its own; dots in names are written as two underscores."""
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return Registry(registry_settings({"url": url, **named}))


def test_versions_and_ids_are_those_of_the_registry(registry, subject):
    """A schema by its id, by its version, and as the latest one."""
    first = registry.register(subject, ORDER)
    second = registry.register(subject, ORDER.replace('"long"}', '"long"},{"name":"x","type":"int","default":0}'))
    found = asking(registry.url)
    assert found.schema(first) == Schema("AVRO", ORDER)
    assert (found.version(subject, 1).id, found.version(subject, "latest").id) == (first, second)
    assert found.version(subject, "latest").version == 2
    assert found.version(subject, 1).schema == Schema("AVRO", ORDER)


def test_a_schema_brings_what_it_refers_to(registry, subject):
    """By id and by version; a schema that two others use is there for both."""
    money = 'syntax = "proto3"; package a; message Money { int64 units = 1; }'
    line = 'syntax = "proto3"; package a; import "money.proto"; message Line { Money price = 1; }'
    order = 'syntax = "proto3"; package a; import "money.proto"; import "line.proto"; message Order { Line line = 1; }'
    to_money = {"name": "money.proto", "subject": f"{subject}-money", "version": 1}
    to_line = {"name": "line.proto", "subject": f"{subject}-line", "version": 1}
    registry.register(f"{subject}-money", money, "PROTOBUF")
    registry.register(f"{subject}-line", line, "PROTOBUF", [to_money])
    id_ = registry.register(subject, order, "PROTOBUF", [to_money, to_line])
    money_schema = Schema("PROTOBUF", money)
    money_used = Reference("money.proto", f"{subject}-money", 1, money_schema)
    line_schema = Schema("PROTOBUF", line, (money_used,))
    expected = Schema("PROTOBUF", order, (money_used, Reference("line.proto", f"{subject}-line", 1, line_schema)))
    found = asking(registry.url)
    assert found.schema(id_) == found.version(subject, "latest").schema == expected
    assert list(expected.all_references()) == ["money.proto", "line.proto"]
    assert expected.fingerprint != line_schema.fingerprint


def test_a_schema_is_asked_for_once(registry, before, subject):
    """Also one that is not there, for a while; the latest version is asked for each time."""
    id_ = registry.register(subject, ORDER)
    found = asking(before.url)
    for _ in range(3):
        found.schema(id_)
        found.version(subject, "latest")
        with pytest.raises(EosError, match="does not know schema 99999"):
            found.schema(99_999)
    paths = [request.partition("?")[0] for request in before.requests]
    assert paths.count(f"GET /schemas/ids/{id_}") == paths.count("GET /schemas/ids/99999") == 1
    assert paths.count(f"GET /subjects/{subject}/versions/latest") == 3


@pytest.mark.parametrize("anew", [False, True])
def test_what_is_unknown_is_asked_for_again(registry, subject, monkeypatch, anew):
    """After a while, as a schema may be registered after the first value that was written with it; or anew, by who
    knows that the answer was another one before."""
    monkeypatch.setattr(client, "_UNKNOWN_S", TIMEOUT if anew else 0.0)
    found = asking(registry.url)
    next_id = registry.register(f"{subject}-before", new_schema()) + 1
    with pytest.raises(EosError, match="does not know schema"):
        found.schema(next_id)
    assert registry.register(subject, text := new_schema()) == next_id
    if anew:
        with pytest.raises(EosError, match="does not know schema"):
            found.schema(next_id)
    assert found.schema(next_id, anew=anew) == found.schema(next_id) == Schema("AVRO", text)


def test_only_the_registry_that_gave_the_readers_schema_says_what_is_unknown(registry, subject):
    """One that was made anew knows nothing of what is in a topic: it stops the query, and spoils no value."""
    registry.register(subject, ORDER)
    reader = asking(registry.url).version(subject, 1)
    with pytest.raises(EosError) as caught:
        asking(registry.url).schema(99_999, reader)
    assert caught.value.entry == "EOS_REGISTRY_NOT_FOUND.schema"
    other = registry.register(f"{subject}-other", TEXT)
    for gone in (replace(reader, id=99_998), replace(reader, id=other)):
        found = asking(registry.url)
        for _ in range(2):
            with pytest.raises(EosError) as caught:
                found.schema(99_999, gone)
            assert caught.value.entry == "EOS_REGISTRY_CHANGED.version"


def test_a_schema_is_found_by_its_guid(registry, before, subject):
    """As registries have them since 2025."""
    id_ = registry.register(subject, ORDER)
    assert asking(before.url).schema(guid_of(id_)) == Schema("AVRO", ORDER)
    assert asking(before.url).version(subject, 1).guid == guid_of(id_)


def test_a_schema_is_registered_once_and_found(registry, subject):
    """Twice the same is one version."""
    found = asking(registry.url)
    one, two = (found.register(subject, Schema("AVRO", ORDER)) for _ in range(2))
    assert one == two == found.lookup(subject, Schema("AVRO", ORDER))
    assert (one.version, one.id) == (1, found.version(subject, "latest").id)


@pytest.mark.parametrize(
    ("ask", "entry", "says"),
    [
        (
            lambda found, subject: found.version(f"{subject}-none", "latest"),
            "EOS_REGISTRY_NOT_FOUND.answer",
            "version",
        ),
        (lambda found, subject: found.version(subject, 7), "EOS_REGISTRY_NOT_FOUND.answer", "version"),
        (lambda found, subject: found.schema(99_999), "EOS_REGISTRY_NOT_FOUND.schema", "99999"),
        (
            lambda found, subject: found.lookup(subject, Schema("AVRO", TEXT)),
            "EOS_REGISTRY_NOT_FOUND.lookup",
            "no version with this schema",
        ),
        (
            lambda found, subject: found.register(subject, Schema("AVRO", TEXT)),
            "EOS_REGISTRY_INCOMPATIBLE",
            "it is not compatible",
        ),
        (
            lambda found, subject: found.register(subject, Schema("AVRO", "{")),
            "EOS_REGISTRY_INCOMPATIBLE",
            "it is not valid",
        ),
        (lambda found, subject: found.schema(guid_of(1)), "EOS_REGISTRY_ANSWER", ""),  # Apicurio has no GUIDs
    ],
)
def test_a_refusal_has_its_condition(registry, subject, ask, entry, says):
    """And none of them helps to restart."""
    registry.register(subject, ORDER)
    registry.call("PUT", f"config/{subject}", {"compatibility": "BACKWARD"})
    with pytest.raises(EosError) as caught:
        ask(asking(registry.url), subject)
    assert caught.value.entry == entry and says in caught.value.message and not caught.value.restart_helps


def test_another_server_is_no_registry(registry):
    """An address without the path of Confluent's API: its 404 says nothing about a schema."""
    address = registry.url.partition("/apis")[0]
    with pytest.raises(EosError) as caught:
        asking(f"{address}/nowhere").schema(1)
    assert caught.value.condition == "EOS_REGISTRY_ANSWER"


@pytest.mark.parametrize(
    ("settings", "authorization"),
    [
        ({"basic.auth.user.info": f"user:{SECRET}"}, b"Basic " + base64.b64encode(f"user:{SECRET}".encode())),
        ({"bearer.auth.token": SECRET}, f"Bearer {SECRET}".encode()),
    ],
)
def test_credentials_are_sent_and_never_shown(registry, before, subject, settings, authorization):
    """With them the registry answers; with others, or none, the error shows none, even if the server repeats them."""
    id_ = registry.register(subject, ORDER)
    before.authorization = authorization.decode()
    assert Registry(registry_settings({"url": before.url, **settings})).schema(id_) == Schema("AVRO", ORDER)
    before.authorization = "Bearer another"
    for given in (settings, {}):
        asked = registry_settings({"url": before.url, **given})
        with pytest.raises(EosError) as caught:
            Registry(asked).schema(id_)
        assert caught.value.condition == "EOS_REGISTRY_UNAUTHORIZED" and not caught.value.restart_helps
        shown = "".join(traceback.format_exception(caught.value)) + repr(asked) + repr(vars(caught.value))
        assert SECRET not in shown and base64.b64encode(f"user:{SECRET}".encode()).decode() not in shown


def test_a_token_is_fetched_where_the_settings_say(registry, before, subject):
    """By client id and secret; then every question brings it. Where its server says no, the error has no secret."""
    id_ = registry.register(subject, ORDER)
    before.authorization = f"Bearer {TOKEN}"
    named = {
        "bearer.auth.credentials.source": "OAUTHBEARER",
        "bearer.auth.client.id": "client",
        "bearer.auth.client.secret": SECRET,
        "bearer.auth.scope": "scope",
        "bearer.auth.issuer.endpoint.url": before.url + TOKEN_PATH,
    }
    settings = registry_settings({"url": before.url, **named})
    assert Registry(settings).schema(id_) == Schema("AVRO", ORDER)
    before.status = 401
    with pytest.raises(EosError) as caught:
        Registry(settings).schema(id_)
    assert caught.value.entry == "EOS_REGISTRY_UNAUTHORIZED" and "no token" in caught.value.message
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_both_ends_show_certificates(registry, subject, tmp_path):
    """With a certificate of the authority the registry answers; without, or if its own is not trusted, it does not."""
    id_ = registry.register(subject, ORDER)
    authority = Authority()
    server, client_file = authority.sign("registry").write_pem(tmp_path / "server.pem"), tmp_path / "client.pem"
    signed = authority.sign("client")
    client_file.write_text(signed.key_pem("a-password") + signed.certificate_pem)
    trusted = tmp_path / "authority.pem"
    trusted.write_text(authority.pem)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(trusted))
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(server)
    own = {"ssl.certificate.location": str(client_file), "ssl.key.password": "a-password"}
    with front(registry.url, tls) as secure:
        known = {"url": secure.url, "ssl.ca.location": str(trusted)}
        assert Registry(registry_settings({**known, **own})).schema(id_) == Schema("AVRO", ORDER)
        for given in (known, {"url": secure.url, **own}):
            with pytest.raises(EosError) as caught:
                Registry(registry_settings(given)).schema(id_)
            assert caught.value.condition == "EOS_REGISTRY_UNREACHABLE"
            assert "a-password" not in str(caught.value)


def test_settings_that_the_client_refuses_are_an_option_error(tmp_path):
    """Files that are not there, and settings that lack others."""
    for named in (
        {"ssl.ca.location": str(tmp_path / "none.pem")},
        {"bearer.auth.credentials.source": "OAUTHBEARER", "bearer.auth.client.secret": SECRET},
    ):
        with pytest.raises(EosError) as caught:
            Registry(registry_settings({"url": "http://127.0.0.1:1", **named})).schema(1)
        assert (
            caught.value.condition == "EOS_OPTION_INVALID" and "client of the schema registry" in caught.value.message
        )
        assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("status", [500, 429])
def test_a_registry_that_has_troubles_is_tried_again(registry, before, subject, status):
    """Then a restart helps; and as soon as it answers, so does the same client."""
    id_ = registry.register(subject, ORDER)
    before.status = status
    found = asking(before.url)
    with pytest.raises(EosError) as caught:
        found.schema(id_)
    assert caught.value.condition == "EOS_REGISTRY_UNREACHABLE" and caught.value.restart_helps
    assert len(before.requests) == 2
    before.status = None
    assert found.schema(id_) == Schema("AVRO", ORDER)


def test_a_registry_that_is_not_there_is_unreachable():
    """At once: nothing listens there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(EosError) as caught:
            asking(f"http://127.0.0.1:{taken.getsockname()[1]}").schema(1)
    assert caught.value.condition == "EOS_REGISTRY_UNREACHABLE" and caught.value.restart_helps


def test_a_registry_that_is_silent_is_given_up(before, monkeypatch):
    """After the time of one question, with all tries and addresses; also if it accepts and says nothing."""
    before.silent = True
    monkeypatch.setattr(settings_module, "_DEFAULT_TIMEOUT_MS", int(1000 * PROGRAM_S))
    begin = time.monotonic()
    with pytest.raises(EosError) as caught:
        asking(f"{before.url},{before.url}", timeout__ms=1000).schema(1)
    assert caught.value.condition == "EOS_REGISTRY_UNREACHABLE"
    assert time.monotonic() - begin < TIMEOUT


def test_the_next_address_is_asked(registry, subject):
    """Where the first one does not answer."""
    id_ = registry.register(subject, ORDER)
    assert asking(f"http://127.0.0.1:1,{registry.url}").schema(id_) == Schema("AVRO", ORDER)


FORKS = """
import os, sys, time
from spark_eos.pipelines.registry.client import registry_of
from spark_eos.pipelines.registry.settings import registry_settings

settings, id_ = registry_settings(sys.argv[1]), int(sys.argv[2])
parent = registry_of(settings)
schema = parent.schema(id_)
assert registry_of(settings) is parent
while len(os.listdir("/proc/self/task")) > 1:
    time.sleep(0.001)
child = os.fork()
if child == 0:
    own = registry_of(settings)
    assert own is not parent
    assert own.schema(id_) == schema
    assert own._client is not parent._client
else:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_makes_a_client_of_its_own(registry, subject):
    """Its parent's sockets are not its own; what both find is the same. By a program of its own that waits until it has
    no other thread, like the one that forks Spark's workers: a thread within OpenSSL, which it is also while it ends,
    would keep a lock closed in the child."""
    id_ = registry.register(subject, ORDER)
    command = [sys.executable, "-c", FORKS, registry.url, str(id_)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_the_extra_the_error_names_it():
    """Rather than a module that nobody knows."""
    missing = mock.patch.dict("sys.modules", {"confluent_kafka.schema_registry": None})
    with missing, pytest.raises(EosError) as caught:
        client._new_client(registry_settings("http://127.0.0.1:1"))
    assert caught.value.entry == "EOS_NOT_INSTALLED.extra" and "[registry]" in caught.value.hint
