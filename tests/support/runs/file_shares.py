"""How a run by several processes deals out test files.

Long ones come first, as short ones fill what is left at the end. Files that share a cluster, a wheel or a session go to
one process, which starts that once; `cluster` and `spark` are in each process.
"""

from __future__ import annotations

from typing import Any

import pytest

#: Each share goes to one process as a whole. In order of their length; files that are not named come after these.
SHARES = (
    ("tests/integration/pipelines/mirror/",),  # the second cluster
    (  # the wheel, and environments with it
        "tests/integration/test_setup.py",
        "tests/integration/test_quickstart.py",
        "tests/integration/jobs/test_production.py",
        "tests/integration/tools/devcluster/",
    ),
    ("tests/integration/jobs/test_job.py",),
    ("tests/integration/pipelines/registry/",),  # the schema registry
    ("tests/integration/jobs/test_delta_",),  # the session that knows Delta
    (  # the cluster where something is forbidden
        "tests/integration/ops/test_doctor.py",
        "tests/integration/sink/test_rights.py",
        "tests/integration/source/test_rights.py",
        "tests/integration/kafka/test_same_scenarios.py",
    ),
    ("tests/integration/test_acls.py", "tests/integration/test_secure.py"),  # the cluster with users and certificates
    ("tests/integration/sink/test_foreach_batch.py",),
    ("tests/chaos/test_from_table_kills.py",),
    ("tests/chaos/test_kills.py",),
    ("tests/chaos/test_runs.py",),
    ("tests/integration/sink/test_batch_writes.py",),
    ("tests/integration/sink/test_looking_back.py",),
    ("tests/integration/jobs/test_kafka_to_iceberg.py",),
    ("tests/integration/jobs/test_local_checkpoint.py",),
    ("tests/integration/test_connect.py",),
    ("tests/integration/pipelines/copy/test_replays.py",),
    ("tests/integration/ops/test_replay.py",),
)


def share_of(nodeid: str) -> int:
    """The place of a test's file in `SHARES`; its length for all others."""
    return next((i for i, files in enumerate(SHARES) if nodeid.startswith(files)), len(SHARES))


def scheduler(config: pytest.Config, log: Any) -> Any:
    """Deals out `SHARES`, then file by file, in the order of the tests."""
    from xdist.scheduler import LoadFileScheduling

    class Shares(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            share = share_of(nodeid)
            return super()._split_scope(nodeid) if share == len(SHARES) else SHARES[share][0]

    return Shares(config, log)
