"""The examples in docs/delta.md for readers of tables, as they stand, with their data in a folder of the test."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.pipelines.copy.table.options import table_options
from tests.support.runs.page_programs import run_program
from tests.support.tables.delta_files import QUERY, micro_batch, records
from tests.support.tables.table_kinds import files_of

SCHEMA = pa.schema(
    [
        *(("key", pa.binary()), ("value", pa.binary())),
        *(("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())),
    ]
)
#: The second one reads from one partition alone, and the last one from none.
BATCHES = [
    micro_batch(0, (0, 0, 3), (2, 0, 2), topic="flights"),
    micro_batch(1, (0, 3, 9), topic="flights"),
    micro_batch(2, topic="flights"),
]
SINKS = {
    "deltalake": {"format": "delta", "path": "/data/flights"},
    "pyiceberg": {
        "format": "iceberg",
        "table": "lake.flights",
        "catalog.type": "sql",
        "catalog.uri": "sqlite:////data/catalog.db",
        "catalog.warehouse": "file:///data/warehouse",
    },
}
#: What only the example by this library has, and what it prints.
ENDS = {"deltalake": "import DeltaTable, QueryBuilder", "pyiceberg": "ends = {place"}
PRINTED = {
    "deltalake": "{0: 9, 1: None, 2: 2, 3: None} 1\n",
    "pyiceberg": "{'flights/0': 9, 'flights/2': 2} 1\n",
}


@pytest.mark.parametrize("library", SINKS)
def test_the_page_tells_how_far_a_table_is_and_finds_a_row(library: str, tmp_path: Path) -> None:
    """Of a table that the query has written, with the query's id in its checkpoint."""
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    sink = {name: value.replace("/data", str(tmp_path)) for name, value in SINKS[library].items()}
    target = table_options(sink, {}).reference(HadoopSettings()).target(SCHEMA, create=True)
    for batch in BATCHES:
        target.commit(batch, files_of(target, batch), len(records(batch)), is_there=False)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        run_program("delta.md", ENDS[library], {"/data": str(tmp_path)})
    assert printed.getvalue() == PRINTED[library]
