"""Pass on the stderr of Spark's JVM, without lines that tell nothing.

Spark lets Python workers go whose answers it has, and they print a BrokenPipeError, stack and all. A signal to all
processes of a job, as systemd sends it, ends the JVM in mid-work, and its threads print stacks about that. Each JVM of
Spark warns of a module that Spark itself asks for; and where there are `spark.jars.packages`, Ivy reports on them.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import threading
from collections.abc import Callable

from .lines import say

#: Text is passed on in one piece until a pause of this length, or this number of characters.
_QUIET_S = 0.2
_CHARS = 1 << 16
_DRAIN_S = 5.0

_HEAD = r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*"
_LOST_CONNECTION = re.compile(rf"{_HEAD}(?:BrokenPipe|ConnectionReset|ConnectionAborted)Error\b.*\n", re.MULTILINE)
_STACK = re.compile(_HEAD, re.MULTILINE)
_MODULES = re.compile(r"^WARNING: Using incubator modules: jdk\.incubator\.vector\n", re.MULTILINE)
#: Ivy's report from its first line on, and that line alone.
_REPORT = re.compile(
    r"^:: loading settings :: (?:.*\n)*?\t\d+ artifacts copied, \d+ already retrieved .*\n", re.MULTILINE
)
_REPORT_BEGINS = re.compile(r"^:: loading settings :: ", re.MULTILINE)
#: Lines of a report that shows a problem.
_PROBLEM = re.compile(r"^:: problems summary ::|^\s*(?:WARN|ERROR|Exception)", re.MULTILINE)
_DOWNLOAD = re.compile(r"^downloading http", re.MULTILINE)
_CACHE = re.compile(r"^Ivy Default Cache set to: (.+)$", re.MULTILINE)


class JvmStderr:
    """Passes a JVM's stderr, `fd`, on to this process's stderr, in a thread, until all writers are gone.

    Stack traces of workers that have lost their connection to Spark are left out, and so is one that is cut off by the
    end; while ``stopping()``, everything is. A report of Ivy is held back until it ends, and left out if it shows no
    problem. At the end of ``with``, all output until then has been passed on, and later output is dropped, as the JVM
    ends after the job's last line.
    """

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self._read, self.fd = os.pipe()
        self._stopping = stopping
        self._text = ""
        self._settled = threading.Condition()
        #: Whether all that was read is passed on, as far as it may be.
        self._quiet = True
        self._ended = False
        self._downloads = False

    def __enter__(self) -> JvmStderr:
        threading.Thread(target=self._run, name="stderr of the JVM", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.fd)  # the JVM has one of its own
        with self._settled:
            self._settled.wait_for(lambda: self._ended or (self._quiet and not self._waits(0)), _DRAIN_S)
            self._stopping = lambda: True

    def _run(self) -> None:
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        while not self._ended:
            more = self._waits(None if self._quiet else _QUIET_S)
            with self._settled:
                chunk = os.read(self._read, _CHARS) if more else b""
                self._text += decode(chunk)
                self._ended = more and not chunk
                self._quiet = not chunk or len(self._text) > _CHARS
                if self._quiet:
                    self._pass_on()
                    self._settled.notify_all()
        os.close(self._read)

    def _waits(self, timeout_s: float | None) -> bool:
        return bool(select.select([self._read], [], [], timeout_s)[0])

    def _pass_on(self) -> None:
        text = _MODULES.sub("", _LOST_CONNECTION.sub("", self._text))
        text = _REPORT.sub(lambda match: match[0] if _PROBLEM.search(match[0]) else "", text)
        lines = max(text.rfind("\n"), text.rfind("\r")) + 1
        last = [match.start() for match in _STACK.finditer(text) if match.end() == lines]
        end = last[0] if last else len(text) if self._ended else lines
        if not self._ended:
            end = min(end, self._report(text))
        if len(text) - end > _CHARS:
            end = len(text)
        known, self._text = text[:end], text[end:]  # of a last line, a last stack or a report, more may come
        if known and not self._stopping():
            say(known.removesuffix("\n"))

    def _report(self, text: str) -> int:
        """Return the index at which a report begins that has not ended yet. Says so, once, when it takes its time."""
        begun = [match.start() for match in _REPORT_BEGINS.finditer(_REPORT.sub(lambda each: " " * len(each[0]), text))]
        if begun and _DOWNLOAD.search(text) and not self._downloads and not self._stopping():
            self._downloads = True
            cache = _CACHE.search(text)
            say(f"Spark downloads spark.jars.packages, once{f': it keeps them in {cache[1]}' if cache else ''}")
        return begun[0] if begun else len(text)
