"""Evaluate candidates on the simulator."""
