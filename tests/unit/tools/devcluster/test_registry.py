"""A registry for which small programs stand; tests/integration/pipelines/registry has a real one."""

import os
import subprocess
import sys

import pytest

from spark_eos.tools.devcluster import registry
from tests.support.judges.conditions import raises
from tests.support.waiting import is_gone, wait_for

#: Answers that it has no schemas; ends after a while, as where nobody hears the answer.
SERVER = """
import signal, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"[]")
signal.alarm(30)
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
#: Starts such a registry, and waits to be killed.
PARENT = """
import sys, time
from spark_eos.tools.devcluster import registry
registry._command = lambda port: [sys.executable, "-c", sys.argv[1], str(port)]
print(registry.DevRegistry().open().process.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def made(environ, monkeypatch):
    """``made(program)``: a registry by this program, where a proxy of the environment does not know this machine's
    ports."""
    environ(no_proxy=None, NO_PROXY=None, http_proxy="http://127.0.0.1:1")

    def made(program):
        monkeypatch.setattr(registry, "_command", lambda port: [sys.executable, "-c", program, str(port)])
        return registry.DevRegistry()

    return made


def test_a_registry_that_ends_at_once_is_an_error_with_its_log(made):
    """With the last lines of what it printed, and nothing is left of it."""
    found = made("exit('the port is taken')")
    with raises("EOS_DEVCLUSTER_FAILED", "the port is taken"):
        found.open()
    assert not found.process.home.exists()
    found.close()


def test_is_asked_past_a_proxy(made):
    """Else it would not be up."""
    with made(SERVER) as found:
        assert found.process.running


def test_only_its_own_folder_is_removed_when_the_parent_is_killed(tmp_path):
    """The temporary folder that it is in stays, though it is empty."""
    command, environ = [sys.executable, "-c", PARENT, SERVER], os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) as parent:
        pid = int(parent.stdout.readline())
        watcher = int(subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, check=True).stdout)
        parent.kill()
    wait_for(lambda: is_gone(watcher), "the end of the watchdog")
    assert is_gone(pid)
    assert list(tmp_path.iterdir()) == []
