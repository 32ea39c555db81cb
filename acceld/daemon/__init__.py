"""Run the daemon: composition root, run queue, process."""
