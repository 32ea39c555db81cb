"""Hold the commands of ``acceld``, one module for each."""
