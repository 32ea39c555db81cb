"""Evaluation on the simulator."""
