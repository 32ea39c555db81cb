"""Test the checks of results: programs with one mistake must be noticed, and equivalent programs must pass."""
