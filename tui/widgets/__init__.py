"""Hold widgets that know nothing of runs."""
