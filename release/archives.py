"""Archives of a release: what is in them, and in what two of them differ."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path


def normalize(sdist: Path, time_s: int) -> None:
    """Pack a .tar.gz anew without what only the build says: its time, its user, the order of its files.

    setuptools builds wheels by SOURCE_DATE_EPOCH, but not sdists. ``time_s``: since 1970, for every file.
    """
    with tarfile.open(sdist) as archive:
        found = [(member, archive.extractfile(member)) for member in archive.getmembers()]
        files = {member.name: (member, content.read()) for member, content in found if content is not None}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, (member, content) in sorted(files.items()):
            clean = tarfile.TarInfo(name)
            clean.mode, clean.mtime, clean.size = 0o755 if member.mode & 0o100 else 0o644, time_s, len(content)
            archive.addfile(clean, io.BytesIO(content))
    with sdist.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=time_s) as zipped:
        zipped.write(packed.getvalue())


def files_in(archive: Path) -> dict[str, str]:
    """Name → SHA-256 of each file in a wheel or an sdist; the names in an sdist without its folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name: _sha256(wheel.read(name)) for name in wheel.namelist() if not name.endswith("/")}
    with tarfile.open(archive) as sdist:
        found = {member.name: sdist.extractfile(member) for member in sdist.getmembers()}
        return {name.partition("/")[2]: _sha256(file.read()) for name, file in found.items() if file is not None}


def differences(first: Path, second: Path) -> list[str]:
    """The files in which two archives differ; empty if the archives are equal, bit by bit."""
    if first.read_bytes() == second.read_bytes():
        return []
    one, other = files_in(first), files_in(second)
    differing = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    return differing or ["none: how files are packed differs"]


def in_wheel(tracked: Iterable[str], folders: Mapping[str, str]) -> set[str]:
    """Where a wheel has the tracked files that belong to it. ``folders``: folder → package, as paths; the longest one
    that a file is in counts."""
    found = set()
    for path in tracked:
        inside = [folder for folder in folders if path.startswith(f"{folder}/")]
        if inside:
            folder = max(inside, key=len)
            found.add(folders[folder] + path.removeprefix(folder))
    return found


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
