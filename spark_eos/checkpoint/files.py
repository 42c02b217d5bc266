"""The checkpoint of a streaming query, as far as the sink needs it: the query's id and the offset log. Read-only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import pyarrow.fs

from spark_eos.checkpoint.settings import HadoopSettings, here
from spark_eos.checkpoint.stores import NoStore, open_store, without_secrets
from spark_eos.errors import EosError, stop
from spark_eos.protocol.head import Offsets

_NO_SETTINGS = HadoopSettings()
#: What a store says of somebody who may not ask, or asks in the wrong place. Anything else may pass.
_LASTING = re.compile(r"ACCESS_DENIED|INVALID|SIGNATURE|NO_SUCH|NOT_FOUND|denied|forbidden|HTTP status 40[0134]", re.I)


class Checkpoint:
    """The checkpoint at ``location``, as `spark_eos.checkpoint.stores` reads locations. ``settings`` are those of the
    session and the query.

    A store that does not let itself be read raises CheckpointError: EOS_CHECKPOINT_STORE, or, where that may pass,
    EOS_CHECKPOINT_UNREACHABLE.
    """

    def __init__(self, location: str, settings: HadoopSettings = _NO_SETTINGS) -> None:
        self.location = location
        self._settings = here(settings)
        try:
            store = open_store(location, self._settings)
        except NoStore as why:
            raise self._closed(str(why)) from None
        self._files, self._root, self._local = store.files, store.root, store.local

    def query_id(self) -> str | None:
        """The query's id; None before its first start. Spark writes it before it plans anything."""
        text = self.read("metadata")
        if text is None:
            return None
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError):
            raise self.damaged("metadata", "it is not the JSON that Spark writes") from None

    def last_batch(self, log: str) -> int | None:
        """The newest batch in the log ``offsets`` or ``commits``; None if there is none."""
        return max(self.batches(log), default=None)

    def batches(self, log: str) -> list[int]:
        """The micro-batches in the log ``offsets`` or ``commits``, in order."""
        return sorted(int(name) for name in self.names(log) if name.isdigit())

    def names(self, folder: str = "") -> list[str]:
        """What is in a folder of the checkpoint; nothing where it is not there."""
        return [PurePosixPath(info.path).name for info in self._infos(folder)]

    def times(self, log: str) -> dict[int, float]:
        """When each micro-batch of a log was written, in seconds of the epoch, by the file system's clock, where that
        tells."""
        found = {PurePosixPath(info.path).name: info.mtime_ns for info in self._infos(log)}
        return {int(name): nanos / 1e9 for name, nanos in found.items() if name.isdigit() and nanos is not None}

    def _infos(self, folder: str) -> list[pyarrow.fs.FileInfo]:
        selector = pyarrow.fs.FileSelector(f"{self._root}/{folder}".rstrip("/"), allow_not_found=True)
        try:
            return list(self._files.get_file_info(selector))
        except OSError as error:
            raise self._failed(folder or "the folder", error) from None

    def sources(self, batch: int) -> list[str]:
        """What each source of the query has written to the offset log of a micro-batch, as JSON; none if it is not
        there."""
        return (self.read(f"offsets/{batch}") or "").splitlines()[2:]

    def kafka_offsets(self, batch: int) -> Offsets:
        """End offsets of a micro-batch, exclusive, of all its Kafka sources: topic → partition → offset.

        Raises CheckpointError if the log is missing or damaged, has no Kafka source, or contains a topic twice.
        """
        name = f"offsets/{batch}"
        text = self.read(name)
        if text is None:
            raise self.damaged(name, "it is missing")
        lines = text.splitlines()
        if len(lines) < 3 or not lines[0].startswith("v"):
            raise self.damaged(name, "it does not have a version, metadata and one line for each source")
        merged: dict[str, Mapping[str, int]] = {}
        of_kafka = False
        for line in lines[2:]:
            try:
                offsets = _kafka_source(line)
            except ValueError:
                raise self.damaged(name, "the line of a source is truncated") from None
            of_kafka = of_kafka or offsets is not None
            for topic, partitions in (offsets or {}).items():
                if topic in merged:
                    raise stop("EOS_CHECKPOINT_WITHOUT_OFFSETS.topic_twice", topic=topic)
                merged[topic] = partitions
        if not of_kafka:
            raise stop("EOS_CHECKPOINT_WITHOUT_OFFSETS.no_kafka_source", location=self.location)
        return merged

    def topic_ids(self, batch: int) -> dict[str, str]:
        """Topic → id, by the offset log of a micro-batch, of the sources that write them there."""
        found: dict[str, str] = {}
        for ids, _ in self._marks(batch, "#ids"):
            found |= {topic: id_ for topic, id_ in ids.items() if isinstance(id_, str)}
        return found

    def cluster_ids(self, batch: int) -> dict[str, str]:
        """Topic → id of its cluster, by the offset log of a micro-batch, of the sources that note it there."""
        found: dict[str, str] = {}
        for cluster, line in self._marks(batch, "#cluster"):
            found |= {topic: str(cluster.get("id")) for topic in line if not topic.startswith("#")}
        return found

    def source_groups(self, batch: int) -> set[str]:
        """The consumer groups to which the sources of the query report by themselves."""
        return {str(group.get("id")) for group, _ in self._marks(batch, "#group")}

    def _marks(self, batch: int, name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """What our sources have written under this name to the offset log of a micro-batch, each with its line."""
        for line in self.sources(batch):
            try:
                raw: Any = json.loads(line)
            except ValueError:
                continue  # `kafka_offsets` tells of it
            found = raw.get(name) if isinstance(raw, dict) else None
            if isinstance(found, dict):
                yield found, raw

    def read(self, name: str) -> str | None:
        """The text of a file; None where it is not there."""
        try:
            with self._files.open_input_stream(f"{self._root}/{name}") as stream:
                content: bytes = stream.read()
                return content.decode()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise self.damaged(name, str(error)) from None
        except OSError as error:
            raise self._failed(name, error) from None

    def _failed(self, name: str, error: OSError) -> EosError:
        if self._local:
            return self.damaged(name, str(error))
        reason = without_secrets(str(error), self._settings)
        if isinstance(error, PermissionError) or _LASTING.search(reason):
            return self._closed(reason)
        return stop("EOS_CHECKPOINT_UNREACHABLE", location=self.location, name=name, why=reason)

    def elsewhere(self) -> EosError:
        """The error for a location that is empty although the query has started: Spark's files are somewhere else."""
        return self._closed("there is no file 'metadata', which Spark has written: Python reads another place")

    def _closed(self, why: str) -> EosError:
        return stop("EOS_CHECKPOINT_STORE.unreadable", location=self.location, why=why)

    def damaged(self, name: str, why: str) -> EosError:
        """The error for a file that cannot be used."""
        return stop("EOS_CHECKPOINT_DAMAGED.file", location=self.location, name=name, why=why)


def _kafka_source(line: str) -> Offsets | None:
    """A line of the offset log, if it belongs to a Kafka source: {"topic":{"0":123}}; None otherwise.

    Keys that begin with # are our source's, and no topics: its line may have nothing else, where none of its topics is
    left. Raises ValueError for a truncated JSON object, which may have belonged to a Kafka source.
    """
    try:
        raw: Any = json.loads(line)
    except ValueError:
        if line.startswith("{"):
            raise
        return None
    if not isinstance(raw, dict) or not raw:
        return None
    topics = {topic: partitions for topic, partitions in raw.items() if not topic.startswith("#")}
    shaped = all(
        isinstance(partitions, dict)
        and all(p.isdigit() and isinstance(offset, int) for p, offset in partitions.items())
        for partitions in topics.values()
    )
    return topics if shaped else None
