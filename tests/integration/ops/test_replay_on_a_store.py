"""Checkpoints in an object store: shown, and replayed to another place there."""

from __future__ import annotations

import json

import pyarrow.fs

from tests.support.servers.object_store import ObjectStore, object_store


def files(store: ObjectStore, folder: str) -> set[str]:
    """What another client sees."""
    found = store.files.get_file_info(pyarrow.fs.FileSelector(f"{store.bucket}/{folder}", recursive=True))
    return {info.path for info in found if info.is_file}


def test_a_checkpoint_in_an_object_store(quiet, topic, tmp_path):
    """With the settings of the store on the command line; the new one has the files of one that has begun."""
    with object_store(tmp_path) as store:
        names = ["metadata", *(f"{log}/{n}" for log in ("offsets", "commits") for n in range(4))]
        for name in names:
            store.put(f"c/{name}", (quiet.checkpoint / name).read_text())
        storage = [word for key, value in store.settings.items() for word in ("--storage", f"{key}={value}")]
        old, new = f"s3a://{store.bucket}/c", f"s3a://{store.bucket}/new"
        shown = quiet.status(old, *storage)
        assert (shown["checkpoint"]["planned"], len(shown["sinks"])) == ([0, 1, 2, 3], 1)
        words = ["replay", old, "--new", new, "--to-batch", "1", "--topic", topic(), "--yes", *storage]
        told = quiet.told(*words)
        assert (told["new_checkpoint"], told["dry_run"]) == (new, False)
        assert files(store, "new") == {f"{store.bucket}/new/{name}" for name in ("metadata", "offsets/0", "commits/0")}
        with store.files.open_input_stream(f"{store.bucket}/new/metadata") as stream:
            assert json.loads(stream.read())["id"] == told["new_query"]
        quiet.refused("EOS_REPLAY_REFUSED", *words)
