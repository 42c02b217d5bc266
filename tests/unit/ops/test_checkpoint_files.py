"""Files that are moved out of a checkpoint's logs, on a disk and in an object store."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import open_store
from spark_eos.errors import CommandError
from spark_eos.ops.checkpoint_files import MovedFiles, put

SETTINGS = HadoopSettings()
LOGS = (
    {f"offsets/{n}": f"o{n}" for n in range(4)} | {f"commits/{n}": f"c{n}" for n in range(3)} | {"offsets/.3.crc": "x"}
)


@pytest.fixture(params=["disk", "object store"])
def location(request, tmp_path) -> str:
    where = str(tmp_path / "c") if request.param == "disk" else f"memory://bucket-{uuid.uuid4().hex}/c"
    for name, text in LOGS.items():
        write(where, name, text)
    return where


def write(location: str, name: str, text: str) -> None:
    put(open_store(location, SETTINGS), name, text.encode())


def there(location: str, *names: str) -> list[str | None]:
    store, found = open_store(location, SETTINGS), []
    for name in names:
        try:
            with store.files.open_input_stream(f"{store.root}/{name}") as stream:
                found.append(stream.read().decode())
        except FileNotFoundError:
            found.append(None)
    return found


def aside(location: str, generation: int = 7, still: Callable[[], None] = lambda: None) -> MovedFiles:
    return MovedFiles(location, SETTINGS, "dropped", generation, still, "drop.moved")


def test_what_is_later_is_kept_under_its_own_name(location):
    """With its checksums; and beside what was kept before."""
    aside(location).move(["commits", "offsets"], 1)
    assert there(location, "offsets/1", "offsets/2", "offsets/3", "offsets/.3.crc") == ["o1", None, None, None]
    assert there(location, "dropped/offsets/3", "dropped/offsets/.3.crc", "dropped/commits/2") == ["o3", "x", "c2"]
    write(location, "offsets/3", "anew")
    aside(location, 9).move(["offsets"], 2, 3)
    assert there(location, "offsets/3", "dropped/offsets/3", "dropped/offsets/3.1") == [None, "o3", "anew"]


def test_only_micro_batches_that_are_meant(location):
    """A later one is somebody else's."""
    aside(location).move(["offsets"], 1, 2)
    assert there(location, "offsets/1", "offsets/2", "offsets/3") == ["o1", None, "o3"]


def test_a_file_that_has_changed_is_left(location):
    """It was planned anew since the query was halted."""
    looks = iter(range(9))

    def still() -> None:
        if next(looks) == 1:
            write(location, "offsets/3", "anew")
            write(location, "offsets/.3.crc", "anew")

    with pytest.raises(CommandError, match="EOS_COMMAND_OVERTAKEN"):
        aside(location, still=still).move(["offsets"], 2)
    assert there(location, "offsets/3", "offsets/.3.crc") == ["anew", "anew"]


def test_whoever_takes_over_leaves_no_place_to_move_to(tmp_path: Path):
    """Right between the last look and the move; what was moved before is kept."""
    where = str(tmp_path)
    for name, text in LOGS.items():
        write(where, name, text)
    first = aside(where)
    rename = first._rename

    def overtaken(name: str, to: str) -> None:
        if name == "offsets/3":
            aside(where, 8).move(["offsets"], 2)
            write(where, "offsets/3", "anew")
        rename(name, to)

    first._rename = overtaken  # type: ignore[method-assign]
    with pytest.raises(Exception, match="EOS_REPLAY_NOT_WRITTEN"):  # as nobody tells it here that it was overtaken
        first.move(["offsets"], 2)
    assert there(where, "offsets/3", "dropped/offsets/3", "dropped/offsets/.3.crc") == ["anew", "o3", "x"]
    assert sorted(path.name for path in (tmp_path / "dropped").iterdir()) == ["offsets"]
