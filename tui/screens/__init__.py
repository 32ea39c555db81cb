"""Hold the screens, one module each. A screen maps the folded state to widgets, and keys to requests."""
