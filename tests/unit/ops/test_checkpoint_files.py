"""The files of a dropped micro-batch, which are moved out of a checkpoint's offset log, on a disk and in an object
store."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import open_store
from spark_eos.errors import CommandError
from spark_eos.ops.checkpoint_files import DroppedFiles, put

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


def test_whoever_takes_over_leaves_no_place_to_move_to(tmp_path: Path):
    """Right between the last look and the move; what was moved before is kept."""
    where = str(tmp_path)
    for name, text in LOGS.items():
        write(where, name, text)
    first = dropped(where)
    rename = first._rename

    def overtaken(name: str, to: str) -> None:
        if name == "offsets/3":
            dropped(where, 8).move(3)
            write(where, "offsets/3", "anew")
        rename(name, to)

    first._rename = overtaken  # type: ignore[method-assign]
    with pytest.raises(Exception, match="EOS_REPLAY_NOT_WRITTEN"):  # as nobody tells it here that it was overtaken
        first.move(3)
    assert there(where, "offsets/3", "dropped/8/3", "dropped/7/.3.crc") == ["anew", "o3", "x"]
    assert sorted(path.name for path in (tmp_path / "dropped").iterdir()) == ["7", "8"]
