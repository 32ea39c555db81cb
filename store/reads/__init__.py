"""Reads: functions of a read-only connection."""
