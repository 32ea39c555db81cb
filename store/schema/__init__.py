"""Define tables, views and migrations."""
