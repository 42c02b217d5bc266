"""Code that jobs share: config file → checks → session → query, with its lines, restarts and exit codes."""
