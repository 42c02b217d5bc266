"""Files of Protobuf schemas: the imports that every client knows, and names that lead nowhere else."""

from __future__ import annotations

import base64
import sys

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from spark_eos.errors import EosError
from spark_eos.pipelines.registry.protobuf_files import message_at
from spark_eos.pipelines.registry.protobuf_values import ProtobufReader, ProtobufWriter
from spark_eos.pipelines.registry.schemas import Reference, Schema
from tests.support.judges.conditions import raises
from tests.support.runs.input_counts import inputs


def serialized(file: FileDescriptorProto, *references: Reference) -> Schema:
    """As Confluent's client for Python registers it."""
    return Schema("PROTOBUF", base64.b64encode(file.SerializeToString()).decode(), references)


def importing(*names: str, uses: str = "") -> FileDescriptorProto:
    """A file with the message ``t.Value``: the number ``id``, and a field of the message that it uses."""
    made = FileDescriptorProto(name="v.proto", syntax="proto3", package="t", dependency=names)
    made.message_type.add(name="Value").field.add(name="id", number=1, type=5, label=1)
    if uses:
        made.message_type[0].field.add(name="used", number=2, type=11, label=1, type_name=uses)
    return made


def text(*names: str, uses: str = "") -> str:
    imports = "".join(f'import "{name}"; ' for name in names)
    return f'syntax = "proto3"; package t; {imports}message Value {{ int32 id = 1; {uses} }}'


@pytest.mark.parametrize("kind", ["text", "serialized"])
@pytest.mark.parametrize(
    ("name", "message", "value"),
    [
        ("confluent/type/decimal.proto", "confluent.type.Decimal", {"value": b"\x04\xd2", "precision": 10, "scale": 2}),
        ("confluent/types/decimal.proto", "confluent.type.Decimal", {"value": b"\x01", "precision": 1, "scale": 0}),
        ("confluent/meta.proto", "confluent.Meta", {"doc": "x", "params": [("a", "b")], "tags": [], "rules": []}),
        ("google/type/money.proto", "google.type.Money", {"currency_code": "EUR", "units": 5, "nanos": 0}),
        ("google/type/latlng.proto", "google.type.LatLng", {"latitude": 47.5, "longitude": 8.5}),
        ("google/type/phone_number.proto", "google.type.PhoneNumber.ShortCode", {"region_code": "CH", "number": "1"}),
        ("google/protobuf/any.proto", "google.protobuf.Any", {"type_url": "x", "value": b"y"}),
        ("google/protobuf/api.proto", "google.protobuf.Mixin", {"name": "a", "root": "b"}),
    ],
)
def test_files_that_clients_know_need_no_reference(kind, name, message, value):
    """Confluent's registry and clients have these by themselves, and register schemas without them."""
    own = serialized(importing(name, uses=f".{message}"))
    schema = Schema("PROTOBUF", text(name, uses=f"{message} used = 2;")) if kind == "text" else own
    cls = GetMessageClass(message_at(own, (0,)))
    given = {k: dict(v) if k == "params" else v for k, v in value.items()}
    values = pa.array([cls(id=7, used=given).SerializeToString(), b"\x08\x08"], pa.binary())
    found = ProtobufReader(schema).of_writer(schema, (0,))(values, np.zeros(2, np.int64))
    assert found.bad == {}
    assert found.rows.to_pylist() == [{"id": 7, "used": value}, {"id": 8, "used": None}]


def test_options_of_confluents_own_change_no_value():
    """As Connect and Debezium annotate fields."""
    field = 'int32 t = 2 [(confluent.field_meta) = { params: [ { key: "connect.type", value: "int16" } ] }];'
    schema = Schema("PROTOBUF", text("confluent/meta.proto", uses=field))
    decode = ProtobufReader(schema).of_writer(schema, (0,))
    assert decode(pa.array([b"\x08\x07\x10\x05"]), np.zeros(1, np.int64)).rows.to_pylist() == [{"id": 7, "t": 5}]


HOSTILE = ("this/x.proto", ".foo/x.proto", "os.proto", "", "a b.proto", "spark_eos/errors.proto", "../x.proto", "/x")


@pytest.mark.parametrize("name", HOSTILE)
def test_an_import_is_no_module_and_no_file(name, monkeypatch):
    """It is an error with its name, and Python imports nothing for it."""
    ProtobufReader(serialized(importing("google/type/money.proto")))  # imports its own modules

    sought = []

    class Watch:
        def find_spec(self, module, path=None, target=None):
            sought.append(module)

    monkeypatch.setattr(sys, "meta_path", [Watch(), *sys.meta_path])
    for one in (ProtobufReader, ProtobufWriter):
        with pytest.raises(EosError, match="which is not among its references") as caught:
            one(serialized(importing(name)))
        assert caught.value.parameters["name"] == name
        with raises("EOS_REGISTRY_SCHEMA.protoc"):
            one(Schema("PROTOBUF", text(name)))
    assert [module for module in sought if module.endswith("_pb2") or module.partition(".")[0] in name] == []


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ('syntax = "proto3"; message M { int32 a = 0; }', "schema:1:42: Field numbers must be positive integers"),
        ("message {", "schema:1:9: Expected message name"),
        (text("acme/missing.proto"), "acme/missing.proto: File not found.; schema:1:31: Import"),
        ("message M { optional X a = 1; }", '"X" is not defined'),
    ],
)
def test_the_error_says_why_a_schema_is_refused(schema, words, capfd):
    """In the compiler's own words, which are not printed."""
    with raises("EOS_REGISTRY_SCHEMA.protoc", words):
        ProtobufReader(Schema("PROTOBUF", schema))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "name",
    [
        *("../a.proto", "/a.proto", "a//b", "a/", "", ".", "a:b", "a=b", "a\0b", "a\nb", "\ud800", "x" * 1001),
        *("-Ix", "@x", "--python_out=.", "--plugin=x"),
    ],
)
def test_a_references_name_is_no_option_of_the_compiler(name):
    """Nor a path out of its folder."""
    used = Schema("PROTOBUF", 'syntax = "proto3"; message Used { int32 a = 1; }')
    for schema in (
        Schema("PROTOBUF", text(), (Reference(name, "used", 1, used),)),
        serialized(importing("used"), Reference(name, "used", 1, serialized(importing()))),
    ):
        with raises("EOS_REGISTRY_SCHEMA.import"):
            ProtobufReader(schema)


def test_texts_and_serialized_files_import_one_another():
    """Whichever clients have registered them; a name may be that of another's folder."""
    money = FileDescriptorProto(name="x", syntax="proto3", package="t")
    money.message_type.add(name="Money").field.add(name="units", number=1, type=3, label=1)
    line = Schema("PROTOBUF", 'syntax = "proto3"; package t; import "a"; message Line { Money price = 1; }')
    used = Reference("a", "money", 1, serialized(money)), Reference("a/b", "line", 1, line)
    expected = pa.struct([("id", pa.int32()), ("used", pa.struct([("price", pa.struct([("units", pa.int64())]))]))])
    assert ProtobufReader(Schema("PROTOBUF", text("a/b", uses="Line used = 2;"), used)).type == expected
    assert ProtobufReader(serialized(importing("a/b", uses=".t.Line"), *used)).type == expected


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (importing("b", uses=".t.None"), "couldn't resolve name"),
        (importing("c"), "files import one another: "),
        (FileDescriptorProto(syntax="proto9"), "Invalid syntax 'proto9'"),
    ],
)
def test_a_serialized_file_that_is_not_valid_is_named(file, words):
    """Also one whose imports are a circle by their names."""
    circle = [Reference(a, a, 1, serialized(FileDescriptorProto(dependency=[b]))) for a, b in ("bd", "cd", "dc")]
    with raises("EOS_REGISTRY_SCHEMA.protoc", words):
        ProtobufReader(serialized(file, *circle[1:], Reference("b", "b", 1, serialized(FileDescriptorProto()))))


@inputs(st.data())
def test_a_mutated_descriptor_is_read_or_refused_by_name(data):
    """Whatever its bytes are."""
    file = importing("google/protobuf/timestamp.proto", uses=".google.protobuf.Timestamp")
    raw = bytearray(file.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    mutated = FileDescriptorProto()
    try:
        mutated.ParseFromString(bytes(raw))
    except Exception:
        return  # the next test's: not a serialized file
    schema = serialized(mutated)
    try:
        ProtobufReader(schema).of_writer(schema, (0,))
    except EosError as error:
        assert error.condition == "EOS_REGISTRY_SCHEMA"
