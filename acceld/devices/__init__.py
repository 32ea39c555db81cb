"""Run candidates on devices; each device has a folder of its own."""
