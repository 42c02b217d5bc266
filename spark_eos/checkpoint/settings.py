"""Hadoop's settings of file systems, such as ``fs.s3a.endpoint``, and where a Python worker finds them.

Spark does not pass its configuration to Python workers. So settings have three sources; later ones take precedence:

- the files ``core-site.xml`` (in HADOOP_CONF_DIR) and ``spark-defaults.conf`` (``spark.hadoop.fs.…``) of the machine
- the session that `spark_eos.register` was called with, whose settings travel with the data source
- options ``fs.…`` of the query

For anything else, the store's own library looks where it does in every program: in the environment, in the user's
files, in the machine's role.
"""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as xml
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, overload

from spark_eos.base.frozen_settings import Settings
from spark_eos.base.printable import hidden
from spark_eos.errors import invalid_option, option_twice

T = TypeVar("T")

DEFAULT_FS = "fs.defaultFS"
_SPARKS_PREFIX = "spark.hadoop."
#: A line of a Java properties file: a name and a value, both with escapes.
_LINE = re.compile(r"\s*((?:\\.|[^\s#!=:\\])(?:\\.|[^\s=:\\])*)(?:\s*[=:]|\s)\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
#: A line that goes on in the next one: it ends with an odd number of backslashes.
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:\r\n|\r|\n)[ \t\f]*")
#: ``${name}`` and ``${env.NAME}``, the innermost first; in another one, ``${env.NAME-default}`` and with ``:-``.
_VARIABLE = re.compile(r"\$\{([^\s${}]+)\}")
_OF_ENVIRONMENT = re.compile(r"env\.(.+?)(?:(:?)-(.*))?")
#: Replacements of variables in one value, as in Hadoop.
_MOST_VARIABLES = 20
#: The settings of S3A for address and credentials; each also as fs.s3a.bucket.NAME.….
S3A = (
    *("access.key", "secret.key", "session.token", "aws.credentials.provider"),
    *("assumed.role.arn", "assumed.role.session.name", "assumed.role.external.id"),
    *("endpoint", "endpoint.region", "path.style.access", "connection.ssl.enabled"),
)
#: Settings of Azure and Google that are followed, or add nothing to these; each of Azure's also as ….HOST.
AZURE = (
    *("account.key", "account.auth.type", "account.oauth.provider.type"),
    *("account.oauth2.client.id", "account.oauth2.client.secret", "account.oauth2.client.endpoint"),
    *("sas.fixed.token", "sas.token.provider.type"),
)
GOOGLE = (
    *("fs.gs.auth.type", "fs.gs.project.id", "fs.gs.storage.root.url"),
    *("fs.gs.auth.service.account.enable", "fs.gs.auth.service.account.json.keyfile"),
    *("google.cloud.auth.service.account.enable", "google.cloud.auth.service.account.json.keyfile"),
)
_S3A_NAME = re.compile(rf"fs\.s3a\.(?:bucket\..+\.)?(?:{'|'.join(map(re.escape, S3A))})")
_AZURE_NAME = re.compile(rf"fs\.azure\.(?:{'|'.join(map(re.escape, AZURE))})(?:\..+)?")


class HadoopSettings(Settings):
    """Settings by Hadoop's names. Its repr has no values, as some are secrets."""

    def __repr__(self) -> str:
        return f"HadoopSettings({sorted(self._values)})"

    @overload
    def get(self, key: str, default: None = None, /) -> str | None: ...
    @overload
    def get(self, key: str, default: T, /) -> str | T: ...
    def get(self, key: str, default: object = None, /) -> object:
        """Return the value with which a store is opened. Raises OptionError for one with a variable that has no value
        here: as it is, it would be another address, or a secret that is refused."""
        value = self._values.get(key)
        if value is not None and _VARIABLE.search(value):
            raise invalid_option(
                key,
                "set by a variable of Hadoop, '${…}', that has no value here",
                "the value, or set the variable in Python's environment: properties of the JVM are not known here",
            )
        return default if value is None else value

    @property
    def default_fs(self) -> str | None:
        """The file system of locations without a scheme."""
        return self.get(DEFAULT_FS)

    def hide(self, text: str) -> str:
        """Return a library's message with values of these settings as ``***``, except addresses and regions."""
        harmless = ("endpoint", "region", "defaultFS", "access", "enabled")
        endpoints = [value for name, value in self.items() if name.endswith("endpoint")]
        others = [value.removeprefix("?") for name, value in self.items() if not name.endswith(harmless)]
        return " ".join(hidden(text, others, endpoints).split())

    def on_this_machine(self) -> HadoopSettings:
        """Return the settings in the files of this machine, overridden by these."""
        return HadoopSettings({**_of_files(os.getpid()), **self})

    @classmethod
    def split_off(cls, raw: Mapping[str, str], session: Mapping[str, str]) -> tuple[dict[str, str], HadoopSettings]:
        """Return the options of a query that are no settings; and its settings, which override the ``session``'s.
        Raises OptionError for a setting that is given twice, with different values."""
        rest: dict[str, str] = {}
        given: dict[str, str] = {}
        for key, value in raw.items():
            name = setting_name(key)
            if name is None:
                rest[key] = value
            elif given.setdefault(name, value) != value:
                raise option_twice(name)
        return rest, cls({**session, **given})

    @classmethod
    def from_session(cls, spark: Any) -> HadoopSettings:  # noqa: ANN401  # a session, classic or Connect
        """Return the settings of a session that are not Hadoop's defaults; none if the session does not expose them."""
        try:
            hadoop = spark._jsparkSession.sessionState().newHadoopConf()
            writer = spark._jvm.java.io.StringWriter()
            hadoop.writeXml(writer)  # all of it by one call: each call to the JVM takes a millisecond
            return cls(_of_xml(writer.toString()))
        except Exception:
            pass  # Spark Connect has no JVM at hand, and some platforms hide it
        try:
            return cls(of_spark(dict(spark.conf.getAll)))
        except Exception:
            return cls()


def setting_name(key: str) -> str | None:
    """Return the canonical name of a setting that this module uses, for a ``key`` in any case; None for other keys."""
    name = key.lower()
    if name == DEFAULT_FS.lower():
        return DEFAULT_FS
    known = name in GOOGLE or _S3A_NAME.fullmatch(name) or _AZURE_NAME.fullmatch(name)
    return name if known else None


def of_spark(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in a configuration of Spark, without the prefix ``spark.hadoop.``."""
    ours = {key: setting_name(key.removeprefix(_SPARKS_PREFIX)) for key in conf if key.startswith(_SPARKS_PREFIX)}
    others = {key.removeprefix(_SPARKS_PREFIX): value for key, value in conf.items()}
    return {name: _resolved(conf[key], others) for key, name in ours.items() if name is not None}


@lru_cache(maxsize=1)
def _of_files(process_id: int) -> dict[str, str]:
    settings: dict[str, str] = {}
    for folder in filter(None, map(os.environ.get, ("YARN_CONF_DIR", "HADOOP_CONF_DIR"))):
        settings |= _of_xml(_text(Path(folder, "core-site.xml")) or "<configuration/>")
    home = os.environ.get("SPARK_HOME")
    conf = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    return settings | of_spark(_of_properties(_text(Path(conf, "spark-defaults.conf")) or "")) if conf else settings


def _text(file: Path) -> str | None:
    try:
        return file.read_bytes().decode(errors="replace")  # as Java does: a comment may have any bytes
    except OSError:
        return None


def _of_xml(text: str) -> dict[str, str]:
    """Return the settings in a Hadoop configuration file, without the defaults from Hadoop's jars."""
    found = {}
    try:
        properties = list(xml.fromstring(text).iter("property"))
    except xml.ParseError:
        return {}
    values = {one.findtext("name", "").strip(): one.findtext("value", "").strip() for one in properties}
    for one in properties:
        key = one.findtext("name", "").strip()
        name, default = setting_name(key), "core-default.xml" in (one.findtext("source") or "")
        if name is not None and values[key] and not default:
            found[name] = _resolved(values[key], values)
    return found


def _resolved(value: str, others: Mapping[str, str]) -> str:
    """Return the value with its variables replaced as by Hadoop, by the environment and the ``others``, except for
    properties of the JVM. A variable without a value stays as it is."""

    def replaced(found: re.Match[str]) -> str:
        of_environment = _OF_ENVIRONMENT.fullmatch(found[1])
        if of_environment is None:
            return others.get(found[1], found[0])
        name, if_empty, default = of_environment.groups()
        there = os.environ.get(name)
        missing = there is None or (bool(if_empty) and not there)
        return (found[0] if default is None else default) if missing else str(there)

    for _ in range(_MOST_VARIABLES):
        value = _VARIABLE.sub(replaced, value, count=1)
    return value


def _of_properties(text: str) -> dict[str, str]:
    """Return the settings in a file with a name and a value in each line, with blanks, = or : between them, as Java
    reads it: a backslash at the end of a line, or before a character, is none of the value."""
    own = "\n".join(line for line in re.split(r"\r\n|\r|\n", text) if not line.lstrip().startswith(("#", "!")))
    lines = (_LINE.fullmatch(line) for line in _CONTINUED.sub(r"\1", own).split("\n"))
    return {_unescaped(line[1]): _unescaped(line[2]).strip() for line in lines if line is not None}


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(
        lambda match: chr(int(match[1], 16)) if match[1] else _ESCAPED.get(match[2] or "", match[2] or ""), text
    )
