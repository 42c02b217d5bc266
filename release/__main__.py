"""Builds what a release consists of, twice, compares and checks it. Publishes nothing.

::

    last commit ── two clones ── sdist and wheel of each ── equal? ── contents, twine, check-wheel-contents
                                                                                       │
                   build/release ── audit ── SBOMs ── installed: the wheel alone, then with the extra `all`

What is not committed is not built, so a checkout with such changes is refused.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable, Mapping, Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path

from release.archives import differences, files_in, in_wheel, normalize
from release.checks import page_problems, sdist_problems, unanswered, version_problems, vulnerabilities, wheel_problems
from spark_eos import __version__

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "build" / "release"
#: The two builds differ in what may get into an archive by mistake.
SURROUNDINGS: tuple[Mapping[str, str], ...] = (
    {"PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8"},
    {"PYTHONHASHSEED": "2", "TZ": "Pacific/Auckland", "LC_ALL": "C"},
)


WITHOUT = "--without-audit goes on without it"


class Refused(Exception):
    """What is wrong with the release, for people."""


@dataclass(frozen=True)
class Commit:
    """What is released. ``time_s``: since 1970; ``tags``: its own; ``tracked``: the paths of its files."""

    id: str
    time_s: int
    tags: tuple[str, ...]
    tracked: tuple[str, ...]


@dataclass(frozen=True)
class Environment:
    """A virtual environment without pip, so that it has nothing but what is installed into it."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> Environment:
        venv.create(folder, symlinks=True)
        return cls(folder)

    def program(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def install(self, *requirements: str) -> None:
        """By the pip of the Python that runs this. Raises Refused."""
        quietly = ("--quiet", "--disable-pip-version-check")
        run(sys.executable, "-m", "pip", *quietly, "--python", self.program("python"), "install", *requirements)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m release", description="Builds and checks a release.")
    parser.add_argument("--without-audit", action="store_true", help="do not ask for known vulnerabilities")
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="spark-eos-release-") as folder:
            make(Path(folder), audited=not options.without_audit)
    except Refused as refused:
        print(f"release: {refused}", file=sys.stderr)
        return 1
    return 0


def make(folder: Path, *, audited: bool) -> None:
    """Build and check, in a temporary folder, and leave the result in `OUTPUT`. Raises Refused."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    commit = last_commit()
    changelog, citation = ((ROOT / name).read_text() for name in ("CHANGELOG.md", "CITATION.cff"))
    refuse_if(version_problems(__version__, commit.tags, changelog, citation))
    pages = ("README.md", "docs/quickstart.md")
    refuse_if(page_problems(commit.tags, {name: (ROOT / name).read_text() for name in pages}))
    say(f"version {__version__}, commit {commit.id}")
    tools = Environment.made(folder / "tools")
    tools.install(*setup["options.extras_require"]["release"].split("\n")[1:])
    run(tools.program("validate-pyproject"), "pyproject.toml")
    builds = [build(tools, commit, folder / f"build{n}", around) for n, around in enumerate(SURROUNDINGS)]
    for first, second in zip(*builds, strict=True):
        refuse_if(f"two builds of {first.name} differ in {name}" for name in differences(first, second))
        say(f"{first.name}: two builds are equal")
    sdist, wheel = builds[0]
    expected = in_wheel(commit.tracked, folders_of(setup))
    refuse_if([*wheel_problems(files_in(wheel), expected), *sdist_problems(files_in(sdist))])
    run(tools.program("twine"), "check", "--strict", str(sdist), str(wheel))
    run(tools.program("check-wheel-contents"), str(wheel))
    say(f"contents and metadata are right: {len(expected)} files")
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    installed = Environment.made(folder / "installed")
    for name, wanted in (("plain", str(wheel)), ("all", f"{wheel}[all]")):
        installed.install(wanted)
        if name == "plain":
            check_plain(installed)
        write_sbom(tools, installed, wheel, OUTPUT / f"sbom-{name}.cdx.json")
        if audited:
            audit(tools, installed, name)
    if not audited:
        say("not audited: nobody has asked whether dependencies have known vulnerabilities")
    for archive in (sdist, wheel):
        shutil.copy2(archive, OUTPUT)
    write_hashes()


def last_commit() -> Commit:
    """The last commit of this checkout. Raises Refused if there are changes since."""
    if run("git", "status", "--porcelain"):
        raise Refused("the checkout has changes that are not committed: commit or remove them")
    id_, time_s = run("git", "log", "-1", "--format=%H %ct").split()
    tags, tracked = run("git", "tag", "--points-at", "HEAD"), run("git", "ls-files")
    return Commit(id_, int(time_s), tuple(tags.split()), tuple(tracked.splitlines()))


def folders_of(setup: ConfigParser) -> dict[str, str]:
    """Folder → the package in it, as paths, by setup.cfg."""
    moved = [line.split(" = ") for line in setup["options"]["package_dir"].strip().splitlines()]
    return {"spark_eos": "spark_eos"} | {folder: package.replace(".", "/") for package, folder in moved}


def build(tools: Environment, commit: Commit, folder: Path, around: Mapping[str, str]) -> tuple[Path, Path]:
    """Clone and build: the sdist, and the wheel that is made from it."""
    source, output = folder / "source", folder / "output"
    run("git", "clone", "--quiet", "--no-checkout", str(ROOT), str(source))
    run("git", "-C", str(source), "checkout", "--quiet", "--detach", commit.id)
    environ = {**os.environ, **around, "SOURCE_DATE_EPOCH": str(commit.time_s)}
    run(tools.program("python"), "-m", "build", "--outdir", str(output), str(source), environ=environ)
    (sdist,), (wheel,) = output.glob("*.tar.gz"), output.glob("*.whl")
    normalize(sdist, commit.time_s)
    return sdist, wheel


def check_plain(installed: Environment) -> None:
    """Without extras, the package is imported, and the command names the extra that it lacks. Raises Refused."""
    run(installed.program("python"), "-c", "import spark_eos")
    done = subprocess.run([installed.program("spark-eos"), "--help"], capture_output=True, text=True, check=False)
    if (done.returncode, "extra 'cli'" in done.stderr) != (2, True):
        raise Refused(f"spark-eos without its extra ended with {done.returncode}: {done.stdout}{done.stderr}")
    say("the wheel alone: it is imported, and the command names the extra that it lacks")


def write_sbom(tools: Environment, installed: Environment, wheel: Path, path: Path) -> None:
    """What is installed, as CycloneDX JSON. Raises Refused."""
    form = ("--output-format", "JSON", "--output-reproducible", "--output-file", str(path))
    run(tools.program("cyclonedx-py"), "environment", *form, installed.program("python"))
    text = path.read_text().replace(wheel.as_uri(), wheel.name)  # it was installed from a temporary folder
    path.write_text(text)
    say(f"{path.name}: {len(json.loads(text)['components'])} components")


def audit(tools: Environment, installed: Environment, name: str) -> None:
    """Ask PyPI's advisory service for known vulnerabilities of what is installed.

    Raises Refused if there are any, and if nobody answers: the answer is part of what is released.
    """
    (site,) = installed.folder.glob("lib/python*/site-packages")
    report = installed.folder / "audit.json"
    report.unlink(missing_ok=True)
    command = (tools.program("pip-audit"), "--path", str(site), "--format", "json", "--output", str(report))
    done = subprocess.run([*command, "--progress-spinner", "off"], capture_output=True, text=True, check=False)
    try:
        answer = json.loads(report.read_text())
    except (OSError, ValueError):
        last = (done.stderr.strip() or "no word").splitlines()[-1]
        raise Refused(f"the advisory service did not answer: {last}. {WITHOUT}") from None
    if unknown := unanswered(answer):
        raise Refused(f"the advisory service does not know {', '.join(unknown)}: is it PyPI's own? {WITHOUT}")
    refuse_if(vulnerabilities(answer))
    say(f"no known vulnerability ({name}: {len(answer['dependencies'])} packages)")


def write_hashes() -> None:
    """SHA256SUMS beside the files, in the form of sha256sum; and as output."""
    files = sorted(path for path in OUTPUT.iterdir())
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in files]
    (OUTPUT / "SHA256SUMS").write_text("\n".join(lines) + "\n")
    say(f"{OUTPUT.relative_to(ROOT)}:", *lines, sep="\n")


def run(*command: str, environ: Mapping[str, str] | None = None) -> str:
    """Run to the end, in the checkout; its output. Raises Refused with what it has printed if it fails."""
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def refuse_if(problems: Iterable[str]) -> None:
    """Raises Refused if there are any."""
    found = list(problems)
    if found:
        raise Refused("\n".join(found))


def say(*lines: str, sep: str = " ") -> None:
    """Print at once, also into a pipe."""
    print(*lines, sep=sep, flush=True)


if __name__ == "__main__":
    sys.exit(main())
