"""Hold widgets that do not depend on runs."""
