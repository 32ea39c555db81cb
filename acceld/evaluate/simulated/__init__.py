"""Evaluate candidates on the simulator: time their programs, and run them on data."""
