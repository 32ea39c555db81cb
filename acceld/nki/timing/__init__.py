"""Predict how long a program takes on a chip, and report what its latency consists of."""
