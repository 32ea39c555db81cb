"""The terminal UI: a client of the daemon."""
