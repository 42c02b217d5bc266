"""Queries, copies, mirrors and ingests in a test's own session, and their transactions."""
