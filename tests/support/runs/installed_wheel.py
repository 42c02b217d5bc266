"""An environment with the wheel and what the wheel requires, and nothing else: what `pip install` gives a new user.

`pip install` would unpack 1 GB of Spark. So the environment is new and empty, and each distribution that the wheel's
own metadata requires, and each that those require in turn, is linked into it from the environment of the tests. What
nobody requires is not there, however much the tests have installed. The wheel itself is installed by pip without an
index, and pip fails where a requirement is missing or has a version that the wheel does not allow. Two things differ
from what a user gets: the versions are those of the tests, and a folder may be a link.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.waiting import PROGRAM_S

ROOT = Path(__file__).parents[3]
PACKAGE = "spark-eos"


@dataclass(frozen=True)
class Bare:
    """A virtual environment, not activated."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        (site,) = self.folder.glob("lib/python*/site-packages")
        return site

    def environ(self, **more: str) -> dict[str, str]:
        """The variables of a shell where this environment is activated: Spark starts the path's `python3`."""
        others = ("PYTHON", "PYSPARK", "SPARK_HOME")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        path = f"{self.folder / 'bin'}{os.pathsep}{environ['PATH']}"
        return environ | {"PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"} | more

    def run(self, *command: str, **environ: str) -> str:
        """Run to the end, outside of the checkout; its output, or an AssertionError with all of it."""
        return run(*command, cwd=self.folder, env=self.environ(**environ))


def run(*command: str, cwd: Path = Path("/"), env: dict[str, str] | None = None) -> str:
    """Run to the end; its standard output, or an AssertionError with all that it said."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=PROGRAM_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout into an empty folder."""
    # Building in the checkout itself would leave a build folder there, whose old files go into later wheels.
    source, wheels = folder / "source", folder / "wheels"
    source.mkdir()
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "spark_eos", "jobs"):
        (source / name).symlink_to(ROOT / name)
    run(*_pip(), "wheel", "--no-deps", "--wheel-dir", str(wheels), str(source))
    (wheel,) = wheels.glob("spark_eos-*.whl")
    return wheel


def install(wheel: Path, folder: Path, *extras: str) -> Bare:
    """A new environment in `folder` with the wheel, what it requires, and what these extras of it require."""
    venv.create(folder, symlinks=True)
    bare = Bare(folder)
    for dependency in dependencies(wheel, extras):
        _link(dependency, bare.site_packages)
    wanted = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    run(*_pip(), "--python", str(bare.python), "install", "--no-index", wanted)
    return bare


def dependencies(wheel: Path, extras: Iterable[str] = ()) -> list[Distribution]:
    """The installed distributions that this wheel requires with these extras, and those that they require in turn."""
    (own,) = distributions(path=[str(wheel)])
    found, waiting = {}, [(own, frozenset(extras))]
    seen = set()
    while waiting:
        asking, extras = waiting.pop()
        for requirement in map(Requirement, asking.requires or ()):
            name, wanted = canonicalize_name(requirement.name), frozenset(requirement.extras)
            if (name, wanted) in seen or not _applies(requirement, extras):
                continue
            seen.add((name, wanted))
            if name != PACKAGE:
                found[name] = distribution(name)
            waiting.append((found.get(name, own), wanted))
    return list(found.values())


def _applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def _link(dependency: Distribution, site_packages: Path) -> None:
    """Everything that the distribution has at the top of its site-packages; its programs are left out."""
    for name in {file.parts[0] for file in dependency.files} - {"..", "__pycache__"}:
        (site_packages / name).symlink_to(dependency.locate_file(name))


def _pip() -> tuple[str, ...]:
    return (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
