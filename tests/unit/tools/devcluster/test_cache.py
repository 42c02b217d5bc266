"""The cache of the dev cluster: made once, whole or not at all."""

import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from spark_eos.tools.devcluster.cache import cache_dir, stored
from tests.support.waiting import TIMEOUT


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, environ):
    environ(SPARK_EOS_CACHE=tmp_path / "cache")


class Maker:
    """Fills a folder with two files; counts how often it had to."""

    def __init__(self):
        self.calls = 0

    def __call__(self, folder):
        self.calls += 1
        (folder / "a.jar").write_bytes(b"a" * 1000)
        (folder / "b.jar").write_bytes(b"b" * 10)


@pytest.fixture
def made():
    maker = Maker()
    return maker, stored("set", maker)


def test_is_made_once(made):
    """What the cache holds is not made again."""
    maker, files = made
    assert [file.name for file in files] == ["a.jar", "b.jar"]
    assert stored("set", maker) == files
    assert maker.calls == 1


@pytest.mark.parametrize(
    "harm",
    [
        lambda file: file.write_bytes(b"a" * 999),
        lambda file: file.write_bytes(b"x" * 1000),
        lambda file: file.unlink(),
        lambda file: (file.parent / "manifest.json").unlink(),
        lambda file: (file.parent / "manifest.json").write_text('{"files": [{"na'),
        lambda file: (file.parent / "manifest.json").write_text('{"files": [{"name": "a.jar"}]}'),
    ],
    ids=["truncated", "same size, other content", "a file missing", "no manifest", "half a manifest", "other manifest"],
)
def test_is_made_afresh_when_harmed(made, harm):
    """Any harm to a file or to the manifest is noticed and mended."""
    maker, files = made
    harm(files[0])
    assert stored("set", maker) == files
    assert maker.calls == 2
    assert files[0].read_bytes() == b"a" * 1000


def test_a_failed_making_leaves_nothing(made):
    """Half a result is never taken for a whole one, and the next try succeeds."""
    maker, _ = made

    def fail(folder):
        (folder / "a.jar").write_bytes(b"half")
        raise OSError("no more network")

    with pytest.raises(OSError, match="no more network"):
        stored("other", fail)
    assert not (cache_dir() / "other").exists()
    assert not list(cache_dir().glob(".other.partial*"))
    assert stored("other", maker)


def _make_half_and_die(folder):
    (folder / "a.jar").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_making_is_noticed_and_cleared_away():
    """What a killed process has left is removed by the next one."""
    process = multiprocessing.get_context("spawn").Process(target=stored, args=("set", _make_half_and_die))
    process.start()
    process.join(TIMEOUT)
    assert process.exitcode == -signal.SIGKILL
    assert len(list(cache_dir().glob(".set.partial*"))) == 1

    maker = Maker()
    assert len(stored("set", maker)) == 2
    assert maker.calls == 1
    assert not list(cache_dir().glob(".set.partial*"))


def _note_and_make(folder):
    with Path(os.environ["SPARK_EOS_CACHE"], "calls").open("a") as calls:
        calls.write("made\n")
    Maker()(folder)


def _meet_and_store(barrier):
    barrier.wait(TIMEOUT)
    stored("set", _note_and_make)


def test_processes_that_want_it_at_once_make_it_once():
    """Of three processes one makes it, and all have it."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    processes = [context.Process(target=_meet_and_store, args=[barrier]) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(TIMEOUT)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (cache_dir() / "calls").read_text() == "made\n"
    assert len(json.loads((cache_dir() / "set" / "manifest.json").read_text())["files"]) == 2
