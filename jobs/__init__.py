"""Runnable jobs, each a thin main over the library and each with a YAML in ``conf/``."""
