"""Files that commands change, on a disk and in an object store: those of a dropped micro-batch, which are moved out of
a checkpoint's offset log, and those of a new checkpoint."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable

import pytest

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import open_store
from spark_eos.errors import CommandError, ReplayError
from spark_eos.ops.checkpoint_files import DroppedFiles, NewCheckpoint
from spark_eos.protocol.head import Unfinished
from tests.support.judges.conditions import raises

SETTINGS = HadoopSettings()
LOGS = (
    {f"offsets/{n}": f"o{n}" for n in range(4)} | {f"commits/{n}": f"c{n}" for n in range(3)} | {"offsets/.3.crc": "x"}
)
UNFINISHED = Unfinished("old", "/old", "/new", 0, ('{"t":{"0":4}}', '{"u":{"0":5}}'), ("v1", '{"a":1}'), ("v1", "{}"))
FILES = NewCheckpoint.contents("new", UNFINISHED)


@pytest.fixture(params=["disk", "object store"])
def free(request, tmp_path) -> str:
    """A location in a file system that renames, and in one that does not."""
    return str(tmp_path / "c") if request.param == "disk" else f"memory://bucket-{uuid.uuid4().hex}/c"


@pytest.fixture
def location(free) -> str:
    for name, text in LOGS.items():
        write(free, name, text)
    return free


def write(location: str, name: str, text: str) -> None:
    open_store(location, SETTINGS).write(name, text.encode())


def there(location: str, *names: str) -> list[str | None]:
    store, found = open_store(location, SETTINGS), []
    for name in names:
        try:
            with store.files.open_input_stream(f"{store.root}/{name}") as stream:
                found.append(stream.read().decode())
        except FileNotFoundError:
            found.append(None)
    return found


def dropped(location: str, generation: int = 7, still: Callable[[], None] = lambda: None) -> DroppedFiles:
    return DroppedFiles(location, SETTINGS, generation, still)


def test_what_is_dropped_is_kept_under_its_own_name(location):
    """With its checksums; and beside what was kept before. Other micro-batches stay."""
    dropped(location).move(3)
    assert there(location, "offsets/2", "offsets/3", "offsets/.3.crc") == ["o2", None, None]
    assert there(location, "dropped/7/3", "dropped/7/.3.crc", "commits/2") == ["o3", "x", "c2"]
    write(location, "offsets/3", "anew")
    write(location, "offsets/33", "another")
    dropped(location, 9).move(3)
    assert there(location, "offsets/3", "offsets/33", "dropped/7/3", "dropped/9/3") == [None, "another", "o3", "anew"]


def test_a_file_that_has_changed_is_left(location):
    """It was planned anew since the query was halted."""
    looks = iter(range(9))

    def still() -> None:
        if next(looks) == 1:
            write(location, "offsets/3", "anew")
            write(location, "offsets/.3.crc", "anew")

    with pytest.raises(CommandError, match="EOS_COMMAND_OVERTAKEN"):
        dropped(location, still=still).move(3)
    assert there(location, "offsets/3", "offsets/.3.crc") == ["anew", "anew"]


def test_a_folder_that_cannot_be_made(tmp_path):
    """Nothing is moved, and the error has a name."""
    where = str(tmp_path)
    for name, text in LOGS.items():
        write(where, name, text)
    (tmp_path / "dropped").write_text("a file of somebody's")
    with pytest.raises(ReplayError, match="EOS_REPLAY_NOT_WRITTEN"):
        dropped(where).move(3)
    assert there(where, "offsets/3", "offsets/.3.crc") == ["o3", "x"]


def test_a_new_checkpoint_is_that_of_a_query_that_has_done_micro_batch_0(free):
    """In Spark's format; the first file is that which makes a start meet the head that refuses it."""
    assert list(FILES) == ["metadata", "offsets/0", "commits/0"]
    target = NewCheckpoint(free, SETTINGS)
    target.check_free()
    target.write(FILES)
    assert there(free, *FILES) == [*FILES.values()]
    assert json.loads(FILES["metadata"]) == {"id": "new"}
    assert FILES["offsets/0"].splitlines() == ["v1", '{"a":1}', *UNFINISHED.lines]
    assert FILES["commits/0"].splitlines() == ["v1", "{}"]


def test_what_an_interrupted_replay_has_left_out_is_written(free):
    """And nothing is written over, so that a repeated command changes nothing."""
    target = NewCheckpoint(free, SETTINGS)
    target.write({"metadata": FILES["metadata"]})
    for _ in range(2):
        target.write(FILES)
    assert there(free, *FILES) == [*FILES.values()]


@pytest.mark.parametrize("name", FILES)
def test_a_place_that_is_not_free(name, free):
    """Whatever is there is somebody's."""
    target = NewCheckpoint(free, SETTINGS)
    target.write({name: "another"})
    for step in (target.check_free, lambda: target.write(FILES)):
        with raises("EOS_REPLAY_REFUSED", free):
            step()
