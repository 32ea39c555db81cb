"""Read the database. Each function takes a connection, which may be read-only."""
