"""The database: one file, one writer, typed rows."""
