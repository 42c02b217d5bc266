"""A job's YAML file, read into its model.

``load(path, Mirror)`` reads the file, puts environment variables into its texts, and checks it by the model. Every
error names the file, the path of the key, what is wrong and what is allowed. None shows a value, which may be a secret.

``${NAME}`` and ``${NAME:-default}`` in a value are taken from the environment, and ``$${`` stands for ``${``. This is
done after the YAML is parsed, so the text of a variable cannot add keys.
"""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from spark_eos.errors import ConfigError, EosError, OptionError, stop

from .checks import Rejected
from .models import Job, unknown

J = TypeVar("J", bound=Job)

#: `$${`, or a whole `${NAME}` or `${NAME:-default}`, or a `${` that is neither.
_VARIABLE = re.compile(r"(?P<literal>\$\$\{)|\$\{(?:(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^}\n]*))?\})?", re.ASCII)
#: What is not text where it is without quotes.
_NULL, _WHOLE_NUMBER = re.compile("|~|null|Null|NULL"), re.compile(r"0|-?[1-9][0-9]{0,17}")
_BOOLEAN = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
#: What PyYAML quotes: a single character, one of its own names of tokens, or a text of the file.
_QUOTED = re.compile(r"""(['"])(?:(?P<plain>.|<[a-z ]+>)|.*?)\1""")
_SECTION = ("is not a section of keys", "Use {{key: value, …}}.")
#: What is wrong with a value, and what is allowed, by pydantic's names.
_WRONG = {
    "model_type": _SECTION,
    "model_attributes_type": _SECTION,
    "dict_type": _SECTION,
    "tuple_type": ("is not a list", "Use [one, two]."),
    "too_short": ("is an empty list", "Use [one, two]."),
    "literal_error": ("is none of the values that it can have", "Use {expected}."),
    "greater_than_equal": ("is too small", "Use a whole number of at least {ge}."),
    "less_than_equal": ("is too large", "Use a whole number of at most {le}."),
}


def load(path: str | os.PathLike[str], model: type[J], environ: Mapping[str, str] = os.environ) -> J:
    """Read the YAML file into the model. Raises ConfigError, and OptionError for an option of source or sink."""
    try:
        data = _parsed(_text_of(Path(path)))
        _fill_in(data, environ)
        return model.model_validate(data)
    except ValidationError as error:
        raise in_file(_invalid(error, model), path) from None
    except (ConfigError, OptionError) as error:
        raise in_file(error, path) from None


def in_file(error: EosError, path: str | os.PathLike[str]) -> EosError:
    """The same error with the file before it; unchanged if it already names its file, or is about no key."""
    if "file" in error.parameters or "key" not in error.parameters:
        return error
    return error.reworded(f"{path}: {error.message}", error.hint, **error.parameters | {"file": str(path)})


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise stop("EOS_CONFIG_UNREADABLE.file", file=str(file), why=why, cwd=Path.cwd()) from None


class _Loader(yaml.SafeLoader):
    """Text stays as it is in the file: 0123, 1.50, 12:30 and `no` are texts, as a password may be one of them. Only
    null, true, false and whole numbers are something else. A key that is there twice is an error."""

    yaml_constructors: typing.ClassVar[dict[str | None, Any]] = {}

    def constructed(self, tag: str, node: yaml.Node) -> object:
        """The value of any node."""
        if not tag.startswith("tag:yaml.org,2002:"):
            raise yaml.constructor.ConstructorError(None, None, "tags are not supported", node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.construct_object(item, deep=True) for item in node.value]
        found: dict[str, object] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in found:
                why = "a key is there twice" if isinstance(key, yaml.ScalarNode) else "a key is not text"
                raise yaml.constructor.ConstructorError(None, None, why, key.start_mark)
            found[key.value] = self.construct_object(value, deep=True)
        return found


_Loader.add_multi_constructor("", _Loader.constructed)


def _scalar(node: yaml.ScalarNode) -> object:
    text: str = node.value
    if node.style is not None:
        return text
    if _NULL.fullmatch(text):
        return None
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else _BOOLEAN.get(text, text)


def _parsed(text: str) -> object:
    try:
        data = yaml.load(text, _Loader)  # it is a safe one
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"Line {mark.line + 1} is" if mark else "It is"
        why = _QUOTED.sub(lambda found: found[0] if found["plain"] else "…", error.problem or "")
        raise _unreadable(f"{where} not valid YAML: {why}.") from None
    except yaml.YAMLError:
        raise _unreadable("It is not valid YAML: it has a character that is not allowed.") from None
    except RecursionError:
        raise _unreadable("It is not a config file: it is nested too deeply.") from None
    if data is None:
        raise _unreadable("It is empty.")
    return data


def _unreadable(message: str) -> EosError:
    return stop("EOS_CONFIG_UNREADABLE.content", problem=message, key="")


def _fill_in(data: object, environ: Mapping[str, str]) -> None:
    """Replace ``${…}`` in all texts, in place. Raises ConfigError."""
    waiting: list[tuple[tuple[str, ...], object]] = [((), data)]
    seen = set()
    while waiting:
        path, node = waiting.pop()
        if id(node) in seen:  # by an alias
            continue
        seen.add(id(node))
        for key, value in _items(node):
            here = (*path, str(key))
            if isinstance(value, str):
                node[key] = _VARIABLE.sub(partial(_variable, path=here, environ=environ), value)  # type: ignore[index]  # a list or a dict
            else:
                waiting.append((here, value))


def _items(node: object) -> Iterator[tuple[Any, object]]:
    if isinstance(node, dict):
        yield from node.items()
    elif isinstance(node, list):
        yield from enumerate(node)


def _variable(match: re.Match[str], *, path: Sequence[str], environ: Mapping[str, str]) -> str:
    if match["literal"]:
        return "${"
    name, key = match["name"], ".".join(path)
    if name is None:
        raise stop("EOS_CONFIG_INVALID_VALUE.dollar", key=key)
    text = environ.get(name, match["default"])
    if text is None:
        raise stop("EOS_CONFIG_INVALID_VALUE.variable", key=key, name=name)
    return text


def _invalid(error: ValidationError, model: type[BaseModel]) -> EosError:
    """The first unknown key, which often is why another one is missing; else the first of all errors."""
    found = error.errors(include_url=False, include_input=False)
    first = min(found, key=lambda each: each["type"] != "extra_forbidden")
    kind, path, context = first["type"], [str(part) for part in first["loc"]], first.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, Rejected):
        return _rejected(cause, path)
    if kind == "missing":
        return _rejected(Rejected("MISSING_KEY", "is missing.", "Set a value."), path)
    if kind == "extra_forbidden":
        return _rejected(unknown(path[-1], _keys(model, path[:-1])), path)
    what, allowed = _WRONG.get(kind, ("is not valid", "docs/keys.md says what it can be."))
    return _rejected(Rejected("INVALID_VALUE", f"{what}.", allowed.format(**context)), path)


def _rejected(wrong: Rejected, path: Sequence[str]) -> EosError:
    key = ".".join((*path, *wrong.key))
    what = f"'{key}'" if key else "The file"
    texts = {"what": what, "problem": wrong.message, "remedy": wrong.hint, "key": key}
    if wrong.condition == "MISSING_KEY":
        return stop("EOS_CONFIG_MISSING_KEY", **texts)
    if wrong.condition == "UNKNOWN_KEY":
        return stop("EOS_CONFIG_UNKNOWN_KEY", **texts)
    if wrong.condition == "FUNCTION":
        return stop("EOS_CONFIG_FUNCTION.key", **texts)
    return stop("EOS_CONFIG_INVALID_VALUE.key", **texts)


def _keys(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """The keys of the section at the end of this path."""
    for key in path:
        found = next(field for field in model.model_fields.values() if field.alias == key)
        parts = (found.annotation, *typing.get_args(found.annotation))
        model = next(part for part in parts if isinstance(part, type) and issubclass(part, BaseModel))
    return [str(field.alias) for field in model.model_fields.values()]
