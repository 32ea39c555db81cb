"""Hold the parts of ``acceld doctor``: this machine, the settings, the database, the evaluator under attack."""
