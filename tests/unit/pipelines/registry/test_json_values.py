"""JSON by JSON Schema: types of columns, values of that shape and of others, and back."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from functools import cache
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from spark_eos.errors import EosError
from spark_eos.pipelines.registry.json_values import JsonReader, JsonWriter, shape_of
from spark_eos.pipelines.registry.schemas import Reference, Schema
from tests.support.judges.conditions import raises
from tests.support.runs.input_counts import inputs

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["null", "string"]},
        "price": {"oneOf": [{"type": "null"}, {"type": "number"}]},
        "paid": {"type": "boolean"},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["id"],
    "definitions": {"line": {"type": "object", "properties": {"what": {"type": "string"}}}},
}


def schema(document: object, *references: Reference) -> Schema:
    return Schema("JSON", json.dumps(document), references)


#: Each schema's reader and writer are made once: that takes longer than a value.
reader, writer = cache(JsonReader), cache(JsonWriter)


def decoded(document: object, *texts: bytes):
    values = pa.array([b"\0\0\0\0\1" + text for text in texts], pa.binary())
    decode = reader(schema(document)).of_writer(schema(True), ())
    return decode(values, np.full(len(texts), 5))


def test_a_value_of_the_shape_is_read():
    """Whatever its order and spaces; what the schema does not have is left out, what the value lacks is null."""
    text = b'{ "tags": {"a": "b"},\n "lines": [{"what": "\xc3\xa4"}], "id": 7, "price": 1, "name": null, "more": [1]}'
    found = decoded(ORDER, text, b'{"id":9007199254740993,"price":2.5,"paid":true}', b'{"id":1.0}')
    assert found.bad == {}
    assert found.rows.type == pa.struct(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("price", pa.float64()),
            ("paid", pa.bool_()),
            ("lines", pa.list_(pa.struct([("what", pa.string())]))),
            ("tags", pa.map_(pa.string(), pa.string())),
        ]
    )
    empty = {"name": None, "price": None, "paid": None, "lines": None, "tags": None}
    assert found.rows.to_pylist() == [
        empty | {"id": 7, "price": 1.0, "lines": [{"what": "ä"}], "tags": [("a", "b")]},
        empty | {"id": 9007199254740993, "price": 2.5, "paid": True},
        empty | {"id": 1},
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "it is not JSON"),
        (b"{", "it is not JSON"),
        (b'{"id":1}{"id":2}', "it is not JSON"),
        (b'{"id":NaN}', "it is not JSON"),
        (b"[" * 100_000, "it has more than 128 levels within one another"),
        (b'{"id":1,"more":' + b"[" * 128 + b"]" * 128 + b"}", "it has more than 128 levels within one another"),
        (b'{"id":1,"name":"\xff"}', "it is not JSON"),
        (b"[]", "the value is not an object"),
        (b"null", "the value is null"),
        (b"{}", "id is missing"),
        (b'{"id":null}', "id is null"),
        (b'{"id":"1"}', "id is not of the type int64"),
        (b'{"id":true}', "id is not of the type int64"),
        (b'{"id":9223372036854775808}', "id has more than 64 bits"),
        (b'{"id":4503599627370497.5}', "id is not of the type int64"),
        (b'{"id":1e400}', "id has more than 64 bits"),
        (b'{"id":1e99999999999999999999}', "id has an exponent that is too long"),
        (b'{"id":' + b"1" * 5000 + b"}", "id has more than 64 bits"),
        (b'{"id":1,"price":' + b"1" * 5000 + b"}", "price is larger than any number of 64 bits"),
        (b'{"id":1,"name":1.5}', "name is not of the type string"),
        (b'{"id":1,"paid":1.0}', "paid is not of the type bool"),
        (b'{"id":1,"price":1e400}', "price is larger than any number of 64 bits"),
        (b'{"id":1,"price":"1"}', "price is not of the type double"),
        (b'{"id":1,"paid":1}', "paid is not of the type bool"),
        (b'{"id":1,"name":"\\ud800"}', "name is not Unicode text"),
        (b'{"id":1,"lines":[{"what":1}]}', "lines[].what is not of the type string"),
        (b'{"id":1,"lines":{}}', "lines is not an array"),
        (b'{"id":1,"tags":{"a":1}}', "tags{} is not of the type string"),
        (b'{"id":1,"tags":[]}', "tags is not an object"),
        (b'{"id":1,"tags":{"\\ud800":""}}', "a key of tags is not Unicode text"),
    ],
)
def test_a_value_of_another_shape_is_bad_alone(text, reason):
    """With the place where it differs; its neighbours are read."""
    found = decoded(ORDER, b'{"id":1}', text, b'{"id":3}')
    assert found.bad == {1: reason}
    assert [row and row["id"] for row in found.rows.to_pylist()] == [1, None, 3]


NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)


@inputs(st.lists(NUMBERS, min_size=1), each=5)
@example(
    [
        "9223372036854775808.0",
        "9007199254740993.0",
        "0.99999999999999999999",
        "-9223372036854775808.000e0",
        "-0.0",
        "0e-9",
    ]
)
def test_a_number_is_an_integer_if_it_is_exactly_one(texts):
    """Whatever way it is written in, as fractions count; as a number, it is the nearest double."""
    found = decoded(ORDER, *(f'{{"id":{text}}}'.encode() for text in texts))
    prices = decoded(ORDER, *(f'{{"id":1,"price":{text}}}'.encode() for text in texts))
    for place, (text, row, price) in enumerate(zip(texts, found.rows, prices.rows, strict=True)):
        exact = Fraction(text)
        assert (place not in found.bad) == (exact.denominator == 1 and -(2**63) <= exact < 2**63)
        assert place in found.bad or row["id"].as_py() == exact
        assert (place in prices.bad) == math.isinf(float(text))
        nearest = float(text) if set(text) & {*".eE"} else float(int(text))
        assert place in prices.bad or repr(price["price"].as_py()) == repr(nearest)


def depth_of(value: object) -> int:
    parts = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if parts is None else 1 + max(map(depth_of, parts), default=0)


@inputs(
    st.recursive(
        st.text(alphabet='[]{}"\\a', max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='[{"\\', max_size=2), inner, max_size=2)
        ),
        max_leaves=12,
    ),
    each=4,
)
def test_how_deep_a_value_may_be_does_not_depend_on_who_reads_it(inner):
    """Brackets in texts do not count, nor does how many there are beside one another."""
    value: object = {"id": 1, "more": [inner, "[" * 200, *([] for _ in range(50))]}
    for _ in range(128 - depth_of(value)):
        value["more"] = [value["more"]]
    texts = [json.dumps(one).encode() for one in (value, value | {"more": [value["more"]]})]

    def read(levels: int):
        return decoded(ORDER, *texts).bad if levels == 0 else read(levels - 1)

    assert read(0) == read(100) == {1: "it has more than 128 levels within one another"}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (True, "is true or false, which says nothing of its type"),
        ({"properties": {"a": {}}}, "has no single type"),
        ({"properties": {"a": {"type": ["string", "integer"]}}}, "has no single type"),
        ({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}, "is one of several schemas"),
        ({"allOf": []}, "is 'allOf' of several schemas"),
        (
            {"properties": {"a": {"type": "string"}}, "oneOf": [{"type": "object"}]},
            "has 'oneOf' and its own properties",
        ),
        ({"properties": {"a": {"oneOf": [{"type": "string"}], "items": {}}}}, "a has 'oneOf' and its own"),
        ({"properties": {"a": {"$ref": "#/x", "properties": {}}}, "x": {"type": "string"}}, "a has '$ref' and its own"),
        ({"additionalProperties": {"type": "string"}, "oneOf": [{"type": "object"}]}, "has 'oneOf' and its own"),
        ({"anyOf": [{"type": "string"}], "oneOf": [{"type": "string"}]}, "has 'oneOf' and its own"),
        ({"properties": {"a": {"type": "string"}}, "required": True}, "is no JSON Schema"),
        ({"properties": ["a"]}, "is no JSON Schema"),
        ({"type": 5}, "is no JSON Schema"),
        ({"type": {"type": "string"}, "properties": {}}, "is of the type 'type'"),
        ({"oneOf": 5}, "is no JSON Schema"),
        ({"type": "object"}, "is an object without properties"),
        ({"type": "array"}, "is true or false, which says nothing of its type"),
        ({"properties": {"a": {"type": "date"}}}, "is of the type 'date'"),
        ({"properties": {"a": {"$ref": "#"}}}, "contains itself ('#')"),
        ({"$ref": "other.json"}, "refers to 'other.json', which is not among the schema's references"),
        ({"$ref": "#/definitions/a"}, "refers to '#/definitions/a', which is not there"),
    ],
)
def test_a_schema_without_one_type_for_each_value_is_refused(document, why):
    """By the place and the reason."""
    with raises("EOS_REGISTRY_SCHEMA.json", why):
        shape_of(schema(document))


@pytest.mark.parametrize("null", [{"type": "null"}, {"type": "null", "title": "Not included"}, {"type": ["null"]}])
def test_a_null_beside_a_type_may_have_a_title(null):
    """As generators of schemas write it, for `oneOf` and `anyOf`."""
    for word in ("oneOf", "anyOf"):
        document = {"properties": {"a": {word: [null, {"type": "string"}], "description": "x"}}}
        found = decoded(document, b'{"a":"x"}', b'{"a":null}')
        assert (found.bad, found.rows.to_pylist()) == ({}, [{"a": "x"}, {"a": None}])


SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, 1.0, -2.5]) | st.text(max_size=2)
NAMES = st.text(st.characters(codec="utf-8"), max_size=4) | st.sampled_from(
    ["a b", "%25", "x/y", "~1", "ü#", "a?b", ""]
)


@inputs(st.lists(SCALARS, min_size=1, max_size=3), st.booleans(), SCALARS)
@example(["a", None], False, "b")
@example([1, 0.5], False, 2)
@example([1.0], True, 1)
def test_an_enum_or_const_has_the_type_of_its_values(values, constant, other):
    """Of one type, null may come beside it: every value that fits is read as it is, and none of another type."""
    part = {"const": values[0]} if constant else {"enum": values}
    document = {"type": "object", "properties": {"a": part}, "required": ["a"]}
    given = [*(values[:1] if constant else values), other]
    types = [name for name in ("string", "boolean", "integer", "number") if holds(name, given[:-1])]
    try:
        found = decoded(document, *(json.dumps({"a": value}).encode() for value in given))
    except EosError as error:
        assert error.entry == "EOS_REGISTRY_SCHEMA.json" and (not types or given[:-1] == [None] * len(given[:-1]))
        return
    kind = Draft7Validator({"type": [types[0], "null"] if None in given[:-1] else types[0]})
    assert found.bad.keys() == {n for n, value in enumerate(given) if not kind.is_valid(value)} <= {len(given) - 1}
    read = [row["a"] for n, row in enumerate(found.rows.to_pylist()) if n not in found.bad]
    assert read == [value for n, value in enumerate(given) if n not in found.bad]


def holds(name: str, values: list[object]) -> bool:
    return Draft7Validator({"items": {"type": [name, "null"]}}).is_valid(values)


@inputs(st.lists(NAMES, min_size=1, max_size=3, unique=True), st.integers(0, 2), st.booleans())
def test_a_reference_leads_where_jsonschema_has_it(path, deep, escaped):
    """By a pointer with any names in it, percent-encoded or as far as URIs allow as they are, also through lists; or by
    an identifier."""
    types = ["string", "integer", "boolean", "number"]
    inner: object = [{"type": name} for name in types]
    for name in reversed(path):
        inner = {name: inner, "other": {"type": "object"}}
    safe = "" if escaped else "!$&'()*+,;=:@?"
    steps = [name.replace("~", "~0").replace("/", "~1") for name in ("$defs", *path)]
    pointer = "#/" + "/".join(quote(step, safe=safe) for step in steps)
    document = {"$id": "http://example.com/a/b.json"} if deep else {}
    document |= {"properties": {name: {"$ref": f"{pointer}/{n}"} for n, name in enumerate(types)}, "$defs": inner}
    if deep == 2:
        used = {"properties": {"used": {"$ref": "b.json"}}}
        document = {"$id": "http://example.com/a/", **used, "definitions": {"b": document}}
    found = shape_of(schema(document)).type
    judge = Draft7Validator(document)
    for value in ("x", 1, True, 0.5):
        for name in types:
            fits = Draft7Validator({"type": name}).is_valid(value)
            assert judge.is_valid({"used": {name: value}} if deep == 2 else {name: value}) == fits
    expected = [("string", pa.string()), ("integer", pa.int64()), ("boolean", pa.bool_()), ("number", pa.float64())]
    assert (found.field("used").type if deep == 2 else found) == pa.struct(expected)


@pytest.mark.parametrize("name", ["my line.json", "my%20line.json", "zeile-ü.json", "http://example.com/line"])
def test_the_name_of_another_schema_may_be_percent_encoded(name):
    """In either of the two, as registries keep names as they are given."""
    line = schema({"$id": "http://example.com/same", "$ref": "#/$defs/it", "$defs": {"it": {"type": "string"}}})
    for reference in (name, quote(name, safe="/:%")):
        document = {"$id": "http://example.com/same", "properties": {"a": {"$ref": reference}}}
        found = shape_of(schema(document, Reference(name, "line", 1, line)))
        assert found.type == pa.struct([("a", pa.string())])


def test_pointers_of_different_documents_are_no_circle():
    """Though they are the same text; and a circle through a document's name is one."""
    inner = schema({"$ref": "#/definitions/A", "definitions": {"A": {"type": "string"}}})
    document = {"$ref": "#/definitions/A", "definitions": {"A": {"properties": {"o": {"$ref": "o.json"}}}}}
    assert shape_of(schema(document, Reference("o.json", "o", 1, inner))).type == pa.struct([("o", pa.string())])
    circle = schema({"properties": {"p": {"$ref": "o.json#"}}})
    for reference in ("o.json", "o.json#"):
        with pytest.raises(EosError, match="contains itself"):
            shape_of(schema({"$ref": reference}, Reference("o.json", "o", 1, circle)))


ROWS = st.lists(
    st.one_of(
        st.none(),
        st.fixed_dictionaries(
            {
                "id": st.integers(-(2**63), 2**63 - 1),
                "name": st.none() | st.text(),
                "price": st.none() | st.floats(allow_nan=False, allow_infinity=False),
                "paid": st.none() | st.booleans(),
                "lines": st.none() | st.lists(st.fixed_dictionaries({"what": st.text()})),
                "tags": st.none() | st.dictionaries(st.text(), st.text()).map(lambda tags: list(tags.items())),
            }
        ),
    ),
    max_size=8,
)


@inputs(ROWS, each=4)
def test_rows_are_written_and_read_again(rows):
    """As texts with the prefix, which any reader of JSON reads; a null row stays null."""
    type_ = shape_of(schema(ORDER)).type
    found = writer(schema(ORDER)).encode(pa.array(rows, type_), b"\0\0\0\0\1")
    assert found.bad == {}
    written = [None if value is None else value[5:] for value in found.values.to_pylist()]
    assert [value is None for value in written] == [row is None for row in rows]
    assert all("id" in json.loads(value) for value in written if value is not None)
    kept = [row for row in rows if row is not None]
    assert decoded(ORDER, *filter(None, written)).rows.to_pylist() == kept


def test_a_row_that_the_schema_cannot_hold_is_bad():
    """A required property that is null, a number that JSON does not have or that is out of its range."""
    type_ = pa.struct([("id", pa.uint64()), ("name", pa.string()), ("price", pa.float64())])
    rows = pa.array([{"id": 1}, {"name": "x"}, {"id": 2, "price": math.nan}, {"id": 2**63}, {"id": 4}], type_)
    found = writer(schema(ORDER)).encode(rows, b"")
    assert found.bad.keys() == {1, 2, 3}
    assert (found.bad[1], found.bad[3]) == ("id is missing", "a number is out of its range")
    texts = [b'{"id": %d, "name": null, "price": null}' % id_ for id_ in (1, 4)]
    assert found.values.to_pylist() == [texts[0], None, None, None, texts[1]]
