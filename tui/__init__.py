"""Show the terminal UI, a client of the daemon."""
