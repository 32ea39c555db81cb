"""Widgets that do not depend on runs."""
