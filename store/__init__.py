"""Keep the history of all runs in one SQLite file: one writer, many readers, typed records."""
