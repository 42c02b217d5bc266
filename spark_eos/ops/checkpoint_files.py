"""Files of checkpoints, as commands change them: `DroppedFiles` moves the file of a planned micro-batch out of the
offset log, with its checksums; `NewCheckpoint` writes the files of a new checkpoint.

A command may stall at any moment, while another run of it finishes and the query continues. When it wakes up, it must
not move a file of the continued query. A check before each move is not enough, as it may stall after the check. So it
moves files into a folder of its own, which any later command renames first: from then on, the stalled one has no folder
to move a file to.

1. Create the folder.
2. Check that the newest head in the ledger is still the one that this command has published. A later command publishes
   its head before it looks for folders, so that it finds this one.
3. Rename the folders of earlier commands.
4. Move each file, if it is the one that existed when this command had halted the query.
5. Rename the folder, so that a later command finds it as one that is done.

Object stores have no such folders. There a file is copied, compared and then deleted. A command that stalls between the
comparison and the delete would delete a file of the same name that was written meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from spark_eos.base import failpoints
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import NoStore, Store, open_store
from spark_eos.errors import EosError, stop
from spark_eos.protocol.commands import overtaken
from spark_eos.protocol.head import Unfinished

#: The folder, in the checkpoint, of dropped files, in a folder for each command.
DROPPED = "dropped"

#: A folder of a command that is moving files, before the generation of the head that it has published.
_AT_WORK = ".moving-"


class DroppedFiles:
    """The file of a planned micro-batch and its checksums, which a command moves from the offset log to `DROPPED`.

    ``generation``: of the head by which the command has halted the query; ``still`` raises where there is a newer head.

    Raises CheckpointError, ReplayError, and CommandError (EOS_COMMAND_OVERTAKEN).
    """

    def __init__(self, location: str, settings: HadoopSettings, generation: int, still: Callable[[], None]) -> None:
        self._store = open_store(location, settings.on_this_machine())
        self._checkpoint = Checkpoint(location, settings)
        self._still = still
        self._own = f"{_AT_WORK if self._store.renames else ''}{generation}"

    def move(self, batch: int) -> None:
        try:
            self._make(self._own)
            self._still()
            self._close_earlier()
            judged = {name: self._read(f"offsets/{name}") for name in self._of(batch)}
            for name, content in judged.items():
                self._still()
                self._check(f"offsets/{name}", content)
                self._move(name, content)
                failpoints.reach("drop.moved")
            self._still()
        finally:
            self._remove_empty(self._own)
        if self._own in self._checkpoint.names(DROPPED):
            self._close(self._own)

    def _close_earlier(self) -> None:
        """Rename the folders of earlier commands, so that they cannot move another file."""
        for name in self._checkpoint.names(DROPPED):
            if name.startswith(_AT_WORK) and name != self._own:
                self._close(name)

    def _close(self, folder: str) -> None:
        if self._store.renames:
            self._rename(f"{DROPPED}/{folder}", f"{DROPPED}/{folder.removeprefix(_AT_WORK)}")

    def _of(self, batch: int) -> list[str]:
        """Return the files of a micro-batch: 7, .7.crc, and 7.crc with its own .7.crc.crc. A checksum comes before its
        file: Spark reads a file without a checksum, and cannot write one where a checksum was left behind."""
        pattern = re.compile(rf"\.?{batch}(\.crc)*")
        return sorted(filter(pattern.fullmatch, self._checkpoint.names("offsets")), key=len, reverse=True)

    def _move(self, name: str, content: bytes) -> None:
        if self._store.renames:
            self._rename(f"offsets/{name}", f"{DROPPED}/{self._own}/{name}")
            return
        dropped = f"{DROPPED}/{self._own}/{name}"
        with _written(self._store, dropped):
            self._store.write(dropped, content)
        self._still()
        self._check(f"offsets/{name}", content)
        with _written(self._store, name):
            self._store.files.delete_file(f"{self._store.root}/offsets/{name}")

    def _remove_empty(self, folder: str) -> None:
        if self._store.local:
            with contextlib.suppress(OSError):
                Path(self._store.root, DROPPED, folder).rmdir()

    def _make(self, folder: str) -> None:
        if self._store.renames:
            with _written(self._store, DROPPED):
                self._store.files.create_dir(f"{self._store.root}/{DROPPED}/{folder}", recursive=True)

    def _check(self, name: str, content: bytes) -> None:
        """Raise CommandError unless the file is the one that was there when the query was halted."""
        if self._read(name) != content:
            raise overtaken(f"{name} is not the file that was there when the query was halted")

    def _read(self, name: str) -> bytes:
        with _written(self._store, name):
            try:
                with self._store.files.open_input_stream(f"{self._store.root}/{name}") as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                raise overtaken(f"{name} is gone") from None

    def _rename(self, name: str, to: str) -> None:
        """Raise CommandError if this command was overtaken, so that its folder, or the file, is gone."""
        with _written(self._store, name, self._still):
            self._store.files.move(f"{self._store.root}/{name}", f"{self._store.root}/{to}")


class NewCheckpoint:
    """The checkpoint of a replay: the files of a query that has done micro-batch 0 and stopped.

    The version and the metadata are copied from the old checkpoint, as the same Spark has written them. Spark does not
    miss the checksums, which are left out. Raises ReplayError.
    """

    def __init__(self, location: str, settings: HadoopSettings) -> None:
        self.location = location
        self._checkpoint = Checkpoint(location, settings)
        try:
            self._store = open_store(location, settings.on_this_machine())
        except NoStore as why:
            raise stop("EOS_CHECKPOINT_STORE.unwritable", location=location, why=why) from None

    @staticmethod
    def contents(query: str, unfinished: Unfinished) -> dict[str, str]:
        """Return the files by name, in the order in which they are written. Once the first exists, a start finds the
        new query's head in the ledger, and stops."""
        return {
            "metadata": json.dumps({"id": query}, separators=(",", ":")),
            "offsets/0": "\n".join([*unfinished.metadata, *unfinished.lines]),
            "commits/0": "\n".join(unfinished.done),
        }

    def check_free(self) -> None:
        """Raise ReplayError if there is any file."""
        names = [name for folder in ("", "offsets", "commits") for name in self._checkpoint.names(folder)]
        if names:
            raise self._used(f"{names[0]} exists there")

    def write(self, files: dict[str, str], still: Callable[[], None] = lambda: None) -> None:
        """Write the files, except files that an interrupted command has written. ``still`` is called before each, and
        raises where another command has taken over. Raises ReplayError where a file exists with other content.

        A micro-batch that Spark has planned after 0, at a start that was refused, stays: it continues from these files.
        """
        for path, text in files.items():
            still()
            there = self._checkpoint.read(path)
            if there is not None and there != text:
                raise self._used(f"{path} exists with other content")
            if there is None:
                with _written(self._store, path, still):
                    self._store.write(path, text.encode())
            failpoints.reach("replay.filed")

    def _used(self, why: str) -> EosError:
        return stop("EOS_REPLAY_REFUSED.target_used", location=self.location, why=why)


@contextlib.contextmanager
def _written(store: Store, name: str, still: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Turn an OSError of writing or moving a file into ReplayError, after a call of ``still``, which raises if the
    cause is another command that has moved the file."""
    try:
        yield
    except OSError as error:
        still()
        raise stop("EOS_REPLAY_NOT_WRITTEN", root=store.root, name=name, cause=type(error).__name__) from None
