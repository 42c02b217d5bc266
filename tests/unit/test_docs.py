"""The docs say what the code says; and what generated pages show of tests that kill, of links, options and keys."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
import yaml

from spark_eos.base.failpoints import IN_QUERIES, POINTS
from spark_eos.errors import conditions
from spark_eos.options.table import SINK, SOURCE
from spark_eos.protocol.head import Decision, Head, Pair, Probe, Written
from spark_eos.protocol.head_codec import encode

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from _pages import site  # noqa: E402
from _pages.elsewhere import ELSEWHERE  # noqa: E402

PAGES = runpy.run_path(str(ROOT / "docs" / "pages.py"))["PAGES"]


@pytest.mark.parametrize("page", PAGES)
def test_pages_made_from_the_code_are_up_to_date(page: str) -> None:
    """`make docs` would change nothing."""
    assert (ROOT / "docs" / page).read_text() == PAGES[page]()


#: Kinds of errors that end a query which has begun; the others come before, or are of the tools.
_END_A_QUERY = {
    "CheckpointError", "ConnectionFailed", "DataLossError", "Diverged", "FileError", "KafkaError", "LedgerError",
    "ProtocolStop", "RegistryError", "RowError", "Superseded", "TableError", "TopicError", "TransactionLost",
    "Unauthorized", "Unclear", "WorkerError",
}  # fmt: skip


#: Others that may also end a query which has begun, as what they are about may change meanwhile.
_ALSO = {
    "EOS_OPTION_CONFLICT", "EOS_OPTION_INVALID", "EOS_QUERY_UNKNOWN", "EOS_SYSTEM_FULL", "EOS_SYSTEM_UNREACHABLE",
    "EOS_USE_UNSUPPORTED",
}  # fmt: skip


def stopped() -> dict[str, str]:
    """Return the section of docs/stopped.md that lists each condition, which it does in a paragraph of names only."""
    sections: dict[str, str] = {}
    for section in re.split(r"\n(?=## )", (ROOT / "docs" / "stopped.md").read_text()):
        for names in re.findall(r"^(?:`EOS_[A-Z_]+`\s+)+$", section, re.MULTILINE):
            for name in re.findall(r"EOS_[A-Z_]+", names):
                assert name not in sections, f"{name} is listed twice"
                sections[name] = section
    return sections


def test_what_to_do_is_told_for_every_condition_that_ends_a_query() -> None:
    """In one section, which says what is lost or doubled, what to do and whether a restart helps; and for no other."""
    told = stopped()
    ends = {name for name, row in conditions().items() if row["class"] in _END_A_QUERY}
    expected = {name for name in ends if not name.startswith("EOS_VERIFY")}
    assert told.keys() - _ALSO == expected
    for name, text in told.items():
        for part in ("Lost or doubled", "Do", "A restart helps"):
            assert text.count(f"- **{part}**: ") == 1, name


def test_whether_a_restart_helps_is_told_as_the_code_says() -> None:
    """As `spark_eos.reason(error).restart_helps`."""
    helps = {name for name, row in conditions().items() if row.get("restart")}
    assert {name for name, text in stopped().items() if "**A restart helps**: yes" in text} == helps


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


#: Pages beside the code of a room.
ROOMS = sorted((ROOT / "spark_eos").rglob("README.md"))


def test_links_between_pages_lead_somewhere() -> None:
    """Every relative link in the pages points at a file that exists, and at a heading in it."""
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOMS]:
        for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text()):
            if "://" not in target:
                found = page.parent / target if target else page
                assert found.exists(), f"{page.name}: {target}"
                assert not anchor or anchor in anchors(found), f"{page.name}: {target}#{anchor}"


def test_design_and_rooms_name_files_that_exist() -> None:
    """By their paths in the room, in the package or in the checkout."""
    for page in (ROOT / "docs" / "design.md", *ROOMS):
        for name in re.findall(r"`([\w/]+(?:\.py|/))`", page.read_text()):
            folders = (page.parent, ROOT / "spark_eos", ROOT)
            assert any((folder / name).exists() for folder in folders), f"{page.relative_to(ROOT)}: {name}"


def test_the_head_in_the_tour_is_written_as_heads_are() -> None:
    """Its names are those of a head and its decision, and its transaction begins as the ledger has it."""
    (shown,) = re.findall(r'^```\n(\{"run".*?)^```$', (ROOT / "docs" / "tour.md").read_text(), re.MULTILINE | re.DOTALL)
    name = re.findall(r'"(spark-eos-[^"]+)"', shown)[0]
    written = Written(0, Pair(name, 1042, 0), 12, 8831, Probe("shouted", 2, 388))
    decision = Decision(7, 0, 4, 48, 1190, {"flights": {"0": 412}}, (written,), group="copier")
    head = json.loads(encode(Head("2f0f7c0e", 3, ("9b1e4d20", "c07d5a11"), 5, decision)))
    row = json.dumps(head["decision"]["written"][0][:6], separators=(",", ":"), ensure_ascii=False).removesuffix("]")
    assert f'"written":[{row},' in shown.replace("8831…", "8831")
    assert set(re.findall(r'"([a-z_]+)":', shown)) <= head.keys() | head["decision"].keys() | {"flights"}


def test_every_page_is_in_the_index() -> None:
    """docs/contents.md lists each other page of docs/ once, in the order of the website's menu."""
    listed = re.findall(r"^- \[(.+?\.md)\]\((?:\.\./)?\1\)", (ROOT / "docs" / "contents.md").read_text(), re.MULTILINE)
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"contents.md"}
    assert sorted(listed) == sorted(pages | {"CHANGELOG.md", "CONTRIBUTING.md"})
    menu = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=yaml.BaseLoader)["nav"]
    parts = [next(iter(part.values())) for part in menu]
    assert [page for part in parts if isinstance(part, list) for page in part] == listed


#: What KafkaSourceProvider of Spark 4.2 accepts for reading.
SPARKS = """
assign subscribe subscribePattern startingOffsets startingOffsetsByTimestamp startingTimestamp endingOffsets
endingOffsetsByTimestamp endingTimestamp startingOffsetsByTimestampStrategy failOnDataLoss minPartitions
maxRecordsPerPartition maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay fetchOffset.numRetries
fetchOffset.retryIntervalMs kafkaConsumer.pollTimeoutMs groupIdPrefix includeHeaders
"""


#: What a test calls that kills a process, and the action of a failpoint.
KILLS = re.compile(r"\b(?:kill|kill_all_but|killpg|killed|dies)\(|=die\b")


def test_a_process_is_killed_at_every_failpoint() -> None:
    """A file of tests on real brokers that kills processes names it, as docs/testing.md says."""
    killed = set()
    for folder in ("chaos", "integration"):
        for path in (ROOT / "tests" / folder).rglob("test_*.py"):
            text = re.sub(r'== "[^"]+"', "", path.read_text())  # where it asks which point it is
            if KILLS.search(text):
                killed |= {point for point in POINTS if point in text or (point in IN_QUERIES and "IN_QUERIES" in text)}
    assert POINTS.keys() - killed == set()


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("[s](sink.md#columns)", "[s](sink.md#columns)"),
        ("[s](docs/sink.md)", "[s](sink.md)"),
        ("[r](../README.md#try-it)", "[r](index.md#try-it)"),
        ("[c](../spark_eos/pipelines/copy/README.md)", "[c](room-copy.md)"),
        ("[c](spark_eos/pipelines/copy/README.md)", "[c](room-copy.md)"),
        ("[t](../tables/README.md)", "[t](room-tables.md)"),
        ("[s](../../../docs/sink.md#columns)", "[s](sink.md#columns)"),
        ("[`plan`](../spark_eos/source/plan.py) decides", "`plan` decides"),
    ],
)
def test_links_lead_to_pages_of_the_website(link: str, shown: str) -> None:
    """All of its pages are in one folder, those of rooms among them; code is not on it."""
    assert site.on_page_markdown(link) == shown


def test_every_option_of_sparks_own_format_is_compared() -> None:
    """For reading and for writing."""
    source = {option.name for option in SOURCE if option.parity}
    sink = {option.name for option in SINK if option.parity} | {other.name for other in ELSEWHERE if other.sink}
    assert source >= set(SPARKS.split())
    assert sink >= {"topic", "includeHeaders", "checkpointLocation"}


def test_every_key_of_a_job_says_what_it_means() -> None:
    """The page lists the keys of all models; a field without a comment above it would have no text."""
    rows = [line for line in PAGES["keys.md"]().splitlines() if line.startswith("- `")]
    assert len(rows) > 40
    assert [row for row in rows if row.endswith(": ")] == []
