"""Functions of the user, ``module:function`` in a config file: looked up before Spark starts, imported after."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import symtable
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from spark_eos.errors import stop

from .columns import first_line
from .values import Rejected, here

#: A module whose text has one of these may define any name.
_ANY_NAME = re.compile(r"\bimport\s*\*|\b(__getattr__|exec|globals|setattr|vars)\b|^\s+global\s", re.MULTILINE)
#: Files whose lines in a stack say nothing about the user's function.
_NOT_THE_USERS = re.compile(rf"/(pyspark|py4j)/|^<frozen |^{re.escape(str(Path(__file__).parent))}/")


def check_function(name: str) -> str:
    """Check ``module:function``: the module exists, is Python, and defines that name. The module is read, not imported:
    importing it may need a session (`F.col("x")` at its top does).
    """
    module, _, function = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        raise _rejected("is not module:function.", "Use the form 'my_module:my_function'.")
    file, read = _source_of(module)
    try:
        source = read() or ""
        symbols = symtable.symtable(source, file, "exec").get_symbols()
    except (SyntaxError, ValueError, ImportError) as error:  # the others: of its encoding, or of the file
        line, why = getattr(error, "lineno", None), error.msg if isinstance(error, SyntaxError) else error
        where = f"{file}, line {line}: {why}" if line else f"{file}: {why}"
        hint = "Correct it, and save it as UTF-8."
        raise _rejected(f"names a module that is not valid Python: {where}.", hint) from None
    names = {each.get_name() for each in symbols if each.is_assigned() or each.is_imported()}
    if source and function not in names and not _ANY_NAME.search(source):
        raise _rejected(f"names the function {function}, which module '{module}' does not have.", "Correct the name.")
    return name


def _source_of(module: str) -> tuple[str, Callable[[], str | None]]:
    """Return the module's file, and a call that reads its text; no text if it has none, for example if it is written in
    C."""
    try:
        spec = importlib.util.find_spec(module)
        why = "" if spec else "no such module"
    except (ImportError, ValueError) as error:
        spec, why = None, str(error)
    except (Exception, SystemExit):  # by the package around it, which is imported: it may need a session
        return module, lambda: None
    if spec is None:
        path = os.environ.get("PYTHONPATH") or "which is not set"
        raise _rejected(
            f"names a module that cannot be imported, '{module}': {why}.",
            f"It is searched in {sys.path[0] or here()}, in PYTHONPATH ({path}) and among the installed packages.",
        )
    get_source = getattr(spec.loader, "get_source", None)
    return str(spec.origin), partial(get_source, module) if get_source else lambda: None


def _rejected(message: str, hint: str) -> Rejected:
    return Rejected(message, hint, condition="FUNCTION")


#: ``module:function``, which the module defines.
Function = Annotated[str, AfterValidator(check_function)]


def imported(name: str, key: str) -> Any:  # noqa: ANN401  # any object of the user's module
    """Return the function ``module:function`` at a key of the config file. Raises ConfigError."""
    module, _, function = name.partition(":")
    try:
        attribute = getattr(importlib.import_module(module), function)
        if not callable(attribute):
            raise TypeError(f"it is of type {type(attribute).__name__}")
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        raise stop("EOS_CONFIG_FUNCTION.import", key=key, name=name, cause=cause_of(error)) from error
    return attribute


def cause_of(error: BaseException) -> str:
    """Return the error's first line, and the line of the user's code that it comes from."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _NOT_THE_USERS.search(f.filename)]
    location = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {first_line(error)}{location}"
