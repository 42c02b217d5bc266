"""The files of a new checkpoint, in file systems that rename and in those that do not."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import absolute, open_store
from spark_eos.errors import ReplayError
from spark_eos.ops.checkpoint_files import NewCheckpoint
from spark_eos.protocol.head import Unfinished

UNFINISHED = Unfinished("old", "/old", "/new", 0, ('{"t":{"0":4}}', '{"u":{"0":5}}'), ("v1", '{"a":1}'), ("v1", "{}"))
FILES = NewCheckpoint.contents("new", UNFINISHED)


@pytest.fixture(params=["disk", "object store"])
def location(request, tmp_path) -> str:
    return str(tmp_path / "new") if request.param == "disk" else f"memory://bucket-{uuid.uuid4().hex}/new"


def there(location: str) -> dict[str, str]:
    """What is there, by the file system itself."""
    store = open_store(location, HadoopSettings())
    found = {}
    for name in ("metadata", "offsets/0", "commits/0"):
        try:
            with store.files.open_input_stream(f"{store.root}/{name}") as stream:
                found[name] = stream.read().decode()
        except FileNotFoundError:
            continue
    return found


def test_the_files_are_those_of_a_query_that_has_done_micro_batch_0(location):
    """In Spark's format; the first one is that which makes a start meet the head that refuses it."""
    assert list(FILES) == ["metadata", "offsets/0", "commits/0"]
    target = NewCheckpoint(location, HadoopSettings())
    target.check_free()
    target.write(FILES)
    assert there(location) == FILES
    assert json.loads(FILES["metadata"]) == {"id": "new"}
    assert FILES["offsets/0"].splitlines() == ["v1", '{"a":1}', *UNFINISHED.lines]
    assert FILES["commits/0"].splitlines() == ["v1", "{}"]


def test_what_an_interrupted_replay_has_left_out_is_written(location):
    """And nothing is written over, so that a repeated command changes nothing."""
    target = NewCheckpoint(location, HadoopSettings())
    target.write({"metadata": FILES["metadata"]})
    target.write(FILES)
    target.write(FILES)
    assert there(location) == FILES


@pytest.mark.parametrize("name", FILES)
def test_a_place_that_is_not_free(name, location):
    """Whatever is there is somebody's."""
    target = NewCheckpoint(location, HadoopSettings())
    target.write({name: "another"})
    for step in (target.check_free, lambda: target.write(FILES)):
        with pytest.raises(ReplayError) as caught:
            step()
        assert caught.value.condition == "EOS_REPLAY_REFUSED"


def test_places_are_put_down_whole(monkeypatch, tmp_path):
    """The command that finishes a replay may be run in another folder."""
    monkeypatch.chdir(tmp_path)
    assert absolute("new") == str(Path(tmp_path, "new"))
    assert absolute("s3a://lake/new") == "s3a://lake/new"
    assert absolute("/data/new") == "/data/new"
