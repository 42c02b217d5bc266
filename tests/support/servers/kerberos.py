"""A Kerberos realm of its own, by the programs of MIT Kerberos, where they are installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from spark_eos.tools.devcluster.ports import free_ports
from tests.support.waiting import PROGRAM_S, TIMEOUT, wait_for

REALM = "EOS.TEST"
USER = "ann"
SERVICE = "kafka"
HOST = "127.0.0.1"
#: Debian: krb5-kdc, krb5-user and, for the package gssapi, libkrb5-dev.
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_FOLDERS = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/lib/mit/sbin:/usr/local/sbin"


def missing() -> str | None:
    """What a realm needs and is not here."""
    programs = [name for name in _PROGRAMS if shutil.which(name, path=_FOLDERS) is None]
    if programs:
        return f"no {', '.join(programs)} here"
    return None if importlib.util.find_spec("gssapi") else "the package gssapi is not installed"


@dataclass(frozen=True)
class Realm:
    """``environment``: by which programs and libraries find it; it names no ticket cache of anybody else."""

    folder: Path
    environment: dict[str, str]

    @property
    def config(self) -> Path:
        return self.folder / "krb5.conf"

    def keytab(self, principal: str) -> Path:
        return self.folder / f"{principal.partition('/')[0]}.keytab"

    def jaas(self) -> str:
        """The brokers' login."""
        return (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="{self.keytab(SERVICE)}" principal="{SERVICE}/{HOST}@{REALM}";'
        )

    def run(self, *command: str) -> None:
        program = shutil.which(command[0], path=_FOLDERS)
        assert program is not None
        environment = {**os.environ, **self.environment}
        subprocess.run([program, *command[1:]], env=environment, check=True, capture_output=True, timeout=PROGRAM_S)

    def kinit(self) -> None:
        """A ticket for `USER`, in the cache that ``environment`` names."""
        self.run("kinit", "-k", "-t", str(self.keytab(USER)), USER)


def _write_config(folder: Path, port: int) -> None:
    (folder / "krb5.conf").write_text(
        f"""
[libdefaults]
 default_realm = {REALM}
 dns_lookup_realm = false
 dns_lookup_kdc = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {REALM} = {{
  kdc = {HOST}:{port}
 }}
"""
    )
    (folder / "kdc.conf").write_text(
        f"""
[kdcdefaults]
 kdc_listen = {HOST}:{port}
 kdc_tcp_listen = {HOST}:{port}
[realms]
 {REALM} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
 }}
[logging]
 kdc = FILE:{folder}/kdc.log
"""
    )


@contextmanager
def realm(folder: Path) -> Iterator[Realm]:
    """A key distribution centre with `USER` and the brokers' principal, up until the end of the block."""
    (port,) = free_ports(1)
    _write_config(folder, port)
    environment = {
        "KRB5_CONFIG": str(folder / "krb5.conf"),
        "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        "KRB5CCNAME": f"FILE:{folder}/tickets",
    }
    own = Realm(folder, environment)
    own.run("kdb5_util", "create", "-s", "-P", "of this test alone", "-r", REALM)
    for principal in (USER, f"{SERVICE}/{HOST}"):
        own.run("kadmin.local", "-q", f"addprinc -randkey {principal}")
        own.run("kadmin.local", "-q", f"ktadd -k {own.keytab(principal)} {principal}")
    program = shutil.which("krb5kdc", path=_FOLDERS)
    assert program is not None
    kdc = subprocess.Popen([program, "-n", "-r", REALM], env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: _answers(own) or None, "an answer of the key distribution centre")
        yield own
    finally:
        kdc.terminate()
        kdc.wait(TIMEOUT)


def _answers(own: Realm) -> bool:
    try:
        own.run("kinit", "-k", "-t", str(own.keytab(USER)), "-c", f"FILE:{own.folder}/first", USER)
    except subprocess.CalledProcessError:
        return False
    return True
