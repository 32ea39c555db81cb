"""Hold the commands of ``acceld``, one module each."""
