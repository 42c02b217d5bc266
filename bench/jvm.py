"""Programs in Java: what they are started by, with jars of their own. Those in source need a JDK."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from spark_eos.tools.devcluster.jars import JarSet, resolve
from spark_eos.tools.devcluster.java import find_java

SOURCES = Path(__file__).parent
#: They say nothing of themselves.
NO_LOG = ("org.slf4j:slf4j-nop:1.7.36",)


def class_path(jars: JarSet) -> str:
    """The jars, resolved."""
    return os.pathsep.join(map(str, resolve(jars)))


def compiled(source: Path, jars: JarSet, folder: Path) -> str:
    """Compile a class into the folder, with the classes of the benchmark that it uses; the class path to run it. Raises
    CalledProcessError where there is no JDK."""
    classes = class_path(jars)
    compiler = str(Path(find_java().path).with_name("javac"))
    own = ["-d", str(folder), "-cp", classes, "-sourcepath", str(SOURCES)]
    subprocess.run([compiler, "-nowarn", *own, str(source)], check=True)
    return os.pathsep.join([str(folder), classes])


def command(
    classes: str, program: str, *arguments: object, heap: str, folder: Path | None = None, options: Sequence[str] = ()
) -> list[str]:
    """What starts a program with this class path. ``folder``: for its temporary files; ``options``: of the JVM."""
    temporary = [] if folder is None else [f"-Djava.io.tmpdir={folder}"]
    return [find_java().path, heap, *temporary, *options, "-cp", classes, program, *map(str, arguments)]
