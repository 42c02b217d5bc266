"""Schemas that refer to others."""

from __future__ import annotations

import json

import pytest

from spark_eos.errors import EosError
from spark_eos.registry.codecs import reader_of, writer_of
from spark_eos.registry.schemas import Kind, Reference, Schema


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
        with pytest.raises(EosError, match="refers to 'b' in two different versions") as caught:
            make(refers(root, a=both[0], c=both[1]))
        assert caught.value.entry == "EOS_REGISTRY_SCHEMA.two_references"
        make(refers(root, a=both[0], c=refers(users[1], b=first)))
        # The root itself may be what differs.
        with pytest.raises(EosError, match="two different versions"):
            make(refers(root, b=second, a=both[0], c=refers(users[1], b=first)))
