"""Jail child processes, and test that the jail holds."""
