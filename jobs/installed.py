"""Extras of the package that a job needs; missing ones are known before any of them is imported."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from spark_eos.errors import stop

#: Extra → modules by which one sees that it is installed.
_MODULES = {
    "jobs": ("yaml", "pydantic", "py4j"),
    "tables": ("deltalake",),
    "delta": ("delta",),
    "iceberg": ("pyiceberg",),
    "sql": ("duckdb",),
    "registry": ("ptars",),
    "metrics": ("prometheus_client",),
}
#: Extras that a job needs with any config file.
_ALWAYS = {"delta_to_kafka": ("tables",), "kafka_to_delta": ("tables",), "kafka_to_iceberg": ("iceberg",)}


def check_installed(job: str, extras: Iterable[str] = ()) -> None:
    """Raise UnsupportedError that names all missing packages of the extras that a job needs. ``extras``: needed due to
    its config file."""
    needed = dict.fromkeys(("jobs", *_ALWAYS.get(job, ()), *extras))
    missing = {extra: [module for module in _MODULES[extra] if find_spec(module) is None] for extra in needed}
    if modules := [module for each in missing.values() for module in each]:
        names = [extra for extra, lacks in missing.items() if lacks]
        listed = {"use": f"Job {job}", "modules": ", ".join(modules), "extra": ",".join(names)}
        if "delta" in names:
            raise stop("EOS_NOT_INSTALLED.job_delta", **listed)
        raise stop("EOS_NOT_INSTALLED.extra", **listed)
