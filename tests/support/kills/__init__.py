"""Queries and jobs as programs of their own, which tests hold at a failpoint, kill and start again."""
