"""Hadoop's settings of file systems, such as ``fs.s3a.endpoint``, and where a Python worker finds them.

Spark does not pass its configuration to Python workers. So settings come from three places; later ones take precedence:

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
from typing import Any

from spark_eos.frozen_settings import Settings

DEFAULT_FS = "fs.defaultFS"
_SPARKS_PREFIX = "spark.hadoop."
_LINE = re.compile(r"\s*([^\s#!=:]+)\s*[=:\s]\s*(.*)")
_FAMILIES = ("fs.s3a.", "fs.azure.", "fs.gs.", "google.cloud.auth.")
#: The settings of S3A for address and credentials; each also as fs.s3a.bucket.NAME.….
S3A = (
    *("access.key", "secret.key", "session.token", "aws.credentials.provider"),
    *("assumed.role.arn", "assumed.role.session.name", "assumed.role.external.id"),
    *("endpoint", "endpoint.region", "path.style.access", "connection.ssl.enabled"),
)


class HadoopSettings(Settings):
    """Settings by Hadoop's names. Its repr has no values, as some are secrets."""

    def __repr__(self) -> str:
        return f"HadoopSettings({sorted(self._values)})"


def setting_name(key: str) -> str | None:
    """The canonical name of a setting that this module uses, whatever the case of ``key``; None for other keys."""
    name = key.lower()
    if name.startswith("fs.s3a."):
        return name if name.endswith(tuple(f".{last}" for last in S3A)) else None
    if name == DEFAULT_FS.lower():
        return DEFAULT_FS
    return name if name.startswith(_FAMILIES) else None


def without_settings(raw: Mapping[str, str], session: Mapping[str, str]) -> tuple[dict[str, str], HadoopSettings]:
    """The options of a query that are no settings; and its settings, over those of the ``session``."""
    names = {key: setting_name(key) for key in raw}
    given = {name: raw[key] for key, name in names.items() if name is not None}
    return {key: raw[key] for key, name in names.items() if name is None}, HadoopSettings({**session, **given})


def of_spark(conf: Mapping[str, str]) -> dict[str, str]:
    """The settings in a configuration of Spark, without the prefix ``spark.hadoop.``."""
    ours = {key: setting_name(key.removeprefix(_SPARKS_PREFIX)) for key in conf if key.startswith(_SPARKS_PREFIX)}
    return {name: conf[key] for key, name in ours.items() if name is not None}


def of_session(spark: Any) -> dict[str, str]:  # noqa: ANN401  # a session, classic or Connect
    """The settings of a session that are not Hadoop's defaults; none if the session does not expose them."""
    try:
        hadoop = spark._jsparkSession.sessionState().newHadoopConf()
        writer = spark._jvm.java.io.StringWriter()
        hadoop.writeXml(writer)  # all of it by one call: each call to the JVM takes a millisecond
        return _of_xml(writer.toString())
    except Exception:
        pass  # Spark Connect has no JVM at hand, and some platforms hide it
    try:
        return of_spark(dict(spark.conf.getAll))
    except Exception:
        return {}


def here(given: HadoopSettings) -> HadoopSettings:
    """The settings in the files of this machine, overridden by ``given``."""
    return HadoopSettings({**_of_files(os.getpid()), **given})


@lru_cache(maxsize=1)
def _of_files(process_id: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for folder in filter(None, map(os.environ.get, ("YARN_CONF_DIR", "HADOOP_CONF_DIR"))):
        found |= _of_xml(_text(Path(folder, "core-site.xml")) or "<configuration/>")
    home = os.environ.get("SPARK_HOME")
    conf = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    return found | of_spark(_of_properties(_text(Path(conf, "spark-defaults.conf")) or "")) if conf else found


def _text(file: Path) -> str | None:
    try:
        return file.read_text()
    except OSError:
        return None


def _of_xml(text: str) -> dict[str, str]:
    """The settings in a Hadoop configuration file, without the defaults from Hadoop's jars."""
    found = {}
    try:
        properties = xml.fromstring(text).iter("property")
    except xml.ParseError:
        return {}
    for one in properties:
        name, value = setting_name(one.findtext("name", "").strip()), one.findtext("value", "").strip()
        default = "core-default.xml" in (one.findtext("source") or "")
        if name is not None and value and not default:
            found[name] = value
    return found


def _of_properties(text: str) -> dict[str, str]:
    """The settings in a file with a name and a value in each line, with blanks, = or : between them."""
    lines = (_LINE.match(line) for line in text.splitlines())
    return {line[1]: line[2].strip() for line in lines if line is not None}
