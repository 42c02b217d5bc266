"""The sink's options of a query to a table, by the kind of table."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_eos.errors import invalid_option, missing_option, stop
from spark_eos.spi import HadoopSettings, absolute

if TYPE_CHECKING:
    from spark_eos.pipelines.tables.target import Place

#: The values of the sink's option ``format`` for a table.
DELTA, ICEBERG = "delta", "iceberg"
KINDS = (DELTA, ICEBERG)
_DELTA_OPTIONS = ("format", "path", "schema", "partitionBy", "afterRestore")
_ICEBERG_OPTIONS = ("format", "table", "catalog", "schema", "partitionBy", "afterRollback")
#: Prefixes of the properties of a Delta table that is created, and of those of an Iceberg catalog.
_DELTA_PROPERTY, _CATALOG_PROPERTY = "delta.", "catalog."
_NO_SETTINGS = HadoopSettings()


@dataclass(frozen=True)
class DeltaOptions:
    """``partition_by`` and ``properties`` are for a table that is created; ``after_restore``: the version of a RESTORE
    after which the query goes on; ``storage``: settings ``fs.…``; ``evolves``: columns that the table lacks are
    added."""

    path: str
    partition_by: tuple[str, ...] = ()
    after_restore: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    storage: HadoopSettings = _NO_SETTINGS
    evolves: bool = False

    @property
    def mark(self) -> dict[str, str]:
        """The options that tell which table it is, for the offset log."""
        return {"format": DELTA, "path": absolute(self.path)}

    def place(self, storage: HadoopSettings) -> Place:
        """Where the table is. ``storage``: the settings, with those of this machine.
        Raises OptionError and UnsupportedError."""
        from spark_eos.pipelines.tables.delta.table import location_of
        from spark_eos.pipelines.tables.delta.target import DeltaPlace

        location = location_of(self.path, storage)
        return DeltaPlace(location, self.partition_by, self.properties, self.after_restore)


@dataclass(frozen=True)
class IcebergOptions:
    """``table``: its name in the catalog, ``namespace.name``; ``catalog``: the catalog's name; ``properties``: of the
    catalog, which may be secrets; ``partition_by``: of a table that is created, such as ``day(timestamp)``;
    ``after_rollback``: the query's snapshot that a rollback has removed from the table, after which it goes on;
    ``storage``: settings ``fs.…`` of the checkpoint's file system; ``evolves``: columns that the table lacks are
    added."""

    table: str
    catalog: str = "default"
    partition_by: tuple[str, ...] = ()
    after_rollback: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    storage: HadoopSettings = _NO_SETTINGS
    evolves: bool = False

    @property
    def mark(self) -> dict[str, str]:
        """The options that tell which table it is, for the offset log."""
        return {"format": ICEBERG, "table": self.table, "catalog": self.catalog}

    def place(self, storage: HadoopSettings) -> Place:
        """Where the table is. Raises OptionError and UnsupportedError."""
        from spark_eos.pipelines.tables.iceberg.target import place_of

        return place_of(self.table, self.catalog, self.properties, self.partition_by, self.after_rollback)


def table_options(raw: Mapping[str, str], session: Mapping[str, str]) -> DeltaOptions | IcebergOptions:
    """Parse the sink's options. ``session``: its settings of file systems. Raises OptionError."""
    is_iceberg = raw.get("format", "").lower() == ICEBERG
    return _iceberg(raw, session) if is_iceberg else _delta(raw, session)


def _delta(raw: Mapping[str, str], session: Mapping[str, str]) -> DeltaOptions:
    from spark_eos.options import values

    options, storage = HadoopSettings.split_off(raw, session)
    given, properties = _given(options, _DELTA_OPTIONS, _DELTA_PROPERTY)
    if "path" not in given:
        raise missing_option("path", "it names the table", "a local path or s3a://BUCKET/PATH")
    restored = given.get("afterRestore")
    return DeltaOptions(
        values.parse_text("path", given["path"]),
        _listed(given),
        None if restored is None else values.parse_batch("afterRestore", restored),
        {_DELTA_PROPERTY + name: value for name, value in properties.items()},
        storage,
        _evolves(given),
    )


def _iceberg(raw: Mapping[str, str], session: Mapping[str, str]) -> IcebergOptions:
    from spark_eos.options import values
    from spark_eos.pipelines.tables.keys import key_of

    options, storage = HadoopSettings.split_off(raw, session)
    given, properties = _given(options, _ICEBERG_OPTIONS, _CATALOG_PROPERTY)
    if "table" not in given:
        raise missing_option(
            "table", "rows go to an Iceberg table", "the table's name in its catalog, such as flights.delays"
        )
    if "." not in given["table"] or not all(given["table"].split(".")):
        raise invalid_option(
            "table", f"{given['table']}, which is no name of a table in a namespace", "a name such as flights.delays"
        )
    partition_by, removed = _listed(given), given.get("afterRollback")
    for part in partition_by:
        key_of(part)
    return IcebergOptions(
        values.parse_text("table", given["table"]),
        values.parse_text("catalog", given.get("catalog", "default")),
        partition_by,
        None if removed is None else values.parse_batch("afterRollback", removed),
        properties,
        storage,
        _evolves(given),
    )


def _given(options: Mapping[str, str], names: Collection[str], prefix: str) -> tuple[dict[str, str], dict[str, str]]:
    """The options by their names, in any case; and those with the prefix, without it. Raises OptionError."""
    own = {name.lower(): name for name in names}
    given, properties = {}, {}
    for key, value in options.items():
        if key.startswith(prefix):
            properties[key.removeprefix(prefix)] = value
        elif key.lower() in own:
            given[own[key.lower()]] = value
        else:
            raise stop("EOS_OPTION_UNKNOWN.option", option=key, names=f"{', '.join(names)}, delta.*, fs.*")
    return given, properties


def _evolves(given: Mapping[str, str]) -> bool:
    chosen = given.get("schema", "fail").strip().lower()
    if chosen not in ("fail", "evolve"):
        raise invalid_option(
            "schema",
            f"'{given['schema']}'",
            ("fail, the default, to refuse columns that the table lacks, or evolve, to add them when the query starts"),
        )
    return chosen == "evolve"


def _listed(given: Mapping[str, str]) -> tuple[str, ...]:
    """The parts of the option, as of ``topic, bucket(16, id)``."""
    parts = re.split(r",(?![^(]*\))", given.get("partitionBy", ""))
    return tuple(filter(None, (part.strip() for part in parts)))
