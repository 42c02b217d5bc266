"""The options page of the docs, made from the table."""

from __future__ import annotations

from spark_eos.options.table import ELSEWHERE, SINK, SINK_OWNED, SOURCE, SOURCE_OWNED


def markdown() -> str:
    """The options page of the docs."""
    parts = ["# Options", "", "Made by `python -m spark_eos.options.page`; a test holds this page to it."]
    for title, table, owned in (("Source", SOURCE, SOURCE_OWNED), ("Sink", SINK, SINK_OWNED)):
        parts += ["", f"## {title}", "", "| option | default | meaning |", "| --- | --- | --- |"]
        parts += [f"| `{o.name}` | {o.default} | {o.doc} |" for o in table]
        parts += ["| `kafka.*` | `kafka.bootstrap.servers` is required | Of the client; Java's names do, too. |"]
        parts += ["", "Reserved, with what to do instead:", ""]
        parts += [f"- `kafka.{key}`: {why}" for key, why in owned.items()]
    parts += ["", "## Beside Spark's built-in Kafka source", ""]
    parts += [
        "Options of the `kafka` format of Spark 4.2, for reading. The columns are the same, in name, type and order.",
        "",
    ]
    parts += ["| option | here |", "| --- | --- |"]
    parts += [f"| `{o.name}` | {o.parity or 'new'} |" for o in SOURCE]
    parts += [
        f"| {name if name.startswith('spark') else f'`{name}`'} | {what}: {why} |" for name, what, why in ELSEWHERE
    ]
    return "\n".join(parts) + "\n"
