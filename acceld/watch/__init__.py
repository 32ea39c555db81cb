"""Watch mode: what a save of a kernel file changes, told within seconds; re-optimizing only when asked."""
