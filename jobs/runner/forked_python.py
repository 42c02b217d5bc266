"""The Python that Spark starts for a job on one machine: a fork of the job's fork server.

``forked_python.py SOCKET INTERPRETER ARGUMENTS…`` hands arguments, environment and standard streams to the server at
the socket (`fork_server`), and ends as the fork ends. If the server does not accept, it becomes the interpreter itself,
with the same arguments. It imports little of the standard library and nothing else, as Spark waits for it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

#: A server that is still importing may take some seconds to answer.
ANSWER_S = 5.0
ACCEPTED = b"+"


def request(arguments: list[str]) -> bytes:
    """Return a request to the server: folder, arguments and environment, each preceded by a line with its length."""
    environ = (b"%s=%s" % entry for entry in os.environb.items())
    folder = os.getcwdb()  # noqa: PTH109  # pathlib would take longer to import than all the rest
    parts = (folder, b"\0".join(map(os.fsencode, arguments)), b"\0".join(environ))
    return b"".join(b"%d\n%s" % (len(part), part) for part in parts)


def forked(path: str, arguments: list[str]) -> int | None:
    """Run ``-m MODULE …`` in a fork, and return its exit code; None if the server does not accept, and nothing has
    run."""
    if arguments[:1] != ["-m"]:
        return None
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.settimeout(ANSWER_S)
            server.connect(path)
            server.sendall(request(arguments[1:]))
            if server.recv(1) != ACCEPTED:
                return None
            socket.send_fds(server, [ACCEPTED], [0, 1, 2])
        except OSError:
            return None
        server.settimeout(None)
        with server.makefile("r") as answers:
            if not (pid := answers.readline()):
                return 1
            signal.signal(signal.SIGTERM, lambda number, frame: _pass_on(number, int(pid)))
            return int(answers.readline() or 1)


def _pass_on(number: int, pid: int) -> None:
    try:  # noqa: SIM105  # contextlib takes time to import
        os.kill(pid, number)
    except ProcessLookupError:  # it has just ended, and its exit code is on its way
        pass


if __name__ == "__main__":
    code = forked(sys.argv[1], sys.argv[3:])
    if code is None:
        os.execv(sys.argv[2], sys.argv[2:])
    os._exit(code)
