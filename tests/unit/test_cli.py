"""The frame of the command line: what every command has alike, and what none of them does."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import typer

from spark_eos import cli
from spark_eos.cli import app as tree
from spark_eos.cli import options
from spark_eos.errors import EosError
from spark_eos.kafka.config.client import client_config
from tests.support.judges.conditions import raises
from tests.support.waiting import TIMEOUT

ROOT = Path(__file__).parents[2]
#: The options before the command, and the variables that stand for them.
CONNECTION = {"--bootstrap-servers", "--kafka", "--kafka-file", "--ledger-topic", "--prefix", "--storage"}
VARIABLES = {
    "--bootstrap-servers": "SPARK_EOS_BOOTSTRAP_SERVERS",
    "--kafka-file": "SPARK_EOS_KAFKA_FILE",
    "--ledger-topic": "SPARK_EOS_LEDGER_TOPIC",
}
#: Their arguments are those of what they start.
PASSES_ON = {"run"}
#: Another cluster.
SOURCE = ("--source", "--source-kafka", "--source-kafka-file")
#: Scripts have these, and ``--format`` of each: none of them may go, or be called otherwise.
KNOWN = {
    "status": {"--query", "--open-for", "--watch", "--quiet"},
    "recover": {
        *("--query", "--abort-only", "--settle-only", "--abort-broken", "--drop-planned", "--even-if-running"),
        *("--watch", "--quiet", "--yes"),
    },
    "mirror move-group": {*SOURCE, "--map", "--wait", "--delete", "--overwrite", "--yes"},
    "mirror position": {*SOURCE, "--query", "--topic", "--map", "--wait", "--yes"},
    "mirror translate": {*SOURCE, "--map", "--topic-id"},
    "replay": {"--new", "--to-batch", "--to-timestamp", "--to-offsets", "--again", "--topic", "--yes"},
    "verify": {
        *("--input", "--output", "--id", "--output-id", "--group", "--query", "--order", "--allow-missing"),
        *("--same-value", "--json", "--limit", "--timeout"),
    },
    "doctor": {
        *("--input", "--output", "--group", "--dead-letters", "--notes", "--timeout", "--two-phase", "--longest-stop"),
        *("--acls", "--principal", "--query", "--create-ledger"),
    },
    "devcluster": {"--brokers", "--kafka-version", "--data", "--port", "--topic"},
    "dead-letters list": {"--reason"},
    "dead-letters show": {"--reason", "--limit"},
    "dead-letters resend": {"--reason", "--to", "--yes"},
    "top": {"--query", "--once", "--every"},
    "plot": {"--to", "--query", "--last"},
    "run": set(),
}
#: So many commands there are at most; those of a group count each.
MOST = 15


def leaves(command: Any = None, *path: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its words."""
    command = command or typer.main.get_command(tree.app)
    for name, each in getattr(command, "commands", {}).items():
        yield from leaves(each, *path, name)
    if not hasattr(command, "commands"):
        yield " ".join(path), command


COMMANDS = dict(leaves())
OF_ROOT = {name: option for option in typer.main.get_command(tree.app).params for name in option.opts}


def flags(command: str) -> dict[str, Any]:
    return {name: option for option in COMMANDS[command].params for name in option.opts if name.startswith("--")}


@pytest.mark.parametrize("command", KNOWN)
def test_options_keep_their_names(command):
    """New ones may come."""
    assert flags(command).keys() >= KNOWN[command]


def test_there_are_few_commands():
    """A question has one place where it is answered."""
    assert COMMANDS.keys() == KNOWN.keys()
    assert len(KNOWN) <= MOST


def test_the_cluster_is_named_before_the_command():
    """In one place, for all of them; and by variables, of which the help tells the names, and no value."""
    assert OF_ROOT.keys() >= CONNECTION
    assert {name: OF_ROOT[name].envvar for name in CONNECTION if OF_ROOT[name].envvar} == VARIABLES
    for command in COMMANDS:
        assert not flags(command).keys() & CONNECTION


@pytest.fixture
def of_cluster(environ) -> Callable[..., None]:
    """``of_cluster(kafka_file="f")`` sets SPARK_EOS_KAFKA_FILE; before, no variable names a cluster."""
    environ(**dict.fromkeys(VARIABLES.values()))
    return lambda **values: environ(**{f"SPARK_EOS_{name.upper()}": value for name, value in values.items()})


@pytest.mark.usefixtures("of_cluster")
def test_without_brokers_a_command_says_where_they_are_named(capsys):
    """With an example."""
    assert cli.main(["status"]) == 2
    assert "spark-eos --bootstrap-servers HOST:PORT COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (
            ["status", "--bootstrap-servers", "h:1", "CHECKPOINT"],
            ["--bootstrap-servers", "h:1", "status", "CHECKPOINT"],
        ),
        (["mirror", "position", "--kafka=a=b", "--yes"], ["--kafka=a=b", "mirror", "position", "--yes"]),
        (["status", "--prefix"], ["--prefix", "status"]),
        (["--prefix", "p", "run", "JOB", "--prefix", "q"], ["--prefix", "p", "run", "JOB", "--prefix", "q"]),
        (["status", "--", "--prefix"], ["status", "--", "--prefix"]),
    ],
)
def test_options_of_the_cluster_may_stand_anywhere(words, first):
    """But for those of a job."""
    assert tree._cluster_first(words, CONNECTION) == first


def test_the_connection_from_the_environment(of_cluster, monkeypatch, capsys):
    """Brokers, ledger and client properties; the command line counts more."""
    of_cluster(bootstrap_servers="h:1", ledger_topic="ledger", kafka_file="/nowhere")
    made = []
    monkeypatch.setattr(options.ConnectionOptions, "cluster", lambda self: made.append(self) or self.properties)
    for words in (["status"], ["status", "--ledger-topic", "other", "--bootstrap-servers", "i:2"]):
        assert cli.main(words) == 2
        assert "EOS_OPTION_INVALID" in capsys.readouterr().err
    assert [(each.servers, each.ledger) for each in made] == [("h:1", "ledger"), ("i:2", "other")]


def test_values_from_the_environment_are_not_printed(of_cluster, capsys):
    """Neither by the help nor by an error."""
    of_cluster(kafka_file="/hunter2", bootstrap_servers="hunter2:1")
    for words in (["--help"], ["status", "--help"], ["status", "--nope"]):
        cli.main(words)
    assert "hunter2" not in "".join(capsys.readouterr())


def test_parts_of_a_recovery_that_exclude_each_other(capsys):
    """Are refused before anybody is asked, and so is a recovery of nothing."""
    for words in (
        ["recover"],
        ["recover", "/c", "--query", "q"],
        ["status", "/c", "--query", "q"],
        ["recover", "/c", "--abort-only", "--settle-only"],
        ["recover", "/c", "--abort-only", "--abort-broken"],
        ["recover", "--query", "q", "--drop-planned"],
        ["recover", "/c", "--drop-planned", "--settle-only"],
    ):
        assert cli.main(words) == 2
        assert "Invalid value" in capsys.readouterr().err


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - PASSES_ON))
def test_a_command_speaks_json_and_changes_nothing_unless_it_is_asked_to(command):
    """Jobs have an output of their own."""
    assert flags(command)["--format"].default is options.Format.TEXT
    assert "--yes" not in flags(command) or flags(command)["--yes"].default is False


#: What a command cannot do without.
NEEDED = {
    "replay": ["/c", "--new", "/n"],
    "verify": ["--input", "i", "--output", "o", "--id", "key"],
    "mirror move-group": ["g", "--source", "h:1"],
    "mirror position": ["--source", "h:1", "--query", "q"],
    "mirror translate": ["t", "0", "0", "--source", "h:1"],
    "top": ["s"],
    "plot": ["s"],
    "dead-letters list": ["t"],
    "dead-letters show": ["t"],
    "dead-letters resend": ["t"],
}


def test_no_option_is_empty_or_a_time_without_an_end(capsys):
    """As a variable that is not set leaves it: `--topic "$TOPIC"` would be no --topic, and `status "$CHECKPOINT"` all
    queries. Every command checks its values alike; of each, one is tried."""
    empty, brokers = " ", ["--bootstrap-servers", "127.0.0.1:1"]
    cases = [
        ([name, empty, "status"], name) for name, option in OF_ROOT.items() if option.metavar and name[2:] != "kafka"
    ]
    for command in sorted(COMMANDS.keys() - PASSES_ON):
        assert isinstance(COMMANDS[command], options._Checked), command
        words = [*brokers, *command.split(), *NEEDED.get(command, [])]
        name = next(name for name, option in flags(command).items() if not option.is_flag)
        cases.append(([*words, name, empty], name))
    cases += [([*brokers, *words, empty], "") for words in (["status"], ["replay", "--new", "/n"])]
    cases += [([*brokers, "status", "--watch", seconds], "--watch") for seconds in ("inf", "nan", "1e300")]
    assert len(cases) > 20
    for words, name in cases:
        assert cli.main(words) == 2, words
        said = capsys.readouterr().err
        assert "Invalid value" in said and name in said, words


def test_a_wrong_command_line_is_exit_code_2(capsys):
    """With what is wrong on stderr, and no stack; a value that may be a secret is not repeated."""
    for words in (["nope"], ["mirror"], ["replay"], ["doctor", "--acls", "--format", "xml"]):
        assert cli.main(words) == 2
    assert cli.main(["--bootstrap-servers", "h:1", "--kafka", "hunter2", "status"]) == 2
    assert cli.main(["--bootstrap-servers", "h:1", "--storage", "hunter2", "status", "/c"]) == 2
    said = "".join(capsys.readouterr())
    assert "--format" in said
    assert "KEY=VALUE" in said
    assert "hunter2" not in said
    assert "hunter2" not in repr(options.ConnectionOptions(kafka=[options.setting("sasl.password=hunter2")]))


def test_properties_from_a_file(tmp_path):
    """Spaces and comments are left out, an option counts more, and an error does not contain a value."""
    file = tmp_path / "client.properties"
    file.write_text("# login\n\n kafka.sasl.username = ann \nsasl.password=a=b\nclient.id=file\n")
    found = options.ConnectionOptions("h:1", [options.setting("client.id=option")], str(file)).properties
    assert (found.get("sasl.username"), found.get("sasl.password"), found.get("client.id")) == ("ann", "a=b", "option")
    assert found.bootstrap_servers == "h:1"
    file.write_text("sasl.username=ann\nhunter2\n")
    for wrong in (file, tmp_path / "none"):
        with raises("EOS_OPTION_INVALID", str(wrong)) as caught:
            _ = options.ConnectionOptions("h:1", kafka_file=str(wrong)).properties
        assert "hunter2" not in str(caught.value)


def test_a_file_of_the_source_that_cannot_be_read(tmp_path, capsys):
    """The error names the option of that file, as both clusters may have one."""
    words = ["--bootstrap-servers", "b:9", "mirror", "move-group", "g", "--source", "a:9"]
    assert cli.main([*words, "--source-kafka-file", str(tmp_path / "none")]) == 2
    assert "[EOS_OPTION_INVALID] Option '--source-kafka-file' is " in capsys.readouterr().err


def test_properties_mean_what_they_mean_to_a_query(tmp_path):
    """A command that passed over a name would connect without TLS, or trust others than those that were meant."""

    def given(*kafka, text=""):
        file = tmp_path / "client.properties"
        file.write_text(text)
        return options.ConnectionOptions("b:9", [options.setting(each) for each in kafka], str(file)).properties

    for found in (
        given("Security.Protocol=SSL"),
        given("KAFKA.security.protocol=SSL"),
        given(text="Security.Protocol=SSL"),
    ):
        assert client_config(found).tls is not None
    with pytest.raises(EosError, match=r"EOS_OPTION_UNKNOWN.*security\.protcol"):
        given("security.protcol=SSL")
    with pytest.raises(EosError, match=r"EOS_OPTION_CONFLICT.*sasl\.username"):
        given("sasl.username=ann", "SASL.Username=bob")
    assert given("sasl.username=ann", "SASL.username=ann", text="SASL.Username=bob")["sasl.username"] == "ann"


def test_settings_of_stores_have_their_canonical_names():
    """One that nobody reads would leave other credentials or another file system, without a word."""

    def stored(*given: str) -> dict[str, str]:
        return dict(options.ConnectionOptions(storage=[options.setting(each) for each in given]).hadoop())

    assert stored("fs.s3a.Access.Key=A", "fs.defaultfs=hdfs://n", "spark.hadoop.fs.s3a.endpoint=e") == {
        "fs.s3a.access.key": "A",
        "fs.defaultFS": "hdfs://n",
        "fs.s3a.endpoint": "e",
    }
    assert stored("catalog=prod", "catalog.s3.Region=r") == {"catalog": "prod", "catalog.s3.Region": "r"}
    for name in ("fs.s3a.secret.kye", "kafka.fs.s3a.secret.key", "catalogue.uri"):
        with pytest.raises(EosError, match=f"EOS_OPTION_UNKNOWN.*{name}") as caught:
            stored(f"{name}=hunter2")
        assert "hunter2" not in str(caught.value)
    with pytest.raises(EosError, match=r"EOS_OPTION_CONFLICT.*fs\.s3a\.access\.key"):
        stored("fs.s3a.access.key=A", "fs.s3a.Access.Key=B")


def test_an_error_is_one_line_and_with_json_also_an_object(capsys):
    """So that a program which reads the output always gets JSON."""

    def answering():
        raise EosError("EOS_X", "What is wrong.", hint="What to do.")

    assert options.print_answer(options.Format.TEXT, answering) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "spark-eos: [EOS_X] What is wrong. Hint: What to do.\n")
    assert options.print_answer(options.Format.JSON, answering, failed=1) == 1
    told = {"condition": "EOS_X", "message": "What is wrong.", "hint": "What to do."}
    assert json.loads(capsys.readouterr().out) == {"error": told}


def test_an_error_that_nobody_has_named_is_no_answer(capsys):
    """Exit code 1 would be one. Its trace is printed, unless nobody reads on."""
    assert options.print_answer(options.Format.TEXT, Mock(side_effect=ZeroDivisionError)) == 2
    said = capsys.readouterr().err
    assert "Traceback" in said and "ZeroDivisionError" in said
    err = Mock()
    with redirect_stderr(err):
        assert options.print_answer(options.Format.TEXT, Mock(side_effect=BrokenPipeError)) == 2
    assert [name for name, *_ in err.mock_calls] == ["close"]


def test_ctrl_c_ends_a_command_without_a_stack(monkeypatch, capsys):
    """By the exit code that shells give."""

    monkeypatch.setattr("spark_eos.ops.acls.needed", Mock(side_effect=KeyboardInterrupt))
    assert cli.main(["doctor", "--acls"]) == 130
    assert "Traceback" not in "".join(capsys.readouterr())


def in_a_process(*words: str, code: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; {code}\nfrom spark_eos.cli import main\ncode = main(sys.argv[1:])\n"
    code += "print(*sorted(sys.modules), file=sys.stderr)\nsys.exit(code)"
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, env=os.environ | environ)


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


def test_a_jobs_arguments_are_its_own(monkeypatch):
    """--help among them."""
    seen = []
    monkeypatch.setattr("spark_eos.cli.jobs.signal.signal", lambda *given: None)  # else that of the tests would be gone
    monkeypatch.setattr("spark_eos.cli.jobs.run_job", lambda job, words: seen.append((job, words)) or 75)
    assert cli.main(["run", "ingest_files", "--conf", "f", "--help", "-x"]) == 75
    assert seen == [("ingest_files", ["--conf", "f", "--help", "-x"])]
    assert cli.main(["run", "nope"]) == 2


#: A command between quotes, in backticks, or on a line of its own; what is not ASCII, or a name, is for the reader.
_NAMED = re.compile(
    r"(?:['`(]|^ {4}|^\$ |: (?=spark-eos --))spark-eos ((?:--[a-z-]+ [^ `'\n]+ )*[a-z][^'`)\n]*)", re.MULTILINE
)


def named_in(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands that a text names, each with all of its flags."""
    for match in _NAMED.finditer(text.replace("\\_", "_").replace("\\\n", " ")):
        words = match[1].split()
        while words[0].startswith("--"):
            assert words[0] in CONNECTION, match[0]
            words = words[2:]
        path = list(itertools.takewhile(lambda word: re.fullmatch(r"[a-z-]+", word) is not None, words))
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


ERRORS = ROOT / "spark_eos" / "conditions.toml"
PAGES = [ERRORS, *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
CODE = [path for folder in ("bench", "demo", "jobs", "spark_eos") for path in (ROOT / folder).rglob("*.py")]


@pytest.mark.parametrize("files", [PAGES, CODE], ids=["pages", "code"])
def test_commands_that_are_named_exist_and_take_these_options(files):
    """In the hints of errors, in the pages and in the code."""
    for file in files:
        text = re.sub(r'"\n\s+f?"', "", file.read_text())  # texts of the code that go on in the next line
        text = re.sub(r"\n +", " ", text) if file == ERRORS else text
        for words, given in named_in(text):
            command = command_of(words)
            assert command is not None, f"{file.name}: spark-eos {words}"
            if command in COMMANDS and command not in PASSES_ON:
                assert set(given) <= {*flags(command), "--help"}, f"{file.name}: {words} {given}"
