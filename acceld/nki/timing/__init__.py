"""Model performance: how long a program takes, and why."""
