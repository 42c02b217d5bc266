"""The tree of commands, and how one is run."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException

from spark_eos.cli import (
    INTERRUPTED,
    acls,
    checkpoint,
    devcluster,
    doctor,
    jobs,
    ledger,
    mirror,
    query,
    replay,
    transactions,
    verify,
    watching,
)
from spark_eos.cli.options import new_app

app = new_app("Exactly-once Kafka source and sink for PySpark.", completion=True)
app.command("run", context_settings=jobs.CONTEXT, epilog=jobs.EPILOG)(jobs.run)
app.command("devcluster")(devcluster.devcluster)
app.command("doctor")(doctor.doctor)
app.command("verify")(verify.verify)
app.add_typer(transactions.app, name="transactions")
app.add_typer(checkpoint.app, name="checkpoint")
app.add_typer(query.app, name="query")
app.add_typer(ledger.app, name="ledger")
app.add_typer(mirror.app, name="mirror")
app.command("recover")(query.recover)
app.command("replay")(replay.replay)
app.command("acls")(acls.acls)
app.command("top")(watching.top)
app.command("plot")(watching.plot)


def _version(asked: bool) -> None:
    if asked:
        from spark_eos._version import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def run(arguments: list[str]) -> int:
    """Run a command line; the exit code. What is wrong with the arguments themselves is told on stderr: exit code 2."""
    command = typer.main.get_command(app)
    try:
        code: int | None = command.main(arguments, prog_name="spark-eos", standalone_mode=False)
    except TyperException as error:
        error.show()  # type: ignore[attr-defined]  # those that come here have it, typer says it of their base only
        return int(error.exit_code)
    except typer.Exit as ended:
        return int(ended.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:  # as of `spark-eos … | head`
        sys.stderr.close()
        return 1
    return code or 0
