"""keys.md: every key of the jobs' config files, from their models."""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import takewhile
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from spark_eos.jobs import JOBS
from spark_eos.jobs.runner.models import QueryJob

from _pages.code import ROOT, modules

INTRODUCTION = """# Keys of the jobs' config files

Generated from the code by `make docs`. [job.md](job.md#the-file) says how a file is read: variables, errors, secrets.
Where `source` or `sink` is Kafka, the section is the options of the connector, by their names in
[options.md](options.md), `kafka.*` among them. In brackets stands a key's default."""

PAGES = {
    "consume_transform_produce": "job.md",
    "delta_to_kafka": "delta.md#delta-to-kafka",
    "kafka_to_delta": "delta.md#kafka-to-delta",
    "kafka_to_iceberg": "iceberg.md#as-a-job",
    "ingest_files": "ingest.md",
    "mirror": "mirror.md",
}


def model_of(job: str) -> type[BaseModel]:
    """The model of a job's file."""
    model: type[BaseModel] = importlib.import_module(f"spark_eos.jobs.{job}").main.__self__.config
    return model


#: A key by its path, and what it means.
Key = tuple[str, FieldInfo, str]


def keys(model: type[BaseModel], before: str = "", seen: set[type[BaseModel]] | None = None) -> Iterator[Key]:
    """Yield every key of a model; sections before the keys in them. A section that says what it means is not repeated
    where its keys were given before, such as that of a record's key behind that of its value. ``seen``: sections so
    far."""
    seen = set() if seen is None else seen
    for name, field in model.model_fields.items():
        path, section = f"{before}{field.alias}", section_of(field)
        meaning = next((text for each in model.__mro__ if (text := _texts().get((each.__name__, name)))), "")
        if section is None or meaning:
            yield path, field, meaning
        if section is not None and not (meaning and section in seen):
            seen.add(section)
            yield from keys(section, f"{path}.", seen)


@cache
def _texts() -> dict[tuple[str, str], str]:
    """By class and field: the comment above the field."""
    found = {}
    for module in modules("jobs"):
        lines = (ROOT / module.path).read_text().splitlines()
        for made in (node for node in module.tree.body if isinstance(node, ast.ClassDef)):
            for field in made.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    above = takewhile(lambda line: line.lstrip().startswith("#:"), reversed(lines[: field.lineno - 1]))
                    words = [line.lstrip().removeprefix("#:").strip() for line in above]
                    found[made.name, field.target.id] = " ".join(reversed(words))
    return found


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a section; None where the key has a value."""
    parts = (field.annotation, *get_args(field.annotation))
    return next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), None)


def page() -> str:
    """keys.md."""
    lines = [INTRODUCTION, "", "## All jobs", "", *_list(map(_row, keys(QueryJob)))]
    lines += ["", "`ingest_files` has no `checkpoint`. The default of `trigger` is `1 second` in"]
    lines += ["`consume_transform_produce` and `mirror`."]
    common = {path for path, *_ in keys(QueryJob)}
    jobs = sorted(JOBS, key=list(PAGES).index)
    rows = {job: [_row(key) for key in keys(model_of(job)) if key[0] not in common] for job in jobs}
    shared = _shared(rows.values())
    lines += ["", "## Several jobs", "", *_list(shared.values())]
    for job, own in rows.items():
        lines += ["", f"## {job}", "", f"See [{PAGES[job].partition('#')[0]}]({PAGES[job]})."]
        named = [row[0] for row in own if row in shared.values() and row[0].count(".") < 2]
        if named:
            lines += [f"Of [several jobs](#several-jobs) it has {', '.join(f'`{path}`' for path in named)}."]
        if more := [row for row in own if row not in shared.values()]:
            lines += ["", *_list(more)]
    return "\n".join(lines) + "\n"


#: Path, default and meaning, as text.
Row = tuple[str, str, str]


def _shared(jobs: Iterable[list[Row]]) -> dict[str, Row]:
    """Return the rows of keys that several jobs have, by their paths: for a key that means different things, the one
    of most jobs."""
    times = Counter(row for own in jobs for row in own)
    most = {path: max((row for row in times if row[0] == path), key=times.__getitem__) for path, *_ in times}
    return {path: row for path, row in most.items() if times[row] > 1}


def _row(key: Key) -> Row:
    path, field, meaning = key
    return path, _default(field), f"{_choices(field)}{meaning}"


def _list(rows: Iterable[Row]) -> Iterator[str]:
    yield from (f"- `{path}`{default}: {meaning}" for path, default, meaning in rows)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return " (required)"
    value: Any = field.default
    if value is None or value == "" or (not isinstance(value, str | int) and len(value) == 0):
        return ""
    return f" (`{str(value).lower() if isinstance(value, bool) else value}`)"


def _choices(field: FieldInfo) -> str:
    for part in (field.annotation, *get_args(field.annotation)):
        if get_origin(part) is Literal:
            return f"{', '.join(f'`{choice}`' for choice in get_args(part))}. "
    return ""
