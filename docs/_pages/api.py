"""api.md: the public names of Python, with their signatures and docstrings as griffe reads them, and examples.

The page is checked in as plain Markdown, and a test compares it with the code: it is read in a clone and by language
models as well as on the website. mkdocstrings would fill it in only where the website is built.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from textwrap import dedent
from typing import Any, TypeAlias

import griffe

from _pages.code import ROOT

INTRODUCTION = """# Python

Generated from the code by `make docs`. These names are [stable](stability.md#names); all other modules, classes and
functions of the package are not. Topics are read and written by Spark's own calls, with `format("eos-kafka")` and
[options](options.md).

Classes of Spark and Arrow are meant by their usual names; `EosError` is the base of all [errors](errors.md)."""

#: Characters of a signature that is on one line.
_WIDE = 100


@dataclass(frozen=True)
class Name:
    """A function or class: where it is imported from, and an example, unless a page has one. ``members``: its methods
    that are public."""

    module: str
    name: str
    example: str = ""
    members: tuple[str, ...] = ()

    @property
    def full(self) -> str:
        return f"{self.module}.{self.name}"


PUBLIC: dict[str, tuple[Name, ...]] = {
    "Queries": (
        Name("spark_eos", "register"),
        Name("spark_eos", "copy"),
        Name("spark_eos", "batch_writer"),
        Name(
            "spark_eos",
            "run",
            """
            def start() -> StreamingQuery:
                rows = spark.readStream.format("eos-kafka").options(**kafka, subscribe="flights").load()
                return rows.writeStream.format("eos-kafka").options(**kafka, **sink).start()

            spark_eos.run(start, attempts=5, pause_s=10)
            """,
        ),
        Name(
            "spark_eos",
            "Restart",
            """
            def tell(restart: spark_eos.Restart) -> None:
                print(f"{restart.reason.condition}: {restart.attempt} of {restart.attempts} in {restart.pause_s:.0f} s")

            spark_eos.run(start, on_restart=tell)
            """,
        ),
        Name(
            "spark_eos",
            "reason",
            """
            try:
                query.awaitTermination()
            except PySparkException as error:
                why = spark_eos.reason(error)
                sys.exit(75 if why is not None and why.restart_helps else str(why or error))
            """,
        ),
        Name("spark_eos", "Reason"),
        Name("spark_eos", "metrics"),
        Name(
            "spark_eos.errors",
            "EosError",
            """
            try:
                query = spark_eos.copy(spark, source=source, sink=sink, checkpoint="checkpoint")
            except EosError as error:
                sys.exit(f"{error.condition}: {error.hint}")
            """,
        ),
    ),
    "Schema registry": (
        Name("spark_eos.pipelines.registry", "from_registry"),
        Name("spark_eos.pipelines.registry", "to_registry"),
        Name("spark_eos.pipelines.registry.settings", "registry_settings"),
        Name("spark_eos.pipelines.registry.decoding", "reading"),
        Name("spark_eos.pipelines.registry.encoding", "writing"),
    ),
    "Mirrors": (
        Name(
            "spark_eos.pipelines.mirror.start",
            "mirror",
            """
            query = mirror(
                spark,
                source={"kafka.bootstrap.servers": "east:9092", "subscribePattern": "orders.*"},
                target={"kafka.bootstrap.servers": "west:9092"},
                targets=Targets(prefix="east."),
                checkpoint="checkpoint",
            )
            """,
        ),
        Name("spark_eos.pipelines.mirror.plan", "Targets"),
        Name(
            "spark_eos.pipelines.mirror.offset_map",
            "OffsetMap",
            """
            target = broker_client(KafkaProperties({"bootstrap.servers": "west:9092"}))
            offsets = OffsetMap.read(target, cluster="the source cluster's id", wanted={("orders", 0): [1234]})
            place = offsets.translate("orders", 0, 1234)  # place.topic, place.partition, place.offset
            """,
            members=("read", "translate"),
        ),
        Name("spark_eos.kafka.net.client", "broker_client"),
        Name("spark_eos.kafka.config.properties", "KafkaProperties"),
    ),
    "Tests and tries": (
        Name("spark_eos.pipelines.copy.testing", "check_transform"),
        Name(
            "spark_eos.tools.devcluster",
            "DevCluster",
            """
            with DevCluster() as kafka:
                kafka.create_topic("flights", partitions=4)
                print(kafka.bootstrap_servers)
            """,
            members=("open", "close", "bootstrap_servers", "create_topic"),
        ),
        Name(
            "spark_eos.tools.devcluster.registry",
            "DevRegistry",
            """
            with DevRegistry() as registry:
                print(registry.url)
            """,
            members=("open", "close"),
        ),
    ),
}


def page() -> str:
    """api.md."""
    lines = [INTRODUCTION]
    for part, names in PUBLIC.items():
        lines += ["", f"## {part}"]
        for name in names:
            lines += _section(name)
    return "\n".join(lines) + "\n"


def _section(name: Name) -> Iterator[str]:
    found = _found(name)
    yield from ("", f"### {name.name}", "", "```python", f"from {name.module} import {name.name}", "")
    yield from (laid_out(_call(found, name.name)), "```", "", _text(found))
    for member in (found[each] for each in name.members):
        if member.is_attribute:
            yield from ("", f"`{member.name}: {member.annotation}`")
        else:
            call = laid_out(_call(member, f"{name.name}__{member.name}")).replace("__", ".", 1)
            yield from ("", "```python", call, "```", "", _text(member))
    if name.example:
        yield from ("", "*Example*:", "", "```python", dedent(name.example).strip(), "```")


def stub() -> str:
    """What griffe compares versions by: where each public name is imported from, and its definition, without `self`."""
    return "".join(f"{line}\n" for names in PUBLIC.values() for name in names for line in _definition(name))


def _definition(name: Name) -> Iterator[str]:
    found = _found(name)
    yield f"# from {name.module} import {name.name}"
    if found.is_function:
        yield f"def {_call(found)}: ..."
    else:
        yield f"class {name.name}:"
        yield f"    def {_call(found, '__init__')}: ..."
        for member in (found[each] for each in name.members):
            yield f"    {member.name}: {member.annotation}" if member.is_attribute else f"    def {_call(member)}: ..."


#: One of griffe's objects, whose classes have different attributes.
Found: TypeAlias = Any


@cache
def _package() -> griffe.Object | griffe.Alias:
    return griffe.load("spark_eos", search_paths=[ROOT])


def _found(name: Name) -> Found:
    """The definition, wherever it is imported from; a function may have the name of a folder of its module."""
    module = _package()[name.module.removeprefix("spark_eos").lstrip(".")] if "." in name.module else _package()
    return _package()[module.imports.get(name.name, f"{name.module}.{name.name}").removeprefix("spark_eos.")]


def _call(found: Found, name: str = "") -> str:
    """On one line; of a class by its `__init__`, which it may have from another class."""
    made = found.all_members["__init__"] if found.is_class else found
    made = made.final_target if made.is_alias else made
    return str(made.signature(name=name or found.name, return_type=found.is_function))


def laid_out(signature: str) -> str:
    """Of a call, as ruff would lay it out; on one line, or on one for each parameter."""
    command = (sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", str(_WIDE), "-")
    done = subprocess.run(command, input=f"def {signature}: ...", capture_output=True, text=True, check=True)
    return done.stdout.strip().removeprefix("def ").removesuffix(": ...")


def _text(found: Found) -> str:
    """The docstring as Markdown; a name of this project in single backticks stays one."""
    return re.sub(r"``(.+?)``", r"`\1`", found.docstring.value)
