"""Predict how long a program takes on a chip, and what its latency consists of."""
