"""Read the database: functions of a read-only connection."""
