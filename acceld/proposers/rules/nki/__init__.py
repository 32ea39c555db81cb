"""Rewrite rules for NKI kernels, both APIs."""
