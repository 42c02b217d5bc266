"""The tree of commands, and how one is run."""

from __future__ import annotations

import sys

import typer
from typer.exceptions import TyperException

from spark_eos.cli import INTERRUPTED, dead_letters, devcluster, doctor, jobs, mirror, replay, status, timeline, verify
from spark_eos.cli.options import connect, new_app

app = new_app("Exactly-once Kafka source and sink for PySpark.", completion=True)
app.command("run", context_settings=jobs.CONTEXT, epilog=jobs.EPILOG)(jobs.run)
app.command("devcluster")(devcluster.devcluster)
app.command("doctor")(doctor.doctor)
app.command("status")(status.status)
app.command("recover")(status.recover)
app.command("replay")(replay.replay)
app.add_typer(mirror.app, name="mirror")
app.add_typer(dead_letters.app, name="dead-letters")
app.command("verify")(verify.verify)
app.command("top")(timeline.top)
app.command("plot")(timeline.plot)
app.callback()(connect)


def run(arguments: list[str]) -> int:
    """Run a command line, and return the exit code: 2 with a message on stderr for wrong arguments."""
    command = typer.main.get_command(app)
    try:
        code: int | None = command.main(arguments, prog_name="spark-eos", standalone_mode=False)
    except TyperException as error:
        error.show()  # type: ignore[attr-defined]  # those that come here have it, but typer declares it for their base only
        late = getattr(error, "option_name", None)
        if late in {name for option in command.params for name in option.opts}:
            print(f"{late} stands before the command: spark-eos {late} …", file=sys.stderr)
        return int(error.exit_code)
    except typer.Exit as ended:
        return int(ended.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:  # as of `spark-eos … | head`
        sys.stderr.close()
        return 1
    return code or 0
