"""Hold the command line. A module that is slow to import is imported inside the command that needs it."""
