"""The performance model: how long a program takes, and why."""
