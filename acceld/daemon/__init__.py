"""The daemon: composition root, run queue, process."""
