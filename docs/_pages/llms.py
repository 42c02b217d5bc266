"""llms.txt: the list of pages for language models (llmstxt.org), from contents.md."""

from __future__ import annotations

import re

from _pages.code import ROOT

INTRODUCTION = """# spark-eos

> Exactly-once Kafka source and sink for PySpark Structured Streaming: `format("eos-kafka")`. Python on PySpark's Data
> Source API, without any jars. Each micro-batch is written in Kafka transactions. The driver first records, in one
> step, which of them are to be committed, and the input's offsets for a consumer group that you name; then it commits
> them.

Where a query stops, its error has a name such as `EOS_TOPIC_MISSING`: see stopped.md."""

_ROW = re.compile(r"^- \[(.+?)\]\((.+?)\): (.+)$")


def page() -> str:
    """llms.txt."""
    lines = [INTRODUCTION]
    for line in (ROOT / "docs" / "contents.md").read_text().splitlines():
        row = _ROW.match(line)
        if line.startswith("## "):
            lines += ["", line, ""]
        elif row is not None:
            lines.append(f"- [{row[1].removesuffix('.md')}]({row[2].removeprefix('../')}): {row[3]}")
    return "\n".join(lines) + "\n"
