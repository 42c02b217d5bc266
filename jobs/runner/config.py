"""A job's YAML file, read into its model.

``load(path, Mirror)`` reads the file, puts environment variables into its texts, and checks it by the model. Every
error names the file, the path of the key, the problem and the allowed values. None shows a value, which may be a
secret.

``${NAME}`` and ``${NAME:-default}`` in a value are taken from the environment, and ``$${`` stands for ``${``. As in a
shell, a variable that is empty counts as not set: an empty value, which may turn a check off, has to be in the file.
This is done after the YAML is parsed, so the text of a variable cannot add keys.
"""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from spark_eos.errors import ConfigError, EosError, OptionError, stop

from .models import Job, Section
from .values import Rejected, here, invalid, missing, unknown

J = TypeVar("J", bound=Job)

#: `$${`, or a whole `${NAME}` or `${NAME:-default}`, or a `${` that is neither.
_VARIABLE = re.compile(r"(?P<literal>\$\$\{)|\$\{(?:(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^{}\n]*))?\})?", re.ASCII)
#: Unquoted texts that mean that a key has no value.
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
#: Quoted parts of PyYAML's messages: a single character, one of its own names of tokens, or a text of the file.
_QUOTED = re.compile(r"""(['"])(?:(?P<plain>.|<[a-z ]+>)|.*?)\1""")
_MOST_VALUES, _MOST_LEVELS = 100_000, 100
_TOO_DEEP = "It is not a config file: it is nested too deeply."
_LIST = ("is not a list with a value in it", "Use [one, two].")
_WHOLE_NUMBER = ("is not a whole number", "Use a whole number, without a unit.")
_TRUE_OR_FALSE = ("is neither true nor false", "Use one of them.")
_SECTION = ("is not a section of keys", "Use {{key: value, …}}.")
#: pydantic's error type → the problem with a value, and the allowed values.
_WRONG = {
    "model_type": _SECTION,
    "dict_type": _SECTION,
    "tuple_type": _LIST,
    "too_short": _LIST,
    "string_type": (
        "is not one value",
        "Use a text, a number, true or false. Several names are one text with commas, and JSON is a text in quotes.",
    ),
    "int_type": _WHOLE_NUMBER,
    "int_parsing": _WHOLE_NUMBER,
    "int_parsing_size": _WHOLE_NUMBER,
    "bool_type": _TRUE_OR_FALSE,
    "bool_parsing": _TRUE_OR_FALSE,
    "literal_error": ("is none of the values that it can have", "Use {expected}."),
    "greater_than_equal": ("is too small", "Use a whole number of at least {ge}."),
    "less_than_equal": ("is too large", "Use a whole number of at most {le}."),
}


def load(path: str | os.PathLike[str], model: type[J], environ: Mapping[str, str] = os.environ) -> J:
    """Read the YAML file into the model. Raises ConfigError, and OptionError for an option of source or sink."""
    try:
        return model.model_validate(_filled_in(_parsed(_text_of(Path(path))), environ, iter(range(_MOST_VALUES))))
    except ValidationError as error:
        raise in_file(_invalid(error, model), path) from None
    except (ConfigError, OptionError) as error:
        raise in_file(error, path) from None


def in_file(error: EosError, path: str | os.PathLike[str]) -> EosError:
    """Return the error with the file before its message; unchanged if it already names its file, or is about no key."""
    if "file" in error.parameters or "key" not in error.parameters:
        return error
    return error.reworded(f"{path}: {error.message}", error.hint, **error.parameters | {"file": str(path)})


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise stop("EOS_CONFIG_UNREADABLE.file", file=str(file), why=why, cwd=here()) from None


class _Loader(yaml.BaseLoader):
    """Every value is the text that is in the file, as a password may be 0123, 1.50 or `no`, except null. A tag is an
    error, and so is a key that is there twice."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: ANN401  # PyYAML's own type
        if not node.tag.startswith("tag:yaml.org,2002:"):
            raise yaml.constructor.ConstructorError(None, None, "tags are not supported", node.start_mark)
        if isinstance(node, yaml.ScalarNode) and node.style is None and node.value in _NULL:
            return None
        return super().construct_object(node, deep)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        mapping: dict[Hashable, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in mapping:
                why = "a key is there twice" if isinstance(key, yaml.ScalarNode) else "a key is not text"
                raise yaml.constructor.ConstructorError(None, None, why, key.start_mark)
            mapping[key.value] = self.construct_object(value, deep)
        return mapping


def _parsed(text: str) -> object:
    try:
        data = yaml.load(text, _Loader)  # it is a safe one
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"Line {mark.line + 1} is" if mark else "It is"
        why = _QUOTED.sub(lambda match: match[0] if match["plain"] else "…", error.problem or "")
        raise _unreadable(f"{where} not valid YAML: {why}.") from None
    except yaml.YAMLError:
        raise _unreadable("It is not valid YAML: it has a character that is not allowed.") from None
    except RecursionError:
        raise _unreadable(_TOO_DEEP) from None
    if data is None:
        raise _unreadable("It is empty.")
    return data


def _unreadable(message: str) -> EosError:
    return stop("EOS_CONFIG_UNREADABLE.content", problem=message, key="")


def _filled_in(value: object, environ: Mapping[str, str], left: Iterator[int], path: Sequence[str] = ()) -> object:
    """Return the value with ``${…}`` replaced in all its texts. ``left``: an item for each value that it may still
    have, as aliases of aliases can be more than fit in memory. Raises ConfigError."""
    if next(left, None) is None:
        raise _unreadable("It is not a config file: it has too many values.")
    if len(path) > _MOST_LEVELS:
        raise _unreadable(_TOO_DEEP)
    if isinstance(value, str):
        return _encodable(_VARIABLE.sub(partial(_variable, path=path, environ=environ), value), path)
    if isinstance(value, dict):
        return {
            _encodable(key, (*path, key)): _filled_in(item, environ, left, (*path, key)) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_filled_in(item, environ, left, (*path, str(number))) for number, item in enumerate(value)]
    return value


def _encodable(text: str, path: Sequence[str]) -> str:
    """Return the text. Raises ConfigError if it is none of Unicode: neither a file nor a broker could be given it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        key = ".".join(path)
        remedy = (
            "Set a variable that it is from in UTF-8. In double quotes, \\ud83d is half a character: write all of it"
        )
        raise invalid(key, "is not text in UTF-8", remedy) from None
    return text


def _variable(match: re.Match[str], *, path: Sequence[str], environ: Mapping[str, str]) -> str:
    if match["literal"]:
        return "${"
    name, key = match["name"], ".".join(path)
    if name is None:
        remedy = "Use ${NAME} or ${NAME:-default}, with a default without braces, or $${ for the text ${"
        raise invalid(key, "has a '${' that does not begin a variable", remedy)
    text = environ.get(name) or match["default"]
    if text is None:
        remedy = f"Set it, or write ${{{name}:-default}}, or ${{{name}:-}} for an empty value"
        raise invalid(key, f"needs the environment variable {name}, which is not set, or is empty", remedy)
    return text


def _invalid(error: ValidationError, model: type[Section]) -> EosError:
    """Return the first unknown key, which often is why another one is missing; else the first of all errors."""
    mistakes = error.errors(include_url=False, include_input=False)
    first = min(mistakes, key=lambda each: each["type"] != "extra_forbidden")
    kind, path, context = first["type"], [str(part) for part in first["loc"]], first.get("ctx", {})
    wrong = context.get("error")
    if kind == "missing":
        wrong = missing()
    elif kind == "extra_forbidden":
        section = _section(model, path[:-1])
        wrong = unknown(path[-1], section.key_names(), instead=section.gone.get(path[-1]))
    elif not isinstance(wrong, Rejected):
        what, allowed = _WRONG.get(kind, ("is not valid", "docs/keys.md says what it can be."))
        wrong = Rejected(f"{what}.", allowed.format(**context))
    key = ".".join((*path, *wrong.key))
    texts = {"what": f"'{key}'" if key else "The file", "problem": wrong.message, "remedy": wrong.hint, "key": key}
    if wrong.condition == "MISSING_KEY":
        return stop("EOS_CONFIG_MISSING_KEY", **texts)
    if wrong.condition == "UNKNOWN_KEY":
        return stop("EOS_CONFIG_UNKNOWN_KEY", **texts)
    if wrong.condition == "FUNCTION":
        return stop("EOS_CONFIG_FUNCTION.key", **texts)
    return stop("EOS_CONFIG_INVALID_VALUE.key", **texts)


def _section(model: type[Section], path: Sequence[str]) -> type[Section]:
    """Return the section at the end of this path."""
    for key in path:
        field_info = next(field for field in model.model_fields.values() if field.alias == key)
        parts = (field_info.annotation, *typing.get_args(field_info.annotation))
        model = next(part for part in parts if isinstance(part, type) and issubclass(part, Section))
    return model
