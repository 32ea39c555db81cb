"""Hold the command line. Modules with heavy imports are imported inside the command that needs them."""
