"""The sink's options of a query to a table, by the kind of table."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_eos.errors import invalid_option, missing_option, stop
from spark_eos.spi import HadoopSettings, absolute

if TYPE_CHECKING:
    from spark_eos.pipelines.tables.target import TableReference

#: The values of the sink's option ``format`` for a table.
DELTA, ICEBERG = "delta", "iceberg"
KINDS = (DELTA, ICEBERG)
_DELTA_OPTIONS = ("format", "path", "schema", "partitionBy", "afterRestore")
_ICEBERG_OPTIONS = ("format", "table", "catalog", "schema", "partitionBy", "afterRollback")
#: Prefixes of a new Delta table's properties, and of an Iceberg catalog's.
_DELTA_PROPERTY, _CATALOG_PROPERTY = "delta.", "catalog."


@dataclass(frozen=True)
class TableOptions:
    """Options of a table as the sink. ``mark``: the options that identify the table, for the offset log; ``storage``:
    settings ``fs.…``; ``evolves``: columns that the table lacks are added; ``reference_in``: see `reference`, without
    secrets in its text."""

    mark: Mapping[str, str]
    storage: HadoopSettings
    evolves: bool
    reference_in: Callable[[HadoopSettings], TableReference] = field(repr=False)

    def reference(self, storage: HadoopSettings) -> TableReference:
        """Return where the table is. ``storage``: the settings, merged with this machine's. Raises OptionError and
        UnsupportedError."""
        return self.reference_in(storage)


def table_options(raw: Mapping[str, str], session: Mapping[str, str]) -> TableOptions:
    """Parse the sink's options. ``session``: its settings of file systems. Raises OptionError."""
    options, storage = HadoopSettings.split_off(raw, session)
    parse = _iceberg if raw.get("format", "").lower() == ICEBERG else _delta
    return parse(options, storage)


def _delta(options: Mapping[str, str], storage: HadoopSettings) -> TableOptions:
    from spark_eos.options import values

    given, properties = _given(options, _DELTA_OPTIONS, _DELTA_PROPERTY)
    if "path" not in given:
        raise missing_option("path", "it names the table", "a local path or s3a://BUCKET/PATH")
    path, restored, partition_by = values.parse_text("path", given["path"]), given.get("afterRestore"), _listed(given)
    after_restore = None if restored is None else values.parse_batch("afterRestore", restored)

    def reference(storage: HadoopSettings) -> TableReference:
        from spark_eos.pipelines.tables.delta.table import location_of
        from spark_eos.pipelines.tables.delta.target import DeltaReference

        created_with = {_DELTA_PROPERTY + name: value for name, value in properties.items()}
        return DeltaReference(location_of(path, storage), partition_by, created_with, after_restore)

    return TableOptions({"format": DELTA, "path": absolute(path)}, storage, _evolves(given), reference)


def _iceberg(options: Mapping[str, str], storage: HadoopSettings) -> TableOptions:
    from spark_eos.options import values
    from spark_eos.pipelines.tables.keys import key_of

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
    table, catalog = (
        values.parse_text("table", given["table"]),
        values.parse_text("catalog", given.get("catalog", "default")),
    )
    after_rollback = None if removed is None else values.parse_batch("afterRollback", removed)

    def reference(_: HadoopSettings) -> TableReference:
        from spark_eos.pipelines.tables.iceberg.target import reference_to

        return reference_to(table, catalog, properties, partition_by, after_rollback)

    mark = {"format": ICEBERG, "table": table, "catalog": catalog}
    return TableOptions(mark, storage, _evolves(given), reference)


def _given(options: Mapping[str, str], names: Collection[str], prefix: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options by name, in any case; and the options with the prefix, without it. Raises OptionError."""
    own = {name.lower(): name for name in names}
    given, properties = {}, {}
    for key, value in options.items():
        if key.startswith(prefix):
            properties[key.removeprefix(prefix)] = value
        elif key.lower() in own:
            given[own[key.lower()]] = value
        else:
            raise stop("EOS_OPTION_UNKNOWN.option", option=key, names=f"{', '.join(names)}, {prefix}*, fs.*")
    return given, properties


def _evolves(given: Mapping[str, str]) -> bool:
    chosen = given.get("schema", "fail").strip().lower()
    if chosen not in ("fail", "evolve"):
        raise invalid_option(
            "schema",
            f"'{given['schema']}'",
            "fail, the default, to refuse columns that the table lacks, or evolve, to add them when the query starts",
        )
    return chosen == "evolve"


def _listed(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the parts of the option, as of ``topic, bucket(16, id)``."""
    parts = re.split(r",(?![^(]*\))", given.get("partitionBy", ""))
    return tuple(filter(None, (part.strip() for part in parts)))
