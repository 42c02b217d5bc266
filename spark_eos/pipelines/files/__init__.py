"""Files to a topic, the rows of each file exactly once: folder → splits → rows. Each decision notes its files.

A micro-batch of an ingest is written as within foreachBatch, by a query that is named after the ingest and the topic
(`run.py`). docs/ingest.md is the page for users.
"""
