"""Jail child processes, and prove that the jail holds."""
