"""What is loaded with the connector, and with the codec."""

from __future__ import annotations

import subprocess
import sys


def loaded(statement: str) -> set[str]:
    """The modules of a new process after this statement."""
    program = f"import sys; {statement}; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    )


def test_the_connector_does_not_load_the_codec():
    """Who uses no registry does not pay for it."""
    modules = loaded("import spark_eos")
    assert "spark_eos._version" in modules
    assert not {name for name in modules if name.startswith(("spark_eos.pipelines.registry", "fastavro"))}


def test_the_codec_loads_numpy_and_arrow_only():
    """Neither Spark nor a client; fastavro is for the tests."""
    modules = loaded("import spark_eos.pipelines.registry.avro")
    assert {"numpy", "pyarrow", "spark_eos.pipelines.registry.avro.encoder"} <= modules
    assert not modules & {"confluent_kafka", "fastavro", "httpx", "pyspark"}
