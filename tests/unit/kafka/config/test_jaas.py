"""What Spark users write for the Java client about who they are becomes the same here, or an error names the equal."""

from __future__ import annotations

import base64
import importlib.util
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from spark_eos.errors import OptionError
from spark_eos.kafka.config import client, librdkafka, msk, tokens
from spark_eos.kafka.config.jaas import parse_jaas
from spark_eos.kafka.config.java_names import canonical
from spark_eos.kafka.config.properties import KafkaProperties
from tests.support.servers.http_server import Handler, answering
from tests.support.waiting import TIMEOUT

OAUTH = "org.apache.kafka.common.security.oauthbearer"
BEARER = f"{OAUTH}.OAuthBearerLoginModule required"
MSK = "software.amazon.msk.auth.iam"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SERVERS = "b-1.mine.a1b2c3.c4.kafka.eu-west-1.amazonaws.com:9098"


def properties(**values: str) -> KafkaProperties:
    """Keyword names with ``__`` for a dot."""
    return KafkaProperties({"bootstrap.servers": SERVERS} | {key.replace("__", "."): v for key, v in values.items()})


def refused(**values: str) -> OptionError:
    with pytest.raises(OptionError) as caught:
        client.client_config(properties(security__protocol="SASL_SSL", **values))
    return caught.value


def bearer(**values: str) -> dict[str, str]:
    """What tokens are made of, by our own connections and by librdkafka's clients."""
    kafka = properties(security__protocol="SASL_SSL", **{"sasl__mechanism": "OAUTHBEARER"} | values)
    how, config = client.client_config(kafka).sasl, librdkafka.librdkafka_config(kafka, "consumer")
    assert how.mechanism == config["sasl.mechanism"] == "OAUTHBEARER"
    assert config["oauth_cb"].args == (how.oauthbearer,)
    assert not any(key.startswith(("sasl.oauthbearer", "aws.", "https.")) for key in config)
    librdkafka.check(kafka, "producer")
    return how.oauthbearer


@pytest.fixture
def wall_clock(monkeypatch) -> SimpleNamespace:
    """By which tokens are judged: it shows what is set as ``now``."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(tokens.time, "time", lambda: clock.now)
    return clock


@pytest.fixture
def packages(monkeypatch) -> set[str]:
    """Those that are installed."""
    installed = set[str]()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in installed else None)
    return installed


def test_client_credentials_of_the_login_module():
    """As Kafka's documentation has them; shaded packages, as Databricks has them, too."""
    jaas = f'kafkashaded.{BEARER} clientId="me" clientSecret="hunter2" scope="a b" extension_logicalCluster="lkc-1";'
    url = "https://login.example/token"
    found = bearer(sasl__jaas__config=jaas, sasl__oauthbearer__token__endpoint__url=url)
    assert found == {
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "hunter2",
        "sasl.oauthbearer.scope": "a b",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1",
    }


def test_an_unsecured_token_of_the_login_module():
    """A claim of text is the principal; the first character of a list separates it."""
    options = 'unsecuredLoginStringClaim_sub="ann" unsecuredLoginListClaim_scope="|a|b" unsecuredLoginLifetimeSeconds=9'
    found = bearer(sasl__jaas__config=f"{BEARER} {options};")
    assert found["sasl.oauthbearer.config"] == "principal=ann lifeSeconds=9 scope=a,b"
    assert tokens.token(found).principal == "ann"


@pytest.mark.parametrize("value", ["lkc-1", "pool-1,pool-2", "a=b", "a=b,c", "a b"])
@pytest.mark.parametrize("unsecured", [False, True])
def test_extensions_of_the_login_module_are_whole(value, unsecured):
    """A list has commas; more than one extension, too."""
    prefix = "unsecuredLoginExtension" if unsecured else "extension"
    credentials = "unsecuredLoginStringClaim_sub=ann" if unsecured else "clientId=me clientSecret=x"
    options = f'{credentials} {prefix}_first="{value}" {prefix}_second="2"'
    url = {} if unsecured else {"sasl__oauthbearer__token__endpoint__url": "https://login.example/token"}
    assert tokens.extensions(bearer(sasl__jaas__config=f"{BEARER} {options};", **url)) == {
        "first": value,
        "second": "2",
    }


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ('clientId="me" extension_first="1,second=2"', "first"),
        ('clientId="me" extension_first="1, "', "first"),
        ('unsecuredLoginStringClaim_sub="ann smith"', "principal"),
        ('unsecuredLoginStringClaim_sub="ann lifeSeconds=9"', "principal"),
        ('unsecuredLoginStringClaim_sub="ann" unsecuredLoginListClaim_scope="|a,b|c"', "scope"),
        ('unsecuredLoginStringClaim_sub="ann" unsecuredLoginListClaim_scope="|a b|c"', "scope"),
        ('unsecuredLoginStringClaim_sub="ann" unsecuredLoginExtension_first="1,second=2"', "first"),
    ],
)
def test_values_of_a_login_that_would_be_cut_are_refused(options, name):
    """Another user, another scope or another extension would be told to brokers."""
    error = refused(sasl__mechanism="OAUTHBEARER", sasl__jaas__config=f"{BEARER} {options};")
    assert error.condition == "EOS_OPTION_UNSUPPORTED" and f"separators in {name}" in error.message


def test_an_unsecured_token_is_not_of_later_than_now(wall_clock):
    """Brokers look at their clock in whole milliseconds, within the same one perhaps: they refuse what begins later."""
    wall_clock.now = 1700000000.1239
    made = tokens.token({"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=early"})
    part = made.value.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    assert 1000 * claims["iat"] <= 1700000000123
    assert claims["exp"] >= 1700003600


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("sasl.login.callback.handler.class", f"{OAUTH}.OAuthBearerLoginCallbackHandler"),
        ("sasl.login.callback.handler.class", f"{OAUTH}.secured.OAuthBearerLoginCallbackHandler"),
        ("sasl.oauthbearer.jwt.retriever.class", f"{OAUTH}.ClientCredentialsJwtRetriever"),
        ("sasl.login.refresh.window.factor", "0.8"),
    ],
)
def test_what_says_the_same_as_the_rest_changes_nothing(key, name):
    """Java's own handlers, and how it renews tokens."""
    url = {"sasl__oauthbearer__token__endpoint__url": "file:///var/run/token"}
    assert bearer(**url, **{key.replace(".", "__"): name}) == bearer(**url)


@pytest.mark.parametrize(
    ("mechanism", "jaas", "handler", "credentials"),
    [
        ("AWS_MSK_IAM", None, {}, {}),
        ("AWS_MSK_IAM", f"{MSK}.IAMLoginModule required;", {"client": "IAMClientCallbackHandler"}, {}),
        ("OAUTHBEARER", f"{BEARER};", {"login": "IAMOAuthBearerLoginCallbackHandler"}, {}),
        (
            "AWS_MSK_IAM",
            f'{MSK}.IAMLoginModule required awsProfileName="p" awsRoleArn="arn:aws:iam::1:role/r" '
            'awsRoleSessionName="s" awsStsRegion="us-east-1" awsDebugCreds=true;',
            {},
            {"profile": "p", "role.arn": "arn:aws:iam::1:role/r", "role.session.name": "s", "sts.region": "us-east-1"},
        ),
    ],
)
def test_msk_by_the_names_of_its_java_library(mechanism, jaas, handler, credentials):
    """The mechanism on the wire is OAUTHBEARER, which all brokers of MSK with IAM take; the region is the servers'. The
    options of the login module say whose credentials are used."""
    given = {"sasl__mechanism": mechanism} | ({"sasl__jaas__config": jaas} if jaas else {})
    given |= {f"sasl__{of}__callback__handler__class": f"{MSK}.{name}" for of, name in handler.items()}
    found = {f"aws.{name}": value for name, value in credentials.items()}
    assert bearer(**given) == found | {"aws.region": "eu-west-1"}


def test_the_region_of_msk(environ):
    """The option, the servers' names, the environment; else it is asked for."""
    environ(AWS_REGION=None, AWS_DEFAULT_REGION=None)
    serverless = "boot-x.c1.kafka-serverless.us-east-2.amazonaws.com:9098"
    assert msk.region({"aws.region": "here"}, SERVERS) == "here"
    assert msk.region({}, serverless) == "us-east-2"
    with pytest.raises(OptionError, match=r"kafka\.aws\.region"):
        msk.region({}, "kafka.example:9098")
    environ(AWS_REGION="there")
    assert msk.region({}, "kafka.example:9098") == "there"


@pytest.mark.parametrize(("mechanism", "extra"), [("AWS_MSK_IAM", "aws"), ("GSSAPI", "kerberos")])
def test_a_mechanism_without_its_library(mechanism, extra, packages):
    """The extra is named, on the driver."""
    error = refused(sasl__mechanism=mechanism)
    assert error.condition == "EOS_OPTION_UNSUPPORTED"
    assert f"is {mechanism}," in error.message and f"Install the extra '{extra}'" in error.hint


LOGIN = {"username": "a", "password": "b"}
KERBEROS = {"kerberos.keytab": "/k", "kerberos.principal": "ann@EOS.TEST", "kerberos.service.name": "broker"}


@pytest.mark.parametrize(
    ("jaas", "found"),
    [
        ("org.apache.plain.PlainLoginModule required username=a password=b;", LOGIN),
        ("org.apache.scram.ScramLoginModule required username=a password=b;", LOGIN),
        (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true useTicketCache=false "
            'serviceName="broker" keyTab="/k" principal="ann@EOS.TEST";',
            KERBEROS,
        ),
    ],
)
def test_nothing_is_left_of_a_login_module_but_what_it_says(jaas, found):
    """Where else Java's Kerberos would look is for Java alone."""
    of_sasl = {f"sasl.{name}": value for name, value in found.items()}
    assert canonical(properties(sasl__jaas__config=jaas)) == {"bootstrap.servers": SERVERS} | of_sasl


def test_kerberos_needs_no_librdkafka(packages):
    """Whose wheel has no Kerberos."""
    kafka = properties(security__protocol="SASL_SSL", sasl__mechanism="GSSAPI", sasl__kerberos__keytab="/keys/ann")
    packages.add("gssapi")
    assert client.client_config(kafka).sasl == client.Sasl("GSSAPI", kerberos=client.Kerberos(keytab="/keys/ann"))
    for kind in ("consumer", "producer"):
        librdkafka.check(kafka, kind)


@pytest.mark.parametrize(
    ("jaas", "says"),
    [
        ('com.sun.security.auth.module.Krb5LoginModule required ticketCache="hunter2";', "KRB5CCNAME"),
        ('com.example.OwnLoginModule required password="hunter2";', "[EOS_OPTION_UNSUPPORTED]"),
        (f'{BEARER} clientId="a" clientSekret="hunter2";', "clientSekret"),
        ('x.ScramLoginModule required tokenauth="true" username="a" password="hunter2";', "delegation token"),
        ('x.ScramLoginModule required password="hunter2";', "username"),
    ],
)
def test_a_login_that_is_not_understood_is_refused(jaas, says):
    """By its option, with what to use; without what it holds."""
    error = refused(sasl__mechanism="PLAIN", sasl__jaas__config=jaas)
    assert error.parameters["option"] == "kafka.sasl.jaas.config"
    assert says in str(error) and "hunter2" not in str(error)


@pytest.mark.parametrize(
    "key",
    ["sasl.login.callback.handler.class", "sasl.client.callback.handler.class", "sasl.oauthbearer.jwt.retriever.class"],
)
def test_a_handler_of_the_users_own_is_refused(key):
    """With what to use: nothing here runs Java."""
    error = refused(sasl__mechanism="OAUTHBEARER", **{key.replace(".", "__"): "com.example.Handler"})
    assert error.condition == "EOS_OPTION_UNSUPPORTED"
    assert "com.example.Handler" in error.message and "token.endpoint.url" in error.hint


@pytest.mark.parametrize(
    ("given", "condition", "says"),
    [
        ({}, "EOS_OPTION_MISSING", "token.endpoint.url"),
        ({"token__endpoint__url": "ftp://x"}, "EOS_OPTION_INVALID", "token.endpoint.url"),
        ({"token__endpoint__url": "https://x"}, "EOS_OPTION_MISSING", "client.id"),
        ({"token__endpoint__url": "https://x", "client__id": "me"}, "EOS_OPTION_MISSING", "client.secret"),
        ({"grant__type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}, "EOS_OPTION_UNSUPPORTED", "grant.type"),
        ({"metadata__authentication__type": "azure_imds"}, "EOS_OPTION_UNSUPPORTED", "azure_imds"),
    ],
)
def test_too_little_for_a_token_is_told_before_any_connection(given, condition, says):
    """By the option that is missing, or that cannot be followed."""
    error = refused(sasl__mechanism="OAUTHBEARER", **{f"sasl__oauthbearer__{key}": v for key, v in given.items()})
    assert error.condition == condition and says in str(error)


@pytest.mark.parametrize(
    "url",
    [
        "http://client:s3cret@127.0.0.1/token",
        "https://client:s3cret@127.0.0.1:1/token",
        "https://s3cret@127.0.0.1/token",
        "https://[s3cret/token",
        "file://[s3cret",
        "https:///token",
        "https://:1/token",
        "https://127.0.0.1:99999/token",
        "https://127.0.0.1:0x/token",
        "https://127.0.0.1/to ken?secret=s3cret",
        "https://127.0.0.1/to\nken?secret=s3cret",
        "https://127.0.0.1/töken",
        "https://töken.example/",
        f"https://{'s3cret' * 11}.example/",
        "https://a..example/",
    ],
)
def test_an_address_that_cannot_be_asked_for_a_token_is_told_before_any_connection(url):
    """Without the address, which may have a password: urllib would show it, or raise what is no OSError."""
    client = {"client__id": "me", "client__secret": "x", "token__endpoint__url": url}
    error = refused(sasl__mechanism="OAUTHBEARER", **{f"sasl__oauthbearer__{key}": v for key, v in client.items()})
    assert error.condition == "EOS_OPTION_INVALID" and "percent-encoded" in error.message
    assert "s3cret" not in f"{error} {error.parameters}"


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1:8443/token?tenant=a%20b",
        "HTTP://[::1]:1/token",
        "https://tokens.example.",
        "file:///var/run/secrets/a tökén",
    ],
)
def test_an_address_that_can_be_asked_for_a_token_is_taken(url):
    """A server's with a query, too, and a path with any characters."""
    client = {"client__id": "me", "client__secret": "x", "token__endpoint__url": url}
    settings = {f"sasl__oauthbearer__{key}": value for key, value in client.items()}
    assert bearer(**settings)["sasl.oauthbearer.token.endpoint.url"] == url


@pytest.mark.parametrize("proxy", ["http://me:s3cret@127.0.0.1:s3cret", f"http://{'s3cret' * 11}.example:1"])
def test_a_proxy_that_cannot_be_asked_is_an_error_without_its_address(environ, proxy):
    """The environment names it, so that no option can be refused; it is as one that does not answer."""
    environ(http_proxy=proxy)
    settings = {"sasl.oauthbearer.token.endpoint.url": "http://tokens.example/t"}
    with pytest.raises(OSError, match=r"no token from http://tokens\.example/t: [A-Z][A-Za-z]+$"):
        tokens.token(settings)


@pytest.mark.parametrize("claims", ["", "lifeSeconds=9", "principal=ann lifeSeconds=long"])
def test_an_unsecured_token_needs_a_principal(claims):
    """And a lifetime that is a number."""
    unsecured = {"enable__sasl__oauthbearer__unsecure__jwt": "true", "sasl__oauthbearer__config": claims}
    assert refused(sasl__mechanism="OAUTHBEARER", **unsecured).condition == "EOS_OPTION_INVALID"


def test_a_token_in_a_file_is_read_again_when_it_is_replaced(tmp_path, wall_clock):
    """As pods have them; until most of its life is over, it is not."""
    file = tmp_path / "token"
    settings = {"sasl.oauthbearer.token.endpoint.url": file.as_uri()}
    file.write_text("no-jwt-1\n")
    assert tokens.token(settings) == tokens.Token("no-jwt-1", 1060.0)
    file.write_text("no-jwt-2\n")
    assert tokens.token(settings).value == "no-jwt-1"
    wall_clock.now += 50
    assert tokens.token(settings).value == "no-jwt-2"


def test_a_token_is_used_to_its_end_where_there_is_no_new_one(tmp_path, wall_clock):
    """As while its server is restarted, which is not asked by each connection then; not for longer."""
    file = tmp_path / "token"
    settings = {"sasl.oauthbearer.token.endpoint.url": file.as_uri()}
    file.write_text("old")
    assert tokens.token(settings) == tokens.Token("old", 1060.0)
    file.unlink()
    wall_clock.now += 55
    assert tokens.token(settings).value == "old"
    file.write_text("soon")
    assert tokens.token(settings).value == "old"
    file.unlink()
    wall_clock.now += 5
    with pytest.raises(FileNotFoundError):
        tokens.token(settings)
    file.write_text("new")
    assert tokens.token(settings).value == "new"


def test_a_token_that_brokers_refuse_is_given_up(tmp_path):
    """The next connection has the one that is there by then; another one's is left alone."""
    file = tmp_path / "token"
    settings = {"sasl.oauthbearer.token.endpoint.url": file.as_uri()}
    file.write_text("one")
    one = tokens.token(settings)
    file.write_text("two")
    tokens.forget(settings, tokens.Token("another", 0.0))
    assert tokens.token(settings) == one
    tokens.forget(settings, one)
    assert tokens.token(settings).value == "two"


def test_a_slow_token_server_delays_only_those_who_need_it_and_is_asked_once_for_them():
    """Its failure is that of all who waited; the next one asks again."""
    asked: list[str] = []
    arrived, answers, waiting = threading.Event(), threading.Event(), threading.Semaphore(0)

    class Slow(Handler):
        def do_POST(self) -> None:
            asked.append(self.body().decode())
            arrived.set()
            answers.wait(TIMEOUT)
            self.reply(503)

    class Watched(dict):
        """Says that its thread has come to ask."""

        def items(self):
            waiting.release()
            return super().items()

    with answering(Slow) as port, ThreadPoolExecutor(3) as threads:
        settings = {"sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{port}/", "sasl.oauthbearer.scope": "x"}
        calls = [threads.submit(tokens.token, settings)]
        assert arrived.wait(TIMEOUT)
        calls += [threads.submit(tokens.token, Watched(settings)) for _ in range(2)]
        assert waiting.acquire(timeout=TIMEOUT) and waiting.acquire(timeout=TIMEOUT)
        unsecured = {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=quick"}
        assert tokens.token(unsecured).principal == "quick"
        answers.set()
        assert ["issues no token: 503" in str(call.exception(TIMEOUT)) for call in calls] == [True] * 3
        assert len(asked) == 1
        with pytest.raises(OSError, match="503"):
            tokens.token(settings)
        assert len(asked) == 2


@pytest.mark.parametrize(("code", "is_final"), [(400, True), (403, True), (408, False), (429, False), (500, False)])
def test_a_refusal_of_the_token_server_is_final_where_asking_again_does_not_help(code, is_final):
    """It does after a time-out, after too many requests, and where the server has failed."""

    class Refusing(Handler):
        def do_POST(self) -> None:
            self.reply(code)

    with answering(Refusing) as port, pytest.raises((tokens.TokenRefused, OSError), match=f"{code}") as caught:
        tokens.token({"sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{port}/{code}"})
    assert isinstance(caught.value, tokens.TokenRefused) == is_final


def test_librdkafka_gets_the_same_token_with_its_extensions():
    """In the form that its clients want."""
    settings = {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=ann"}
    settings["sasl.oauthbearer.extensions"] = "a=1,, b=2,"
    kafka = KafkaProperties({"bootstrap.servers": "h:1", "sasl.mechanism": "OAUTHBEARER", **settings})
    value, expires_at, principal, extensions = librdkafka.librdkafka_config(kafka, "consumer")["oauth_cb"]("")
    assert (value, expires_at) == (tokens.token(settings).value, tokens.token(settings).expires_at)
    assert (principal, extensions) == ("ann", {"a": "1", "b": "2"})


def test_secrets_of_logins_do_not_print():
    """Neither of the settings nor of a token."""
    login = parse_jaas(f'{BEARER} clientSecret="hunter2";')
    assert login.options == {"clientSecret": "hunter2"} and "hunter2" not in repr(login)
    assert "hunter2" not in repr(tokens.Token("hunter2", 0.0))


@pytest.mark.parametrize(
    "jaas",
    [
        f'{PLAIN} username="ann" password="hunter2"; {PLAIN} username="bob" password="hunter2";',
        f'{PLAIN} username="ann" password="hunter2;',
        f"{PLAIN} username='ann' password='hunter2",
        f'{PLAIN} username="ann" password="hunter2"',
        f'{PLAIN} username="ann" password=hun"ter2;',
        f'{PLAIN} username="ann" password="hunter2" hunter2;',
        f'{PLAIN} username="ann" password="hun\nter2";',
        PLAIN.replace("required", 'username="ann"') + ' password="hunter2";',
        PLAIN.replace("required", 'always username="ann"') + ' password="hunter2";',
        "",
    ],
)
def test_a_login_that_java_does_not_read_is_refused(jaas):
    """Rather than another user or password that can be found in it. Nothing of it is shown."""
    error = refused(sasl__mechanism="PLAIN", sasl__jaas__config=jaas)
    assert error.condition == "EOS_OPTION_INVALID"
    assert "hun" not in str(error)


@pytest.mark.parametrize(
    ("jaas", "password"),
    [
        (f" \n{PLAIN}\n  username = ann\n  password = 'a;b \"c' ;\n", 'a;b "c'),
        (PLAIN.replace("required", "REQUIRED") + ' username="ann"password="a=b";', "a=b"),
        (f"{PLAIN} username=ann password=YQ==;", "YQ=="),
        (rf'{PLAIN} username=ann password="\"\\\t\101\4012";', '"\\\tA 12'),
        (f'{PLAIN} username=ann password="" ;', ""),
    ],
)
def test_values_of_a_login_are_javas(jaas, password):
    """Quotes and escapes as its tokenizer reads them."""
    how = parse_jaas(jaas).options
    assert (how["username"], how["password"]) == ("ann", password)


def test_a_long_login_that_does_not_end_is_refused_at_once():
    """No time grows with what could be made of it."""
    assert refused(sasl__mechanism="PLAIN", sasl__jaas__config=PLAIN + " a=b" * 20_000 + '"').condition == (
        "EOS_OPTION_INVALID"
    )
