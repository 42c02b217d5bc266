"""``spark-eos package``."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_eos.cli.options import Format, Output, tell


def package(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="the archive to make, as packages.tar.gz", show_default=False)
    ],
    output: Output = Format.TEXT,
) -> int:
    """Pack spark-eos for executors that do not have it.

    Makes an archive of this installation and what it requires, without Spark, for clusters with the same version of
    Python and platform; and prints the settings that send it along. Exit code: 0, or 2 if it could not be written.
    """
    from spark_eos.ops import package as ops

    return tell(output, lambda: ops.package(file))
