"""The checkpoint of a streaming query, as far as the sink needs it: the query's id and the offset log. Read-only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import pyarrow.fs

from spark_eos.errors import CheckpointError
from spark_eos.protocol.head import Offsets
from spark_eos.protocol.new_checkpoint import FROM_GROUP


class Checkpoint:
    """The checkpoint at ``location``: a path, or a URI of a file system that pyarrow knows (file, hdfs, s3, gs, …)."""

    def __init__(self, location: str) -> None:
        self.location = location
        if "://" in location or location.startswith("file:"):
            self._files, self._root = pyarrow.fs.FileSystem.from_uri(location)
        else:
            self._files, self._root = pyarrow.fs.LocalFileSystem(), location

    def query_id(self) -> str | None:
        """The query's id; None before its first start."""
        text = self._read("metadata")
        if text is None:
            return None
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError):
            raise self._damaged("metadata", "it is not the JSON that Spark writes") from None

    def last_batch(self, log: str) -> int | None:
        """The newest batch in the log ``offsets`` or ``commits``; None if there is none."""
        selector = pyarrow.fs.FileSelector(f"{self._root}/{log}", allow_not_found=True)
        names = (PurePosixPath(info.path).name for info in self._files.get_file_info(selector))
        return max((int(name) for name in names if name.isdigit()), default=None)

    def kafka_offsets(self, batch: int) -> Offsets:
        """End offsets of a micro-batch, exclusive, of all its Kafka sources: topic → partition → offset.

        Raises CheckpointError if the log is missing or damaged, has no Kafka source, or contains a topic twice.
        """
        name = f"offsets/{batch}"
        text = self._read(name)
        if text is None:
            raise self._damaged(name, "it is missing")
        lines = text.splitlines()
        if len(lines) < 3 or not lines[0].startswith("v"):
            raise self._damaged(name, "it does not have a version, metadata and one line for each source")
        merged: dict[str, Mapping[str, int]] = {}
        for line in lines[2:]:
            offsets = _kafka_source(line)
            if offsets is None:
                raise self._damaged(name, "the line of a source is truncated")
            for topic, partitions in offsets.items():
                if topic in merged:
                    raise CheckpointError(
                        "EOS_CHECKPOINT_TOPIC_TWICE",
                        f"Topic {topic} is read by two sources of the query, so its offsets are ambiguous.",
                        hint="Read it once, or remove 'offsets.group.id'.",
                    )
                merged[topic] = partitions
        if not merged:
            raise CheckpointError(
                "EOS_CHECKPOINT_WITHOUT_KAFKA",
                f"'offsets.group.id' is set, but none of the sources of the query in {self.location} is a Kafka "
                "source.",
                hint="Remove 'offsets.group.id'.",
            )
        return merged

    def topic_ids(self, batch: int) -> dict[str, str]:
        """Topic → id, by the offset log of a micro-batch, of the sources that write them there."""
        text = self._read(f"offsets/{batch}") or ""
        found: dict[str, str] = {}
        for line in text.splitlines()[2:]:
            try:
                raw: Any = json.loads(line)
            except ValueError:
                continue  # `kafka_offsets` tells of it
            ids = raw.get("#ids") if isinstance(raw, dict) else None
            found |= {t: i for t, i in ids.items() if isinstance(i, str)} if isinstance(ids, dict) else {}
        return found

    def _read(self, name: str) -> str | None:
        try:
            with self._files.open_input_stream(f"{self._root}/{name}") as stream:
                content: bytes = stream.read()
                return content.decode()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise self._damaged(name, str(error)) from None

    def _damaged(self, name: str, why: str) -> CheckpointError:
        return CheckpointError(
            "EOS_CHECKPOINT_DAMAGED",
            f"{self.location}/{name} cannot be used: {why}.",
            hint="Restore a backup of the checkpoint, however old: decided rows are never written twice, and "
            "EOS_CHECKPOINT_BEHIND says where a new checkpoint has to begin. Without a backup, use a new "
            f"checkpoint only if the last micro-batch was committed (it is in 'commits'): {FROM_GROUP}. "
            "Otherwise decided rows that are not yet committed or repaired would be lost.",
        )


def _kafka_source(line: str) -> Offsets | None:
    """A line of the offset log, if it belongs to a Kafka source: {"topic":{"0":123}}; an empty mapping otherwise.

    Keys that begin with # are not topics.

    None for a truncated JSON object, which may have belonged to a Kafka source.
    """
    try:
        raw: Any = json.loads(line)
    except ValueError:
        return None if line.startswith("{") else {}
    if isinstance(raw, dict):
        raw = {topic: partitions for topic, partitions in raw.items() if not topic.startswith("#")}
    shaped = isinstance(raw, dict) and all(
        isinstance(partitions, dict)
        and all(p.isdigit() and isinstance(offset, int) for p, offset in partitions.items())
        for partitions in raw.values()
    )
    return raw if shaped else {}
