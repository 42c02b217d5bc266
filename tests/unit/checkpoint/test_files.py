"""What the sink reads of a checkpoint."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from spark_eos.checkpoint import files
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.stores import Store
from spark_eos.errors import CheckpointError
from tests.support.judges.conditions import raises

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1763,"conf":{}}'
KAFKA = '{"flights":{"0":23,"1":5}}'
OTHER = '{"logOffset":4}'
AWAY, REFUSED = "EOS_CHECKPOINT_UNREACHABLE", "EOS_CHECKPOINT_STORE"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
    return Checkpoint(str(tmp_path))


def log(checkpoint: Checkpoint, batch: int, *lines: str) -> None:
    Path(checkpoint.location, "offsets", str(batch)).write_text("\n".join(("v1", METADATA, *lines)))


def damaged(checkpoint: Checkpoint, batch: int = 0) -> str:
    """The message of the error that names the file."""
    with raises("EOS_CHECKPOINT_DAMAGED", f"offsets/{batch}", "backup") as caught:
        checkpoint.kafka_offsets(batch)
    return caught.value.message


@pytest.mark.parametrize(
    ("lines", "offsets"),
    [
        ((KAFKA,), {"flights": {"0": 23, "1": 5}}),
        (('{"#epochs":{"t":{"0":2}},"#ids":{"t":"3Tj0bsHXT0Cgee9iL2NdFg"},"t":{"0":23}}',), {"t": {"0": 23}}),
        ((OTHER, KAFKA, "-", "4", '{"t":{"0":1}}'), {"flights": {"0": 23, "1": 5}, "t": {"0": 1}}),
        ((OTHER, '{"#cluster":{"id":"c"},"#left":{"t":{"id":"x","offsets":{"0":7}}}}'), {}),
    ],
    ids=["one source", "with marks", "beside other kinds", "ours without topics"],
)
def test_end_offsets_of_a_micro_batch(checkpoint, lines, offsets):
    """They are those that Kafka sources wrote. A stream may be joined with one that is not Kafka; a source without data
    yet has a dash."""
    log(checkpoint, 7, *lines)
    assert checkpoint.kafka_offsets(7) == offsets


@pytest.mark.parametrize(
    ("lines", "named"), [((OTHER,), "offsets.group.id"), ((KAFKA, '{"flights":{"0":20}}'), "flights")]
)
def test_offsets_that_no_group_can_be_given(checkpoint, lines, named):
    """Those of nothing, and two for one partition."""
    log(checkpoint, 0, *lines)
    with raises("EOS_CHECKPOINT_WITHOUT_OFFSETS", named):
        checkpoint.kafka_offsets(0)


def test_a_log_that_is_missing_or_damaged(checkpoint):
    """Spark writes it before the micro-batch runs; a full disk or a power cut leaves a part of it. A line of a Kafka
    source that was cut is not taken for another source: to publish the others' offsets alone would hide it."""
    assert "missing" in damaged(checkpoint)
    lines = f"v1\n{METADATA}\n{KAFKA}\n".encode()
    for data in (b"", b"v1", b"\0\0\0\0", b"\xff\xfe", lines + b'{"t":{"0":23,', lines + b"\0\0\0\0"):
        Path(checkpoint.location, "offsets", "0").write_bytes(data)
        damaged(checkpoint)


def test_groups_to_which_sources_report(checkpoint):
    """The sink must not have one of them. A line that is cut off is told of elsewhere."""
    log(checkpoint, 7, '{"#group":{"id":"lag"},"flights":{"0":23}}', OTHER, KAFKA, '{"#group":{"id":"la')
    assert checkpoint.source_groups(7) == {"lag"}


def test_clusters_that_sources_note(checkpoint):
    """Topics of a source that notes no cluster have none."""
    one, other = '{"#cluster":{"id":"c"},"#ids":{"flights":"x"},"flights":{"0":23}}', '{"carriers":{"0":1}}'
    log(checkpoint, 7, one, OTHER, other, '{"#cluster":{"id":"d"},"t":{"0":1},"u":{"0":1}}')
    assert checkpoint.cluster_ids(7) == {"flights": "c", "t": "d", "u": "d"}


def test_the_query_id(checkpoint):
    """None before the first start, an error when it cannot be told."""
    assert checkpoint.query_id() is None
    metadata = Path(checkpoint.location, "metadata")
    metadata.write_text(json.dumps({"id": "0b9d2c46"}))
    assert checkpoint.query_id() == "0b9d2c46"
    for text in ("", "{", "[]", '{"run":1}', '{"id":null}', '{"id":""}', '{"id":5}', '{"id":{}}', "[" * 100_000):
        metadata.write_text(text)
        with pytest.raises(CheckpointError, match=r"EOS_CHECKPOINT_DAMAGED.*metadata"):
            checkpoint.query_id()


def test_the_newest_batch_of_a_log(checkpoint):
    """By number; temporary files and checksums beside them do not count."""
    assert checkpoint.last_batch("offsets") is None
    for name in ("9", "10", ".11.crc", ".12.tmp", "13.compact", "²", "\uff11\uff14", "015"):
        Path(checkpoint.location, "offsets", name).write_text("")
    assert checkpoint.last_batch("offsets") == 10
    assert sorted(checkpoint.times("offsets")) == [9, 10]
    assert checkpoint.last_batch("commits") is None
    assert checkpoint.last_batch("sources") is None
    assert Checkpoint(f"{checkpoint.location}/new").last_batch("commits") is None


class Failing:
    """A file system on which everything fails, with an error that names the path."""

    def __init__(self, error):
        self._error = error

    def open_input_stream(self, path):
        raise self._error(path)

    def get_file_info(self, selector):
        raise self._error(selector.base_dir)


@pytest.fixture
def condition_of(monkeypatch):
    """``condition_of(error, location)``: what reads are called that fail by this error, which is made of the path."""

    def condition(error, location, *, local=False):
        store = Store(Failing(error), location.partition("://")[2] or location, local=local)
        monkeypatch.setattr(files, "open_store", lambda *_: store)
        for read in (Checkpoint(location).query_id, lambda: Checkpoint(location).batches("offsets")):
            with pytest.raises(CheckpointError) as caught:
                read()
        return caught.value.condition

    return condition


def by_aws(code, status):
    """The text of pyarrow."""
    return lambda path: OSError(
        f"When reading information for key '{path.partition('/')[2]}' in bucket '{path.partition('/')[0]}': "
        f"AWS Error {code} during HeadObject operation: No response body. (HTTP status {status})"
    )


@pytest.mark.parametrize(
    "path", ["b/jobs/orders", "b/invalid-orders", "denied-claims/x", "b/no_such_thing", "forbidden", "b/NOT_FOUND/x"]
)
def test_an_error_passes_or_not_whatever_the_checkpoint_is_called(condition_of, path):
    """The store's message has the path, which is the user's."""
    assert condition_of(by_aws("SLOW_DOWN", 503), f"s3a://{path}") == AWAY
    assert condition_of(by_aws("ACCESS_DENIED", 403), f"s3a://{path}") == REFUSED


@pytest.mark.parametrize("words", ["This request is forbidden", "Permission denied"])
@pytest.mark.parametrize("path", ["for/bid", "b/den", "x/bid/den", "forbidden/denied"])
def test_a_name_that_is_a_part_of_a_stores_word_or_all_of_it_hides_nothing(condition_of, path, words):
    """Else a restart would be promised to help."""
    error = lambda path: OSError(f"Request for 'https://h/{path}' failed: {words}")  # noqa: E731
    assert condition_of(error, f"gs://{path}") == REFUSED
    assert condition_of(by_aws("UNKNOWN", 403), "s3a://b/status/jobs") == REFUSED


@pytest.mark.parametrize(
    ("number", "condition"),
    [
        *((passes, AWAY) for passes in (errno.ESTALE, errno.EMFILE, errno.EIO)),
        *((refused, REFUSED) for refused in (errno.EACCES, errno.EPERM)),
        (errno.EISDIR, "EOS_CHECKPOINT_DAMAGED"),
    ],
)
def test_a_mounted_file_system_that_fails_is_no_damage(condition_of, number, condition):
    """A backup would not help."""
    assert condition_of(lambda path: OSError(number, os.strerror(number)), "/mnt/checkpoint", local=True) == condition


@pytest.mark.parametrize("version", ["v2", "v9"])
def test_a_version_that_is_not_known_is_refused_by_its_name(checkpoint, version):
    """Spark 4.2 can write v2, in which a source's line begins with a name: it is no other kind of source."""
    lines = (version, METADATA, '0:{"#group":{"id":"g"},"t":{"0":5}}')
    Path(checkpoint.location, "offsets", "0").write_text("\n".join(lines))
    for read in (checkpoint.kafka_offsets, checkpoint.source_groups, checkpoint.topic_ids, checkpoint.sources):
        with pytest.raises(CheckpointError, match=f"EOS_CHECKPOINT_FORMAT.*offsets/0 has version {version}"):
            read(0)
