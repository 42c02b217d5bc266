"""Kafka's error codes, those that the model answers with."""

from __future__ import annotations

OK, LOADING, NOT_AVAILABLE, MOVED = 0, 14, 15, 16
OUT_OF_ORDER, INVALID_EPOCH, INVALID_STATE, UNKNOWN_MAPPING = 45, 47, 48, 49
CONCURRENT, FENCED, ID_NOT_FOUND, ABORTABLE = 51, 90, 105, 120
