"""Files of a checkpoint's logs that are moved out of the way, within the checkpoint, each with its checksums."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import pyarrow.fs

from spark_eos import failpoints
from spark_eos.checkpoint import Checkpoint
from spark_eos.errors import ReplayError
from spark_eos.storage.settings import HadoopSettings, here
from spark_eos.storage.stores import Store, open_store

#: A file of a log, and its checksums: 7, .7.crc, and 7.crc with its own .7.crc.crc.
_OF_BATCH = re.compile(r"\.?(\d+)(?:\.crc)*")


def set_aside(location: str, settings: HadoopSettings, after: int, folder: str, point: str) -> None:
    """Move what the logs have of micro-batches after this one to a folder of the checkpoint, the latest first. Files
    that are there already are kept. ``point``: the failpoint that is reached after each file. May be repeated.

    Raises CheckpointError and ReplayError.
    """
    store = open_store(location, here(settings))
    for name, aside in _later(Checkpoint(location, settings), after, folder):
        move_aside(store, name, aside)
        failpoints.reach(point)


def _later(checkpoint: Checkpoint, after: int, folder: str) -> Iterator[tuple[str, str]]:
    """The files, the latest first, and where they are kept. Checksums go before what they are of: Spark reads a file
    without one, and cannot write one where a checksum was left behind."""
    for log in ("commits", "offsets"):
        kept = set(checkpoint.names(f"{folder}/{log}"))
        found = [(int(m[1]), name) for name in checkpoint.names(log) if (m := _OF_BATCH.fullmatch(name))]
        for number, name in sorted(found, key=lambda file: (-file[0], -len(file[1]))):
            if number > after:
                aside = next(n for n in _names(name) if n not in kept)
                yield f"{log}/{name}", f"{folder}/{log}/{aside}"


def _names(name: str) -> Iterator[str]:
    """For a file that is kept: its own name, or with a number if there is one of that name from an earlier time."""
    yield name
    number = 1
    while True:
        yield f"{name}.{number}"
        number += 1


def move_aside(store: Store, name: str, to: str) -> None:
    """Move a file within a checkpoint. Raises ReplayError."""
    try:
        store.files.create_dir(str(PurePosixPath(f"{store.root}/{to}").parent), recursive=True)
        info = store.files.get_file_info(f"{store.root}/{name}")
        if info.type is not pyarrow.fs.FileType.NotFound:
            store.files.move(f"{store.root}/{name}", f"{store.root}/{to}")
    except OSError as error:
        raise not_written(store, name, error) from None


def not_written(store: Store, name: str, error: OSError) -> ReplayError:
    """The error for a file that could not be written or moved."""
    return ReplayError(
        "EOS_REPLAY_NOT_WRITTEN",
        f"{store.root}/{name} could not be written or moved: {type(error).__name__}.",
        hint="Check the rights and the space there, then run the same command again, that of a replay with --finish: "
        "it goes on where this one has ended.",
    )
