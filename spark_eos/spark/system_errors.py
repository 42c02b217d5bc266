"""Errors of the operating system: resources that run out for a while, and disks and hosts that cannot be reached.

They come as Python's OSError, or in the text of an exception of Spark, whose JVM has the system's own words.
"""

from __future__ import annotations

import errno
import os
import re

from spark_eos.base.printable import refused_by_system
from spark_eos.errors import EosError, stop

#: A resource has run out, maybe for a while: room on a disk, files, processes, memory.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})
#: Errors of a network disk while its server is away, and of a failing disk.
_DISK_AWAY = frozenset({errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN})
_AWAY = _DISK_AWAY | {
    *(errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH),
    *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED),
}


def _full(why: str) -> EosError:
    return stop("EOS_SYSTEM_FULL", why=why)


def _away(why: str) -> EosError:
    return stop("EOS_SYSTEM_UNREACHABLE", why=why)


#: By the system's words: the error of a query that was running. A disk that fails is mounted anew, to be read only.
_ERRORS = {
    **{os.strerror(number): _full for number in _FULL},
    **{os.strerror(number): _away for number in _DISK_AWAY | {errno.EROFS}},
}
_WORDS = f"(?P<words>{'|'.join(map(re.escape, _ERRORS))})"
#: The object of the refusal, as Java or Python names it: a file, or a program that cannot be started.
_OF = r"(?:(?:[a-z][\w+.-]*:)?/[^\n]*?(?:: | \()|Cannot run program \"[^\"\n]*\"[^\n]*?[:,(] ?)?"
_REFUSED = rf"(?P<why>{_OF}{_WORDS}\)?)"
_END = r"(?=\s*(?:SQLSTATE: |\n|$))"
_IO = r"java\.(?:io|nio\.file|lang)\.\w+: "
_TEXT = re.compile(rf"(?:{_IO})?{_REFUSED}{_END}")
#: Python has classes of their own for two of these numbers: EAGAIN and ETIMEDOUT.
_OF_PYTHON = re.compile(
    rf"(?:OSError|BlockingIOError|TimeoutError): \[Errno \d+\] (?P<why>{_WORDS}(?:: [^\n]*?)?){_END}"
)
_CAUSE = re.compile(rf"^Caused by: (?:{_IO}|org\.apache\.hadoop\.[\w.$]+: ){_REFUSED}{_END}", re.MULTILINE)
#: A store of Hadoop's that does not answer or is not ready, and one that takes no more.
_STORES = (
    (_away, r"java\.net\.(?:Connect|NoRouteToHost|SocketTimeout|UnknownHost)Exception|\S+\.SafeModeException\)?"),
    (_full, r"\S+\.hdfs\.protocol\.\w*QuotaExceededException\)?"),
)
_STORE_FRAME = re.compile(r"^\s+at org\.apache\.hadoop\.(?:fs|hdfs|ipc)\.", re.MULTILINE)
#: Conditions of Spark whose texts quote files, and nothing of a row; why is then in the cause.
_OF_FILES = re.compile(
    r"\[(?:CANNOT_(?:LOAD|WRITE)_STATE_STORE|FAILED_RENAME_\w+|TASK_WRITE_FAILED|CANNOT_LOAD_CHECKPOINT_FILE_MANAGER)\b"
)


def may_pass(error: OSError) -> bool:
    """Return whether a restart may help, with nothing changed."""
    return error.errno in _FULL | _AWAY


def system_error(error: OSError) -> EosError:
    """Return the error for a refusal of the system, such as to start a program or to write a file."""
    why = refused_by_system(error)
    if error.errno in _FULL:
        return _full(why)
    return _away(why) if error.errno in _AWAY else stop("EOS_SYSTEM_REFUSES", why=why)


def in_spark(around: str, text: str, stack: str) -> EosError | None:
    """Return the error for an exception of Spark whose cause is the system; None for all other errors.

    ``around``: Spark's text before the error. ``text``: the error; only its beginning counts, as the rest may quote
    anything. ``stack``: the JVM's.
    """
    match = _TEXT.match(text) or _OF_PYTHON.match(text)
    if match is None and _quotes_no_row(around, text):
        match = _CAUSE.search(stack)
        if match is None and _STORE_FRAME.search(stack):
            return _of_store(stack)
    return None if match is None else _ERRORS[match["words"]](match["why"])


def _quotes_no_row(around: str, text: str) -> bool:
    """Return whether the error quotes no row: errors that do come from Python or have one of Spark's conditions."""
    return "python" not in around.lower() and (not text.startswith("[") or _OF_FILES.match(text) is not None)


def _of_store(stack: str) -> EosError | None:
    for error, classes in _STORES:
        match = re.search(rf"^(?:Caused by: |: )?(?:{classes}): (?P<why>[^\n]+)", stack, re.MULTILINE)
        if match is not None:
            return error(match["why"])
    return None
