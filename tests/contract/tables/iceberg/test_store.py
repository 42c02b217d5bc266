"""An Iceberg table whose files are in an object store, and its catalog on SQLite."""

from __future__ import annotations

import pickle
from collections import Counter

import pyarrow.fs

from tests.support.runs.page_programs import run_program
from tests.support.servers.object_store import SECRET_KEY, object_store
from tests.support.tables.delta_files import SCHEMA, micro_batch, records
from tests.support.tables.table_kinds import Iceberg, expected, files_of


def test_tasks_write_files_to_the_store_by_the_catalogs_properties(tmp_path) -> None:
    """They get them with the plan; the driver finds the files there. No secret is in the plan's text. What failed tasks
    have left there is swept by the program of docs/iceberg.md, as days have passed."""
    with object_store(tmp_path) as store:
        kind = Iceberg(tmp_path)
        kind.more = store.catalog
        target = pickle.loads(pickle.dumps(kind.place().target(SCHEMA, create=True)))
        assert SECRET_KEY not in repr(target)
        batches = [micro_batch(0, (0, 0, 3)), micro_batch(1, (0, 3, 5), (1, 0, 1))]
        for batch in batches:
            files = files_of(target, batch)
            assert not target.commit(batch, files, len(records(batch)), is_there=False).again
            assert target.commit(batch, files, len(records(batch)), is_there=False).again
        (orphan,) = files_of(target, batches[1])
        names = {'load_catalog("default")': "opened", '"lake.flights"': "name", "- 3 * 24 * 3600": "+ 3600"}
        run_program("iceberg.md", "delete_file", names, opened=kind.opened(), name=kind.table)
        files = target.store().files.get_file_info(pyarrow.fs.FileSelector(target.store().root, recursive=True))
        there = {file.base_name for file in files if file.is_file}
        assert orphan.path not in there and len(there) == 2
        found = Counter((row["partition"], row["offset"]) for row in kind.load().scan().to_arrow().to_pylist())
        assert found == expected(*batches)
