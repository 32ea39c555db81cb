"""Store the history in one database file with one writer and typed rows."""
