"""Schemas that refer to others."""

from __future__ import annotations

import json
import pickle
import re

import pytest

from spark_eos.errors import EosError
from spark_eos.pipelines.registry.codecs import reader_of, writer_of
from spark_eos.pipelines.registry.schemas import Kind, Reference, Schema
from tests.support.judges.conditions import raises


def avro(name: str, **fields: str) -> str:
    of = [{"name": field, "type": type_} for field, type_ in fields.items()]
    return json.dumps({"type": "record", "name": name, "fields": of})


def json_schema(**properties: object) -> str:
    return json.dumps({"type": "object", "properties": properties})


#: The first two are versions of b, the next two use it, the last one uses these.
TEXTS: dict[Kind, tuple[str, str, str, str, str]] = {
    "AVRO": (
        avro("b", x="string", y="string"),
        avro("b", y="string", x="string"),
        avro("a", b="b"),
        avro("c", b="b"),
        avro("R", a="a", c="c"),
    ),
    "PROTOBUF": (
        'syntax = "proto3"; message B { string x = 1; string y = 2; }',
        'syntax = "proto3"; message B { string y = 1; string x = 2; }',
        'syntax = "proto3"; import "b"; message A { B b = 1; }',
        'syntax = "proto3"; import "b"; message C { B b = 1; }',
        'syntax = "proto3"; import "a"; import "c"; message R { A a = 1; C c = 2; }',
    ),
    "JSON": (
        json_schema(x={"type": "string"}),
        json_schema(y={"type": "string"}),
        json_schema(b={"$ref": "b"}),
        json_schema(b={"$ref": "b"}),
        json_schema(a={"$ref": "a"}, c={"$ref": "c"}),
    ),
}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("reverse", [False, True])
def test_two_versions_of_one_name_are_refused(kind, reverse):
    """One would be read as the other; and the same one twice, as in any diamond, is not."""
    first, second, *users, root = (Schema(kind, text) for text in TEXTS[kind])

    def refers(schema: Schema, **used: Schema) -> Schema:
        found = [Reference(name, name, 1, one) for name, one in used.items()]
        return Schema(kind, schema.text, tuple(reversed(found) if reverse else found))

    both = [refers(users[0], b=first), refers(users[1], b=second)]
    for make in (reader_of, writer_of):
        with raises("EOS_REGISTRY_SCHEMA.two_references", "refers to 'b' in two different versions"):
            make(refers(root, a=both[0], c=both[1]))
        make(refers(root, a=both[0], c=refers(users[1], b=first)))
        # The root itself may be what differs.
        with pytest.raises(EosError, match="two different versions"):
            make(refers(root, b=second, a=both[0], c=refers(users[1], b=first)))


def lattice(kind: Kind, levels: int) -> str:
    """A text in which each type uses the next one twice."""
    if kind == "PROTOBUF":
        used = [f"message M{n} {{ M{n + 1} a = 1; M{n + 1} b = 2; }}" for n in range(levels)]
        return f'syntax = "proto3"; {" ".join(used)} message M{levels} {{ int32 a = 1; }}'
    if kind == "JSON":
        used = [{"$ref": f"#/$defs/M{n + 1}"} for n in range(levels)]
        types = {f"M{n}": {"properties": {"a": one, "b": one}} for n, one in enumerate(used)}
        return json.dumps({"$ref": "#/$defs/M0", "$defs": types | {f"M{levels}": {"type": "integer"}}})
    inner: object = "int"
    for n in reversed(range(levels)):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"M{n + 1}" if n + 1 < levels else "int"}]
        inner = {"type": "record", "name": f"M{n}", "fields": fields}
    return json.dumps(inner)


@pytest.mark.parametrize("kind", TEXTS)
def test_a_short_text_of_a_huge_type_is_refused(kind):
    """Before it costs anything: each of 29 levels uses the next one twice."""
    for make in (reader_of, writer_of):
        make(Schema(kind, lattice(kind, 6)))
        with pytest.raises(EosError, match="has more than 20000 types, counting each as often as it is used") as caught:
            make(Schema(kind, lattice(kind, 29)))
        assert caught.value.condition in ("EOS_REGISTRY_SCHEMA", "EOS_AVRO_SCHEMA")


@pytest.mark.parametrize("kind", ["PROTOBUF", "JSON"])
def test_a_type_of_too_many_levels_is_refused(kind):
    """They can be sent in no message of Arrow's."""
    second = r" M\d+ b = 2;" if kind == "PROTOBUF" else r', "b": {[^}]*}'
    text = re.sub(second, "", lattice(kind, 70))
    with pytest.raises(EosError, match="has more than 60 levels of types within one another"):
        reader_of(Schema(kind, text))


@pytest.mark.parametrize("kind", TEXTS)
def test_schemas_that_refer_to_others_twice_are_read_once(kind):
    """Each of 25 levels has two schemas, which both refer to both of the level before, and use one of them."""
    pair = {
        name: Schema(kind, TEXTS[kind][0].replace('"b"', f'"{name}0"').replace(" B ", f" {name}0 ")) for name in "AB"
    }
    for level in range(25):
        references = tuple(Reference(f"{name}{level}", name, 1, one) for name, one in pair.items())
        for name in "AB":
            old, new = f"{name}{level}", f"{name}{level + 1}"
            text = {
                "AVRO": avro(new, a=old),
                "PROTOBUF": f'syntax = "proto3"; import "{old}"; message {new} {{ {old} a = 1; }}',
                "JSON": json_schema(a={"$ref": old}),
            }[kind]
            pair[name] = Schema(kind, text, references)
    schema = pair["A"]
    assert len(schema.all_references()) == 50 and len(repr(schema)) < 2000
    again = pickle.loads(pickle.dumps(schema))
    assert (again, hash(again)) == (schema, hash(schema)) and again != pair["B"]
    reader_of(again).of_writer(schema, (0,))
