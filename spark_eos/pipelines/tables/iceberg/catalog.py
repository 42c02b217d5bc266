"""Catalogs of Iceberg tables, by pyiceberg's own configuration: the query's properties override pyiceberg's file and
environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from spark_eos.base.caches import process_cache
from spark_eos.base.frozen_settings import Settings
from spark_eos.base.printable import hidden
from spark_eos.errors import EosError, stop
from spark_eos.pipelines.tables.files import FileLayout

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

#: The catalogs that commit a table only if it still is as the requirements say. One in memory forgets the table.
_CATALOGS = {
    ("pyiceberg.catalog.glue", "GlueCatalog"),
    ("pyiceberg.catalog.hive", "HiveCatalog"),
    ("pyiceberg.catalog.rest", "RestCatalog"),
    ("pyiceberg.catalog.sql", "SqlCatalog"),
}
#: Parts of the names of properties whose values are secrets.
_SECRET = ("auth", "credential", "header", "key", "password", "sas", "secret", "signer", "token")
_LONGEST = 400


class Properties(Settings):
    """Properties of a catalog or of a file system. The repr has no values, as some are secrets."""

    def __repr__(self) -> str:
        return f"Properties({sorted(self._values)})"


_NONE = Properties()


@dataclass(frozen=True)
class TableName:
    """A table by its name in a catalog. ``catalog``: the catalog's own name; ``properties``: the query's for it."""

    table: str
    catalog: str
    properties: Properties

    def load(self) -> Table:
        """Load the table as it is now. Raises TableError (EOS_ICEBERG_NO_TABLE, EOS_ICEBERG_TABLE.catalog), and errors
        of pyiceberg."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            return opened(self).load_table(self.table)
        except (NoSuchNamespaceError, NoSuchTableError):
            raise stop("EOS_ICEBERG_NO_TABLE", path=self.table) from None

    def cause(self, error: BaseException, store: Mapping[str, str] = _NONE) -> str:
        """Return a library's message in one line, without secrets. ``store``: properties of the table's file system."""
        text = " ".join(f"{type(error).__name__}: {_message(error)}".split())
        known = _connection(self.catalog, self.properties).known
        return without_secrets(text, self.properties, store, known)[:_LONGEST].rstrip(".:")


@dataclass(frozen=True)
class KnownTable:
    """A table as its query knows it since it began: plain data, which travels to tasks without pyiceberg.

    ``id``: the table's, which another one of its name does not have; ``folder``: where its files are, as its metadata
    has it; ``after_rollback``: the query's snapshot that a rollback has removed from the main branch, after which the
    query goes on.
    """

    name: TableName
    id: str
    layout: FileLayout
    folder: str
    after_rollback: int | None = None


def _message(error: BaseException) -> str:
    """Return the error's text. Where an answer is not as it has to be, pydantic's would show parts of it, with
    credentials."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or error.title}: {each['msg']}" for each in problems)


def opened(name: TableName) -> Catalog:
    """Return the catalog. Raises TableError (EOS_ICEBERG_TABLE.catalog) for one of another kind, and errors of
    pyiceberg."""
    catalog = _connection(name.catalog, name.properties).catalog()
    kind = type(catalog).__module__, type(catalog).__name__
    if kind not in _CATALOGS:
        raise stop("EOS_ICEBERG_TABLE.catalog", path=name.table, kind=kind[1])
    return catalog


def _configured(name: str) -> Mapping[str, Any]:
    """Return the properties of a catalog in pyiceberg's file and environment."""
    from pyiceberg.utils.config import Config

    try:
        return Config().get_catalog_config(name) or {}
    except Exception:  # to open the catalog fails by it, too
        return {}


class _Connection:
    """A catalog, which is opened when it is first needed, and again after a request that was overdue.

    ``known``: its known properties, also from pyiceberg's file and environment, and from the catalog itself.
    """

    def __init__(self, name: str, properties: Properties) -> None:
        self.known = _configured(name)
        self._name, self._properties = name, properties
        self._catalog: Catalog | None = None

    def catalog(self) -> Catalog:
        """Return the opened catalog. Raises pyiceberg's errors, and Overdue."""
        from pyiceberg.catalog import load_catalog

        from spark_eos.pipelines.tables.iceberg.rest import opened_in_time

        catalog = self._catalog
        if catalog is None:
            catalog = opened_in_time(lambda: load_catalog(self._name, **self._properties), overdue=self._forget)
            self._catalog, self.known = catalog, catalog.properties
        return catalog

    def _forget(self) -> None:
        self._catalog = None


@process_cache(maxsize=8)
def _connection(name: str, properties: Properties) -> _Connection:
    return _Connection(name, properties)


def without_secrets(text: str, *properties: Mapping[str, Any]) -> str:
    """Return the text with secret values replaced by ``***``, and the user information of addresses. ``properties``:
    texts, sections of them, and objects that pyiceberg keeps among them."""
    texts = [each for one in properties for each in _texts(one)]
    secrets = [value for name, value in texts if any(part in name.lower() for part in _SECRET)]
    return hidden(text, [*secrets, *map(unquote, secrets)], [value for _, value in texts])


def _texts(properties: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, str]]:
    """Yield name and value of each string. Names within sections are prefixed by the sections' names."""
    for name, value in properties.items():
        if isinstance(value, Mapping):
            yield from _texts(value, f"{within}{name}.")
        elif isinstance(value, str):
            yield f"{within}{name}", value


@contextmanager
def refused(name: TableName) -> Iterator[None]:
    """Turn exceptions of pyiceberg, the catalog or the store within the block into TableError: EOS_ICEBERG_UNREACHABLE
    where a catalog may answer in a while, else EOS_ICEBERG_FAILED."""
    from spark_eos.pipelines.tables.iceberg.rest import is_passing

    try:
        yield
    except EosError:
        raise
    except Exception as error:  # each catalog has a library of its own
        if is_passing(error):
            raise stop("EOS_ICEBERG_UNREACHABLE", path=name.table, cause=name.cause(error)) from None
        raise stop("EOS_ICEBERG_FAILED", cause=f"{name.cause(error)}, table {name.table}") from None


@contextmanager
def before_commit(name: TableName) -> Iterator[None]:
    """Turn permanent errors within the block, which sends no commit to the catalog, into TableError
    (EOS_ICEBERG_FAILED): the outcome is known, and another try would end in the same way. Errors of a store may be
    temporary, and are raised unchanged."""
    from spark_eos.pipelines.tables.iceberg.rest import is_passing

    try:
        yield
    except (EosError, OSError):
        raise
    except Exception as error:
        if is_passing(error):
            raise
        raise stop("EOS_ICEBERG_FAILED", cause=f"{name.cause(error)}, table {name.table}") from None
