"""``spark-eos package``: an archive of spark-eos and what it requires, for executors that have Spark and nothing else.

It is made of what is installed here, so that executors get the versions that the driver has. Spark is left out: the
cluster's own is used.
"""

from __future__ import annotations

import importlib
import platform
import re
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from spark_eos._version import __version__
from spark_eos.errors import CommandError
from spark_eos.ops.answer import Answer

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_OF_SPARK = frozenset({"pyspark", "py4j"})
_OWN = "spark-eos"
_FOLDER = "packages"
#: Of gzip: libraries hardly get smaller by more, which takes minutes.
_LEVEL = 1


def package(file: str) -> Answer:
    """Make the archive. Raises CommandError (EOS_PACKAGE_NOT_WRITTEN)."""
    found = dict(sorted(requirements().items()))
    path = Path(file)
    try:
        with (
            path.open("xb") as raw,
            tarfile.open(fileobj=raw, mode="w:gz", compresslevel=_LEVEL, dereference=True) as tar,
        ):
            for folder, name in own_folders():
                tar.add(str(folder), name, filter=_without_caches)
            for each in found.values():
                for name in tops(each):
                    tar.add(str(each.locate_file(name)), name, filter=_without_caches)
    except OSError as error:
        raise CommandError(
            "EOS_PACKAGE_NOT_WRITTEN",
            f"{file} could not be written: {error.strerror or error}.",
            hint="Nothing is overwritten: remove the file, or name another one.",
        ) from None
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    data = {
        "archive": file,
        "bytes": path.stat().st_size,
        "packages": {_OWN: __version__, **{name: each.version for name, each in found.items()}},
        "python": python,
        "platform": f"{sys.platform} {platform.machine()}",
        "conf": {"spark.archives": f"{file}#{_FOLDER}", "spark.executorEnv.PYTHONPATH": _FOLDER},
    }
    return Answer(data, _as_text(data, path))


def _as_text(data: dict[str, object], path: Path) -> str:
    packages, conf = data["packages"], data["conf"]
    assert isinstance(packages, dict) and isinstance(conf, dict)
    lines = [f"{path}  {path.stat().st_size / 1e6:.0f} MB, for Python {data['python']} on {data['platform']}"]
    lines += [f"  {name} {version}" for name, version in packages.items()]
    return "\n".join([*lines, "Send it along:", *(f"  --conf {key}={value}" for key, value in conf.items())])


def requirements() -> dict[str, Distribution]:
    """The installed distributions that spark-eos requires, and those that they require, without Spark and extras."""
    found: dict[str, Distribution] = {}
    waiting = [_OWN]
    while waiting:
        asking = found.get(waiting[-1]) or distribution(waiting[-1])
        waiting.pop()
        for text in asking.requires or ():
            match = _NAME.match(text)
            name = match[0].lower().replace("_", "-") if match is not None else ""
            if not name or "extra ==" in text or name in found or name in _OF_SPARK:
                continue
            try:
                found[name] = distribution(name)
            except PackageNotFoundError:
                continue  # for another platform
            waiting.append(name)
    return found


def tops(each: Distribution) -> Iterator[str]:
    """What a distribution has at the top of its folder; its programs are left out."""
    yield from sorted({file.parts[0] for file in each.files or ()} - {"..", "__pycache__"})


def own_folders() -> Iterator[tuple[Path, str]]:
    """The package itself, wherever it is: in a checkout, its jobs are in a folder of their own."""
    for name in ("spark_eos", "spark_eos.jobs", "pyspark_spark_eos"):
        file = importlib.import_module(name).__file__
        folder = Path(file or "").parent
        inside = name.replace(".", "/")
        if name != "spark_eos.jobs" or folder.parent.name != "spark_eos":
            yield folder, inside


def _without_caches(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in info.name.split("/") else info
