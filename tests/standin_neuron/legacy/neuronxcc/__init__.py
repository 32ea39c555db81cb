"""Stand-in for the package of the legacy compiler."""
