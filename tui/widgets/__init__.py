"""Widgets that know nothing of runs."""
