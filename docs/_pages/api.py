"""api.md: the public names of Python, with their signatures and docstrings, by the source alone, and examples.

The page is checked in, and a test compares it with the code. So no signature changes by accident.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent

from _pages.code import Module, modules

INTRODUCTION = """# Python

Generated from the code by `make docs`. These names are [stable](stability.md#names); all other modules, classes and
functions of the package are not. Topics are read and written by Spark's own calls, with `format("eos-kafka")` and
[options](options.md).

Classes of Spark and Arrow are meant by their usual names; `EosError` is the base of all [errors](errors.md)."""

#: Characters of a signature that is on one line.
_WIDE = 100


@dataclass(frozen=True)
class Name:
    """A function or class: where it is imported from, and an example. ``members``: its methods that are public."""

    module: str
    name: str
    example: str = ""
    members: tuple[str, ...] = ()

    @property
    def full(self) -> str:
        return f"{self.module}.{self.name}"


PUBLIC: dict[str, tuple[Name, ...]] = {
    "Queries": (
        Name(
            "spark_eos",
            "register",
            """
            spark = SparkSession.builder.getOrCreate()
            spark_eos.register(spark)
            """,
        ),
        Name(
            "spark_eos",
            "copy",
            """
            kafka = {"kafka.bootstrap.servers": "localhost:9092"}
            query = spark_eos.copy(
                spark,
                source=kafka | {"subscribe": "flights", "startingOffsets": "earliest"},
                sink=kafka | {"topic": "late", "offsets.group.id": "copier"},
                checkpoint="checkpoint",
                transform="SELECT key, value FROM input WHERE value IS NOT NULL",
                trigger={"availableNow": True},
            )
            query.awaitTermination()
            """,
        ),
        Name(
            "spark_eos",
            "batch_writer",
            """
            def write(rows: DataFrame, batch_id: int) -> None:
                spark_eos.batch_writer(rows, batch_id).options(**kafka, topic="copies").save()

            flights.writeStream.foreachBatch(write).option("checkpointLocation", "checkpoint").start()
            """,
        ),
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
        Name("spark_eos", "Restart"),
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
        Name(
            "spark_eos",
            "metrics",
            """
            metrics = spark_eos.metrics(spark, port=0)
            print(f"http://127.0.0.1:{metrics.port}/metrics")
            """,
        ),
        Name("spark_eos.errors", "EosError"),
    ),
    "Schema registry": (
        Name(
            "spark_eos.registry",
            "from_registry",
            """
            flight = from_registry("value", "http://localhost:8081", topic="flights", version=2)
            rows = flights.select(flight.alias("flight")).select("flight.*")
            """,
        ),
        Name(
            "spark_eos.registry",
            "to_registry",
            """
            value = to_registry(struct("id", "delay"), "http://localhost:8081", topic="late", schema=LATE)
            rows.select(value.alias("value")).writeStream.format("eos-kafka").options(**kafka, **sink).start()
            """,
        ),
        Name(
            "spark_eos.registry.settings", "registry_settings", 'registry = registry_settings("http://localhost:8081")'
        ),
        Name(
            "spark_eos.registry.decoding",
            "reading",
            """
            decode = {"value": reading(registry, "flights-value", version=2)}
            spark_eos.copy(spark, source=source, sink=sink, checkpoint="checkpoint", transform=late, decode=decode)
            """,
        ),
        Name(
            "spark_eos.registry.encoding",
            "writing",
            """
            encode = {"value": writing(registry, None, topic="late")}
            spark_eos.copy(spark, source=source, sink=sink, checkpoint="checkpoint", transform=late, encode=encode)
            """,
        ),
    ),
    "Mirrors": (
        Name(
            "spark_eos.mirror.start",
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
        Name("spark_eos.mirror.plan", "Targets"),
        Name(
            "spark_eos.mirror.offset_map",
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
        Name("spark_eos.copy.testing", "check_transform", "check_transform(late, some_batch)"),
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
    module, node = _found(modules("spark_eos")[name.module], name.name)
    yield from ("", f"### {name.name}", "", "```python", f"from {name.module} import {name.name}", "")
    yield from (signature(_maker(module, node), name.name), "```", "", _text(node))
    for member in name.members:
        (method,) = (each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == member)
        if any(isinstance(each, ast.Name) and each.id == "property" for each in method.decorator_list):
            yield from ("", f"`{member}: {ast.unparse(method.returns) if method.returns else 'None'}`")
            continue
        yield from ("", "```python", signature(method, f"{name.name}.{member}"), "```", "", _text(method))
    if name.example:
        yield from ("", "*Example*:", "", "```python", dedent(name.example).strip(), "```")


def _found(module: Module, name: str) -> tuple[Module, ast.FunctionDef | ast.ClassDef]:
    """The definition of a name, and its module, which may be one that this one imports it from."""
    for node in module.tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return module, node
    origin, its_name = module.imports[name]
    return _found(modules("spark_eos")[origin], its_name)


def _maker(module: Module, node: ast.FunctionDef | ast.ClassDef) -> ast.FunctionDef | ast.ClassDef:
    """What has the parameters of a call: the function, or the class or its first base with an `__init__` or fields."""
    if isinstance(node, ast.FunctionDef) or _init(node) or _fields(node):
        return node
    ours = [base for base in map(ast.unparse, node.bases) if module.imports.get(base, ("",))[0].startswith("spark_eos")]
    return _maker(*_found(module, ours[0])) if ours else node


def signature(node: ast.FunctionDef | ast.ClassDef, name: str) -> str:
    """As a call is written; a class by its `__init__`, or else by its fields."""
    if isinstance(node, ast.FunctionDef):
        parts, result = _parameters(node.args), f" -> {ast.unparse(node.returns)}" if node.returns else ""
    else:
        init = _init(node)
        parts, result = _parameters(init.args) if init else _fields(node), ""
    whole = f"{name}({', '.join(parts)}){result}"
    return whole if len(whole) <= _WIDE else "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){result}"])


def _parameters(given: ast.arguments) -> list[str]:
    """Each with its type and default; `*` and `/` where they are; without `self` and `cls`."""
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [*[None] * (len(plain) - len(given.defaults)), *given.defaults]
    found = [_parameter(*each) for each in zip(plain, defaults, strict=True)]
    if given.posonlyargs:
        found.insert(len(given.posonlyargs), "/")
    if given.vararg:
        found.append("*" + _parameter(given.vararg, None))
    elif given.kwonlyargs:
        found.append("*")
    found += [_parameter(*each) for each in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg:
        found.append("**" + _parameter(given.kwarg, None))
    return found[1:] if found[:1] in (["self"], ["cls"]) else found


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    type_ = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    return argument.arg + type_ + (f" = {ast.unparse(default)}" if default is not None else "")


def _init(node: ast.ClassDef) -> ast.FunctionDef | None:
    return next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)


def _fields(node: ast.ClassDef) -> list[str]:
    """Of a dataclass, with types and defaults."""
    return [ast.unparse(each) for each in node.body if isinstance(each, ast.AnnAssign)]


def _text(node: ast.FunctionDef | ast.ClassDef) -> str:
    """The docstring as Markdown; a name of this project in single backticks stays one."""
    return re.sub(r"``(.+?)``", r"`\1`", ast.get_docstring(node) or "")
