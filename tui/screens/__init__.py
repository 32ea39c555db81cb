"""One module a screen; each maps the folded state to widgets and keys to requests."""
