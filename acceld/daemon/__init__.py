"""Run the daemon: build its parts, queue its runs, serve its process."""
