"""Certificates and keys, as Java's stores and as PEM: read by both kinds of client, again when they change, and left
nowhere."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from spark_eos.errors import OptionError
from spark_eos.kafka.config import librdkafka, tls, tokens
from spark_eos.kafka.config.client import client_config
from spark_eos.kafka.config.properties import KafkaProperties
from tests.support.servers.certificates import Authority

PASSWORD = "hunter2"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def client(authority):
    return authority.sign("client")


def properties(values: Mapping[str, str]) -> KafkaProperties:
    return KafkaProperties({"bootstrap.servers": "kafka:9093", "security.protocol": "SSL", **values})


def store(what: str, file, type_: str | None = None, password: str = PASSWORD) -> dict[str, str]:
    values = {f"ssl.{what}.location": str(file), f"ssl.{what}.password": password}
    return values | ({f"ssl.{what}.type": type_} if type_ else {})


def context(values: Mapping[str, str]) -> ssl.SSLContext:
    return client_config(properties(values)).tls.context()


def refused(values: Mapping[str, str]) -> OptionError:
    """By both kinds of client, in the same words."""
    errors = []
    for call in (client_config, lambda kafka: librdkafka.check(kafka, "producer")):
        with pytest.raises(OptionError) as caught:
            call(properties(values))
        errors.append(caught.value)
        assert PASSWORD not in str(caught.value)
    assert errors[0].message == errors[1].message
    return errors[0]


def trusted(found: ssl.SSLContext) -> set[str]:
    return {dict(part[0] for part in known["subject"])["commonName"] for known in found.get_ca_certs()}


@pytest.mark.parametrize("type_", [None, "PKCS12", "JKS", "pkcs12"])
def test_stores_of_type_pkcs12(type_, authority, client, tmp_path):
    """Whatever type is named, as Java's JKS reads them, too: trusted certificates, and the client's with its chain."""
    own = client.write_pkcs12(tmp_path / "own.p12", PASSWORD, (authority.own,))
    all_of_it = authority.own.write_pkcs12(tmp_path / "trusted.p12", PASSWORD)
    values = store("keystore", own, type_) | store("truststore", all_of_it, type_)
    assert trusted(context(values)) == {"authority"}
    config = librdkafka.librdkafka_config(properties(values), "consumer")
    assert config["ssl.certificate.pem"] == client.certificate_pem + authority.pem
    assert config["ssl.key.pem"] == client.key_pem()
    assert config["ssl.ca.pem"] == authority.pem
    assert not any("store" in key for key in config)


def test_stores_of_type_pem(authority, client, tmp_path):
    """Key and certificate in one file; also where the type is not named."""
    own = client.write_pem(tmp_path / "own.pem")
    ca = tmp_path / "ca.pem"
    ca.write_text(authority.pem)
    for type_ in ("PEM", None):
        values = store("keystore", own, type_) | store("truststore", ca, type_)
        assert trusted(context(values)) == {"authority"}
        config = librdkafka.librdkafka_config(properties(values), "producer")
        assert config["ssl.key.location"] == config["ssl.certificate.location"] == str(own)
        assert config["ssl.ca.location"] == str(ca)
        assert not any("store" in key for key in config)


@pytest.mark.parametrize("what", ["truststore", "keystore"])
def test_a_store_in_javas_own_format_is_refused_with_the_command_that_converts_it(what, tmp_path):
    """By its first bytes."""
    file = tmp_path / "store.jks"
    file.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    error = refused(store(what, file))
    assert error.condition == "EOS_OPTION_UNSUPPORTED"
    assert f"keytool -importkeystore -srckeystore {file} -destkeystore {file}.p12 -deststoretype PKCS12" in error.hint


def test_another_type_of_store_is_refused():
    """With the command that converts it."""
    error = refused({"ssl.truststore.type": "BCFKS", "ssl.truststore.location": "/x"})
    assert "-srcstoretype BCFKS" in error.hint


def test_a_store_that_cannot_be_read_is_named(authority, client, tmp_path):
    """A wrong password, no store at all, one without a key, one that is not there."""
    own = client.write_pkcs12(tmp_path / "own.p12", PASSWORD)
    assert "password is wrong" in refused(store("keystore", own, password="another")).message
    junk = tmp_path / "junk.p12"
    junk.write_bytes(b"junk")
    assert str(junk) in refused(store("truststore", junk)).message
    assert "cannot be loaded" in refused(store("truststore", tmp_path / "nowhere.p12")).message
    ca = tmp_path / "ca.pem"
    ca.write_text(authority.pem)
    with pytest.raises(OptionError, match="EOS_OPTION_INVALID"):
        context(store("keystore", ca))


def test_a_store_without_the_library_that_reads_it(client, tmp_path, not_installed):
    """The extra is named."""
    own = client.write_pkcs12(tmp_path / "own.p12", PASSWORD)
    not_installed("cryptography.hazmat.primitives.serialization")
    assert "Install the extra 'pkcs12'" in refused(store("keystore", own)).hint


def test_pem_in_the_properties_may_be_on_one_line(authority, client):
    """As Java takes it: with spaces, or with escaped line ends."""
    values = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem.replace("\n", " "),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": client.certificate_pem.replace("\n", "\\n"),
        "ssl.keystore.key": client.key_pem().replace("\n", " "),
    }
    assert trusted(context(values)) == {"authority"}
    assert librdkafka.librdkafka_config(properties(values), "consumer")["ssl.key.pem"] == client.key_pem()


def oidc(**authorities: str) -> dict[str, str]:
    """The properties of tokens of a server with HTTPS, at which nobody is asked."""
    url, name = "https://127.0.0.1:1/t", "sasl.oauthbearer"
    return {
        **{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"},
        **{f"{name}.token.endpoint.url": url, f"{name}.client.id": "a", f"{name}.client.secret": "b"},
        **{f"https.ca.{key}": value for key, value in authorities.items()},
    }


def test_authorities_of_the_token_server_are_read_as_those_of_the_brokers(authority, tmp_path):
    """On one line, too, also from the login module; from a file, or a folder, or the system."""
    (tmp_path / "ca.pem").write_text(authority.pem)
    in_jaas = f'x.OAuthBearerLoginModule required ssl.truststore.certificates="{authority.pem.replace(chr(10), " ")}";'
    for values in (
        oidc(pem=authority.pem.replace("\n", "\\n")),
        oidc() | {"sasl.jaas.config": in_jaas},
        oidc(location=str(tmp_path / "ca.pem")),
    ):
        settings = client_config(properties(values)).sasl.oauthbearer
        (handler,) = (h for h in tokens._opener(settings).handlers if isinstance(h, urllib.request.HTTPSHandler))
        assert trusted(handler._context) == {"authority"}
    for location in (str(tmp_path), "probe"):
        assert client_config(properties(oidc(location=location)))


@pytest.mark.parametrize(
    "authorities", [{"location": "/nowhere/ca.pem"}, {"pem": "junk"}, {"pem": "\u00fc"}, {"location": "a\0b"}]
)
def test_authorities_of_the_token_server_are_judged_before_any_token(authorities):
    """By the option."""
    assert "kafka.https.ca" in refused(oidc(**authorities)).message


def test_a_comment_in_a_pem_may_have_any_letters(authority, client):
    """As in a file."""
    comment = "# f\u00fcr Kafka\n"
    values = {
        "ssl.ca.pem": authority.pem,
        "ssl.certificate.pem": client.certificate_pem,
        "ssl.key.pem": client.key_pem(),
    }
    assert trusted(context({key: comment + pem for key, pem in values.items()})) == {"authority"}
    assert client_config(properties(oidc(pem=comment + authority.pem)))


def test_a_key_without_its_certificate_is_refused(client):
    """Brokers would be asked without either."""
    with pytest.raises(OptionError, match=r"kafka\.ssl\.certificate\.location") as caught:
        context({"ssl.key.pem": client.key_pem()})
    assert caught.value.condition == "EOS_OPTION_MISSING"


@pytest.mark.parametrize("values", [{"ssl.ca.location": "a\0b"}, {"ssl.key.password": "x" * 1025}])
def test_a_text_that_python_does_not_hand_to_openssl_is_refused(values, client):
    """By name, as files that cannot be read."""
    own = {"ssl.certificate.pem": client.certificate_pem, "ssl.key.pem": client.key_pem(PASSWORD)}
    with pytest.raises(OptionError, match=r"kafka\.ssl"):
        context(own | values)


def test_an_encrypted_key_needs_its_password(client):
    """Nobody is asked for it on the terminal."""
    values = {"ssl.certificate.pem": client.certificate_pem, "ssl.key.pem": client.key_pem(PASSWORD)}
    with pytest.raises(OptionError, match=r"kafka\.ssl\.key\.password is not set"):
        context(values)
    assert context(values | {"ssl.key.password": PASSWORD})


@pytest.fixture
def left(client, temporary_files_in, tmp_path, monkeypatch) -> Callable[[], list[str]]:
    """``left()``: the files of a certificate and its key while OpenSSL loads them, and whatever has a name then."""
    temporary_files_in(tmp_path)
    seen, load = list[str](), ssl.SSLContext.load_cert_chain

    def watched(self, certificate, key, password):
        seen.extend(str(path) for path in (Path(certificate).readlink(), Path(key).readlink(), *tmp_path.iterdir()))
        load(self, certificate, key, password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)

    def left() -> list[str]:
        context({"ssl.certificate.pem": client.certificate_pem, "ssl.key.pem": client.key_pem()})
        return seen

    return left


def test_keys_are_left_nowhere(left):
    """No file has a name, not even for a moment."""
    assert [path.endswith("(deleted)") for path in left()] == [True, True]


@pytest.mark.usefixtures("no_files_in_memory")
def test_keys_are_left_nowhere_without_files_in_memory(left):
    """Their files are deleted before anything is in them."""
    assert [path.endswith("(deleted)") for path in left()] == [True, True]


@pytest.mark.parametrize("authorities", [{}, {"ssl.ca.location": "probe"}])
def test_certificates_that_are_replaced_are_read_again(authorities, authority, tmp_path):
    """By the next connection; one that does not fit its key, as while they are replaced, is an error of that alone."""
    files = [tmp_path / "certificate.pem", tmp_path / "key.pem"]

    def put(certificate, key) -> None:
        for file, text in zip(files, (certificate.certificate_pem, key.key_pem()), strict=True):
            new = file.with_suffix(".new")
            new.write_text(text)
            new.replace(file)

    old, new = authority.sign("old"), authority.sign("new")
    put(old, old)
    used = tls.Tls({"ssl.certificate.location": str(files[0]), "ssl.key.location": str(files[1]), **authorities})
    first = used.context()
    assert used.context() is first
    put(new, old)
    with pytest.raises(OSError, match=r"(?i)mismatch"):
        used.context()
    put(new, new)
    assert used.context() is not first
    assert used.context() is used.context()


def test_a_store_that_is_half_written_is_an_error_of_one_connection(client, tmp_path):
    """At the start it is refused for good."""
    own = client.write_pkcs12(tmp_path / "own.p12", PASSWORD)
    used = tls.Tls(store("keystore", own))
    used.context()
    whole = own.read_bytes()
    own.write_bytes(whole[:100])
    with pytest.raises(OSError, match="cannot be read"):
        used.context()
    own.write_bytes(whole)
    assert used.context()


@pytest.mark.parametrize("name", ["TLSv1.2", "TLSv1.2,TLSv1.3", "TLSv1.3, TLSv1.2"])
def test_protocols_that_openssl_offers_are_let_through(name):
    """As in many a configuration for Java."""
    assert context({"ssl.enabled.protocols": name, "ssl.protocol": "TLSv1.3"})


@pytest.mark.parametrize(
    ("key", "value"),
    [("ssl.enabled.protocols", "TLSv1.3"), ("ssl.enabled.protocols", "TLSv1.1"), ("ssl.protocol", "SSL")],
)
def test_protocols_that_openssl_does_not_keep_to_are_refused(key, value):
    """No less than what was asked for; with those that it offers."""
    error = refused({key: value})
    assert error.condition == "EOS_OPTION_UNSUPPORTED" and "OpenSSL offers TLSv1.2 and TLSv1.3" in error.message


def test_cipher_suites_are_followed():
    """By OpenSSL's names; Java's are refused."""
    suite = "ECDHE-RSA-AES256-GCM-SHA384"
    old = {cipher["name"] for cipher in context({"ssl.cipher.suites": suite}).get_ciphers()}
    assert {name for name in old if not name.startswith("TLS_")} == {suite}
    with pytest.raises(OptionError, match=r"kafka\.ssl\.cipher\.suites"):
        context({"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"})
