"""An S3 server on this machine, and what Spark needs to keep a checkpoint there."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pyarrow.fs

from spark_eos.tools.devcluster.jars import JarSet, resolve
from spark_eos.tools.devcluster.ports import free_ports
from tests.support.waiting import wait_for

ACCESS_KEY, SECRET_KEY = "an-access-key", "the-secret-of-the-store"
_AWS = "2.35.4"
#: S3A, Hadoop's client of S3, in the version of the Hadoop that PySpark 4.2 brings; and what of Amazon's SDK it uses,
#: which is 15 MB for the 600 MB of the bundle that it asks for.
S3A = JarSet(
    "hadoop-aws-3.5.0",
    transitive=tuple(f"software.amazon.awssdk:{name}:{_AWS}" for name in ("s3", "s3-transfer-manager", "sts")),
    plain=(
        "org.apache.hadoop:hadoop-aws:3.5.0",
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
    ),
)


@dataclass(frozen=True)
class ObjectStore:
    """``address``: host and port. ``bucket`` is there."""

    address: str
    bucket: str = "checkpoints"

    @property
    def files(self) -> pyarrow.fs.FileSystem:
        """The store as a client sees it that shares nothing with the code under test."""
        return pyarrow.fs.S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            endpoint_override=self.address,
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )

    @property
    def catalog(self) -> dict[str, str]:
        """Properties of an Iceberg catalog whose files are there."""
        keys = {"s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY, "s3.region": "us-east-1"}
        return keys | {"s3.endpoint": f"http://{self.address}", "warehouse": f"s3://{self.bucket}/warehouse"}

    @property
    def settings(self) -> dict[str, str]:
        """Hadoop's settings for it."""
        return {
            "fs.s3a.access.key": ACCESS_KEY,
            "fs.s3a.secret.key": SECRET_KEY,
            "fs.s3a.endpoint": f"http://{self.address}",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.endpoint.region": "us-east-1",
        }

    def spark_conf(self) -> dict[str, str]:
        """Spark's settings for a program whose checkpoint is there, with the jars."""
        # Those of the logging façades are Spark's own.
        jars = [jar for jar in resolve(S3A) if not jar.name.startswith(("slf4j-api", "commons-logging"))]
        conf = {f"spark.hadoop.{name}": value for name, value in self.settings.items()}
        return conf | {"spark.jars": ",".join(jar.as_uri() for jar in jars)}

    def put(self, path: str, text: str) -> None:
        with self.files.open_output_stream(f"{self.bucket}/{path}") as stream:
            stream.write(text.encode())


@contextlib.contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """A store that is empty, and gone at the end."""
    (port,) = free_ports(1)
    address, log = f"127.0.0.1:{port}", folder / "object-store.log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        wait_for(lambda: _is_up(address), lambda: f"the object store:\n{log.read_text()}")
        store = ObjectStore(address)
        store.files.create_dir(store.bucket)
        yield store
    finally:
        server.kill()
        server.wait()


def _is_up(address: str) -> bool:
    try:
        with urlopen(f"http://{address}/moto-api/", timeout=2):
            return True
    except (URLError, OSError):
        return False
