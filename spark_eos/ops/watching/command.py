"""What ``spark-eos plot`` and ``spark-eos top`` do."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from spark_eos.errors import CommandError, stop
from spark_eos.ops.answer import Answer
from spark_eos.ops.watching.reading import EventReader, chosen
from spark_eos.ops.watching.story import Story, cut, story_of

if TYPE_CHECKING:
    from spark_eos.checkpoint.files import Checkpoint
    from spark_eos.ledger.owners import Cluster
    from spark_eos.ops.watching.view import Now


#: Events that a live view is made of.
_LATEST = 5_000


def plot(source: str, file: str, query: str | None = None, last_s: float | None = None) -> Answer:
    """Draw a query into a file: all of it, or its last seconds. Raises OptionError, UnsupportedError."""
    if is_checkpoint(source):
        raise stop("EOS_PLOT_IMPOSSIBLE.no_servers", source=source)
    events = EventReader(source).read()
    story = story_of(events, chosen(events, query, source))
    return _drawn(story, max(float(event["at"]) for event in events), source, file, last_s)


def is_checkpoint(source: str) -> bool:
    """Whether a source of a picture is a checkpoint, and no recording."""
    return Path(source, "offsets").is_dir() or bool(re.match(r"(?!https?:)[A-Za-z][\w+.-]+://", source))


def plot_checkpoint(checkpoint: Checkpoint, cluster: Cluster, file: str, last_s: float | None = None) -> Answer:
    """Draw a query by its checkpoint and ledger, without recorded events. Raises EosError."""
    from spark_eos.ops.watching.history import story_from
    from spark_eos.ops.watching.traces import traces_of

    story = story_from(traces_of(checkpoint, cluster))
    end = max([0.0, *(run.end for run in story.runs), *(batch.span[1] for batch in story.batches)])
    return _drawn(story, end, checkpoint.location, file, last_s)


def _drawn(story: Story, end: float, source: str, file: str, last_s: float | None) -> Answer:
    """``end``: where the last seconds end."""
    from spark_eos.ops.watching.picture import draw

    if last_s is not None:
        story = cut(story, end - last_s)
    if not story.batches and not story.lags:
        raise stop("EOS_PLOT_IMPOSSIBLE.empty", source=source, query=story.query)
    try:
        draw(story, Path(file))
    except (OSError, ValueError) as error:  # ValueError: a kind of picture that there is not
        raise stop("EOS_PLOT_IMPOSSIBLE.unwritable", file=file, error=error) from None
    return Answer(_counts(story) | {"file": file}, f"{file}: {len(story.batches)} micro-batches of {story.query}")


def _counts(story: Story) -> dict[str, object]:
    outcomes: dict[str, int] = {}
    for batch in story.batches:
        name = batch.outcome or ("not finished" if story.unknown else "running")
        outcomes[name] = outcomes.get(name, 0) + 1
    unended = "unknown" if story.unknown else "running"
    return {
        "query": story.query,
        "runs": [run.how or unended for run in story.runs],
        "batches": outcomes,
        "unknown": list(story.unknown),
    }


def top(source: str, query: str | None, cluster: Cluster | None) -> Answer:
    """How a query is now. Raises OptionError."""
    from rich.console import Console

    from spark_eos.ops.watching.view import as_json, as_lines

    now = _now(EventReader(source), query, cluster)
    console = Console(width=120, color_system=None)
    with console.capture() as captured:
        console.print(as_lines(now))
    return Answer(as_json(now), captured.get().rstrip())


def watch(source: str, query: str | None, cluster: Cluster | None, every_s: float) -> int:
    """Show a query in the terminal, again and again, until Ctrl-C. Raises OptionError if there is nothing at the
    beginning."""
    from rich.live import Live
    from rich.text import Text

    from spark_eos.ops.watching.view import as_lines

    reader = EventReader(source)
    first = as_lines(_now(reader, query, cluster))
    with suppress(KeyboardInterrupt), Live(first, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(every_s)
            try:
                live.update(as_lines(_now(reader, query, cluster)), refresh=True)
            except CommandError as error:  # the query may be started again
                live.update(Text(str(error), style="red"), refresh=True)
    return 0


def _now(reader: EventReader, query: str | None, cluster: Cluster | None) -> Now:
    from spark_eos.ops.watching.open_transactions import blocking_transactions
    from spark_eos.ops.watching.view import now_of

    events = reader.read()[-_LATEST:]
    story = story_of(events, chosen(events, query, reader.source))
    running = bool(story.runs) and story.runs[-1].how is None
    return now_of(story, blocking_transactions(cluster, events) if cluster is not None and running else None)
