"""Runs one broker and ends it when the parent is gone: ``python watchdog.py PARENT_PID FOLDER -- java …``

The first line on stdout is the pid of the broker. Stdin, which only the parent holds open, ends when the
parent is gone, even if it was killed with SIGKILL; a new parent pid shows it, too, in case a fork of the parent holds
the pipe open. Then nobody else is left to remove FOLDER, the broker's data, if it was to go with the cluster
("" if not).

The exit code is the broker's (128 + n when signal n ended it). Works the same on Linux and macOS. Started by its path,
with -I -S: it must come up in milliseconds, so it imports nothing but the standard library.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
from functools import partial

PARENT_POLL_S = 1.0
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    parent_pid, folder, separator, *command = arguments
    if separator != "--":
        raise SystemExit("usage: watchdog.py PARENT_PID FOLDER -- command …")
    # Where the system is Linux, the broker is killed with this process, however that ends.
    prctl = getattr(ctypes.CDLL(None), "prctl", lambda *_: 0)
    kill_with_us = partial(prctl, _PR_SET_PDEATHSIG, signal.SIGKILL)
    broker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=kill_with_us)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: broker.kill())
    orphaned = threading.Event()
    print(broker.pid, flush=True)  # before the thread, which ends this process with a broker that ends at once
    threading.Thread(target=_exit_with, args=[broker, orphaned, folder], daemon=True).start()
    _wait_for_the_end_of(int(parent_pid))
    orphaned.set()
    broker.kill()
    # The thread exits when the broker has.
    threading.Event().wait()


def _exit_with(broker: subprocess.Popen[bytes], orphaned: threading.Event, folder: str) -> None:
    code = broker.wait()
    if orphaned.is_set() and folder:
        _remove(folder)
    os._exit(128 - code if code < 0 else code)


def _wait_for_the_end_of(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        readable, _, _ = select.select([sys.stdin], [], [], PARENT_POLL_S)
        if readable:
            return


def _remove(folder: str) -> None:
    import contextlib
    import shutil
    from pathlib import Path

    shutil.rmtree(folder, ignore_errors=True)
    # The last broker's leaves the cluster's folder empty.
    with contextlib.suppress(OSError):
        Path(folder).parent.rmdir()


if __name__ == "__main__":
    main(sys.argv[1:])
