"""The second ring, built on the connector: copies, tables, schema registries, mirrors and ingests of files."""
