"""A registry that does not come up; tests/integration/pipelines/registry has one that does."""

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from spark_eos.tools.devcluster import registry
from tests.support.judges.conditions import raises
from tests.support.waiting import is_gone, wait_for


def test_a_registry_that_ends_at_once_is_an_error_with_its_log(monkeypatch):
    """With the last lines of what it printed, and nothing is left of it."""
    monkeypatch.setattr(registry, "_command", lambda port: [sys.executable, "-c", "exit('the port is taken')"])
    found = registry.DevRegistry()
    with raises("EOS_DEVCLUSTER_FAILED", "the port is taken"):
        found.open()
    assert not found.process.home.exists()
    found.close()


class Handler(BaseHTTPRequestHandler):
    """Has no schemas."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, *_):
        pass


def test_is_asked_past_a_proxy(monkeypatch):
    """A proxy of the environment does not know this machine's ports."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    found = registry.DevRegistry()
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found.url = f"http://127.0.0.1:{server.server_port}"
        assert found._answers()
        server.shutdown()


def test_only_its_own_folder_is_removed_when_the_parent_is_killed(tmp_path):
    """The temporary folder that it is in stays, though it is empty."""
    program = (
        "import time\n"
        "from spark_eos.tools.devcluster import registry\n"
        "registry._command = lambda port: ['sleep', '600']\n"
        "found = registry.DevRegistry()\n"
        "found._answers = lambda: True\n"
        "print(found.open().process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    environ = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environ) as parent:
        pid, watcher = int(parent.stdout.readline()), 0
        watcher = int(subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, check=True).stdout)
        parent.kill()
    wait_for(lambda: is_gone(watcher), "the end of the watchdog")
    assert is_gone(pid)
    assert list(tmp_path.iterdir()) == []
