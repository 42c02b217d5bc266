"""Reading a job's YAML: what comes out of it, and that each mistake is named by the path of its key."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import re
from pathlib import Path

import pytest

from jobs import JOBS
from jobs.consume_transform_produce import ConsumeTransformProduce
from jobs.runner.config import in_file, load
from jobs.runner.job import Plan
from spark_eos.errors import ConfigError
from spark_eos.kafka.config.properties import KafkaProperties
from tests.support.judges.conditions import raises

ROOT = Path(__file__).parents[3]
GOOD = """\
kafka:
  bootstrap.servers: 127.0.0.1:9092
  sasl.password: ${PASSWORD}
source:
  subscribe: flights,${SECOND:-weather}
  maxOffsetsPerTrigger: ${LIMIT:-1000}
  kafka.fetch.max.bytes: 1048576
  failOnDataLoss: false
transform:
  format: json
  schema: id BIGINT
  sql: |
    SELECT value FROM input
    WHERE '$${literal}' <> '${WORD}'
checkpoint: /tmp/checkpoint
trigger: availableNow
"""
ENVIRON = {"PASSWORD": "42", "WORD": "42"}


@pytest.fixture
def read(tmp_path: Path):
    def read(text: str, **environ: str) -> ConsumeTransformProduce:
        file = tmp_path / "job.yaml"
        file.write_text(text)
        return load(file, ConsumeTransformProduce, ENVIRON | environ)

    return read


def changed(old: str, new: str) -> str:
    """The good config with one place changed."""
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


def test_values_types_and_defaults(read):
    """Sections of options are texts by name, other keys have their types, and what is left out has its default."""
    config = read(GOOD)
    assert dict(config.kafka) == {"bootstrap.servers": "127.0.0.1:9092", "sasl.password": "42"}
    assert dict(config.source) == {
        "subscribe": "flights,weather",
        "maxOffsetsPerTrigger": "1000",
        "kafka.fetch.max.bytes": "1048576",
        "failOnDataLoss": "false",
    }
    assert dict(config.sink) == {}
    assert config.transform.on_malformed == "fail"
    assert config.transform.sql == "SELECT value FROM input\nWHERE '${literal}' <> '42'\n"
    assert config.available_now and config.trigger_arguments == {"availableNow": True}
    assert (config.restart.attempts, config.restart.pause_s) == (5, 10)
    assert read(changed("availableNow", "2 minutes")).trigger_arguments == {"processingTime": "2 minutes"}
    assert read(changed("trigger: availableNow\n", "trigger:\n")).trigger == "1 second"


@pytest.mark.parametrize(
    "text", ["0123", "1_000", "12:30", "1.50", "1e3", "no", "2024-01-01", "0x1F", "9" * 5000, "-0"]
)
def test_a_text_stays_as_it_is_written(read, text):
    """A password need not be in quotes, whatever YAML's older rules make of it."""
    assert read(changed("${PASSWORD}", text)).kafka["sasl.password"] == text


def test_options_of_a_section_go_before_those_of_both_ends(read):
    """Client properties are options of each end, by their prefix."""
    config = read(GOOD + "sink: {kafka.sasl.password: other, topic: t}\n")
    assert config.sink_options("eos-kafka")["kafka.sasl.password"] == "other"
    assert config.source_options("eos-kafka")["kafka.sasl.password"] == "42"
    assert config.source_options("eos-kafka")["startingOffsets"] == "earliest"
    config = read(changed("  failOnDataLoss: false\n", "  STARTINGOFFSETS: latest\n  KAFKA.SASL.password: x\n"))
    options = {name.lower(): value for name, value in config.source_options("eos-kafka").items()}
    assert len(options) == len(config.source_options("eos-kafka"))
    assert (options["startingoffsets"], options["kafka.sasl.password"]) == ("latest", "x")


def test_dead_letters_go_to_the_topic_of_the_sink(read):
    """Each row has its own topic then."""
    letters = changed("format: json", "format: json\n  onMalformed: deadLetters")
    config = read(letters + "sink: {topic: t, deadLetters.topic: dead}\n")
    assert (config.topic, config.letters) == ("t", "dead")
    assert "topic" not in config.sink_options("eos-kafka")


def test_a_variable_goes_before_its_default(read):
    """Variables are filled in wherever they stand, also as numbers."""
    config = read(GOOD + "restart: {attempts: '${ATTEMPTS}'}\n", LIMIT="7", SECOND="planes", ATTEMPTS="3")
    assert config.source["maxOffsetsPerTrigger"] == "7"
    assert config.source["subscribe"] == "flights,planes"
    assert config.restart.attempts == 3


def test_an_empty_variable_is_none(read):
    """As an empty text may turn a check off: of host names, or of a protocol. It has to be in the file."""
    for text in ("${EMPTY}", "a${EMPTY}"):
        with pytest.raises(
            ConfigError, match=r"CONFIG_INVALID_VALUE.*'kafka.sasl.password' needs .*EMPTY.*or is empty"
        ):
            read(changed("${PASSWORD}", text), EMPTY="")
    assert read(changed("${PASSWORD}", "${EMPTY:-SSL}"), EMPTY="").kafka["sasl.password"] == "SSL"
    assert read(changed("${PASSWORD}", "${EMPTY:-}"), EMPTY="").kafka["sasl.password"] == ""


def test_a_variable_cannot_add_keys(read):
    """What a variable holds is a value, whatever YAML it looks like."""
    config = read(changed("checkpoint: /tmp/checkpoint", "checkpoint: ${WHERE}"), WHERE="a\ntrigger: {x: 1}")
    assert config.checkpoint == "a\ntrigger: {x: 1}"


def test_an_alias_is_filled_in_once(read):
    """It is the same section in two places."""
    config = read(changed("kafka:\n", "kafka: &both\n") + "sink: *both\n", PASSWORD="$${x")
    assert config.sink["sasl.password"] == config.kafka["sasl.password"] == "$${x"


#: Aliases of aliases: thousands of levels, and a million values, in a few lines.
DEEP = ", ".join(["[&a0 [x]", *(f"&a{n + 1} {'[' * 40}*a{n}{']' * 40}" for n in range(60))]) + "]"
LAUGHS = ", ".join(["[&a0 [x]", *(f"&a{n + 1} [{f'*a{n}, ' * 10}]" for n in range(6))]) + "]"


def test_names_of_spark_differ_in_capital_letters(read):
    """As variables of the environment do."""
    both = {"spark.executorEnv.foo": "1", "spark.executorEnv.FOO": "2"}
    assert read(f"{GOOD}spark: {both}\n").spark == KafkaProperties(both)


@pytest.mark.parametrize(
    ("old", "new", "condition", "says"),
    [
        ("trigger:", "${PASSWORD}:", "UNKNOWN_KEY", ["'${PASSWORD}'"]),
        ("trigger:", "transform: {}\ntrigger:", "UNREADABLE", ["Line 16", "a key is there twice"]),
        ("subscribe: flights", "subscribe: [[flights", "UNREADABLE", ["Line", "not valid YAML", "in quotes"]),
        ("availableNow", "{a: ${X}}", "UNREADABLE", ["Line 16 is not valid YAML: expected ',' or '}', but got '{'."]),
        ("trigger:", "? [a]\n: b\ntrigger:", "UNREADABLE", ["Line 16", "a key is not text"]),
        ("/tmp/checkpoint", LAUGHS, "UNREADABLE", ["too many values"]),
        ("/tmp/checkpoint", DEEP, "UNREADABLE", ["nested too deeply"]),
        ("/tmp/checkpoint", "!secret x", "UNREADABLE", ["Line 15", "tags are not supported"]),
        ("/tmp/checkpoint", "${NOWHERE}", "INVALID_VALUE", ["'checkpoint' needs", "NOWHERE", "${NOWHERE:-default}"]),
        ("/tmp/checkpoint", "${1x}", "INVALID_VALUE", ["'checkpoint'", "does not begin a variable"]),
        ("/tmp/checkpoint", "'${A:-${B}}'", "INVALID_VALUE", ["'checkpoint'", "does not begin a variable", "braces"]),
        ("/tmp/checkpoint", "'${A:-$${b}}'", "INVALID_VALUE", ["'checkpoint'", "does not begin a variable"]),
        ("/tmp/checkpoint", "'${A:-{1}}'", "INVALID_VALUE", ["'checkpoint'", "does not begin a variable"]),
    ],
)
def test_a_mistake_in_yaml_or_a_variable_is_named(read, old, new, condition, says):
    """By the line or the key. test_mistakes.py has the mistakes in values."""
    with raises(f"EOS_CONFIG_{condition}", "job.yaml", *says):
        read(changed(old, new))


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("authenticate", "spark.authenticate"),
        ("hadoop.fs.s3a.access.key", "spark.hadoop.fs.s3a.access.key"),
        ("fs.s3a.access.key", "spark.hadoop.fs.s3a.access.key"),
        ("Spark.master", "spark.master"),
        ("SPARK.sql.x", "spark.sql.x"),
        (" spark.master", "spark.master"),
        ("spark.master ", "spark.master"),
        ("sparkmaster", "spark.sparkmaster"),
    ],
)
def test_a_name_that_spark_would_not_know(read, name, full):
    """Spark takes any name, and has no use for it: a protection would be missing without a word."""
    with raises("EOS_CONFIG_UNKNOWN_KEY", f"Write '{full}'"):
        read(f'{GOOD}spark: {{"{name}": "true"}}\n')


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[2, 3]", "local-cluster[1,1,512]", "yarn", "k8s://https://h"]
)
def test_masters_that_spark_knows(read, master):
    """No master that Spark takes is refused."""
    read(f'{GOOD}spark: {{spark.master: "{master}"}}\n')


def test_an_error_that_is_found_later_gets_its_file(tmp_path):
    """Once; and only where it is about a key."""
    later = ConfigError("EOS_CONFIG_INVALID_VALUE", "'transform.sql' is wrong.", hint="Mend it.", key="transform.sql")
    placed = in_file(later, "job.yaml")
    assert str(placed) == "[EOS_CONFIG_INVALID_VALUE] job.yaml: 'transform.sql' is wrong. Hint: Mend it."
    assert in_file(placed, "job.yaml") is placed
    other = ConfigError("EOS_CONFIG_INVALID_VALUE", "A variable is wrong.", hint="Mend it.")
    assert in_file(other, "job.yaml") is other


@pytest.mark.parametrize("text", ["", "# nothing\n", "a\x00b", "[" * 1500, "&a [*a]", "- 1", "text", "a: *b"])
def test_a_file_that_is_no_config_file(read, text):
    """Empty, with bytes that YAML has not, too deep, or of another shape: an error that names the file."""
    with pytest.raises(ConfigError, match=r"EOS_CONFIG_(UNREADABLE|INVALID_VALUE)\] \S+job.yaml: "):
        read(text)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("checkpoint: /tmp/checkpoint", 'checkpoint: "/tmp/\\ud83d"', "checkpoint"),
        ("checkpoint: /tmp/checkpoint", "checkpoint: ${LATIN}", "checkpoint"),
        ("bootstrap.servers: 127.0.0.1:9092", "bootstrap.servers: ${LATIN}", "kafka.bootstrap.servers"),
        ("subscribe: flights,${SECOND:-weather}", 'subscribe: "\\udfff,flights"', "source.subscribe"),
        ("failOnDataLoss: false", 'failOnDataLoss: [a, "\\udfff"]', "source.failOnDataLoss.1"),
        ("checkpoint: /tmp/checkpoint", '"\\ud800": a', "\\ud800"),
    ],
)
def test_a_text_that_is_half_a_character_or_in_another_encoding_is_refused(read, old, new, key):
    """Nobody could write it into a file or send it to a broker. Python has a variable's bytes as such halves."""
    with pytest.raises(ConfigError, match=r"EOS_CONFIG_INVALID_VALUE.*is not text in UTF-8") as caught:
        read(changed(old, new), LATIN="caf\udce9")
    assert f"'{key}'" in str(caught.value) and "caf" not in str(caught.value)
    str(caught.value).encode()


def test_a_file_that_cannot_be_read(tmp_path):
    """It is not there, is a folder, or is not UTF-8; the path is named, and how to give another one."""
    (tmp_path / "job.yaml").write_bytes(b"kafka: \xff\xfe")
    for name in ("nowhere.yaml", ".", "job.yaml"):
        with pytest.raises(ConfigError, match=r"EOS_CONFIG_UNREADABLE.*cannot be read.*--conf"):
            load(tmp_path / name, ConsumeTransformProduce)


def test_a_file_that_cannot_be_read_where_the_working_directory_is_gone(tmp_path):
    """As a relative path in a folder that a deployment has replaced."""
    (tmp_path / "old").mkdir()
    with contextlib.chdir(tmp_path / "old"):
        (tmp_path / "old").rmdir()
        with raises("EOS_CONFIG_UNREADABLE", "start at a folder that has been deleted"):
            load("job.yaml", ConsumeTransformProduce)


def planned(job: str, file: Path, **environ: str) -> Plan:
    module = importlib.import_module(f"jobs.{job}")
    config = load(file, module.main.__self__.config, environ)
    plan: Plan = module.plan(config, argparse.Namespace(source="eos-kafka", sink="eos-kafka"))
    return plan


@pytest.mark.parametrize(("name", "job"), [*zip(JOBS, JOBS, strict=True), ("ingest_sql", "ingest_files")])
def test_an_example_can_be_planned(name: str, job: str) -> None:
    """With its variables set, the file in conf/ is right as it is."""
    places = {"TABLE": "/table", "CHECKPOINT": "/checkpoint", "FILES": "/files"}
    assert planned(job, ROOT / "conf" / f"{name}.yaml", **places).clusters


@pytest.mark.parametrize(
    ("page", "jobs"),
    [
        ("job", ["consume_transform_produce"]),
        ("ingest", ["ingest_files"]),
        ("mirror", ["mirror"]),
        ("delta", ["kafka_to_delta", "delta_to_kafka"]),
        ("iceberg", ["kafka_to_iceberg"]),
    ],
)
def test_the_files_that_pages_show_are_right(page: str, jobs: list[str], tmp_path: Path) -> None:
    """Each can be planned as it stands there."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text(), re.DOTALL)
    files = [text for text in blocks if ("\ntransform:" in text and "kafka:" in text) or "\ntopics:" in text]
    for job, text in zip(jobs, files, strict=True):
        (tmp_path / "job.yaml").write_text(text)
        assert planned(job, tmp_path / "job.yaml").clusters
