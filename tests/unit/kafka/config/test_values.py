"""What our own connections make of a property's value is what librdkafka makes of it, or it is refused by name.

librdkafka itself is the judge: it is given each text, and asked what it has understood.
"""

from __future__ import annotations

import ast
import ctypes
import re
import ssl
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_eos.errors import OptionError
from spark_eos.kafka.config import librdkafka
from spark_eos.kafka.config.client import client_config
from spark_eos.kafka.config.java_names import RENAMED, canonical
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.config.values import BOOLEANS, ENUMERATIONS, INTEGERS, normalized
from tests.support.judges.librdkafka_conf import librdkafka_table, meaning

PACKAGE = Path(librdkafka.__file__).parents[2]
#: What librdkafka has not; Java has it, whose booleans are among librdkafka's.
JAVA = {"sasl.oauthbearer.header.urlencode"}
SPELLINGS = [
    *("true", "TRUE", "True", "t", "T", "1", "false", "FALSE", "fAlSe", "f", "F", "0"),
    *("yes", "no", "on", "off", "y", "n", "2", "-1", "01", "0x1", "", " ", " true", "true ", "\ttrue", "truee", "null"),
]
NUMBERS = [
    *("1000", " 1000", "1000 ", "\n1000\t", "+1000", "-1", "0", "00", "0x400", "0X3e8", "-0x1", "01750", "09", "0x"),
    *("1e3", "1_000", "1000.0", "1000ms", "1,000", "1 000", "\u0661\u0660\u0660", "", " ", "+", "--1", "4294968296"),
    "9" * 40,
]


def table() -> dict[str, tuple[str, list[str]]]:
    """The properties that librdkafka prints: type, and range or names."""
    found = {}
    for line in librdkafka_table().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        type_ = re.search(r"\*Type: ([^*]+)\*", line)
        if len(cells) >= 6 and type_ and cells[0] not in found:
            found[cells[0]] = type_[1], re.split(r", | \.\. ", cells[2])
    return found


def ours(name: str, value: str) -> str | None:
    """The spelling that all clients get, or None where the value is refused."""
    try:
        return normalized(name, name, value)
    except OptionError as error:
        assert error.condition == "EOS_OPTION_INVALID" and f"kafka.{name}" in str(error)
        return None


def is_whole_number(text: str) -> bool:
    """Whether C's ``strtol`` takes all of it, but for white space, as a number of 32 bits."""
    libc, data, end = ctypes.CDLL(None), ctypes.create_string_buffer(text.encode()), ctypes.c_void_p()
    libc.strtol.restype = ctypes.c_long
    number = libc.strtol(data, ctypes.byref(end), 0)
    rest = data.raw[(end.value or 0) - ctypes.addressof(data) : -1]
    return len(rest) < len(text) and not rest.strip() and -(1 << 31) <= number < 1 << 31


def agrees(name: str, value: str) -> bool:
    """Both understand the same. Refused here only: blanks, which librdkafka passes over, and what is more than a
    number, which it reads as something else than it says."""
    here, there = ours(name, value), meaning(name, value)
    unclear = not is_whole_number(value) if name in INTEGERS else not value.strip()
    return here == there or (here is None and unclear)


@pytest.mark.parametrize("name", sorted(BOOLEANS - JAVA))
def test_booleans_mean_what_they_mean_to_librdkafka(name):
    """Every spelling that people use, and near misses."""
    assert [ours(name, value) for value in SPELLINGS] == [meaning(name, value) for value in SPELLINGS]


@pytest.mark.parametrize("name", sorted(ENUMERATIONS))
def test_names_of_enumerations_mean_what_they_mean_to_librdkafka(name):
    """In any case, with space before and behind, and names that are none."""
    for value in ENUMERATIONS[name]:
        cases = value, value.upper(), value.title()
        for text in (*cases, f" {value}", f"\t{value}", f"{value} ", value[:-1], f"{value}x"):
            assert ours(name, text) == meaning(name, text), text
    for text in ("", "0", "1", "true", ",".join([*ENUMERATIONS[name], ENUMERATIONS[name][0]])):
        assert ours(name, text) is None and meaning(name, text) is None


@pytest.mark.parametrize("name", sorted(INTEGERS))
def test_integers_mean_what_they_mean_to_librdkafka(name):
    """Hexadecimal and octal ones too; out of the range, they are refused by both."""
    assert [value for value in NUMBERS if not agrees(name, value)] == []


@given(
    st.sampled_from(sorted((BOOLEANS - JAVA) | INTEGERS.keys() | ENUMERATIONS.keys())),
    st.one_of(
        st.text(st.characters(min_codepoint=1, exclude_categories=("Cs",)), max_size=12),
        st.text("truefals01TFx \t", max_size=6),
        st.from_regex(r"[ \t]?[+-]?0?[xX]?[0-9a-f]{1,11}[ \n]?", fullmatch=True),
        st.sampled_from([name for names in ENUMERATIONS.values() for name in names]),
    ),
)
@example("socket.timeout.ms", "0b11111111")
@example("ssl.endpoint.identification.algorithm", " ")
@example("security.protocol", "\u017f\u017fl")
def test_any_text_means_what_it_means_to_librdkafka(name, value):
    """Or is refused."""
    assert agrees(name, value)


def test_every_property_that_is_read_here_is_known_with_its_values():
    """Whatever the package looks up by name and librdkafka gives a type is in the tables, with the same range."""
    typed, read = table(), set()
    for path in [*(PACKAGE / "kafka").rglob("*.py"), *(PACKAGE / "source").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            texts = node.args if isinstance(node, ast.Call) else [node.slice] if isinstance(node, ast.Subscript) else []
            read |= {part.value for part in texts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    for name in read & typed.keys():
        type_, allowed = typed[name]
        if type_ == "boolean":
            assert name in BOOLEANS, name
        elif type_ == "enum value":
            assert tuple(allowed) == ENUMERATIONS[name]
        elif type_ == "integer":
            assert tuple(map(int, allowed)) == INTEGERS[name]
    assert {"socket.timeout.ms", "batch.size", "security.protocol", "enable.ssl.certificate.verification"} <= read
    for name in (BOOLEANS | ENUMERATIONS.keys() | INTEGERS.keys()) - JAVA:
        assert typed[name][0] in ("boolean", "enum value", "integer")


def test_no_boolean_is_compared_as_text():
    """Of the properties of clients: `values` alone knows how they are spelled."""
    compared = re.compile(r"""[!=]= ?["'](?:true|false|https|ssl)["']""", re.IGNORECASE)
    for path in sorted((PACKAGE / "kafka").rglob("*.py")):
        found = [line for line in path.read_text().splitlines() if compared.search(line)]
        assert [line for line in found if "enumerated(" not in line] == [], path


def test_every_alias_of_librdkafka_has_one_name_here():
    """So that two names of one property are seen to be one."""
    aliases = re.findall(r"^(\S+) .*Alias for `([^`]+)`", librdkafka_table(), re.MULTILINE)
    assert len(aliases) > 10
    for alias, name in aliases:
        assert RENAMED.get(alias, alias) == RENAMED.get(name, name)


def properties(values: dict[str, str]) -> KafkaProperties:
    return KafkaProperties({"bootstrap.servers": "kafka:9093", **values})


@pytest.mark.parametrize(("value", "verified"), [("1", True), ("t", True), ("TRUE", True), ("0", False), ("F", False)])
def test_certificates_are_verified_where_librdkafka_does(value, verified):
    """A man in the middle gets no password because of a spelling."""
    tls = client_config(properties({"security.protocol": " SSL", "enable.ssl.certificate.verification": value})).tls
    assert tls is not None
    assert (tls.context().verify_mode is ssl.CERT_REQUIRED) == verified
    assert tls.context().check_hostname == verified


@pytest.mark.parametrize("value", ["HTTPS", "https", " https", ""])
def test_host_names_are_checked_in_any_spelling(value):
    """As with librdkafka. Java's empty algorithm turns that off, and certificates are verified all the same."""
    tls = client_config(properties({"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": value})).tls
    assert tls is not None and tls.context().check_hostname == bool(value)
    assert tls.context().verify_mode is ssl.CERT_REQUIRED


def test_a_number_is_read_as_librdkafka_reads_it():
    """Octal, as it has a leading zero."""
    assert client_config(properties({"socket.timeout.ms": "010000"})).silence_s == 4.096


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"sasl.mechanism": "PLAIN"}, {"sasl.mechanisms": "SCRAM-SHA-256"}),
        ({"compression.type": "lz4"}, {"compression.codec": "zstd"}),
        ({"fetch.wait.max.ms": "1000"}, {"fetch.max.wait.ms": "2000"}),
        ({"metadata.broker.list": "another:9092"}, {}),
        ({"ssl.ca.location": "/a.pem"}, {"ssl.truststore.location": "/b.p12"}),
        ({"ssl.ca.location": "probe"}, {"ssl.truststore.certificates": "-----BEGIN"}),
        ({"ssl.ca.location": "/a.pem"}, {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/b.pem"}),
        ({"ssl.certificate.location": "/a.pem"}, {"ssl.keystore.location": "/b.p12"}),
        ({"buffer.memory": "1048576"}, {"queue.buffering.max.kbytes": "1"}),
        ({"sasl.oauthbearer.client.id": "a"}, {"sasl.oauthbearer.client.credentials.client.id": "b"}),
        (
            {"sasl.username": "ann"},
            {"sasl.jaas.config": 'PlainLoginModule required username="bob" password="hunter2";'},
        ),
        ({"sasl.mechanism": "PLAIN"}, {"sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;"}),
    ],
)
def test_two_names_of_one_property_with_different_values_are_refused(one, other):
    """In either order: the two clients would not take the same one."""
    for both in ({**one, **other}, {**other, **one}):
        with pytest.raises(OptionError) as caught:
            canonical(properties(both))
        assert caught.value.condition == "EOS_OPTION_CONFLICT" and "hunter2" not in str(caught.value)


def test_two_names_of_one_property_with_the_same_value_are_one():
    """Also where they are spelled differently."""
    both = {
        "compression.codec": "LZ4",
        "compression.type": "lz4",
        "sasl.mechanisms": "plain",
        "sasl.mechanism": "PLAIN",
    }
    found = canonical(properties(both | {"fetch.max.wait.ms": "1000", "fetch.wait.max.ms": "0x3e8"}))
    expected = {"compression.type": "lz4", "sasl.mechanism": "PLAIN", "fetch.wait.max.ms": "1000"}
    assert found == {"bootstrap.servers": "kafka:9093", **expected}


def test_an_empty_path_is_none():
    """It is not the working directory, with whatever certificates lie there."""
    empty = {"ssl.ca.location": "", "ssl.crl.location": "", "ssl.cipher.suites": "", "ssl.certificate.location": ""}
    assert canonical(properties(empty)).keys() == {"bootstrap.servers"}
