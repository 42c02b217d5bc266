"""The tree of commands, and how one is run."""

from __future__ import annotations

import itertools
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
    of_cluster = {name for option in command.params if option.name != "version" for name in option.opts}
    try:
        code: int | None = command.main(
            _cluster_first(arguments, of_cluster), prog_name="spark-eos", standalone_mode=False
        )
    except TyperException as error:
        error.show()  # type: ignore[attr-defined]  # every error here has it, but typer declares it for their base only
        return int(error.exit_code)
    except typer.Exit as ended:
        return int(ended.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:  # as of `spark-eos … | head`
        sys.stderr.close()
        return 1
    return code or 0


def _cluster_first(words: list[str], options: set[str]) -> list[str]:
    """Return the words of a command line, with the options that name the cluster before the command, wherever they
    stand."""
    before: list[str] = []
    after: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--" or (word == "run" and not after):  # a job's arguments are its own
            after += [word, *rest]
        elif word.partition("=")[0] in options:
            before += [word] if "=" in word else [word, *itertools.islice(rest, 1)]
        else:
            after.append(word)
    return [*before, *after]
