"""What the demo shows: a progress bar on a terminal, plain lines elsewhere, one table at the end."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from jobs._demo.check import Findings
from jobs._demo.load import Loaded


class Show:
    """A context manager: the bar is there while it is open. Elsewhere than on a terminal only ``line`` prints."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rows"),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=None, note="")

    def __enter__(self) -> Show:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def line(self, text: str) -> None:
        """A line that stays."""
        self.console.print(text, soft_wrap=True)

    def phase(self, text: str, total: int | None = None, note: str = "") -> None:
        """What goes on now, and how many rows it is about, where that is known."""
        self._progress.update(self._task, description=text, total=total, completed=0, note=note)

    def rows(self, done: int, note: str | None = None) -> None:
        fields = {} if note is None else {"note": note}
        self._progress.update(self._task, completed=done, **fields)


def table(loaded: Loaded, findings: Findings, kills: int, sink: str) -> Table:
    """The result, for people."""
    found = findings.judgement
    result = Table("what", "rows", "", title=f"sink: {sink}", title_justify="left")
    result.add_row("in", f"{findings.rows_in:,}", f"and {loaded.aborted_rows:,} aborted ones, which nobody may see")
    result.add_row("expected", f"{findings.expected:,}", "delayed flights, as pandas finds them")
    result.add_row("out", f"{found.visible:,}", "as a read_committed consumer sees them")
    result.add_row("lost", *_count(found.lost))
    result.add_row("doubled", *_count(found.doubled))
    result.add_row("out of order", *_count(found.out_of_order))
    result.add_row("aborted visible", *_count(found.aborted_visible))
    result.add_row("wrong", *_count(found.wrong))
    result.add_row("rewritten", f"{findings.rewritten:,}", "written before a kill, never visible, written again")
    result.add_section()
    result.add_row("kills survived", f"{kills:,}", "SIGKILL to the driver and its JVM")
    result.add_row("partitions held", *_count(findings.held))
    result.add_row("group offsets", *_group(findings.group_ok))
    return result


def _count(number: int) -> tuple[str, str]:
    return f"{number:,}", "[green]ok[/]" if number == 0 else "[red]WRONG[/]"


def _group(ok: bool | None) -> tuple[str, str]:
    if ok is None:
        return "none", "this sink publishes none"
    return ("at the end", "[green]ok[/]") if ok else ("elsewhere", "[red]WRONG[/]")
