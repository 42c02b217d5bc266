"""Decoding and encoding of mode ``registry`` alone, without Kafka and Spark, on one core."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from bench.drain import LEAST_CPU_S, Run
from bench.orders import DIFFERENT, SCHEMA, order, serialized
from bench.registry_queries import PREFIX, fastavro_decoder, fastavro_encoder
from bench.result import ModeResult, WrongResult
from bench.turns import BenchPlan, Say, multiple, take_turns
from spark_eos.pipelines.copy.transforming import CHUNK_OFFSETS
from spark_eos.pipelines.registry.decoding import reading
from spark_eos.pipelines.registry.encoding import writing
from spark_eos.pipelines.registry.schemas import Schema
from spark_eos.pipelines.registry.settings import registry_settings

ROWS = 8_000_000
#: Of the rows, those that fastavro takes: its time for each does not depend on their number.
FASTAVRO_SHARE = 0.05
#: So many rows at once, as copies have.
UNIT = CHUNK_OFFSETS


CODEC_CASES = ("decode", "encode")


@dataclass(frozen=True)
class Codec:
    """``run``: does the work once, for `UNIT` rows; ``share``: of the rows that a run has."""

    name: str
    run: Callable[[], object]
    share: float = 1.0


def measure_codec(plan: BenchPlan, result: ModeResult, registry: str, names: tuple[str, str], say: Say) -> None:
    """Add both cases to the result. ``names``: of ours, and of fastavro. Raises WrongResult where they differ."""
    for case, pair in zip(CODEC_CASES, _codecs(registry, *names), strict=True):
        if not plan.has(case):
            continue
        times = {codec.name: multiple(plan.rows(ROWS, UNIT) * codec.share, UNIT) // UNIT for codec in pair}
        contenders = {codec.name: partial(_timed, codec.run, times[codec.name]) for codec in pair}
        take_turns(plan, result, case, contenders, say)


def _codecs(registry: str, ours: str, fastavros: str) -> tuple[tuple[Codec, Codec], tuple[Codec, Codec]]:
    """Those that decode, and those that encode: ours and fastavro's, which have the same results."""
    topic = "codec"
    values = serialized(registry, topic) * (UNIT // DIFFERENT)
    records = [order(number) for number in range(DIFFERENT)] * (UNIT // DIFFERENT)
    settings = registry_settings(registry)
    decoding = reading(settings, f"{topic}-value")
    encoding = writing(settings, Schema("AVRO", SCHEMA), topic=topic)
    decode, encode = fastavro_decoder(), fastavro_encoder(values[0][:PREFIX])
    column = pa.array(values, pa.binary())
    rows = decoding.decode(column).rows
    if rows.to_pylist() != records or encoding.encode_all(rows).to_pylist() != values:
        raise WrongResult("orders were decoded or encoded otherwise than by fastavro")
    return (
        (
            Codec(ours, lambda: decoding.decode(column)),
            Codec(fastavros, lambda: [decode(value) for value in values], FASTAVRO_SHARE),
        ),
        (
            Codec(ours, lambda: encoding.encode_all(rows)),
            Codec(fastavros, lambda: [encode(record) for record in records], FASTAVRO_SHARE),
        ),
    )


def _timed(run: Callable[[], object], times: int) -> dict[str, Any]:
    """``rows_per_second`` is by processor time: rows for each second of one core."""
    begin = time.process_time()
    for _ in range(times):
        run()
    spent, rows = time.process_time() - begin, times * UNIT
    known = {} if spent < LEAST_CPU_S else {"rows_per_second": rows / spent, "client_core_us": spent / rows * 1e6}
    return asdict(Run(rows, times, rows, times, spent, **known))
