"""A job's YAML file, read into frozen dataclasses.

``load(path, MirrorConfig)`` reads the file by the fields of the dataclass: ``starting_offsets: str`` is the key
``startingOffsets``, a field that is itself a dataclass is a section. Every error is a ConfigError that names the file,
the line, the key's path and the next step. Errors never print values, since a value may be a secret.

``${NAME}`` and ``${NAME:-default}`` in a value are taken from the environment; ``$${`` stands for ``${``. A variable's
text is put into the value after the YAML is parsed, so it cannot add keys; without quotes around it, it may be a number
or a boolean.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import os
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from spark_eos.errors import ConfigError
from spark_eos.kafka.config.properties import KafkaProperties

T = TypeVar("T")

#: `$${`, or a whole `${NAME}` or `${NAME:-default}`, or a `${` that is neither.
_VARIABLE = re.compile(r"(?P<literal>\$\$\{)|\$\{(?:(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}\n]*))?\})?", re.ASCII)
#: Placeholder for the n-th of them while the YAML is parsed, where braces would have a meaning.
_TOKEN = re.compile("\ue000([0-9]+)\ue001")
_KINDS = {"str": "a string", "int": "a whole number", "float": "a number", "bool": "true or false", "null": "nothing"}


class Rejected(ValueError):
    """Raised by a section's ``__post_init__``: its values have the right types, but are invalid.

    ``condition`` is the end of the error's condition name, after ``EOS_CONFIG_``. ``key``: the path of keys from the
    section to the invalid value; without it, the whole section is meant.
    """

    def __init__(self, condition: str, message: str, hint: str, key: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.condition = condition
        self.message = message
        self.hint = hint
        self.key = tuple(key)


def load(path: str | os.PathLike[str], into: type[T], environ: Mapping[str, str] = os.environ) -> T:
    """Read the YAML file into an instance of the dataclass. Raises ConfigError."""
    file = Path(path)
    text = _text_of(file)
    variables = [_Variable.of(match) for match in _VARIABLE.finditer(text)]
    numbers = itertools.count()
    reader = _Reader(str(file), environ, variables)
    return reader.section(reader.root(_VARIABLE.sub(lambda _: f"\ue000{next(numbers)}\ue001", text)), into, ())


def located(error: ConfigError, path: str | os.PathLike[str]) -> ConfigError:
    """The same error prefixed with file and line, for a value that is found to be invalid after the file was read.

    An error that already names its file, or has no key, is returned unchanged.
    """
    key = error.parameters.get("key")
    if error.parameters.get("file") or not key:
        return error
    text = _VARIABLE.sub("v", _text_of(Path(path)))
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    line = _line(_node_at(root, str(key).split("."))) if root is not None else ""
    parameters = error.parameters | {"file": str(path)}
    return ConfigError(error.condition, f"{path}{line}: {error.message}", hint=error.hint, **parameters)


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            "EOS_CONFIG_NOT_FOUND",
            f"Config file '{file}' does not exist.",
            hint=f"Set --conf to an existing path; relative paths start at {Path.cwd()}.",
            file=str(file),
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "EOS_CONFIG_UNREADABLE",
            f"The config file '{file}' cannot be read: {error}.",
            hint="It must be a readable text file in UTF-8.",
            file=str(file),
        ) from None


@dataclass(frozen=True)
class _Variable:
    """One ``${…}`` of the file. ``name`` is None for a ``${`` that does not start a variable; lines count from 1."""

    literal: bool
    name: str | None
    default: str | None
    line: int

    @classmethod
    def of(cls, match: re.Match[str]) -> _Variable:
        line = match.string.count("\n", 0, match.start()) + 1
        return cls(match["literal"] is not None, match["name"], match["default"], line)


@dataclass(frozen=True)
class _Reader:
    """Reads one file. ``path`` always is the path of keys from the root to a node."""

    file: str
    environ: Mapping[str, str]
    variables: Sequence[_Variable]

    def root(self, text: str) -> yaml.Node:
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f", line {mark.line + 1}" if mark else ""
            raise self._error(
                "UNREADABLE", f"{where}: this is not YAML: {error.problem}.", "Correct the line."
            ) from None
        except yaml.YAMLError as error:
            raise self._error("UNREADABLE", f": this is not YAML: {error}.", "Correct the file.") from None
        if node is None:
            raise self._error("EMPTY", " is empty.", "See conf/ for an example of each job.")
        return node

    def section(self, node: yaml.Node, into: type[T], path: tuple[str, ...]) -> T:
        """A mapping node as an instance of the dataclass ``into``."""
        fields = {_key_of(field): field for field in dataclasses.fields(into)}  # type: ignore[arg-type]  # typing has no bound for T that says dataclass
        nodes = self._entries(node, path, known=fields)
        hints = typing.get_type_hints(into)
        values: dict[str, Any] = {}
        for key, field in fields.items():
            value_node = nodes.get(key)
            if value_node is not None:
                value_node = self._with_variables(value_node, (*path, key))
            if value_node is not None and not _is_null(value_node):
                values[field.name] = self._value(value_node, hints[field.name], (*path, key))
            elif _is_required(field):
                self._missing(node, (*path, key))
        try:
            return into(**values)
        except Rejected as wrong:
            at = (*path, *wrong.key)
            where = f"'{'.'.join(at)}'{'' if wrong.key else ':'} " if at else ""
            line = _line(_node_at(node, wrong.key))
            raise self._error(wrong.condition, f"{line}: {where}{wrong.message}", wrong.hint, at) from None

    def _value(self, node: yaml.Node, hint: object, path: tuple[str, ...]) -> object:
        """The node as what the type hint of its field asks for."""
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            parts = [part for part in typing.get_args(hint) if part is not types.NoneType]
            # A word or a section, by what it is in the file.
            section = isinstance(node, yaml.MappingNode)
            hint = next((part for part in parts if dataclasses.is_dataclass(part) is section), parts[0])
        if dataclasses.is_dataclass(hint):
            return self.section(node, typing.cast(type, hint), path)
        if hint is KafkaProperties:
            return KafkaProperties(self._properties(node, path))
        if typing.get_origin(hint) is tuple:
            return self._texts(node, path)
        if typing.get_origin(hint) is typing.Literal:
            return self._choice(node, typing.get_args(hint), path)
        return self._scalar(node, typing.cast(type, hint), path)

    def _scalar(self, node: yaml.Node, kind: type[T], path: tuple[str, ...]) -> T:
        found = _kind(node)
        if found != kind.__name__:
            quotes = " Put it in quotes." if kind is str and isinstance(node, yaml.ScalarNode) else ""
            raise self._error(
                "WRONG_TYPE",
                f"{_line(node)}: '{'.'.join(path)}' is {_KINDS.get(found, found)}.",
                f"Use {_KINDS[kind.__name__]}.{quotes}",
                path,
            )
        value: T = yaml.SafeLoader("").construct_object(node)
        return value

    def _choice(self, node: yaml.Node, choices: tuple[str, ...], path: tuple[str, ...]) -> str:
        text = self._scalar(node, str, path)
        if text not in choices:
            near = difflib.get_close_matches(text, choices, n=1)
            raise self._error(
                "WRONG_VALUE",
                f"{_line(node)}: '{'.'.join(path)}' has an unknown value.",
                (f"Did you mean '{near[0]}'? " if near else "") + f"Use one of: {', '.join(choices)}.",
                path,
            )
        return text

    def _texts(self, node: yaml.Node, path: tuple[str, ...]) -> tuple[str, ...]:
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            found = "an empty list" if isinstance(node, yaml.SequenceNode) else _kind_text(node)
            raise self._error(
                "WRONG_TYPE",
                f"{_line(node)}: '{'.'.join(path)}' is {found}.",
                "Use a list of strings: [one, two].",
                path,
            )
        items = []
        for index, item in enumerate(node.value):
            here = (*path, str(index))
            items.append(self._scalar(self._with_variables(item, here), str, here))
        return tuple(items)

    def _properties(self, node: yaml.Node, path: tuple[str, ...]) -> dict[str, str]:
        """A mapping of free keys to scalars, as in the file (booleans as true and false)."""
        properties = {}
        for key, raw in self._entries(node, path).items():
            item = self._with_variables(raw, (*path, key))
            if not isinstance(item, yaml.ScalarNode) or _is_null(item):
                raise self._error(
                    "WRONG_TYPE",
                    f"{_line(item)}: '{'.'.join((*path, key))}' is {_kind_text(item)}.",
                    "Use a string, a number, true or false.",
                    (*path, key),
                )
            properties[key] = item.value.lower() if _kind(item) == "bool" else item.value
        return properties

    def _entries(
        self, node: yaml.Node, path: tuple[str, ...], known: Iterable[str] | None = None
    ) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            where = f"'{'.'.join(path)}'" if path else "the file"
            hint = f"Use a section of keys: {', '.join(known)}." if known else "Use a section of keys."
            raise self._error("WRONG_TYPE", f"{_line(node)}: {where} is {_kind_text(node)}.", hint, path)
        entries: dict[str, yaml.Node] = {}
        for key_node, value_node in node.value:
            key = _TOKEN.sub("${…}", str(key_node.value))
            here = (*path, key)
            if known is not None and key not in known:
                raise self._unknown(key_node, here, list(known))
            if key in entries:
                raise self._error(
                    "DUPLICATE_KEY", f"{_line(key_node)}: '{'.'.join(here)}' exists twice.", "Keep one of them.", here
                )
            entries[key] = value_node
        return entries

    def _with_variables(self, node: yaml.Node, path: tuple[str, ...]) -> yaml.Node:
        """The node with ``${…}`` replaced; a plain scalar (no quotes) gets the type of its new text."""
        if not isinstance(node, yaml.ScalarNode) or not _TOKEN.search(node.value):
            return node
        text = _TOKEN.sub(lambda match: self._text_of(self.variables[int(match[1])], path), node.value)
        plain = node.style is None
        tag = _tag_of_plain(text) if plain else node.tag
        return yaml.ScalarNode(tag, text, node.start_mark, node.end_mark, node.style)

    def _text_of(self, variable: _Variable, path: tuple[str, ...]) -> str:
        if variable.literal:
            return "${"
        where = f", line {variable.line}: '{'.'.join(path)}'"
        name = variable.name
        if name is None:
            hint = "Use ${NAME} or ${NAME:-default}, or $${ for a literal ${."
            raise self._error("WRONG_VALUE", f"{where} has a '${{' that does not start a variable.", hint, path)
        text = self.environ.get(name, variable.default)
        if text is None:
            message = f"{where} requires the environment variable {name}, which is not set."
            raise self._error("UNSET_VARIABLE", message, f"Set it, or write ${{{name}:-default}}.", path, variable=name)
        return text

    def _unknown(self, node: yaml.Node, path: tuple[str, ...], known: list[str]) -> ConfigError:
        lowered = {key.lower(): key for key in known}
        near = difflib.get_close_matches(path[-1].lower(), lowered, n=1)
        hint = f"Did you mean '{lowered[near[0]]}'?" if near else f"Keys here: {', '.join(known)}."
        return self._error("UNKNOWN_KEY", f"{_line(node)}: unknown key '{'.'.join(path)}'.", hint, path)

    def _missing(self, node: yaml.Node, path: tuple[str, ...]) -> typing.NoReturn:
        raise self._error(
            "MISSING_KEY", f"{_line(node)}: '{'.'.join(path)}' is missing or empty.", "Set a value.", path
        )

    def _error(
        self, condition: str, message: str, hint: str, path: tuple[str, ...] = (), **parameters: object
    ) -> ConfigError:
        return ConfigError(
            f"EOS_CONFIG_{condition}",
            f"{self.file}{message}",
            hint=hint,
            file=self.file,
            key=".".join(path),
            **parameters,
        )


def _key_of(field: dataclasses.Field[Any]) -> str:
    head, *tail = field.name.split("_")
    return head + "".join(part.title() for part in tail)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _node_at(node: yaml.Node, path: Sequence[str]) -> yaml.Node:
    """The node at the end of this path of keys, or the last existing one on it."""
    for key in path:
        entries = node.value if isinstance(node, yaml.MappingNode) else ()
        node = next((value for name, value in entries if name.value == key), node)
    return node


def _tag_of_plain(text: str) -> str:
    """What a scalar without quotes is by its text: a number, a boolean, nothing, or text."""
    loader = yaml.SafeLoader("")
    return str(loader.resolve(yaml.ScalarNode, text, (True, False)))  # type: ignore[no-untyped-call]  # so in its stubs


def _line(node: yaml.Node) -> str:
    return f", line {node.start_mark.line + 1}"


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return str(node.tag).rpartition(":")[2]
    return "a list" if isinstance(node, yaml.SequenceNode) else "a section of keys"


def _kind_text(node: yaml.Node) -> str:
    return _KINDS.get(_kind(node), _kind(node))


def _is_null(node: yaml.Node) -> bool:
    return _kind(node) == "null"
