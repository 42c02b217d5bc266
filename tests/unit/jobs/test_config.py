"""Reading a job's YAML: what comes out of it, and that each mistake is named where it stands."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from jobs.consume_transform_produce import ConsumeTransformProduceConfig
from jobs.runner.config import load, located
from jobs.runner.transform import LettersConfig
from spark_eos.errors import ConfigError

GOOD = """\
kafka:
  bootstrap.servers: 127.0.0.1:9092
  sasl.password: ${PASSWORD}
source:
  topics: [flights, ${SECOND:-weather}]
  maxOffsetsPerTrigger: ${LIMIT:-1000}
  options: {kafka.fetch.max.bytes: 1048576, failOnDataLoss: No}
transform:
  parse: {format: json, schema: id BIGINT}
  sql: |
    SELECT value FROM input
    WHERE '$${literal}' <> '${WORD}'
group: "${SECOND:-}"
checkpoint: /tmp/checkpoint
trigger: {availableNow: true}
"""
ENVIRON = {"PASSWORD": "42", "WORD": "42"}


@pytest.fixture
def read(tmp_path: Path):
    def read(text: str, **environ: str) -> ConsumeTransformProduceConfig:
        file = tmp_path / "job.yaml"
        file.write_text(text)
        return load(file, ConsumeTransformProduceConfig, ENVIRON | environ)

    return read


def changed(old: str, new: str) -> str:
    """The good config with one place changed."""
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


def test_values_types_and_defaults(read):
    """Every kind of field is read as its type, and what is left out has its default."""
    config = read(GOOD)
    assert dict(config.kafka) == {"bootstrap.servers": "127.0.0.1:9092", "sasl.password": "42"}
    assert config.source.topics == ("flights", "weather")
    assert config.source.max_offsets_per_trigger == 1000
    assert config.source.starting_offsets == "earliest"
    assert dict(config.source.options) == {"kafka.fetch.max.bytes": "1048576", "failOnDataLoss": "no"}
    assert config.transform.parse.on_malformed == "fail"
    assert config.transform.sql == "SELECT value FROM input\nWHERE '${literal}' <> '42'\n"
    assert config.group == ""
    assert config.sink.topic is None
    assert config.trigger.available_now and config.trigger.processing_time is None


def test_what_chooses_the_partition_is_for_copies(read):
    """Rows of a transform have a column for it, or keys."""
    copy = GOOD[: GOOD.index("transform:")] + "transform: none\n" + GOOD[GOOD.index("group:") :]
    assert read(copy).sink.partition == "same"
    assert read(copy + "sink: {partition: key}\n").sink.partition == "key"
    for text in (GOOD + "sink: {partition: key}\n", copy + "sink: {partition: murmur2}\n"):
        with pytest.raises(ConfigError, match=r"EOS_CONFIG_WRONG_VALUE.*sink\.partition"):
            read(text)


def test_metrics_are_off_unless_asked_for(read):
    """A section with a port, a file of events, or both."""
    assert read(GOOD).metrics is None
    config = read(GOOD + "metrics: {port: 9400, events: e.jsonl}\n").metrics
    assert (config.port, config.host, config.events) == (9400, None, "e.jsonl")


def test_a_word_or_a_section(read):
    """What becomes of malformed rows is one or the other, each with its own errors."""

    def parsed(parse: str) -> object:
        return read(changed("{format: json, schema: id BIGINT}", f"{{{parse}}}")).transform.parse.on_malformed

    rest = "format: json, schema: n INT, onMalformed:"
    assert parsed(f"{rest} drop") == "drop"
    assert parsed(f"{rest} {{topic: dead}}") == LettersConfig("dead")
    text = changed("schema: id BIGINT", "schema: id BIGINT, onMalformed: {topic: dead}")
    with pytest.raises(ConfigError, match=r"EOS_CONFIG_WRONG_VALUE.*'group' cannot have the offsets"):
        read(text, SECOND="g")
    wrong = {"skip": "WRONG_VALUE", "{}": "MISSING_KEY", "{tpic: x}": "UNKNOWN_KEY", "[x]": "WRONG_TYPE"}
    for text, condition in wrong.items():
        with pytest.raises(ConfigError, match=rf"EOS_CONFIG_{condition}.*transform\.parse\.onMalformed"):
            parsed(f"{rest} {text}")
    with pytest.raises(ConfigError, match=r"EOS_CONFIG_WRONG_VALUE.*onMalformed.*'string'"):
        parsed("format: string, onMalformed: {topic: dead}")


def test_a_variable_goes_before_its_default(read):
    """Variables are filled in wherever they stand."""
    config = read(GOOD, LIMIT="7", SECOND="planes")
    assert config.source.max_offsets_per_trigger == 7
    assert config.source.topics == ("flights", "planes")
    assert config.group == "planes"


def test_a_variable_cannot_add_keys(read):
    """What a variable holds is a value, whatever YAML it looks like."""
    config = read(changed("checkpoint: /tmp/checkpoint", "checkpoint: ${WHERE}"), WHERE="a\ntrigger: {x: 1}")
    assert config.checkpoint == "a\ntrigger: {x: 1}"


def test_passwords_do_not_print(read):
    """A config can be logged."""
    assert "hunter2" not in repr(read(GOOD, PASSWORD="hunter2"))


@pytest.mark.parametrize(
    ("old", "new", "condition", "says"),
    [
        ("  topics:", "  topcs:", "EOS_CONFIG_UNKNOWN_KEY", ["line 5", "'source.topcs'", "'topics'"]),
        ("trigger:", "tigger:", "EOS_CONFIG_UNKNOWN_KEY", ["line 15", "'tigger'", "'trigger'"]),
        ("maxOffsetsPerTrigger", "maxoffsetspertriger", "EOS_CONFIG_UNKNOWN_KEY", ["line 6", "'maxOffsetsPerTrigger'"]),
        ("group:", "zebra:", "EOS_CONFIG_UNKNOWN_KEY", ["'zebra'", "Keys here: kafka, source,"]),
        ("checkpoint: /tmp/checkpoint\n", "", "EOS_CONFIG_MISSING_KEY", ["'checkpoint'"]),
        ("checkpoint: /tmp/checkpoint", "checkpoint:", "EOS_CONFIG_MISSING_KEY", ["'checkpoint'"]),
        ("  bootstrap.servers: 127.0.0.1:9092\n", "", "EOS_CONFIG_MISSING_KEY", ["line 2", "'kafka' has no"]),
        (
            "checkpoint: /tmp/checkpoint",
            "checkpoint: 7",
            "EOS_CONFIG_WRONG_TYPE",
            ["line 14", "a whole number", "quotes"],
        ),
        (
            "[flights, ${SECOND:-weather}]",
            "flights",
            "EOS_CONFIG_WRONG_TYPE",
            ["line 5", "'source.topics' is a string", "[one, two]"],
        ),
        ("[flights, ${SECOND:-weather}]", "[]", "EOS_CONFIG_WRONG_TYPE", ["'source.topics' is an empty list"]),
        ("[flights, ${SECOND:-weather}]", "[1]", "EOS_CONFIG_WRONG_TYPE", ["'source.topics.0'"]),
        (
            "${LIMIT:-1000}",
            "many",
            "EOS_CONFIG_WRONG_TYPE",
            ["'source.maxOffsetsPerTrigger' is a string", "a whole number"],
        ),
        ("1048576", "[1]", "EOS_CONFIG_WRONG_TYPE", ["line 7", "'source.options.kafka.fetch.max.bytes' is a list"]),
        ("{availableNow: true}", "[1]", "EOS_CONFIG_WRONG_TYPE", ["'trigger' is a list", "a section of keys"]),
        ("{availableNow: true}", "1 second", "EOS_CONFIG_WRONG_TYPE", ["keys: availableNow, processingTime."]),
        ("{availableNow: true}", "{availableNow: 1}", "EOS_CONFIG_WRONG_TYPE", ["true or false"]),
        ("{availableNow: true}", "{}", "EOS_CONFIG_WRONG_VALUE", ["line 15", "'trigger'", "requires either"]),
        (
            "{availableNow: true}",
            "{availableNow: true, processingTime: 1 second}",
            "EOS_CONFIG_WRONG_VALUE",
            ["requires either"],
        ),
        (
            "format: json",
            "format: jason",
            "EOS_CONFIG_WRONG_VALUE",
            ["'transform.parse.format'", "Did you mean 'json'?", "csv"],
        ),
        (", schema: id BIGINT", "", "EOS_CONFIG_MISSING_KEY", ["'transform.parse'", "requires a schema"]),
        ("format: json", "format: string", "EOS_CONFIG_WRONG_VALUE", ["does not take a schema"]),
        ("  sql: |", "  function: a:b\n  sql: |", "EOS_CONFIG_WRONG_VALUE", ["'transform'", "one of them"]),
        (
            "{availableNow: true}",
            "{processingTime: 1 secnd}",
            "EOS_CONFIG_WRONG_VALUE",
            ["line 15: 'trigger.processingTime' is not an interval", "1 second, 2 minutes 30 seconds"],
        ),
        ("group:", "restart: {attempts: -1}\ngroup:", "EOS_CONFIG_WRONG_VALUE", ["'restart.attempts' is below 0"]),
        ("group:", "restart: {pause: soon}\ngroup:", "EOS_CONFIG_WRONG_VALUE", ["'restart.pause' is not an interval"]),
        (
            "checkpoint:",
            "spark:\n  spark.ui.enabled: false\n  spark.master: lcoal[2]\ncheckpoint:",
            "EOS_CONFIG_WRONG_VALUE",
            ["line 16: 'spark.spark.master' is not a Spark master", "local[4]", "yarn"],
        ),
        (
            "checkpoint:",
            "spark: {spark.master: 'local[0]'}\ncheckpoint:",
            "EOS_CONFIG_WRONG_VALUE",
            ["line 14: 'spark.spark.master' is not a Spark master"],
        ),
        (
            "checkpoint:",
            "spark:\n  master: yarn\ncheckpoint:",
            "EOS_CONFIG_UNKNOWN_KEY",
            ["line 15: 'spark.master' is not a setting of Spark: in this section, too", "Write 'spark.master' in full"],
        ),
        (
            "  sql: |\n    SELECT value FROM input\n    WHERE '$${literal}' <> '${WORD}'",
            "  function: jobs.runner.transform:no",
            "EOS_CONFIG_FUNCTION",
            ["line 10: 'transform.function' names the function no", "module 'jobs.runner.transform' does not have"],
        ),
        (
            "  sql: |\n    SELECT value FROM input\n    WHERE '$${literal}' <> '${WORD}'",
            "  function: no_such:f",
            "EOS_CONFIG_FUNCTION",
            ["line 10: 'transform.function' names a module that cannot be imported", "PYTHONPATH"],
        ),
        ("group:", "checkpoint: b\ngroup:", "EOS_CONFIG_DUPLICATE_KEY", ["line 15", "'checkpoint' exists twice"]),
        ("topics: [", "topics: [[", "EOS_CONFIG_UNREADABLE", ["line", "not YAML"]),
        (
            "/tmp/checkpoint",
            "${NOWHERE}",
            "EOS_CONFIG_UNSET_VARIABLE",
            ["line 14", "'checkpoint'", "${NOWHERE:-default}"],
        ),
        (
            "/tmp/checkpoint",
            "${1x}",
            "EOS_CONFIG_WRONG_VALUE",
            ["line 14", "'checkpoint'", "does not start a variable"],
        ),
        ("group:", "${PASSWORD}:", "EOS_CONFIG_UNKNOWN_KEY", ["'${…}'"]),
        ("SELECT value", "SELECT value, '${NOWHERE}'", "EOS_CONFIG_UNSET_VARIABLE", ["line 11", "'transform.sql'"]),
        ("WHERE '$", "WHERE '${NOWHERE}$", "EOS_CONFIG_UNSET_VARIABLE", ["line 12", "'transform.sql'"]),
        ("group:", "metrics: {}\ngroup:", "EOS_CONFIG_WRONG_VALUE", ["line 13", "'metrics'", "{port: 9400}"]),
        ("group:", "metrics: {port: 70000}\ngroup:", "EOS_CONFIG_WRONG_VALUE", ["line 13", "'metrics.port'"]),
    ],
)
def test_a_mistake_is_named_with_its_place_and_a_hint(read, old, new, condition, says):
    """Each mistake in a config file has a condition, the line, the key and what to write instead."""
    with pytest.raises(ConfigError) as caught:
        read(changed(old, new))
    assert caught.value.condition == condition
    for part in ["job.yaml", *says]:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[2, 3]", "local-cluster[1,1,512]", "yarn", "k8s://https://h"]
)
def test_masters_that_spark_knows(read, master):
    """No master that Spark takes is refused."""
    read(f'{GOOD}spark: {{spark.master: "{master}"}}\n')


def test_an_error_that_is_found_later_gets_its_place(tmp_path):
    """Also where variables stand in the file, and not twice."""
    file = tmp_path / "job.yaml"
    file.write_text(GOOD)
    later = ConfigError("EOS_CONFIG_SQL", "'transform.sql' is wrong.", hint="Mend it.", key="transform.sql")
    placed = located(later, file)
    assert str(placed) == f"[EOS_CONFIG_SQL] {file}, line 10: 'transform.sql' is wrong. Hint: Mend it."
    assert located(placed, file) is placed


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_an_empty_file(read, text):
    """A file without content is an error of its own."""
    with pytest.raises(ConfigError, match="EOS_CONFIG_EMPTY"):
        read(text)


def test_a_file_that_is_not_there(tmp_path):
    """The path is named, and how to give another one."""
    with pytest.raises(ConfigError, match=r"EOS_CONFIG_NOT_FOUND.*nowhere.yaml.*--conf"):
        load(tmp_path / "nowhere.yaml", ConsumeTransformProduceConfig)


def test_a_file_that_is_not_text(tmp_path):
    """Bytes that are not UTF-8 end in a named error."""
    (tmp_path / "job.yaml").write_bytes(b"kafka: \xff\xfe")
    with pytest.raises(ConfigError, match="EOS_CONFIG_UNREADABLE"):
        load(tmp_path / "job.yaml", ConsumeTransformProduceConfig)


def test_errors_do_not_print_values(read):
    """A value may be a secret, also one of the wrong type."""
    with pytest.raises(ConfigError) as caught:
        read(changed("sasl.password: ${PASSWORD}", "sasl.password: [hunter2]"))
    assert "hunter2" not in str(caught.value)


def test_the_config_that_comes_with_the_job_is_good():
    """The example can be used as it is."""
    file = Path(__file__).parents[3] / "conf" / "consume_transform_produce.yaml"
    config = load(file, ConsumeTransformProduceConfig, {"CHECKPOINT": "/tmp/checkpoint"})
    assert config.source.topics == ("flights",)
    assert config.source.max_offsets_per_trigger == 50_000


@pytest.mark.parametrize("job", ["consume_transform_produce", "delta_to_kafka", "kafka_to_delta"])
def test_the_example_of_each_job_is_a_config_file_of_it(job: str) -> None:
    """With its variables set, the file in conf/ is read as it is."""
    config = importlib.import_module(f"jobs.{job}").main.__self__.config
    load(Path(__file__).parents[3] / "conf" / f"{job}.yaml", config, {"TABLE": "/table", "CHECKPOINT": "/checkpoint"})
