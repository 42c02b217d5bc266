"""The frame of the command line: what every command has alike, and what none of them does."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from spark_eos import cli
from spark_eos.cli import app as tree
from spark_eos.cli import options
from spark_eos.errors import EosError

ROOT = Path(__file__).parents[2]
CLIENT = {"--bootstrap-servers", "--kafka", "--kafka-file"}
#: Their arguments are those of what they start.
PASSES_ON = {"run"}
ASKS_NOBODY = {*PASSES_ON, "devcluster", "acls", "plot"}
#: They change something, unless they only say what they would do.
CHANGES = {
    "transactions abort",
    "transactions settle",
    "checkpoint adopt",
    "checkpoint drop",
    "mirror move-group",
    "mirror position",
    "replay",
    "recover",
}
#: Scripts have these: none of them may go, or be called otherwise.
KNOWN = {
    "transactions list": {"--open-for", "--query", "--ledger-topic", "--prefix", "--format"},
    "transactions describe": {"--id", "--query", "--ledger-topic", "--prefix", "--format"},
    "transactions abort": {"--query", "--yes", "--ledger-topic", "--prefix", "--format"},
    "transactions settle": {"--query", "--yes", "--ledger-topic", "--prefix", "--format"},
    "checkpoint show": {"--storage", "--ledger-topic", "--prefix", "--format"},
    "checkpoint adopt": {"--storage", "--group", "--yes", "--ledger-topic", "--prefix", "--format"},
    "checkpoint drop": {"--storage", "--yes", "--ledger-topic", "--prefix", "--format"},
    "mirror move-group": {
        *("--source", "--source-kafka", "--source-kafka-file", "--map", "--wait", "--delete", "--overwrite", "--yes"),
        "--format",
    },
    "mirror position": {
        *("--source", "--source-kafka", "--source-kafka-file", "--query", "--topic", "--map", "--wait", "--yes"),
        *("--ledger-topic", "--prefix", "--format"),
    },
    "mirror translate": {"--source", "--source-kafka", "--source-kafka-file", "--map", "--topic-id", "--format"},
    "replay": {
        *("--to-batch", "--to-timestamp", "--to-offsets", "--new", "--again", "--topic", "--in-place", "--finish"),
        *("--yes", "--storage", "--ledger-topic", "--prefix", "--format"),
    },
    "verify": {
        *("--input", "--output", "--id", "--output-id", "--group", "--order", "--allow-missing", "--same-value"),
        *("--json", "--limit", "--timeout", "--format"),
    },
    "acls": {
        *("--principal", "--bootstrap-servers", "--input", "--output", "--group", "--ledger-topic", "--dead-letters"),
        *("--create-ledger", "--prefix", "--query", "--two-phase", "--format"),
    },
    "devcluster": {"--brokers", "--kafka-version", "--data", "--port", "--topic", "--format"},
    "top": {"--query", "--once", "--every", "--ledger-topic", "--prefix", "--format"},
    "plot": {*CLIENT, "--to", "--query", "--last", "--storage", "--ledger-topic", "--prefix", "--format"},
    "run": set(),
}


def leaves(command: Any = None, *path: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its words."""
    command = command or typer.main.get_command(tree.app)
    for name, each in getattr(command, "commands", {}).items():
        yield from leaves(each, *path, name)
    if not hasattr(command, "commands"):
        yield " ".join(path), command


COMMANDS = dict(leaves())


def flags(command: str) -> dict[str, Any]:
    return {name: option for option in COMMANDS[command].params for name in option.opts if name.startswith("--")}


@pytest.mark.parametrize("command", KNOWN)
def test_options_keep_their_names(command):
    """New ones may come."""
    more = set() if command in ASKS_NOBODY else CLIENT
    assert flags(command).keys() >= KNOWN[command] | more


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - ASKS_NOBODY))
def test_the_cluster_is_named_in_the_same_way_everywhere(command):
    """The same options, with the same words."""
    own, others = flags(command), flags("transactions list")
    assert {name: own[name].help for name in CLIENT} == {name: others[name].help for name in CLIENT}


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - PASSES_ON))
def test_every_command_speaks_json(command):
    """Jobs have an output of their own."""
    assert flags(command)["--format"].default is options.Format.TEXT


@pytest.mark.parametrize("command", sorted(CHANGES))
def test_what_changes_something_is_a_dry_run_by_default(command):
    """Only --yes does it."""
    assert flags(command)["--yes"].default is False


def test_text_was_called_a_table_once(capsys):
    """Scripts that say --format table go on."""
    assert cli.main(["acls", "--principal", "User:a", "--format", "table"]) == 0
    assert capsys.readouterr().out.startswith("kafka-acls.sh")


def test_a_wrong_command_line_is_exit_code_2(capsys):
    """With what is wrong on stderr, and no stack; a value that may be a secret is not repeated."""
    for words in (["nope"], ["transactions"], ["acls"], ["acls", "--principal", "User:a", "--format", "xml"]):
        assert cli.main(words) == 2
    assert cli.main(["transactions", "list", "--bootstrap-servers", "h:1", "--kafka", "hunter2"]) == 2
    assert cli.main(["checkpoint", "show", "/c", "--bootstrap-servers", "h:1", "--storage", "hunter2"]) == 2
    said = "".join(capsys.readouterr())
    assert "--format" in said
    assert "KEY=VALUE" in said
    assert "hunter2" not in said
    assert "hunter2" not in repr(options.setting("sasl.password=hunter2"))


def test_an_error_is_one_line_and_with_json_also_an_object(capsys):
    """So that a program which reads the output always gets JSON."""

    def answering():
        raise EosError("EOS_X", "What is wrong.", hint="What to do.")

    assert options.tell(options.Format.TEXT, answering) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "spark-eos: [EOS_X] What is wrong. Hint: What to do.\n")
    assert options.tell(options.Format.JSON, answering, failed=1) == 1
    told = {"condition": "EOS_X", "message": "What is wrong.", "hint": "What to do."}
    assert json.loads(capsys.readouterr().out) == {"error": told}


def test_ctrl_c_ends_a_command_without_a_stack(monkeypatch, capsys):
    """By the exit code that shells give."""

    def interrupted(*words):
        raise KeyboardInterrupt

    monkeypatch.setattr("spark_eos.ops.acls.needed", interrupted)
    assert cli.main(["acls", "--principal", "User:a"]) == 130
    assert "Traceback" not in "".join(capsys.readouterr())


def in_a_process(*words: str, code: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; {code}\nfrom spark_eos.cli import main\ncode = main(sys.argv[1:])\n"
    code += "print(*sorted(sys.modules), file=sys.stderr)\nsys.exit(code)"
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | environ)


def test_without_its_extra_it_says_what_to_install():
    """And with exit code 2, without a stack."""
    done = in_a_process("--help", code="sys.modules['typer'] = None")
    assert done.returncode == 2
    assert "install the extra 'cli'" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_is_fast():
    """It imports no client, no Arrow and no Spark, and what draws frames only in a terminal."""
    done = in_a_process("--help")
    assert done.returncode == 0
    heavy = {"confluent_kafka", "numpy", "pyarrow", "pyspark", "rich", "pydantic", "spark_eos.kafka.config.properties"}
    assert heavy & set(done.stderr.split()) == set()


def test_commands_are_listed_each_by_a_whole_sentence():
    """None is cut."""
    for words in ([], ["transactions"], ["checkpoint"]):
        listed = in_a_process(*words, "--help").stdout
        assert "Commands:" in listed
        assert "..." not in listed.partition("Commands:")[2]


def test_shells_complete_commands_and_jobs():
    """By what --install-completion installs."""
    for words, found in (("spark-eos tr", "transactions"), ("spark-eos run del", "delta_to_kafka")):
        asked = {"_SPARK_EOS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        assert found in in_a_process(**asked).stdout


def test_a_jobs_arguments_are_its_own(monkeypatch):
    """--help among them."""
    seen = []
    monkeypatch.setattr("spark_eos.cli.jobs.signal.signal", lambda *given: None)  # else that of the tests would be gone
    monkeypatch.setattr("spark_eos.cli.jobs.run_job", lambda job, words: seen.append((job, words)) or 75)
    assert cli.main(["run", "ingest_files", "--conf", "f", "--help", "-x"]) == 75
    assert seen == [("ingest_files", ["--conf", "f", "--help", "-x"])]
    assert cli.main(["run", "nope"]) == 2


#: A command between quotes, in backticks, or on a line of its own; what is not ASCII, or a name, is for the reader.
_NAMED = re.compile(r"(?:['`(]|^ {4}|^\$ )spark-eos ((?:[a-z]+ ?)*[^'`)\n]*)", re.MULTILINE)


def named_in(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands that a text names, each with its flags."""
    for match in _NAMED.finditer(text.replace("\\_", "_").replace("\\\n", " ")):
        words = match[1].split()
        path = list(itertools.takewhile(lambda word: re.fullmatch(r"[a-z]+", word) is not None, words))
        flags = [word.partition("=")[0] for word in words if re.fullmatch(r"--[a-z][a-z-]*.*", word)]
        yield " ".join(path), [flag.rstrip(".,:;…") for flag in flags]


def command_of(words: str) -> str | None:
    """The command or group that the first of these words name."""
    named = words.split()
    groups = {name.partition(" ")[0] for name in COMMANDS if " " in name}
    for upto in (2, 1):
        if " ".join(named[:upto]) in {*COMMANDS, *groups}:
            return " ".join(named[:upto])
    return None


PAGES = [page for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")) if page.name != "CHANGELOG.md"]
CODE = [path for folder in ("bench", "demo", "jobs", "spark_eos") for path in (ROOT / folder).rglob("*.py")]


#: Named where their data are made, before they are there.
NOT_YET = {"plot", "top"} - COMMANDS.keys()


@pytest.mark.parametrize("files", [PAGES, CODE], ids=["pages", "code"])
def test_commands_that_are_named_exist_and_take_these_options(files):
    """In the hints of errors, in the pages and in the code."""
    for file in files:
        for words, given in named_in(file.read_text()):
            if words:
                command = command_of(words)
                if words.split()[0] in NOT_YET:
                    continue
                assert command is not None, f"{file.name}: spark-eos {words}"
                if command in COMMANDS and command not in PASSES_ON:
                    assert set(given) <= {*flags(command), "--help", "--no-trial"}, f"{file.name}: {words} {given}"


def test_hints_name_commands():
    """The search for them finds some."""
    found = {command_of(words) for words, _ in named_in((ROOT / "docs" / "errors.md").read_text())}
    assert found >= {
        *("acls", "checkpoint adopt", "checkpoint show", "doctor", "ledger show", "query status", "recover", "replay"),
        *("transactions abort", "transactions list", "transactions settle"),
    }
