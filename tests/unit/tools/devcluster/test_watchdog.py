"""watchdog.py ends the broker with its parent; here `sleep` stands for the broker, and no Java is needed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spark_eos.tools.devcluster import watchdog
from tests.support.waiting import TIMEOUT, is_gone, wait_for

SCRIPT = str(Path(watchdog.__file__))


@pytest.fixture
def start():
    """``start(*command, folder="")`` starts watchdog.py as a child process: that, and the command's pid."""
    started = []

    def run(*command, folder=""):
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", SCRIPT, str(os.getpid()), str(folder), "--", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        started.append(process)
        return process, int(process.stdout.readline())

    yield run
    for process in started:
        with process:
            process.stdin.close()


def test_ends_a_stopped_command_too(start):
    """A broker that was paused is killed all the same."""
    process, pid = start("sleep", "600")
    os.kill(pid, signal.SIGSTOP)
    process.stdin.close()
    wait_for(lambda: is_gone(pid), "the end of the command")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_a_signal_to_it_ends_the_command(start, number):
    """Or nobody could: its parent knows the broker by it. SIGKILL is of Linux."""
    process, pid = start("sleep", "600")
    process.send_signal(number)
    process.wait(TIMEOUT)
    wait_for(lambda: is_gone(pid), "the end of the command")


def test_a_command_that_ends_by_itself_is_told_by_its_exit_code_and_leaves_its_folder(start, tmp_path):
    """Data is removed only when the parent is gone."""
    ended, _ = start("sh", "-c", "exit 7", folder=tmp_path)
    stopped, pid = start("sleep", "600", folder=tmp_path)
    os.kill(pid, signal.SIGTERM)
    assert (ended.wait(TIMEOUT), stopped.wait(TIMEOUT)) == (7, 128 + signal.SIGTERM)
    assert tmp_path.exists()


def test_ends_the_command_and_removes_its_folder_when_the_parent_is_killed(tmp_path):
    """This holds even if a fork of the parent keeps the pipe open."""
    folder = tmp_path / "cluster" / "broker-0"
    folder.mkdir(parents=True)
    (folder / "data").write_text("data")
    # A fork of the parent that lives on holds the pipe open: then only the new parent pid tells.
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT_WITH_A_FORK, SCRIPT, str(folder)], stdout=subprocess.PIPE, text=True
    )
    fork, command = (int(parent.stdout.readline()) for _ in range(2))
    try:
        parent.kill()
        parent.wait(TIMEOUT)
        wait_for(lambda: is_gone(command), "the end of the command")
        wait_for(lambda: not folder.parent.exists(), "the end of the folder")
    finally:
        os.kill(fork, signal.SIGKILL)
        parent.stdout.close()


PARENT_WITH_A_FORK = """
import os, subprocess, sys, time
script, folder = sys.argv[1:]
watcher = subprocess.Popen([sys.executable, "-I", "-S", script, str(os.getpid()), folder, "--", "sleep", "600"],
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
pid = watcher.stdout.readline().decode().strip()
fork = os.fork()
if fork:
    print(fork, pid, sep="\\n", flush=True)
time.sleep(600)
"""
