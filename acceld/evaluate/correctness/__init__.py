"""Correctness: data sets, references, tolerances and the gates."""
