"""Settings of a registry: what is refused, what is never shown, and how long a question may take."""

from __future__ import annotations

import contextlib
import pickle
import re
import ssl
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from spark_eos.errors import EosError
from spark_eos.pipelines.registry.settings import SETTINGS, registry_settings
from spark_eos.pipelines.registry.subjects import subject_name
from tests.support.judges.conditions import raises
from tests.support.servers.certificates import Authority

SECRET = "a-secret"


@pytest.mark.parametrize(
    "given",
    [
        "http://one:8081/, https://two/api",
        {"url": "http://one:8081,https://two/api/"},
        {"registry.url": " http://one:8081/ , https://two/api "},
        {"Registry.URL": "http://one:8081,https://two/api", "context": ""},
    ],
)
def test_an_address_may_be_all_that_is_given(given):
    """Alone or by name, with or without the prefix; all of these are the same registry."""
    settings = registry_settings(given)
    assert settings.urls == ("http://one:8081", "https://two/api")
    assert settings.name == "http://one:8081, https://two/api"
    assert settings.context == "" and settings.timeout_s == 10


URL = {"url": "http://h"}


@pytest.mark.parametrize(
    ("given", "condition", "says"),
    [
        ({}, "EOS_OPTION_MISSING", "'registry.url' is missing"),
        *[
            ({"url": url}, "EOS_OPTION_INVALID", "'registry.url' is not an address")
            for url in (
                "localhost:8081",
                "ftp://localhost",
                "http://",
                "http://h:99999",
                f"http://h/?token={SECRET}",
                "http://h,",
            )
        ],
        ({"url": f"http://user:{SECRET}@h"}, "EOS_OPTION_INVALID", "'registry.url' is an address with a user"),
        (URL | {"proxy": f"http://{SECRET}@h"}, "EOS_OPTION_INVALID", "'registry.proxy' is an address with a user"),
        *[
            (URL | {"timeout.ms": given}, "EOS_OPTION_INVALID", f"'registry.timeout.ms' is '{given}'")
            for given in ("soon", "0", "86400001", "99999999999999999999")
        ],
        (URL | {"basic.auth.user.info": SECRET}, "EOS_OPTION_INVALID", "user.info' is not a user and a password"),
        (
            URL | {"bearer.auth.credentials.source": "CUSTOM"},
            "EOS_OPTION_INVALID",
            "'registry.bearer.auth.credentials.source' is set to another value",
        ),
        (
            URL | {"basic.auth.user.info": f"u:{SECRET}", "bearer.auth.token": SECRET},
            "EOS_OPTION_CONFLICT",
            "'registry.basic.auth.user.info'",
        ),
        (URL | {"basic.auth.user.inf": SECRET}, "EOS_OPTION_UNKNOWN", "'registry.basic.auth.user.info'?"),
        (URL | {"zzz": SECRET}, "EOS_OPTION_UNKNOWN", "no option 'registry.zzz'"),
    ],
)
def test_what_cannot_be_right_is_refused(given, condition, says):
    """By the name of the option, and without its value."""
    with raises(condition, says) as caught:
        registry_settings(given)
    assert SECRET not in str(caught.value) + repr(caught.value.parameters)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("url", "set 'registry.basic.auth.user.info' to user:password"),
        ("bearer.auth.issuer.endpoint.url", "'registry.bearer.auth.client.secret'"),
        ("proxy", "not supported"),
    ],
)
def test_the_password_of_another_server_is_not_for_the_registry(name, instead):
    """Its setting would send it to the registry with each request."""
    with pytest.raises(EosError) as caught:
        registry_settings({"url": "http://h", name: f"http://user:{SECRET}@h"})
    assert instead in caught.value.hint
    assert ("basic.auth" in caught.value.hint) == (name == "url")


def test_no_secret_is_printed():
    """Nor lost on the way to a worker; equal settings are one key of a cache."""
    secret = {setting.name: SECRET for setting in SETTINGS if setting.secret}
    given = {"url": "http://h", **secret, "basic.auth.user.info": f"user:{SECRET}"}
    del given["bearer.auth.token"], given["bearer.auth.client.secret"]
    settings = registry_settings(given)
    assert SECRET not in repr(settings) and SECRET not in settings.name
    assert {SECRET, f"user:{SECRET}"} <= set(settings.secrets)
    back = pickle.loads(pickle.dumps(settings))
    assert back == settings and hash(back) == hash(settings)
    assert settings.client_conf(0)["basic.auth.user.info"] == f"user:{SECRET}"


def test_all_tries_at_all_addresses_share_the_time():
    """A client without a time of its own would wait for ever."""
    conf = registry_settings({"url": "http://a,http://b", "timeout.ms": 8000}).client_conf(retries=1)
    assert conf["timeout"] == 2 and conf["max.retries"] == 1


def test_a_token_needs_no_more_settings():
    """The client asks for a source and a cluster, which only one vendor has."""
    conf = registry_settings({"url": "http://a", "bearer.auth.token": SECRET}).client_conf(0)
    assert conf["bearer.auth.credentials.source"] == "STATIC_TOKEN" and conf["bearer.auth.logical.cluster"] == ""


def test_what_is_none_is_not_set_and_a_secret_keeps_its_spaces():
    """A password may end with one; a line's end, as of a file, is none of it."""
    given = {"url": " http://a ", "context": None, "ssl.key.password": None, "basic.auth.user.info": "user: pw \n"}
    conf = registry_settings(given).client_conf(0)
    assert conf["basic.auth.user.info"] == "user: pw " and "ssl.key.password" not in conf
    assert registry_settings(given).context == ""


@pytest.mark.parametrize("password", [None, "pw"])
def test_a_key_without_its_password_is_not_asked_for_on_the_terminal(tmp_path, password):
    """OpenSSL would, and wait; a key that is not encrypted needs none."""
    signed = Authority().sign("client")
    (tmp_path / "key.pem").write_text(signed.key_pem(password) + signed.certificate_pem)
    conf = registry_settings({"url": "https://h", "ssl.certificate.location": str(tmp_path / "key.pem")}).client_conf(0)
    with pytest.raises(ssl.SSLError) if password else contextlib.nullcontext():
        SchemaRegistryClient(conf)


@pytest.mark.parametrize("context", ["test", ":.test:", ".test"])
def test_a_context_is_before_every_subject(context):
    """As Confluent writes it; a subject that has one keeps it."""
    settings = registry_settings({"url": "http://a", "context": context})
    assert settings.qualified("orders-value") == ":.test:orders-value"
    assert settings.qualified(":.other:orders-value") == ":.other:orders-value"
    assert registry_settings("http://a").qualified("orders-value") == "orders-value"


def test_subjects_have_the_names_of_confluents_strategies():
    """By topic, record and both, of keys and values; or as given."""
    assert subject_name(None, "orders") == "orders-value"
    assert subject_name(None, "orders", key=True) == "orders-key"
    assert subject_name(None, None, "record", record="acme.Order") == "acme.Order"
    assert subject_name(None, "orders", "topic-record", record="acme.Order") == "orders-acme.Order"
    assert subject_name("mine", "orders", "record") == "mine"
    for arguments, why in (
        ((None, None), "neither a subject"),
        ((None, None, "topic-record"), "neither a subject"),
        ((None, "orders", "record"), "no record with a name"),
    ):
        with raises("EOS_OPTION_MISSING", why):
            subject_name(*arguments)


def test_the_page_lists_every_setting():
    """As the table of the code has them."""
    page = (Path(__file__).parents[4] / "docs" / "registry.md").read_text()
    rows = re.findall(r"^\| `([a-z.]+)` \| (.+) \|$", page.partition("## Settings")[2], re.MULTILINE)
    assert rows == [(setting.name, setting.doc) for setting in SETTINGS]
