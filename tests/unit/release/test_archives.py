"""Archives of a release: equal builds are equal bytes, and what differs is named."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from release.archives import differences, normalize

CONTENT = {"pkg-1/README.md": b"read me", "pkg-1/pkg/__init__.py": b"", "pkg-1/run.sh": b"#!/bin/sh"}
TIME_S = 1_700_000_000


def sdist(path: Path, content: dict[str, bytes], *, mtime: int, user: str, reverse: bool = False) -> Path:
    """As a build at this time and by this user would pack it."""
    with tarfile.open(path, "w:gz") as archive:
        for name in sorted(content, reverse=reverse):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uname = len(content[name]), mtime, user
            member.mode = 0o775 if name.endswith(".sh") else 0o664
            archive.addfile(member, io.BytesIO(content[name]))
    os.utime(path, (mtime, mtime))
    return path


def wheel(path: Path, content: dict[str, bytes], year: int = 2024) -> Path:
    """A zip file whose members are all of this year."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0)), data)
    return path


def test_sdists_of_two_builds_are_equal_once_they_are_normalized(tmp_path):
    """Whoever built them, when, and in which order files were found."""
    first = sdist(tmp_path / "first.tar.gz", CONTENT, mtime=TIME_S, user="one")
    second = sdist(tmp_path / "second.tar.gz", CONTENT, mtime=TIME_S + 99, user="two", reverse=True)
    assert differences(first, second) == ["none: how files are packed differs"]
    for each in (first, second):
        normalize(each, TIME_S)
    assert differences(first, second) == []


@pytest.mark.parametrize(
    ("second", "named"),
    [
        ({"a.py": b"1", "b.py": b"3"}, ["b.py"]),
        ({"a.py": b"1"}, ["b.py"]),
        ({"a.py": b"1", "b.py": b"2", "c.py": b""}, ["c.py"]),
    ],
)
def test_the_files_in_which_two_wheels_differ_are_named(tmp_path, second, named):
    """Changed, missing or added ones."""
    first = wheel(tmp_path / "first.whl", {"a.py": b"1", "b.py": b"2"})
    assert differences(first, wheel(tmp_path / "second.whl", second)) == named
