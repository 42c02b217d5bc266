"""The quickstart and the example of the README, pasted block by block: they run, and print what the text says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from spark_eos.tools.devcluster.ports import free_ports
from tests.support.kills.job_program import running
from tests.support.runs.installed_wheel import Bare
from tests.support.waiting import PROGRAM_S, TIMEOUT, wait_for

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
QUICKSTART = (ROOT / "docs" / "quickstart.md").read_text()
#: The block that installs. `with_cli` is what comes of it, without the download of 400 MB.
INSTALL = """\
python3 -m venv quickstart
. quickstart/bin/activate
pip install '.[cli]'
cd quickstart
"""
#: The line of Java itself, which nothing turns off.
INCUBATOR = "WARNING: Using incubator modules: jdk.incubator.vector"
_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Newcomer:
    """Somebody in the folder that the quickstart's first block makes, with what that block installs.

    ``blocks``: language and text of what is left to paste after the cluster's start.
    """

    folder: Path
    environ: dict[str, str]
    blocks: tuple[tuple[str, str], ...]

    def paste_all(self) -> list[subprocess.CompletedProcess[str]]:
        """Save the scripts and run the commands, in their order; what came of each block of commands."""
        pasted = []
        for language, text in self.blocks:
            if language == "python":
                (self.folder / text.split(maxsplit=2)[1]).write_text(text)
            else:
                done = self.run("bash", "-euo", "pipefail", "-c", text)
                assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
                pasted.append(done)
        return pasted

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=PROGRAM_S
        )


def blocks_on(port: int) -> list[tuple[str, str]]:
    """Language and text of the quickstart's blocks, with another port: 9092 may be taken here."""
    quickstart = QUICKSTART.partition("## ")[0]
    return [(language, text.replace("9092", str(port))) for language, text in _BLOCK.findall(quickstart)]


def environ_of(bare: Bare) -> dict[str, str]:
    """With the tests' home of Spark: from the zip in its own, each Python of Spark's compiles pyspark anew, for which a
    busy machine needs more than the 10 s that Spark waits."""
    return bare.environ(SPARK_HOME=os.environ["SPARK_HOME"])


@pytest.fixture(scope="module")
def newcomer(with_cli: Bare, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    """At the second terminal: the first one is busy with the cluster. Both are in an environment that has the wheel,
    what it requires with that extra, and nothing else."""
    folder, (port,) = tmp_path_factory.mktemp("quickstart"), free_ports(1)
    (_, install), (_, cluster), *rest = blocks_on(port)
    assert install == INSTALL
    environ = environ_of(with_cli)
    command = ["bash", "-c", f"exec {cluster}"]
    with subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"bootstrap.servers=127.0.0.1:{port}\n"
            yield Newcomer(folder, environ, tuple(rest))
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(TIMEOUT) == 0


def test_the_quickstart_runs_as_it_stands(newcomer: Newcomer):
    """Rows get through once, a restart writes only the new ones, and what is printed is what the text promises."""
    _, first, look, again = newcomer.paste_all()
    others = [line for line in first.stderr.splitlines() if " spark-eos: " not in line]
    assert others in ([], [INCUBATOR]), "Spark was to be quiet"
    look, again = look.stdout, again.stdout
    assert re.search(r"^[-0-9a-f]{36} FLIGHT \d+\n1000 rows with 1000 different keys$", look, re.MULTILINE)
    assert re.search(r"^ +output +1,500  rows in the output$", again, re.MULTILINE)
    for printed in (look, again):
        assert f"`{printed.splitlines()[-1]}`" in QUICKSTART


def test_an_environment_that_is_not_activated_is_told(newcomer: Newcomer):
    """As in an editor or from cron: the script runs by the environment's Python, and Spark starts another one. It says
    so in a hundred lines of stack, of an error that is none of PySpark's."""
    (script,) = (text for _, text in newcomer.blocks if text.startswith("# upper.py"))
    (newcomer.folder / "elsewhere.py").write_text(script.replace('"checkpoint"', '"elsewhere"'))
    bin_folder, _, path = newcomer.environ["PATH"].partition(os.pathsep)
    others = newcomer.folder / "others"
    others.mkdir()
    (others / "python3").symlink_to(sys.executable)
    environ = {**newcomer.environ, "PATH": f"{others}{os.pathsep}{path}"}
    done = replace(newcomer, environ=environ).run(f"{bin_folder}/python", "elsewhere.py")
    assert done.returncode == 1
    said = rf"\[EOS_NOT_ON_WORKERS\] .* Hint: .* PYSPARK_PYTHON to {re.escape(bin_folder)}/python,.*"
    assert re.fullmatch(said, done.stderr.splitlines()[-1])


def test_the_script_of_the_readme_writes_what_is_there_and_what_comes(
    bare: Bare, cluster, topic, view, write, tmp_path
):
    """By the commands of two terminals, until Ctrl-C, which ends it without a word of Spark or Python. The script needs
    no extra, and registers nothing: Spark lists modules named pyspark_* in the folders of the path, those of a wheel,
    not of an editable install."""
    (_, script), (_, first), (_, second) = _BLOCK.findall(README)
    assert first.splitlines() == [
        "pip install '.[cli]'",
        "spark-eos devcluster --port 9092 --topic flights:4 --topic shouted:4",
    ]
    *settings, run = second.splitlines()
    flights, shouted = topic(4), topic(4)
    names = {"localhost:9092": cluster.bootstrap_servers, '"flights"': f'"{flights}"', '"shouted"': f'"{shouted}"'}
    for written, here in names.items():
        assert script.count(written) == 1
        script = script.replace(written, here)
    (tmp_path / script.split(maxsplit=2)[1]).write_text(script)
    write(flights, "before", partition=0, key="k")
    log, command = tmp_path / "log", ["bash", "-c", "\n".join([*settings, f"exec {run}"])]
    with running(command, log, cwd=tmp_path, env=environ_of(bare)) as query:
        wait_for(lambda: len(view.rows(shouted, committed=True)) == 1, "the row that was there", PROGRAM_S)
        write(flights, "after", partition=3, key="k")
        wait_for(lambda: len(view.rows(shouted, committed=True)) == 2, "the row that came")
        os.killpg(query.pid, signal.SIGINT)  # as a terminal does
        assert query.wait(PROGRAM_S) == 0
    assert [row.value for row in view.rows(shouted, committed=True)] == [b"BEFORE", b"AFTER"]
    others = [line for line in log.read_text().splitlines() if " spark-eos: " not in line]
    assert others in ([], [INCUBATOR]), "Spark was to be quiet"
