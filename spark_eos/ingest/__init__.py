"""Files to a topic, each file's rows exactly once: folder → splits → rows; what was taken is noted with each decision.

A micro-batch of an ingest is a write by the protocol of foreachBatch, of a query that is named after the ingest and the
topic (`owner.py`). docs/ingest.md says what users see of it.
"""
