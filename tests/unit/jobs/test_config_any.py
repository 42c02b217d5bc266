"""Any YAML at all is a config or a named error, and no error shows what a value was."""

from __future__ import annotations

import argparse
import importlib
import string
import tempfile
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any, get_args

import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pydantic import BaseModel

from jobs import JOBS
from jobs.runner.config import load
from spark_eos.errors import EosError
from spark_eos.options.table import SINK, SOURCE

ROOT = Path(__file__).parents[3]
MODULES = {job: importlib.import_module(f"jobs.{job}") for job in JOBS}
ENVIRON = {"TABLE": "/table", "CHECKPOINT": "/nowhere/checkpoint", "FILES": "/files", "LATIN": "caf\udce9"}
EXAMPLES = {job: yaml.safe_load((ROOT / "conf" / f"{job}.yaml").read_text()) for job in JOBS}
ARGUMENTS = argparse.Namespace(source="eos-kafka", sink="eos-kafka")
SECRETS = st.text(string.ascii_letters, min_size=12, max_size=20).map(lambda text: f"Zq{text}")


def keys_of(model: type[BaseModel]) -> Iterator[str]:
    """All keys of a model and its sections."""
    for field in model.model_fields.values():
        yield str(field.alias)
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from keys_of(part)


OWN_KEYS = sorted({key for module in MODULES.values() for key in keys_of(module.main.__self__.config)})
KEYS = st.one_of(
    st.sampled_from([*OWN_KEYS, *(option.name for option in (*SOURCE, *SINK)), "kafka.bootstrap.servers"]),
    st.text(max_size=8),
    st.sampled_from(["kafka.sasl.password", "kafka.acks", "spark.master", "delta.x", "header", "<<", "=", "topics"]),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(10**30, 10**40),
    st.floats(),
    st.text(max_size=12),
    st.text(st.characters(categories=["Cs", "Lu"]), max_size=3),
    st.binary(max_size=5),
    st.dates(date(1, 1, 1)),
    st.datetimes(datetime(1, 1, 1)),
    st.sampled_from(
        ["availableNow", "1 second", "earliest", "json", "fail", "json:loads", "a,b", "${X}", "${", "h:1", "${LATIN}"]
    ),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
#: Pieces from which texts are made that may or may not be YAML.
PIECES = ["a: ", "- ", "&x ", "*x", "!!int ", "!!python/name:os.system ", "? ", "|\n", "  ", "<<: ", "${", "..."]
PIECES += [*"{}[]'\"\n#\t@`é\x85,", "---\n", "checkpoint: ", "source:\n", "sink: ", "%YAML 1.1\n"]


def outcome(text: str, job: str, **environ: str) -> str:
    """What reading the file and planning the job says; empty if it is a plan. ``environ``: further variables."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "job.yaml")
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            MODULES[job].plan(load(file, MODULES[job].main.__self__.config, ENVIRON | environ), ARGUMENTS)
        except EosError as error:
            return f"{error!r} {error} {error.parameters} {error.__cause__!r}"
    return ""


@given(st.sampled_from(list(JOBS)), st.dictionaries(KEYS, VALUES, max_size=6) | VALUES)
def test_any_document_is_a_plan_or_a_named_error(job: str, document: Any):
    """Whatever its shape: nested, with odd keys, huge numbers and times."""
    outcome(yaml.safe_dump(document, allow_unicode=True), job)


@given(st.sampled_from(list(JOBS)), st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=20).map("".join))
@example("mirror", "&a {source: *a}")
@example("mirror", "a: &a [1]\nb: &b [*a, *a]\nc: &c [*b, *b]\nsource: {x: *c}")
@example("mirror", "!!int x: 1")
def test_any_text_is_a_plan_or_a_named_error(job: str, text: str):
    """Whether it is YAML or not."""
    outcome(text, job)


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values of a document, sections among them."""
    for key, value in node.items() if isinstance(node, dict) else ():
        yield (*path, key)
        yield from places(value, (*path, key))


def put(document: Any, path: tuple[Any, ...], value: object) -> Any:
    """A copy of the document with this value at the path."""
    if not path:
        return value
    return {**document, path[0]: put(document.get(path[0], {}), path[1:], value)}


@given(st.data(), st.sampled_from(list(JOBS)), SECRETS)
def test_a_secret_in_any_place_is_in_no_error(data: st.DataObject, job: str, secret: str):
    """As a value, in a list, in a section, within a text, in a variable; of an own key, an option or a client
    property."""
    document = EXAMPLES[job]
    more = [
        *(("kafka", name) for name in ("sasl.password", "ssl.key.pem", "acks", "bootstrap.servers", "no.such")),
        *(("source", option.name) for option in SOURCE),
        *(("sink", option.name) for option in SINK),
        *(("sink", f"kafka.{name}") for name in ("sasl.jaas.config", "ssl.keystore.location", "linger.ms", "wrong")),
        *(("target", f"catalog.{name}") for name in ("token", "uri", "s3.secret-access-key")),
        *((key,) for key in OWN_KEYS),
    ]
    path = data.draw(st.sampled_from([*places(document), *more]))
    assume((job, path) != ("kafka_to_iceberg", ("transform", "sql")))  # DuckDB's message quotes it, as docs/job.md says
    shapes = [
        secret,
        [secret],
        {"key": secret},
        f"a {secret}",
        f"{secret}:{secret}!",
        f'{{"{secret}": 1}}',
        f"${{{secret}",
        "${SECRET}",
    ]
    shown = put(document, path, data.draw(st.sampled_from(shapes)))
    assert secret not in outcome(yaml.safe_dump(shown), job, SECRET=secret)


@given(
    SECRETS,
    st.sampled_from(["*{}", "!{} x", "'{}", '"{}', "{{{}", "[{}", "|{}", "{}: a: b", "%{}", "&{} *{}", "@{}", "`{}"]),
)
def test_a_secret_that_is_no_yaml_is_in_no_error(secret: str, shape: str):
    """A password without quotes may look like an alias, a tag or anything else."""
    said = outcome(f"kafka:\n  sasl.password: {shape.format(secret, secret)}\n", "mirror")
    assert said and secret not in said
